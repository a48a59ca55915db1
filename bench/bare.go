package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"
)

// bare is a Go server with chi and nothing behind it: the routes of Heardlog and the same bytes as
// answers, without access checks, logs, metrics, limits or a store.
type bare struct {
	history, appended atomic.Pointer[[]byte] // the answers
}

// bareMessage has the fields that an append may have.
type bareMessage struct {
	ID         string                     `json:"id"`
	Role       string                     `json:"role"`
	Content    json.RawMessage            `json:"content"`
	TurnID     *int64                     `json:"turn_id"`
	Timestamp  int64                      `json:"timestamp"`
	Source     string                     `json:"source"`
	Metadata   map[string]json.RawMessage `json:"metadata"`
	ToolCalls  json.RawMessage            `json:"tool_calls"`
	ToolCallID string                     `json:"tool_call_id"`
	Name       string                     `json:"name"`
}

// newBare returns the handler; dir is on the disk that is measured.
func newBare(dir string) (http.Handler, error) {
	b := &bare{}
	d, err := openDisk(dir)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	r := chi.NewRouter()
	// The disk's sync and an empty round trip in one request: the least that a single append can
	// cost.
	r.Get("/synced", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if err := d.sync(); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	r.Get("/empty", func(http.ResponseWriter, *http.Request) {})
	r.Put("/history", b.keep(&b.history))
	r.Put("/appended", b.keep(&b.appended))
	r.Route(agoraBase+"/agents/{id}", func(r chi.Router) {
		r.Get("/history", func(w http.ResponseWriter, _ *http.Request) { answer(w, *b.history.Load()) })
		r.Post("/messages", func(w http.ResponseWriter, r *http.Request) {
			var in bareMessage
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Role == "" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			answer(w, *b.appended.Load())
		})
	})
	return r, nil
}

// keep stores the answer that the route gives from now on.
func (b *bare) keep(into *atomic.Pointer[[]byte]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		into.Store(&body)
	}
}

func answer(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // the client may be gone
}
