package llmadapter_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/heardlog/heardlog/llmadapter"
)

// TestBodyIsFreeOnceAnswered has an upstream answer before it has read the question, and the caller use the question's memory for
// something else then: the upstream must get what was asked. The host is one that a Pool leaves to its fallback.
func TestBodyIsFreeOnceAnswered(t *testing.T) {
	t.Parallel()
	for name, transport := range map[string]func(func(context.Context, string, string) (net.Conn, error)) http.RoundTripper{
		"fallback of a pool": func(dial func(context.Context, string, string) (net.Conn, error)) http.RoundTripper {
			return llmadapter.NewPool(dial, nil)
		},
		"transport of net/http": func(dial func(context.Context, string, string) (net.Conn, error)) http.RoundTripper {
			return llmadapter.NewTransport(dial)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far := net.Pipe()
			defer far.Close()
			c := llmadapter.Client{Transport: transport(func(context.Context, string, string) (net.Conn, error) { return near, nil })}
			const size = 1 << 20
			body := bytes.Repeat([]byte("a"), size)
			answered, got := make(chan struct{}), make(chan []byte, 1)
			go func() {
				defer close(got)
				br := bufio.NewReader(far)
				req, err := http.ReadRequest(br)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"); err != nil {
					t.Error(err)
					return
				}
				<-answered
				b, err := io.ReadAll(req.Body)
				if err != nil {
					t.Error(err)
				}
				got <- b
				if _, err := io.WriteString(far, "done"); err != nil {
					t.Error(err)
				}
			}()
			res, err := c.Do(t.Context(), &llmadapter.Call{URL: "http://bücher.example/v1/chat/completions", Body: body})
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			for i := range body {
				body[i] = 'b'
			}
			close(answered)
			if _, err := io.ReadAll(res.Body); err != nil {
				t.Error(err)
			}
			if b := <-got; len(b) != size || bytes.IndexByte(b, 'b') >= 0 {
				t.Errorf("the upstream got %d bytes, the first changed at %d", len(b), bytes.IndexByte(b, 'b'))
			}
		})
	}
}
