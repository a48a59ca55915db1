package tests

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestIngestHeld: callers without a secret may hold only a limited number of bodies open at a time,
// until they disconnect.
func TestIngestHeld(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_INGEST_SECRETS=default="+ingestSecret, "HEARDLOG_RETENTION=0")
	hold := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := fmt.Fprintf(c, "POST /v1/ingest/agora HTTP/1.1\r\nHost: localhost\r\nAgora-Signature-V2: %s\r\nContent-Length: %d\r\n\r\n{", strings.Repeat("a", 64), 8<<20); err != nil {
			t.Fatal(err)
		}
		return c
	}
	var held []net.Conn
	for range 8 { // of 8 MiB: as much as is allowed
		held = append(held, hold())
	}
	body := agoraCall("A42")[101]
	becomes := func(status int) {
		t.Helper()
		waitFor(t, fmt.Sprint("an answer ", status), func() bool { return s.ingest("", ingestSecret, body).status == status })
	}
	becomes(http.StatusServiceUnavailable)
	for _, c := range held {
		c.Close()
	}
	becomes(http.StatusOK)
}
