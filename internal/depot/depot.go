// Package depot keeps files in a place outside: a folder, or a bucket of a store that speaks S3. A file is there whole or not at all.
package depot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// Depot keeps files under names without a slash.
type Depot interface {
	// Put writes a file. It is there under its name when Put has returned nil, and never before it is whole; it replaces nothing that is there.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Open gives a file to be read; ErrNone if there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// List gives the names that begin so, in order.
	List(ctx context.Context, prefix string) ([]string, error)
	// Remove takes a file away; one that is not there is no error.
	Remove(ctx context.Context, name string) error
	// Sweep takes away what writing such files has left when its process was killed, as far as it is older than a day, and says how much that was.
	Sweep(ctx context.Context, such func(name string) bool) (int, error)
	// String says where it is, without secrets.
	String() string
}

// ErrNone tells that there is no such file.
var ErrNone = errors.New("there is no such file")

// errThere tells that the name is taken.
func errThere(name string) error { return fmt.Errorf("%s is there already", name) }

// Open gives the depot of a place: "s3://bucket/prefix?endpoint=…&region=…&path-style=…", or a folder, which is made if it is not there. getenv has the AWS_…
// variables that a bucket needs.
func Open(place string, getenv func(string) string) (Depot, error) {
	if !IsURL(place) {
		return newFolder(place), nil
	}
	u, err := url.Parse(place)
	if err != nil {
		return nil, errors.New("the URL of the bucket cannot be read") // it may hold what is nobody's business
	}
	if u.Scheme != "s3" {
		return nil, fmt.Errorf("%s:// is no place for files: a folder, or s3://bucket/prefix", u.Scheme)
	}
	return newBucket(u, getenv)
}

// IsURL tells whether a place is a URL and no path.
func IsURL(place string) bool { return strings.Contains(place, "://") }

// Split takes the last part of a place's path off: the depot, and the name of a file in it.
func Split(place string) (depot, name string) {
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
