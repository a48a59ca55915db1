package main

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// upstream is a fake LLM, as simple as net/http allows, so that the proxies are what is measured.
// The query of the URL controls the answer: chunks (0 is an answer in one piece), gap_us between
// chunks or in the middle of that piece, first_us before the first byte, stamp=1 for a time in each
// chunk, or words for a burst of so many words that differ with the request.
type upstream struct {
	mu sync.Mutex
	// When the end of the call with an X-Request-Id was noticed; zero while it runs.
	seen map[string]time.Time
}

// maxSeen limits how many cancelled calls are kept.
const maxSeen = 10_000

// The pieces of an answer: a chunk of about 220 bytes, or an answer in one piece of about 1.2 KB.
const (
	upstreamChunk = `data: {"id":"chatcmpl-7f3c9e2ab41d","object":"chat.completion.chunk","created":1780000000,"model":"bench-1","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	upstreamEnd   = `data: {"id":"chatcmpl-7f3c9e2ab41d","object":"chat.completion.chunk","created":1780000000,"model":"bench-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
)

// stampMark comes before the Unix nanoseconds of a stamped chunk.
const stampMark = "sent at "

func upstreamWhole() []byte {
	return []byte(`{"id":"chatcmpl-7f3c9e2ab41d","object":"chat.completion","created":1780000000,"model":"bench-1","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("Thursday at two is free. ", 10) + `","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":812,"completion_tokens":61,"total_tokens":873,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0}},"x_vendor":"` +
		strings.Repeat("0123456789abcdef", 32) + `"}`)
}

func newUpstream() http.Handler {
	u := &upstream{seen: map[string]time.Time{}}
	whole := upstreamWhole()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { u.chat(w, r, whole) })
	mux.HandleFunc("GET /seen", u.when)
	return mux
}

func (u *upstream) chat(w http.ResponseWriter, r *http.Request, whole []byte) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	q := r.URL.Query()
	if id := r.Header.Get("X-Request-Id"); strings.HasPrefix(id, "cancel-") {
		u.note(id, time.Time{})
		defer func() {
			if r.Context().Err() != nil {
				u.note(id, time.Now())
			}
		}()
	}
	if !pause(r, number(q, "first_us")) {
		return
	}
	if n := number(q, "words"); n > 0 {
		w.Header().Set("Content-Type", "text/event-stream")
		for i, word := range spoken(body, n) {
			if i > 0 {
				word = " " + word
			}
			_, _ = io.WriteString(w, strings.Replace(upstreamChunk, " word", word, 1))
		}
		_, _ = io.WriteString(w, upstreamEnd) // the client may be gone
		return
	}
	n := number(q, "chunks")
	if n == 0 {
		if gap := number(q, "gap_us"); gap > 0 { // pause in the middle of the answer
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(whole[:len(whole)/2])
			if http.NewResponseController(w).Flush() != nil || !pause(r, gap) {
				return
			}
			whole = whole[len(whole)/2:]
		}
		answer(w, whole)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	stamp := number(q, "stamp") == 1
	for i := range n {
		if i > 0 && !pause(r, number(q, "gap_us")) {
			return
		}
		chunk := upstreamChunk
		if stamp {
			chunk = strings.Replace(chunk, " word", stampMark+strconv.FormatInt(time.Now().UnixNano(), 10), 1)
		}
		if _, err := io.WriteString(w, chunk); err != nil {
			return
		}
		if err := flush.Flush(); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, upstreamEnd) // the client may be gone
}

// note stores when the end of a call was noticed.
func (u *upstream) note(id string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.seen) < maxSeen {
		u.seen[id] = at
	}
}

// when answers with the Unix nanoseconds at which the end of a call was noticed; 204 while the call
// runs, 404 before it came.
func (u *upstream) when(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	t, ok := u.seen[r.URL.Query().Get("id")]
	u.mu.Unlock()
	switch {
	case !ok:
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusNotFound)
	case t.IsZero():
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(w, strconv.AppendInt(nil, t.UnixNano(), 10))
	}
}

func number(q url.Values, name string) int {
	n, _ := strconv.Atoi(q.Get(name)) // absent is 0
	return n
}

// pause waits and reports whether the client is still connected.
func pause(r *http.Request, us int) bool {
	if us == 0 {
		return true
	}
	t := time.NewTimer(time.Duration(us) * time.Microsecond)
	defer t.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-t.C:
		return true
	}
}
