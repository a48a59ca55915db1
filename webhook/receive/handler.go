package receive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// DefaultMaxBody is the largest body that a Handler reads, in bytes. The memory of a long
// conversation is large; a receiver with a limit of 100 KB, a common default, would never see it.
const DefaultMaxBody = 16 << 20

// Handler serves the URL of an endpoint. Do not change its fields while it serves.
//
// It answers 200 if the event was handled, now or earlier; 401 for a missing or wrong signature;
// 413 for a body larger than MaxBody; 400 for a body that is not an event; 405 for any method but
// POST; and 500 if Handle or Once fails, so that the event is sent again.
type Handler struct {
	Verifier *Verifier // required, unless Unverified says that nothing is to be verified
	// Unverified accepts unsigned requests from anyone. It is meant for trying things out.
	Unverified bool
	// Handle handles an event. After an error the sender tries again later. The sender waits 20 s
	// for the answer: put long work into a queue of your own.
	Handle func(ctx context.Context, e Event) error // required
	// Once calls handle unless the event was handled before, and reports whether it was. It is the
	// place for a transaction that stores the event's ID together with the work of handle.
	// Memory.Once serves a single process. If Once is nil, handle is always called; delivery is at
	// least once, so repeats come.
	Once func(ctx context.Context, id string, handle func() error) (repeat bool, err error)
	// Client fetches the bodies of thin events, so that Handle gets them whole. If it is nil, thin
	// events stay thin.
	Client *http.Client
	// MaxBody bounds the body, and one that is fetched, in bytes; 0 = DefaultMaxBody.
	MaxBody int64
	// OnError is told what was refused or failed, for a log; nil drops it.
	OnError func(r *http.Request, err error)
}

var errNotSetUp = errors.New("receive: the Handler has no Handle, or no Verifier and is not Unverified")

// ServeHTTP takes one attempt.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, text, err := h.take(w, r)
	if err != nil && h.OnError != nil {
		h.OnError(r, err)
	}
	answer(w, status, text)
}

func (h *Handler) take(w http.ResponseWriter, r *http.Request) (status int, text string, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, "send a POST", nil
	}
	if h.Handle == nil || h.Verifier == nil && !h.Unverified { // nothing is taken by mistake
		return http.StatusInternalServerError, "the receiver is not set up", errNotSetUp
	}
	limit := h.MaxBody
	if limit <= 0 {
		limit = DefaultMaxBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return http.StatusRequestEntityTooLarge, fmt.Sprintf("at most %d bytes", limit), err
	}
	if err != nil {
		return http.StatusBadRequest, "the body broke off", err
	}
	if !h.Unverified {
		if err := h.Verifier.Verify(r.Header, body); err != nil {
			return http.StatusUnauthorized, err.Error(), err
		}
	}
	e, err := Decode(body)
	if err != nil {
		return http.StatusBadRequest, err.Error(), err
	}
	handle := func() error {
		whole, err := h.whole(r.Context(), e, limit)
		if err != nil {
			return err
		}
		return h.Handle(r.Context(), whole)
	}
	repeat := false
	if h.Once != nil {
		repeat, err = h.Once(r.Context(), e.ID, handle)
	} else {
		err = handle()
	}
	switch {
	case err != nil: // whose text is the receiver's own affair
		return http.StatusInternalServerError, "failed; send it again", err
	case repeat: // answered like the first, or it would come again
		return http.StatusOK, "success, known already", nil
	}
	return http.StatusOK, "success", nil
}

// whole returns the event with its body fetched, if it is thin and can be fetched.
func (h *Handler) whole(ctx context.Context, e Event, limit int64) (Event, error) {
	if e.Thin == nil || h.Client == nil {
		return e, nil
	}
	body, err := e.Thin.Fetch(ctx, h.Client, limit)
	if err != nil {
		return Event{}, err
	}
	whole, err := Decode(body)
	if err == nil && whole.ID != e.ID {
		err = fmt.Errorf("fetch the event: %q came in place of %q", whole.ID, e.ID)
	}
	return whole, err
}

// answer writes JSON of the form that Agora's senders expect, too: code 0 is success.
func answer(w http.ResponseWriter, status int, text string) {
	code := status
	if status == http.StatusOK {
		code = 0
	}
	b, err := json.Marshal(map[string]any{"code": code, "msg": text})
	if err != nil { // a number and a string always encode
		b = nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the sender is gone; it tries again
}

// Memory keeps the IDs of handled events in this process, up to a number. It loses them when the
// process ends. A receiver that must never handle an event twice stores the IDs together with its
// data.
type Memory struct {
	limit int
	mu    sync.Mutex
	ids   map[string]*once
	order []string // of ids, oldest first
}

type once struct {
	mu   sync.Mutex // held while the event is handled, so that a repeat that comes meanwhile waits
	done bool
}

// NewMemory makes a memory of the newest limit ids, at least one.
func NewMemory(limit int) *Memory {
	return &Memory{limit: max(limit, 1), ids: map[string]*once{}}
}

// Once is for Handler.Once. An id whose handle failed is not remembered.
func (m *Memory) Once(_ context.Context, id string, handle func() error) (repeat bool, err error) {
	o := m.get(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return true, nil
	}
	if err := handle(); err != nil {
		return false, err
	}
	o.done = true
	return false, nil
}

func (m *Memory) get(id string) *once {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.ids[id]; o != nil {
		return o
	}
	if len(m.order) == m.limit {
		delete(m.ids, m.order[0])
		m.order = m.order[1:]
	}
	o := new(once)
	m.ids[id] = o
	m.order = append(m.order, id)
	return o
}
