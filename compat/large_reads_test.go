package compat_test

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"net/http"
	"sync"
	"testing"
)

// TestLargeReads reads a call of 50 MB with eight clients at a time, in each way that there is. The
// server's memory stays within bounds that do not depend on the length of the call: together the
// clients are sent many times as much.
func TestLargeReads(t *testing.T) {
	t.Parallel()
	const messages, text, clients, most = 64, 800_000, 8, 500 // MB
	s := start(t, "HEARDLOG_READ_MEMORY=67108864")
	id := s.join(t, "long", nil)
	for i := range messages {
		words := make([]byte, text/2)
		_, _ = rand.Read(words) // it never fails
		s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/messages", object{"role": []string{"user", "assistant"}[i%2], "content": hex.EncodeToString(words)}, nil)
	}
	for _, tt := range []struct {
		path string
		sent int // bytes of texts at least
	}{
		{"/snapshot", messages * text},
		{"/summarizable?keep_recent=0", messages * text},
		{"/messages?limit=1000", 2 << 20},
		{"/history?limit=all", 2 << 20},
		{"/turns", 0},
		{"/checks", 0},
	} {
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/agents/"+id+tt.path, http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := httpClient(t).Do(r) // whose answers are not kept
				if err != nil {
					t.Error(tt.path, err)
					return
				}
				defer func() { _ = resp.Body.Close() }()
				if n, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK || n < int64(tt.sent) {
					t.Errorf("%s: %d, %d bytes, error %v", tt.path, resp.StatusCode, n, err)
				}
			})
		}
		wg.Wait()
		if mb := s.memory(t, "VmHWM"); mb > most {
			t.Fatalf("after %s the server had %d MB, more than %d", tt.path, mb, most)
		} else {
			t.Logf("%d MB after %s", mb, tt.path)
		}
	}
	// A page that ends early says that more follows.
	var page struct {
		Messages   []message `json:"messages"`
		NextCursor string    `json:"next_cursor"`
	}
	read := 0
	for path := "/v1/agents/" + id + "/messages?limit=1000"; ; path = "/v1/agents/" + id + "/messages?limit=1000&cursor=" + page.NextCursor {
		page.NextCursor, page.Messages = "", nil
		s.call(t, http.StatusOK, "GET", path, nil, &page)
		if read += len(page.Messages); page.NextCursor == "" {
			break
		}
	}
	if read != messages {
		t.Errorf("the pages have %d messages, want %d", read, messages)
	}
}
