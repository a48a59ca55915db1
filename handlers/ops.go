package handlers

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// opsAPI serves what operators and readers of the API description use.
type opsAPI struct {
	ready       func(ctx context.Context) error
	openapi     []byte
	metricsPage http.Handler
	checking    chan struct{} // holds one element while ready runs
}

// readyTimeout bounds the check of the store. Probes of load balancers wait for two seconds.
const readyTimeout = time.Second

// isReady asks whether the server can take work, and does not wait for longer than that, whatever
// the store waits for.
func (a opsAPI) isReady(ctx context.Context) error {
	ctx, stop := context.WithTimeoutCause(ctx, readyTimeout, fault.New(fault.Unavailable, "the store did not answer within %s", readyTimeout))
	select { // one at a time: a store may never answer
	case a.checking <- struct{}{}:
	case <-ctx.Done():
		stop()
		return fault.Ended(ctx)
	}
	answer := make(chan error, 1)
	go func() {
		defer stop()
		answer <- a.ready(ctx)
		<-a.checking
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fault.Ended(ctx)
	}
}

func healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte("{\"status\":\"ok\"}\n"))
}

type readyAnswer struct {
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// readyz reports whether the server can take work: the store can be written and the server is not
// stopping.
func (a opsAPI) readyz(w http.ResponseWriter, r *http.Request) error {
	if err := a.isReady(r.Context()); err != nil {
		infoOf(r).err = err
		detail := "the store cannot be written or the server is stopping; the log has more"
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.Unavailable {
			detail = e.Msg + "; the log has more"
		}
		w.Header().Set("Retry-After", "1")
		return encode(w, http.StatusServiceUnavailable, readyAnswer{Status: "unavailable", Detail: detail})
	}
	return encode(w, http.StatusOK, readyAnswer{Status: "ok"})
}

func (a opsAPI) spec(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(a.openapi)
}
