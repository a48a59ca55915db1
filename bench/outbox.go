package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// benchSecret signs what the bench sends.
const benchSecret = "whsec_aGVhcmRsb2ctYmVuY2gtc2VjcmV0LTAxMjM0NTY3ODk="

// outbox is a store, a worker and a receiver in this process: no HTTP API stands between the clock and what it measures.
type outbox struct {
	*sqlite.Store
	dir      string
	hook     *http.Server
	addr     string // of the receiver
	failed   chan error
	finished atomic.Int64 // results stored

	mu       sync.Mutex
	arrivals map[string]time.Time // by event id, of those that are waited for
}

// openOutbox makes a store with so many projects, p0, p1 …, of one agent each, and starts the receiver.
func openOutbox(ctx context.Context, dir string, projects int) (*outbox, error) {
	store, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(dir, "heardlog.db")})
	if err != nil {
		return nil, err
	}
	o := &outbox{Store: store, dir: dir, failed: make(chan error, 1), arrivals: map[string]time.Time{}}
	for n := range projects {
		p := project(n)
		a := memory.Agent{ID: agentOf(p), Project: p, Name: p, Status: memory.Running, StartMS: time.Now().UnixMilli(), Rev: 1}
		if _, _, err := store.Create(ctx, a, 0, memory.Change{}); err != nil {
			return nil, errors.Join(err, store.Close())
		}
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	o.addr = ln.Addr().String()
	o.hook = &http.Server{Handler: http.HandlerFunc(o.receive), ReadHeaderTimeout: time.Minute}
	go func() {
		if err := o.hook.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			o.failed <- err
		}
	}()
	return o, nil
}

func project(n int) string    { return fmt.Sprintf("p%d", n) }
func agentOf(p string) string { return "0190-" + p }

// Close ends the receiver and removes the store.
func (o *outbox) Close() error {
	return errors.Join(o.hook.Close(), o.Store.Close(), os.RemoveAll(o.dir))
}

// receive takes an event; at /silent it reads it and never answers.
func (o *outbox) receive(_ http.ResponseWriter, r *http.Request) {
	now := time.Now()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	if r.URL.Path == "/silent" {
		<-r.Context().Done()
		return
	}
	id := r.Header.Get(webhook.HeaderID)
	o.mu.Lock()
	defer o.mu.Unlock()
	if at, ok := o.arrivals[id]; ok && at.IsZero() {
		o.arrivals[id] = now
	}
}

// Finish counts.
func (o *outbox) Finish(ctx context.Context, d webhook.Delivery, r webhook.Result) error {
	err := o.Store.Finish(ctx, d, r)
	if err == nil {
		o.finished.Add(1)
	}
	return err
}

// endpoint lets a project's events go to the URL.
func (o *outbox) endpoint(ctx context.Context, p, url string) error {
	return o.PutEndpoint(ctx, webhook.Endpoint{
		ID: "e-" + p, Project: p, URL: url, Agora: true, Secrets: []webhook.SigningSecret{{Value: benchSecret}},
	})
}

// emit commits n events of a project in transactions of at most 2 MB.
func (o *outbox) emit(ctx context.Context, p, name string, n int, body []byte) error {
	batch := max(1, min(100, 2<<20/len(body)))
	for at := 0; at < n; at += batch {
		var list []memory.Event
		for i := at; i < min(n, at+batch); i++ {
			list = append(list, memory.Event{ID: fmt.Sprintf("%s-%s-%d", name, p, i), Type: event.Left, CreatedMS: time.Now().UnixMilli(), Body: body})
		}
		if err := o.commit(ctx, p, memory.Change{Events: list}); err != nil {
			return err
		}
	}
	return nil
}

func (o *outbox) commit(ctx context.Context, p string, c memory.Change) error {
	return o.Update(ctx, p, agentOf(p), func(tx memory.AgentView) (memory.Change, error) {
		for i := range c.Append {
			h := tx.Head()
			c.Append[i].Seq, c.Append[i].Rev, c.Append[i].TurnID = h.NextSeq, h.Rev+1, h.LastTurn+1
		}
		return c, nil
	})
}

// work starts a worker as the server does; stop ends it and waits.
func (o *outbox) work(ctx context.Context) (stop func() error, err error) {
	s, err := webhook.NewSender(webhook.SenderConfig{Dial: new(net.Dialer).DialContext})
	if err != nil {
		return nil, err
	}
	w, err := webhook.NewWorker(webhook.WorkerConfig{Queue: o, Sender: s, Drain: time.Millisecond, Log: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		defer s.Close()
		return <-done
	}), nil
}

// drained waits until so many results are stored since the count was from.
func (o *outbox) drained(ctx context.Context, from int64, n int) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); o.finished.Load()-from < int64(n); {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d deliveries were made in two minutes", o.finished.Load()-from, n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-o.failed:
			return err
		case <-tick.C:
		}
	}
	return nil
}

// paced calls do n times in an open loop, or as long as more says so, and gives how long each took from the moment it was planned for.
func paced(ctx context.Context, perSecond, n int, more func() bool, do func(i int) error) (samples, error) {
	var wg sync.WaitGroup
	out := make(samples, n)
	errs := make([]error, n)
	start, made := time.Now(), 0
	for i := range n {
		if !more() || ctx.Err() != nil {
			break
		}
		made++
		planned := start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		time.Sleep(time.Until(planned))
		wg.Go(func() {
			errs[i] = do(i)
			out[i] = time.Since(planned)
		})
	}
	wg.Wait()
	return out[:made], errors.Join(append(errs, ctx.Err())...)
}

func always() bool { return true }

// arrive emits n events of a project, paced, and gives how long each took from its call to the receiver, the commit included.
func (o *outbox) arrive(ctx context.Context, p, name string, perSecond, n int) (samples, error) {
	body := eventBody(1 << 10)
	began := make([]time.Time, n)
	id := func(i int) string { return fmt.Sprintf("%s-%s-%d-0", name, p, i) }
	_, err := paced(ctx, perSecond, n, always, func(i int) error {
		o.mu.Lock()
		o.arrivals[id(i)] = time.Time{}
		o.mu.Unlock()
		began[i] = time.Now()
		return o.commit(ctx, p, memory.Change{Events: []memory.Event{
			{ID: id(i), Type: event.Left, CreatedMS: began[i].UnixMilli(), Body: body},
		}})
	})
	if err != nil {
		return nil, err
	}
	out := make(samples, n)
	for end, i := time.Now().Add(time.Minute), 0; i < n; {
		o.mu.Lock()
		at := o.arrivals[id(i)]
		o.mu.Unlock()
		switch {
		case !at.IsZero():
			out[i] = at.Sub(began[i])
			i++
		case time.Now().After(end):
			return nil, fmt.Errorf("event %s never came", id(i))
		default:
			time.Sleep(time.Millisecond)
		}
	}
	return out, ctx.Err()
}

// eventBody gives a body of the size.
func eventBody(size int) []byte {
	return append(append([]byte(`{"noticeId":"n","payload":"`), bytes.Repeat([]byte("word "), (size-29)/5)...), `"}`...)
}

// drain runs a worker until n results are stored.
func (o *outbox) drain(ctx context.Context, n int) (took time.Duration, err error) {
	from, start := o.finished.Load(), time.Now()
	stop, err := o.work(ctx)
	if err != nil {
		return 0, err
	}
	err = o.drained(ctx, from, n)
	took = time.Since(start)
	return took, errors.Join(err, stop())
}
