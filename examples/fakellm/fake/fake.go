// Package fake is a scripted OpenAI-compatible LLM, for tests, benchmarks and trying things out.
package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Options set how a server behaves.
type Options struct {
	Script Script // holds for calls that say nothing else
	// Keep is how many requests and cancels are kept for GET /requests and /cancels; 0 means 1,000,
	// below 0 keeps none.
	Keep int
	// Cancelled, if not nil, is called at once when a call's connection closes before its answer is
	// complete.
	Cancelled func(Seen)
}

// Seen is one request that came.
type Seen struct {
	N      int             `json:"n"` // from 1
	Path   string          `json:"path"`
	Header http.Header     `json:"header"`
	Body   json.RawMessage `json:"body"`
	AtMS   int64           `json:"at_ms"` // Unix ms
	Sent   int             `json:"sent"`  // events sent when the call was cancelled
	// Of a cancelled call: "headers", "first" or "stream".
	Phase string `json:"phase,omitempty"`
}

// LLM is the server; it is an http.Handler.
type LLM struct {
	opts Options
	mux  *http.ServeMux

	mu       sync.Mutex
	n        int
	requests []Seen
	cancels  []Seen
	changed  chan struct{} // closed and replaced at each change
}

// New makes a server.
func New(o Options) *LLM {
	if o.Keep == 0 {
		o.Keep = 1000
	}
	l := &LLM{opts: o, mux: http.NewServeMux(), changed: make(chan struct{})}
	for _, base := range []string{"", "/v1"} {
		l.mux.HandleFunc("POST "+base+"/chat/completions", l.chat)
		l.mux.HandleFunc("GET "+base+"/models", l.models)
	}
	l.mux.HandleFunc("GET /requests", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, l.Requests()) })
	l.mux.HandleFunc("GET /cancels", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, l.Cancels()) })
	return l
}

// ServeHTTP implements http.Handler.
func (l *LLM) ServeHTTP(w http.ResponseWriter, r *http.Request) { l.mux.ServeHTTP(w, r) }

// Requests returns the calls that arrived, oldest first.
func (l *LLM) Requests() []Seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Seen{}, l.requests...)
}

// Cancels returns the calls whose connection closed before their answer was complete, in the order
// in which that was noticed.
func (l *LLM) Cancels() []Seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Seen{}, l.cancels...)
}

// WaitRequests waits until n calls have arrived and returns them all.
func (l *LLM) WaitRequests(ctx context.Context, n int) ([]Seen, error) {
	return l.wait(ctx, n, l.Requests)
}

// WaitCancels waits until n calls were cancelled and returns them all.
func (l *LLM) WaitCancels(ctx context.Context, n int) ([]Seen, error) {
	return l.wait(ctx, n, l.Cancels)
}

func (l *LLM) wait(ctx context.Context, n int, get func() []Seen) ([]Seen, error) {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if seen := get(); len(seen) >= n {
			return seen, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return get(), ctx.Err()
		}
	}
}

func (l *LLM) note(list *[]Seen, s Seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opts.Keep > 0 {
		if len(*list) == l.opts.Keep {
			*list = append((*list)[:0:0], (*list)[1:]...)
		}
		*list = append(*list, s)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *LLM) models(w http.ResponseWriter, r *http.Request) {
	l.seen(r, nil)
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []map[string]any{
		{"id": "fake-1", "object": "model", "created": 1780000000, "owned_by": "fakellm"},
	}})
}

func (l *LLM) seen(r *http.Request, body []byte) Seen {
	l.mu.Lock()
	l.n++
	s := Seen{N: l.n, Path: r.URL.Path, AtMS: time.Now().UnixMilli()}
	l.mu.Unlock()
	if l.opts.Keep > 0 {
		s.Header, s.Body = r.Header.Clone(), json.RawMessage(body)
		if !json.Valid(body) {
			s.Body = json.RawMessage("null")
		}
	}
	l.note(&l.requests, s)
	return s
}

// request is what is read of a chat-completions body.
type request struct {
	Model         string          `json:"model"`
	Stream        bool            `json:"stream"`
	Fake          json.RawMessage `json:"fake"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []message `json:"messages"`
}

func (l *LLM) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	seen := l.seen(r, body)
	var in request
	if err := json.Unmarshal(body, &in); err != nil {
		writeError(w, http.StatusBadRequest, "the body is not a chat-completions request: "+err.Error())
		return
	}
	s := l.opts.Script
	if err := s.fromHeaders(r.Header); err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if len(in.Fake) > 0 {
		if err := json.Unmarshal(in.Fake, &s); err != nil {
			writeError(w, http.StatusBadRequest, "fake: "+err.Error())
			return
		}
	}
	if len(in.Messages) == 0 {
		writeError(w, http.StatusBadRequest, "messages is empty")
		return
	}
	if s.Answer == "" {
		s.Answer = answerTo(&in)
	}
	s.Usage = s.Usage || in.StreamOptions.IncludeUsage
	if in.Model == "" {
		in.Model = "fake-1"
	}
	a := &answering{w: w, rc: http.NewResponseController(w), ctx: r.Context(), script: &s, id: fmt.Sprintf("chatcmpl-fake-%d", seen.N), model: in.Model, phase: "headers"}
	cancelled := func() {
		s := seen
		s.AtMS = time.Now().UnixMilli()
		s.Sent, s.Phase = a.progress()
		l.note(&l.cancels, s)
		if l.opts.Cancelled != nil {
			l.opts.Cancelled(s)
		}
	}
	// Reports the moment; the handler itself may be asleep.
	stop := context.AfterFunc(r.Context(), cancelled)
	defer func() {
		// A handler that wakes first can stop the function before it starts.
		if stop() && r.Context().Err() != nil {
			cancelled()
		}
	}()
	a.run(in.Stream)
}

func writeError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, map[string]any{"error": map[string]any{"message": text, "type": "fake_error", "param": nil, "code": nil}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}
