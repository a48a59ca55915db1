// Package blob keeps files outside of the store: in a folder, or in a bucket of a service that
// speaks S3. A file appears only when it is whole.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// Store keeps files under names without a slash, except those that PutBytes writes.
type Store interface {
	// Put writes a file, which appears under its name when Put has returned nil. It replaces no
	// existing file.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// PutBytes writes a file that fits into memory, under a name that may have one slash. It may
	// replace a file.
	PutBytes(ctx context.Context, name string, b []byte) error
	// Open opens a file for reading, or returns ErrNone if there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the names with that prefix, in order.
	List(ctx context.Context, prefix string) ([]string, error)
	// Each calls fn with the name of every file that PutBytes wrote under a name with a slash, in
	// no order. An error of fn ends the call and is returned as it is.
	Each(ctx context.Context, fn func(name string) error) error
	// Remove removes a file. It is not an error if there is none.
	Remove(ctx context.Context, name string) error
	// Sweep removes what a killed process has left of writing such files, if it is older than a
	// day, and returns how many that were.
	Sweep(ctx context.Context, such func(name string) bool) (int, error)
	// String returns the place, without secrets.
	String() string
}

// ErrNone means that there is no such file.
var ErrNone = errors.New("there is no such file")

// errThere returns the error of a name that is taken.
func errThere(name string) error { return fmt.Errorf("%s is there already", name) }

// Open returns the store of a place: "s3://bucket/prefix?endpoint=…&region=…&path-style=…", or a
// folder, which is created if it does not exist. getenv looks up the AWS_… variables that a bucket
// needs.
func Open(place string, getenv func(string) string) (Store, error) {
	if !IsURL(place) {
		return newFolder(place), nil
	}
	u, err := url.Parse(place)
	if err != nil {
		// Without the cause, which may quote a secret.
		return nil, errors.New("the URL of the bucket cannot be read")
	}
	if u.Scheme != "s3" {
		return nil, fmt.Errorf("unsupported scheme %s: use a folder or s3://bucket/prefix", u.Scheme)
	}
	return newBucket(u, getenv)
}

// IsURL reports whether a place is a URL and not a path.
func IsURL(place string) bool { return strings.Contains(place, "://") }

// Split splits a place's path into the store and the name of a file in it.
func Split(place string) (store, name string) {
	rest, query := place, ""
	if IsURL(place) {
		rest, query, _ = strings.Cut(place, "?")
		if query != "" {
			query = "?" + query
		}
	}
	i := strings.LastIndexByte(rest, '/')
	if i < 0 {
		return ".", rest
	}
	if i == 0 {
		return "/", rest[1:]
	}
	return rest[:i] + query, rest[i+1:]
}
