package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// partSize is how many bytes are sent at a time, and held in memory meanwhile. With the 10,000
// parts that S3 allows, a file may have 312 GiB.
const partSize = 32 << 20

// bucket is the part of a bucket below a prefix. A file is sent in parts, which S3 joins when all
// have arrived.
type bucket struct {
	c            *minio.Client
	name, prefix string // the prefix ends with a slash, or is empty
	at           string
}

// errUpload is the error of writing after the upload has failed.
var errUpload = errors.New("the upload has ended")

func newBucket(u *url.URL, getenv func(string) string) (*bucket, error) {
	q := u.Query()
	for name := range q {
		if name != "endpoint" && name != "region" && name != "path-style" {
			return nil, fmt.Errorf("%q is nothing that the URL of a bucket may say: endpoint, region and path-style are", name)
		}
	}
	if u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, errors.New("the URL of a bucket has the form s3://bucket/prefix?endpoint=URL&region=NAME; keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	id, secret := getenv("AWS_ACCESS_KEY_ID"), getenv("AWS_SECRET_ACCESS_KEY")
	if id == "" || secret == "" {
		return nil, errors.New("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are required for a bucket")
	}
	first := func(list ...string) string {
		for _, s := range list {
			if s != "" {
				return s
			}
		}
		return ""
	}
	host, secure := first(q.Get("endpoint"), getenv("AWS_ENDPOINT_URL_S3"), getenv("AWS_ENDPOINT_URL"), "s3.amazonaws.com"), true
	if IsURL(host) {
		e, err := url.Parse(host)
		if err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https" || strings.Trim(e.Path, "/") != "" || e.RawQuery != "" || e.User != nil {
			return nil, errors.New("endpoint: must be http://host:port or https://host:port")
		}
		host, secure = e.Host, e.Scheme == "https"
	}
	look := minio.BucketLookupAuto
	if s := q.Get("path-style"); s != "" {
		path, err := strconv.ParseBool(s)
		if err != nil {
			return nil, fmt.Errorf("path-style: %q is neither true nor false", s)
		}
		if look = minio.BucketLookupDNS; path {
			look = minio.BucketLookupPath
		}
	}
	c, err := minio.New(host, &minio.Options{
		Creds:  credentials.NewStaticV4(id, secret, getenv("AWS_SESSION_TOKEN")),
		Secure: secure, Region: first(q.Get("region"), getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION")), BucketLookup: look,
		MaxRetries: 5, // some seconds: a scheduled backup runs again anyway
	})
	if err != nil {
		return nil, err
	}
	b := &bucket{c: c, name: u.Host, prefix: strings.Trim(u.Path, "/")}
	b.at = "s3://" + b.name + "/" + b.prefix
	if b.prefix != "" {
		b.prefix += "/"
	}
	return b, nil
}

func (b *bucket) String() string { return b.at }

func (b *bucket) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	key := b.prefix + name
	if _, err := b.c.StatObject(ctx, b.name, key, minio.StatObjectOptions{}); err == nil {
		return errThere(b.at + "/" + name)
	} else if !missing(err) {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(w)
		_ = w.CloseWithError(err) // nil is the end of the file
		written <- err
	}()
	// Each part carries its MD5, which every server of this kind checks. Not all accept bodies that
	// are signed in chunks.
	_, err := b.c.PutObject(ctx, b.name, key, r, -1, minio.PutObjectOptions{PartSize: partSize, ContentType: "application/octet-stream", SendContentMd5: true, DisableContentSha256: true})
	_ = r.CloseWithError(errUpload)
	if wrote := <-written; wrote != nil && !errors.Is(wrote, errUpload) {
		err = wrote // the error of the upload only repeats it
	}
	if err == nil {
		return nil
	}
	// Parts that were sent cost money until the upload is aborted.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer stop()
	_ = b.c.RemoveIncompleteUpload(ctx, b.name, key)
	return err
}

func (b *bucket) PutBytes(ctx context.Context, name string, body []byte) error {
	_, err := b.c.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(body), int64(len(body)),
		minio.PutObjectOptions{ContentType: "application/octet-stream", SendContentMd5: true, DisableContentSha256: true, DisableMultipart: true})
	return err
}

func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	o, err := b.c.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err == nil {
		_, err = o.Stat() // GetObject has sent no request yet
	}
	if missing(err) {
		err = ErrNone
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (b *bucket) List(ctx context.Context, prefix string) (out []string, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing
	defer cancel()
	for o := range b.c.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix}) {
		if o.Err != nil {
			return nil, o.Err
		}
		if name := strings.TrimPrefix(o.Key, b.prefix); !strings.Contains(name, "/") {
			out = append(out, name)
		}
	}
	return out, ctx.Err()
}

func (b *bucket) Each(ctx context.Context, fn func(string) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends the listing
	defer cancel()
	for o := range b.c.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true}) {
		if o.Err != nil {
			return o.Err
		}
		if name := strings.TrimPrefix(o.Key, b.prefix); strings.Contains(name, "/") {
			if err := fn(name); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (b *bucket) Remove(ctx context.Context, name string) error {
	return b.c.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
}

func (b *bucket) Sweep(ctx context.Context, such func(string) bool) (n int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for u := range b.c.ListIncompleteUploads(ctx, b.name, b.prefix, true) {
		if u.Err != nil {
			return n, u.Err
		}
		if !such(strings.TrimPrefix(u.Key, b.prefix)) || time.Since(u.Initiated) < partAge {
			continue
		}
		if err := b.c.RemoveIncompleteUpload(ctx, b.name, u.Key); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// missing reports whether the error means that a file does not exist.
func missing(err error) bool {
	return err != nil && minio.ToErrorResponse(err).StatusCode == http.StatusNotFound && minio.ToErrorResponse(err).Code != "NoSuchBucket"
}
