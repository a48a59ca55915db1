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

// TestEarlyAnswer has an upstream answer before it has read the request: it still gets all of it.
func TestEarlyAnswer(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	transport := llmadapter.NewTransport(func(context.Context, string, string) (net.Conn, error) { return near, nil }, nil)
	c := llmadapter.Client{Transport: transport}
	const size = 1 << 20
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
	res, err := c.Do(t.Context(), &llmadapter.Call{
		URL: "http://bücher.example/v1/chat/completions", Body: bytes.Repeat([]byte("a"), size),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	close(answered)
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Error(err)
	}
	if b := <-got; len(b) != size {
		t.Errorf("the upstream got %d bytes", len(b))
	}
}
