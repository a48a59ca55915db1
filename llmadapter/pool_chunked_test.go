package llmadapter_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// rawServer answers every request on every connection with the same bytes, a few at a time; after an answer that is no HTTP/1.1 any more
// it closes the connection.
func rawServer(t *testing.T, answer string, piece int, last bool) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					for rest := answer; rest != ""; {
						n := min(piece, len(rest))
						if _, err := c.Write([]byte(rest[:n])); err != nil {
							return
						}
						rest = rest[n:]
					}
					if last {
						return
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// TestChunked reads bodies in chunks, whole ones and broken ones, as one piece and in small ones.
func TestChunked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789abcdef", 4<<10)
	for _, tt := range []struct {
		name, body, want string
		broken           bool
	}{
		{"one", "5\r\nhello\r\n0\r\n\r\n", "hello", false},
		{"several, upper case", "A\r\n0123456789\r\n0000b\r\nhello world\r\n0\r\n\r\n", "0123456789hello world", false},
		{"none", "0\r\n\r\n", "", false},
		{"longer than a buffer", "10000\r\n" + long + "\r\n2\r\nok\r\n0\r\n\r\n", long + "ok", false},
		{"extensions", "5;a=b;c=\"d\"\r\nhello\r\n1 \r\n!\r\n0;last\r\n\r\n", "hello!", false},
		{"trailer", "5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n", "hello", false},
		{"line feeds alone behind sizes", "5\nhello\r\n0\n\n", "hello", false},
		{"cut within data", "5\r\nhel", "hel", true},
		{"cut before the last chunk", "5\r\nhello\r\n", "hello", true},
		{"cut before the trailer's end", "5\r\nhello\r\n0\r\n", "hello", true},
		{"no size", "\r\nhello\r\n0\r\n\r\n", "", true},
		{"no number", "5\r\nhello\r\nxyz\r\n", "hello", true},
		{"size too large", "ffffffffffffffffff\r\nhello", "", true},
		{"data longer than its size", "3\r\nhello\r\n0\r\n\r\n", "hel", true},
		{"extension without end", "5;" + long, "", true},
		{"trailer without end", "5\r\nhello\r\n0\r\nX: " + long, "hello", true},
	} {
		for _, piece := range []int{1 << 20, 7, 1} {
			if piece < 7 && len(tt.body) > 1000 {
				continue
			}
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				url := rawServer(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+tt.body, piece, tt.broken)
				p, d := newPool(t, nil)
				for range 2 {
					res, err := post(t, p, t.Context(), url, "{}")
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(res.Body)
					_ = res.Body.Close()
					if string(got) != tt.want || (err != nil) != tt.broken {
						t.Fatalf("pieces of %d: %.40q and %v", piece, got, err)
					}
					if errors.Is(err, io.EOF) {
						t.Errorf("%v can be taken for the end of the answer", err)
					}
				}
				if want := int64(1); !tt.broken && d.n.Load() != want {
					t.Errorf("%d connections for two calls, want %d", d.n.Load(), want)
				}
			})
		}
	}
}

// TestChunkedReadsAll checks that chunks that have come together are given together: each that is passed on costs a write.
func TestChunkedReadsAll(t *testing.T) {
	t.Parallel()
	url := rawServer(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+strings.Repeat("5\r\nhello\r\n", 100)+"0\r\n\r\n", 1<<20, false)
	p, _ := newPool(t, nil)
	res, err := post(t, p, t.Context(), url, "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	reads, b := 0, make([]byte, 4<<10)
	for n := 0; ; reads++ {
		k, err := res.Body.Read(b)
		if n += k; errors.Is(err, io.EOF) {
			if n != 500 {
				t.Fatalf("%d bytes", n)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if reads > 3 { // one answer of 1.1 KB may come in parts, but not in a hundred
		t.Errorf("%d reads for 100 chunks that were sent at once", reads)
	}
}

// TestChunkedBehind checks that a connection that says more than the answer is not used again.
func TestChunkedBehind(t *testing.T) {
	t.Parallel()
	url := rawServer(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", 1<<20, false)
	p, d := newPool(t, nil)
	for n := range int64(3) {
		res, err := post(t, p, t.Context(), url, "{}")
		if err != nil {
			t.Fatal(err)
		}
		if got := mustRead(t, res); got != "ok" {
			t.Fatalf("%q", got)
		}
		if d.n.Load() != n+1 {
			t.Fatalf("%d connections for %d calls", d.n.Load(), n+1)
		}
	}
}

// TestChunkedWaits checks that a read ends when its call does, though no buffer waits with it.
func TestChunkedWaits(t *testing.T) {
	t.Parallel()
	url := rawServer(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", 1<<20, false)
	p, _ := newPool(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := post(t, p, ctx, url, "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b := make([]byte, 10)
	if n, err := io.ReadFull(res.Body, b[:2]); err != nil {
		t.Fatal(n, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := res.Body.Read(b)
		done <- err
	}()
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the read goes on")
	}
}
