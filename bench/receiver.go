package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// receiver takes webhooks in this process. Its paths:
//
//   - /held answers when drained is called; until then deliveries wait.
//   - /silent reads the request and never answers.
//   - any other path answers at once.
type receiver struct {
	addr   string
	server *http.Server
	failed chan error
	taken  atomic.Int64 // answered requests to /held

	mu       sync.Mutex
	hold     chan struct{}     // closed by drained
	arrivals map[int]time.Time // of marked events, by number; zero until they arrive
}

// mark opens the text of a message whose event is waited for: "#17# ".
const mark = "#"

func startReceiver(ctx context.Context) (*receiver, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{addr: ln.Addr().String(), failed: make(chan error, 1), hold: make(chan struct{}), arrivals: map[int]time.Time{}}
	r.server = &http.Server{Handler: http.HandlerFunc(r.receive), ReadHeaderTimeout: time.Minute}
	go func() {
		if err := r.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			r.failed <- err
		}
	}()
	return r, nil
}

// Close ends the receiver and its open requests.
func (r *receiver) Close() error { return r.server.Close() }

func (r *receiver) receive(_ http.ResponseWriter, req *http.Request) {
	now := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	switch req.URL.Path {
	case "/held":
		r.mu.Lock()
		hold := r.hold
		r.mu.Unlock()
		select {
		case <-hold:
			r.taken.Add(1)
		case <-req.Context().Done():
		}
	case "/silent":
		<-req.Context().Done()
	default:
		r.arrived(body, now)
	}
}

// arrived notes when the marked event in a body arrived first.
func (r *receiver) arrived(body []byte, at time.Time) {
	_, rest, _ := bytes.Cut(body, []byte(`"`+mark))
	digits, _, _ := bytes.Cut(rest, []byte(mark))
	n, err := strconv.Atoi(string(digits))
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if seen, ok := r.arrivals[n]; ok && seen.IsZero() {
		r.arrivals[n] = at
	}
}

// expect returns the number of a new event that is waited for.
func (r *receiver) expect() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.arrivals)
	r.arrivals[n] = time.Time{}
	return n
}

// arrival waits for an event and returns when it arrived.
func (r *receiver) arrival(ctx context.Context, n int) (time.Time, error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r.mu.Lock()
		at := r.arrivals[n]
		r.mu.Unlock()
		if !at.IsZero() || ctx.Err() != nil {
			return at, ctx.Err()
		}
	}
	return time.Time{}, fmt.Errorf("the event of message %d did not arrive within a minute", n)
}

// drained lets go what waits at /held and returns how long it took until n deliveries were
// answered.
func (r *receiver) drained(ctx context.Context, n int) (time.Duration, error) {
	start := time.Now()
	r.mu.Lock()
	close(r.hold)
	r.mu.Unlock()
	for end := start.Add(2 * time.Minute); r.taken.Load() < int64(n); time.Sleep(time.Millisecond) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case err := <-r.failed:
			return 0, err
		default:
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("%d of %d deliveries were made within two minutes", r.taken.Load(), n)
		}
	}
	return time.Since(start), nil
}
