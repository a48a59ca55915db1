package llmadapter_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
)

// dialer counts connections, and reports those that our side has closed.
type dialer struct {
	n      atomic.Int64
	closed chan struct{}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.n.Add(1)
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return closeNotifier{conn, d.closed}, err
}

type closeNotifier struct {
	net.Conn
	closed chan struct{}
}

func (c closeNotifier) Close() error {
	err := c.Conn.Close()
	select {
	case c.closed <- struct{}{}:
	default:
	}
	return err
}

func newTransport(t *testing.T, roots *x509.CertPool) (*http.Transport, *dialer) {
	t.Helper()
	d := &dialer{closed: make(chan struct{}, 16)}
	p := llmadapter.NewTransport(d.dial, roots)
	t.Cleanup(p.CloseIdleConnections)
	return p, d
}

func post(t *testing.T, p http.RoundTripper, ctx context.Context, url, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return p.RoundTrip(req)
}

func mustRead(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// echo answers with the request's line, host and body, in the way that the path asks for.
func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	switch r.URL.Path {
	case "/empty":
		w.WriteHeader(http.StatusNoContent)
		return
	case "/close":
		w.Header().Set("Connection", "close")
	case "/early":
		w.WriteHeader(http.StatusEarlyHints)
	}
	text := r.Method + " " + r.RequestURI + " " + r.Header.Get("X-A") + " " + string(b)
	if r.URL.Path != "/chunked" {
		_, _ = io.WriteString(w, text)
		return
	}
	for _, c := range text {
		_, _ = io.WriteString(w, string(c))
		_ = http.NewResponseController(w).Flush()
	}
}

// Answers of every framing come whole, and connections are used again exactly where they may be.
func TestTransportExchanges(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(srv.Close)
	for path, want := range map[string]int64{"/sized?a=b": 1, "/chunked": 1, "/empty": 1, "/early": 1, "/close": 3} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			p, d := newTransport(t, nil)
			for range 3 {
				body := strings.Repeat("x", 70_000)
				res, err := post(t, p, t.Context(), srv.URL+path, body)
				if err != nil {
					t.Fatal(err)
				}
				if got := mustRead(t, res); path != "/empty" && got != "POST "+path+"  "+body {
					t.Errorf("got %.80q", got)
				}
			}
			if got := d.n.Load(); got != want {
				t.Errorf("%d connections, want %d", got, want)
			}
		})
	}
}

func TestTransportTLS(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(echo))
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	p, d := newTransport(t, roots)
	for range 2 {
		res, err := post(t, p, t.Context(), srv.URL+"/x", "hi")
		if err != nil {
			t.Fatal(err)
		}
		if got := mustRead(t, res); got != "POST /x  hi" || res.Proto != "HTTP/1.1" {
			t.Errorf("%s %q", res.Proto, got)
		}
	}
	if got := d.n.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
	strict, _ := newTransport(t, nil)
	if _, err := post(t, strict, t.Context(), srv.URL, ""); err == nil {
		t.Error("a certificate that nobody vouches for was taken")
	}
}

// raw serves connections by hand; each gets its number from 0.
func raw(t *testing.T, serve func(n int, c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(n, c, bufio.NewReader(c))
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// request reads one request without looking at it; false at the end.
func request(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// TestTransportStale has a server close a connection: one that is idle is replaced, one that closes
// when it has the request is an error. The request is not sent twice, since it may have been
// served.
func TestTransportStale(t *testing.T) {
	t.Parallel()
	url := raw(t, func(n int, c net.Conn, r *bufio.Reader) {
		if n < 2 && request(r) {
			_, _ = io.WriteString(c, ok)
		}
		if n == 0 {
			c.Close()
		} else if n == 1 {
			request(r) // then closes without an answer
		}
	})
	p, d := newTransport(t, nil)
	for i := range 2 {
		res, err := post(t, p, t.Context(), url, "hi")
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		mustRead(t, res)
		if i == 0 {
			<-d.closed // the transport has noticed
		}
	}
	if _, err := post(t, p, t.Context(), url, "hi"); err == nil || d.n.Load() != 2 {
		t.Errorf("%v after %d connections", err, d.n.Load())
	}
}

// TestTransportLateBytes has a server send a response without a request: it is not taken for the
// response to the next call.
func TestTransportLateBytes(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	url := raw(t, func(n int, c net.Conn, r *bufio.Reader) {
		for request(r) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"+strconv.Itoa(n))
			if n == 0 {
				<-read
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nANSWER")
			}
		}
	})
	p, d := newTransport(t, nil)
	for i := range 3 {
		res, err := post(t, p, t.Context(), url, "hi")
		if err != nil {
			t.Fatal(err)
		}
		want := "1"
		if i == 0 {
			want = "0"
		}
		if got := mustRead(t, res); got != want {
			t.Errorf("call %d was answered %q, want %q", i, got, want)
		}
		if i == 0 {
			close(read)
			<-d.closed // the transport has noticed
		}
	}
	if d.n.Load() != 2 {
		t.Errorf("%d connections, want 2: a silent one is used again", d.n.Load())
	}
}

// What no answer can be is an error and never an endless read.
func TestTransportBadAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"nothing":        "",
		"no HTTP":        "hello\r\n\r\n",
		"half a head":    "HTTP/1.1 200 OK\r\nContent-",
		"switching":      "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"only interim":   strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20),
		"endless head":   "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 1<<20),
		"half a body":    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"half a chunk":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
		"no final chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if request(r) {
					_, _ = io.WriteString(c, answer)
				}
			})
			p, _ := newTransport(t, nil)
			c := llmadapter.Client{Transport: p}
			res, err := c.Do(t.Context(), &llmadapter.Call{URL: url, Body: []byte("hi")})
			if err == nil {
				_, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A server that answers before it has read the body is heard.
func TestTransportEarlyAnswer(t *testing.T) {
	t.Parallel()
	url := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		_, _ = r.ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(io.Discard, r)
	})
	p, _ := newTransport(t, nil)
	res, err := post(t, p, t.Context(), url, strings.Repeat("x", 1<<20))
	if err != nil || res.StatusCode != 413 {
		t.Fatalf("%v %v", res, err)
	}
	res.Body.Close()
}

// Ending the context closes the connection at once, in each phase, and the cause comes back.
func TestTransportCancel(t *testing.T) {
	t.Parallel()
	cause := errors.New("because")
	for name, answer := range map[string]string{"before the head": "", "within the body": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, gone := make(chan struct{}), make(chan struct{})
			url := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
				request(r)
				_, _ = io.WriteString(c, answer)
				close(asked)
				_, _ = r.ReadByte() // until the other side closes
				close(gone)
			})
			p, _ := newTransport(t, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-asked
				cancel(cause)
			}()
			res, err := post(t, p, ctx, url, "hi")
			if answer != "" {
				if err != nil && !errors.Is(err, cause) {
					t.Fatal(err)
				}
				if err == nil {
					if _, rerr := io.ReadAll(res.Body); rerr == nil {
						t.Error("a half answer was read as a whole one")
					}
					res.Body.Close()
				}
			} else if !errors.Is(err, cause) {
				t.Errorf("%v, want the cause", err)
			}
			<-gone
		})
	}
}

// A body that is closed before its end closes its connection: what is left of it must not be the
// next answer.
func TestTransportCloseEarly(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(srv.Close)
	p, d := newTransport(t, nil)
	for range 2 {
		res, err := post(t, p, t.Context(), srv.URL, strings.Repeat("x", 100_000))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(res.Body, make([]byte, 10))
		res.Body.Close()
	}
	if got := d.n.Load(); got != 2 {
		t.Errorf("%d connections, want 2", got)
	}
}

// Headers cannot smuggle lines, whoever set them.
func TestTransportHeaderInjection(t *testing.T) {
	t.Parallel()
	p, d := newTransport(t, nil)
	for name, h := range map[string]http.Header{"value": {"X-A": {"b\r\nX-B: c"}}, "name": {"X-A: b\r\nX-B": {"c"}}, "space": {"X A": {"c"}}, "empty": {"": {"c"}}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = h
		if res, err := p.RoundTrip(req); err == nil || d.n.Load() != 0 {
			t.Errorf("%s: sent", name)
			res.Body.Close()
		}
	}
}

// The limit for the connection holds for the dial and for TLS, and says so.
func TestClientConnectTimeout(t *testing.T) {
	t.Parallel()
	silent := raw(t, func(_ int, _ net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	refuse := func(context.Context, string, string) (net.Conn, error) {
		return nil, fault.New(fault.Forbidden, "this address is not allowed")
	}
	for name, tt := range map[string]struct {
		rt   http.RoundTripper
		url  string
		code fault.Code
		text string
	}{
		"dial":         {llmadapter.NewTransport(hang, nil), "http://h/", fault.UpstreamTimeout, "in time"},
		"dial for TLS": {llmadapter.NewTransport(hang, nil), "https://h/", fault.UpstreamTimeout, "in time"},
		"TLS":          {llmadapter.NewTransport(new(net.Dialer).DialContext, nil), strings.Replace(silent, "http:", "https:", 1), fault.UpstreamTimeout, "in time"},
		"guard":        {llmadapter.NewTransport(refuse, nil), "http://h/", fault.Upstream, "llm.url: this address is not allowed"},
		"foreign host": {llmadapter.NewTransport(refuse, nil), "http://bücher.example/", fault.Upstream, "not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := llmadapter.Client{Transport: tt.rt}
			connect := time.Minute
			if tt.code == fault.UpstreamTimeout {
				connect = 50 * time.Millisecond
			}
			_, err := c.Do(t.Context(), &llmadapter.Call{URL: tt.url, Body: []byte("{}"), Connect: connect})
			if fault.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s %v", fault.CodeOf(err), err)
			}
		})
	}
}
