package archive_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/store/archive"
)

// bucket is a server that speaks S3, and fails on demand.
type bucket struct {
	inner http.Handler
	fault atomic.Value // of func(w, r) (answered bool)
	calls atomic.Int64
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.calls.Add(1)
	if f, ok := b.fault.Load().(func(http.ResponseWriter, *http.Request) bool); ok && f != nil && f(w, r) {
		return
	}
	b.inner.ServeHTTP(w, r)
}

func (b *bucket) fails(f func(w http.ResponseWriter, r *http.Request) bool) { b.fault.Store(f) }

// newBucket returns a fixture whose archive is in a bucket.
func newBucket(t testing.TB, messages int) (*fixture, *bucket) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	b := &bucket{inner: gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0)).Server()}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	in, err := blob.Open("s3://bucket/calls?region=r-1&path-style=true&endpoint="+srv.URL, func(name string) string {
		return map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, messages)
	f.place.Store = in
	return f, b
}

// TestBucket: a call moves into a bucket, is read from there and comes back.
func TestBucket(t *testing.T) {
	t.Parallel()
	f, b := newBucket(t, 41)
	f.move(true)
	f.wantAll(true)
	b.calls.Store(0)
	f.wantAll(true)
	if n := b.calls.Load(); n > 2 {
		t.Errorf("a read took %d requests", n)
	}
	f.say("late")
	f.want = append(f.want, f.messages()[41])
	f.wantAll(false)
	f.move(true)
	f.wantAll(true)
	if err := f.s.Erase(t.Context(), "p", f.call.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.k.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestBucketFails: a bucket that refuses, lies or forgets takes no call. To readers it is an error.
func TestBucketFails(t *testing.T) {
	t.Parallel()
	refuse := func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>", http.StatusForbidden)
		return true
	}
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"refuses": refuse,
		"accepts and keeps nothing": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut {
				return false
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("ETag", `"00000000000000000000000000000000"`)
			return true
		},
		"returns other bytes": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "-") {
				return false
			}
			w.Header().Set("ETag", `"00000000000000000000000000000000"`)
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			_, _ = io.WriteString(w, "heardlog call 1\nand something else")
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, b := newBucket(t, 5)
			b.fails(fault)
			if done, err := f.k.Move(t.Context(), f.call.Ref()); done || err == nil {
				t.Fatalf("%t, %v", done, err)
			}
			b.fails(nil)
			f.wantAll(false)
			f.move(true)
			f.wantAll(true)
			b.fails(refuse)
			s := archive.NewStore(f.s.Rows(), archive.New(f.place))
			if err := s.Thaw(t.Context(), f.call.Ref()); err == nil || !strings.Contains(err.Error(), "archive") {
				t.Errorf("a call comes back from a bucket that refuses: %v", err)
			}
			b.fails(nil)
			f.wantAll(true)
		})
	}
}
