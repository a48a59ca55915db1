package handlers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/tail"
)

// tailAPI serves live tails.
type tailAPI struct {
	hub *tail.Hub
}

// connection is a client's connection as tail.Reader writes to it.
type connection struct {
	http.ResponseWriter
	*http.ResponseController
}

// stream sends an agent's events until the agent ends. Last-Event-ID, or after, resumes a stream.
func (a tailAPI) stream(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	kinds, err := tail.ParseKinds(query["types"])
	if err != nil {
		return err
	}
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = query.Get("after")
	}
	reader, err := a.hub.Open(r.Context(), projectOf(r), chi.URLParam(r, "id"), kinds, after)
	if err != nil {
		return err
	}
	if reader == nil {
		w.WriteHeader(http.StatusNoContent) // an EventSource does not reconnect after it
		return nil
	}
	defer reader.Close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	reader.Stream(r.Context(), connection{w, http.NewResponseController(w)})
	return nil
}
