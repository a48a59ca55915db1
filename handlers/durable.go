package handlers

import (
	"context"
	"net/http"

	"github.com/heardlog/heardlog/memory"
)

// durableKey is the key of what a call that has committed nothing asks before it acknowledges
// something.
type durableKey struct{}

// withDurable makes calls that write ask the store, if durable is not nil.
func withDurable(durable func(ctx context.Context) (prove func() error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if durable == nil {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), durableKey{}, durable)))
		})
	}
}

// acknowledges is for handlers of calls that write. A call may succeed without writing: a repeat
// finds what the first call has stored. That is acknowledged once it is as safe as the answer says.
func acknowledges(f handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		durable, _ := r.Context().Value(durableKey{}).(func(context.Context) func() error)
		if durable == nil {
			return f(w, r)
		}
		ctx, committed := memory.WithCommits(r.Context())
		prove := durable(ctx)
		p := &provenWriter{ResponseWriter: w, prove: func() error {
			if committed() {
				return nil
			}
			return prove()
		}}
		if err := f(p, r.WithContext(ctx)); p.err == nil {
			return err
		}
		return p.err
	}
}

// provenWriter holds a success back until it is proven. If that fails, it drops the answer.
type provenWriter struct {
	http.ResponseWriter
	prove func() error // nil: done
	err   error        // why the answer was dropped
}

// WriteHeader implements http.ResponseWriter.
func (w *provenWriter) WriteHeader(status int) {
	if status < 300 && w.prove != nil {
		w.err = w.prove()
	}
	w.prove = nil
	if w.err == nil {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *provenWriter) Write(b []byte) (int, error) {
	if w.prove != nil {
		w.WriteHeader(http.StatusOK)
	}
	if w.err != nil {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *provenWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
