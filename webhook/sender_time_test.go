package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

// TestSendTimeLimits checks the limits of an attempt, to the second: the receiver is at the other
// end of a pipe, and the clock is synctest's.
func TestSendTimeLimits(t *testing.T) {
	t.Parallel()
	readRequest := func(c net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.Copy(io.Discard, req.Body)
		}
	}
	drip := func(c net.Conn, s string, every time.Duration) {
		for _, b := range []byte(s) {
			time.Sleep(every) // fake time: the receiver is slow, the test is not
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
		}
	}
	for _, tt := range []struct {
		name   string
		url    string
		serve  func(net.Conn) // nil: the connection is never made
		body   []byte
		took   time.Duration
		status int
		class  string
		kept   string
	}{
		{"no connection", "http://h.test", nil, nil, webhook.DialTimeout, 0, webhook.ClassConnectTO, ""},
		{"no handshake", "https://h.test", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, nil, webhook.TLSTimeout, 0, webhook.ClassTLS, ""},
		{"never answers", "http://h.test", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, nil, webhook.HeaderTimeout, 0, webhook.ClassTimeout, ""},
		{"slow headers", "http://h.test", func(c net.Conn) {
			readRequest(c)
			drip(c, "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("b", 100), time.Second)
		}, nil, webhook.HeaderTimeout, 0, webhook.ClassTimeout, ""},
		{"answers too late", "http://h.test", func(c net.Conn) {
			readRequest(c)
			time.Sleep(webhook.HeaderTimeout + time.Second)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}, nil, webhook.HeaderTimeout, 0, webhook.ClassTimeout, ""},
		{"does not read what we send", "http://h.test", func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			<-time.After(time.Hour)
		}, bytes.Repeat([]byte("x"), 1<<20), webhook.TotalTimeout, 0, webhook.ClassTimeout, ""},
		{"a byte a second, taken", "http://h.test", func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			drip(c, strings.Repeat("b", 1000), time.Second)
		}, nil, webhook.TotalTimeout, 200, "", strings.Repeat("b", 19)},
		{"a byte a second, refused", "http://h.test", func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\n")
			drip(c, strings.Repeat("b", 1000), time.Second)
		}, nil, webhook.TotalTimeout, 500, webhook.Class5xx, strings.Repeat("b", 19)},
		{"in time", "http://h.test", func(c net.Conn) {
			readRequest(c)
			time.Sleep(webhook.HeaderTimeout - time.Second)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}, nil, webhook.HeaderTimeout - time.Second, 200, "", "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var receivers sync.WaitGroup
				s, err := webhook.NewSender(webhook.SenderConfig{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
					if tt.serve == nil {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					ours, theirs := net.Pipe()
					receivers.Go(func() {
						defer theirs.Close()
						tt.serve(theirs)
					})
					return ours, nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				d := delivery(tt.url)
				if tt.body != nil {
					d.Body = tt.body
				}
				start := time.Now()
				o := s.Send(t.Context(), d)
				took := time.Since(start)
				if took < tt.took || took > tt.took+100*time.Millisecond || o.DurationMS != took.Milliseconds() {
					t.Errorf("took %s (%d ms in the record), want %s", took, o.DurationMS, tt.took)
				}
				if o.Status != tt.status || o.ErrorClass != tt.class || len(o.Response)-len(tt.kept) > 1 || !strings.HasPrefix(string(o.Response), tt.kept) {
					t.Errorf("status %d class %q %q, kept %q", o.Status, o.ErrorClass, o.Error, o.Response)
				}
				if took >= s.Lease()-5*time.Second {
					t.Errorf("a lease of %s is too short", s.Lease())
				}
				s.Close()
				receivers.Wait()
			})
		})
	}
}
