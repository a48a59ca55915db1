package llmadapter_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/llmadapter"
)

// http2Server starts an upstream that speaks HTTP/2 and allows so many streams a connection.
func http2Server(t *testing.T, streams int, h http.HandlerFunc) (url string, roots *x509.CertPool) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots = x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return srv.URL, roots
}

// stream sends the events "begun", then, when end is closed, "over". It reports calls that were
// cancelled.
func stream(end <-chan struct{}, canceled chan<- string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: begun\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-end:
			fmt.Fprint(w, "data: over\n\n")
		case <-r.Context().Done():
			canceled <- string(name)
		}
	}
}

// TestHTTP2 streams over one connection. Cancelling a call ends its stream at the upstream and
// leaves the others alone.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	end, canceled := make(chan struct{}), make(chan string, 8)
	url, roots := http2Server(t, 100, stream(end, canceled))
	d := &dialer{closed: make(chan struct{}, 16)}
	transport := llmadapter.NewTransport(d.dial, roots)
	t.Cleanup(transport.CloseIdleConnections)
	c := llmadapter.Client{Transport: transport}

	call := func(ctx context.Context, name string) (*http.Response, *bufio.Reader) {
		res, err := c.Do(ctx, &llmadapter.Call{URL: url, Body: []byte(name), Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(res.Body)
		if line, err := r.ReadString('\n'); err != nil || line != "data: begun\n" || res.ProtoMajor != 2 {
			t.Fatalf("%s %q %v", res.Proto, line, err)
		}
		return res, r
	}
	staying, rest := call(t.Context(), "staying")
	defer staying.Body.Close()
	ctx, cancel := context.WithCancel(t.Context())
	leaving, _ := call(ctx, "leaving")
	defer leaving.Body.Close()
	cancel()
	if name := <-canceled; name != "leaving" {
		t.Errorf("the upstream saw %s end", name)
	}
	close(end)
	if b, err := io.ReadAll(rest); err != nil || string(b) != "\ndata: over\n\n" {
		t.Errorf("the other stream: %q %v", b, err)
	}
	if d.n.Load() != 1 {
		t.Errorf("%d connections, want 1", d.n.Load())
	}
}

// TestHTTP2StreamLimit opens more streams than the upstream allows on one connection: none waits
// for another to end.
func TestHTTP2StreamLimit(t *testing.T) {
	t.Parallel()
	end, canceled := make(chan struct{}), make(chan string, 8)
	url, roots := http2Server(t, 2, stream(end, canceled))
	transport, _ := newTransport(t, roots)
	c := llmadapter.Client{Transport: transport}
	var begun, over sync.WaitGroup
	for range 7 {
		begun.Add(1)
		over.Go(func() {
			res, err := c.Do(t.Context(), &llmadapter.Call{URL: url, Body: []byte("{}"), Stream: true})
			begun.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if b, err := io.ReadAll(res.Body); err != nil || string(b) != "data: begun\n\ndata: over\n\n" {
				t.Errorf("%q %v", b, err)
			}
		})
	}
	begun.Wait() // all have a response while all are open
	close(end)
	over.Wait()
}

// TestHTTP2Guarded reaches an HTTP/2 upstream through the guard of addresses, or does not.
func TestHTTP2Guarded(t *testing.T) {
	t.Parallel()
	url, roots := http2Server(t, 100, echo)
	for _, allow := range []bool{true, false} {
		g := guard.New(guard.Options{AllowLoopback: allow})
		transport := llmadapter.NewTransport(g.DialContext, roots)
		t.Cleanup(transport.CloseIdleConnections)
		c := llmadapter.Client{Transport: transport}
		res, err := c.Do(t.Context(), &llmadapter.Call{URL: url + "/x", Body: []byte("hi")})
		if !allow {
			if fault.CodeOf(err) != fault.Upstream {
				t.Errorf("a loopback address was called: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := mustRead(t, res); got != "POST /x  hi" || res.ProtoMajor != 2 {
			t.Errorf("%s %q", res.Proto, got)
		}
	}
}
