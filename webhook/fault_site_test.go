package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// faultPatience is how long a test of a fault waits for an event.
const faultPatience = 2 * time.Minute

// site is a store on disk with one agent, and the parts that deliver its events over real sockets.
type site struct {
	*store.SQLite
	t    *testing.T
	path string
	// ahead is how far the clocks of worker and sender are ahead of the machine's.
	ahead atomic.Int64
	// ended gets each result that was stored.
	ended chan ended
	// onFinish, if set, is called before a result is stored. If it returns an error, the result is
	// not stored.
	onFinish func(ctx context.Context, d webhook.Delivery, r webhook.Result) error
}

type ended struct {
	webhook.Delivery
	webhook.Result
}

const (
	siteProject = "p"
	siteAgent   = "0190-a"
)

// newSite makes an empty store with an agent.
func newSite(t *testing.T) *site {
	t.Helper()
	s := openSite(t, filepath.Join(t.TempDir(), "s.db"))
	a := memory.Agent{ID: siteAgent, Project: siteProject, Name: "one", Status: memory.Running, StartMS: 1, Rev: 1}
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func openSite(t *testing.T, path string) *site {
	t.Helper()
	opened, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: path}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &site{SQLite: opened, t: t, path: path, ended: make(chan ended, 1<<15)}
}

// killed opens a copy of the files as a kill -9 would leave them at this moment. Nothing may be
// written meanwhile.
func (s *site) killed() *site {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "s.db")
	// In the other order, a checkpoint between the two copies would lose frames.
	for _, suffix := range []string{"-wal", ""} {
		b, err := os.ReadFile(s.path + suffix)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, b, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	after := openSite(s.t, path)
	after.ahead.Store(s.ahead.Load())
	return after
}

// endpoint stores an endpoint of the agent's project, signed with whsec.
func (s *site) endpoint(id, url string, change func(*webhook.Endpoint)) {
	s.t.Helper()
	e := webhook.Endpoint{ID: id, Project: siteProject, URL: url, Agora: true, Secrets: []webhook.SigningSecret{{Value: whsec}}}
	if change != nil {
		change(&e)
	}
	if err := webhook.PutEndpoint(s.t.Context(), s, e); err != nil {
		s.t.Fatal(err)
	}
}

// emit commits events of the agent, with one delivery for every endpoint.
func (s *site) emit(events ...memory.Event) {
	s.t.Helper()
	err := s.Update(s.t.Context(), siteProject, siteAgent, func(memory.AgentView) (memory.Change, error) {
		return memory.Change{Events: events}, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) event(id string) memory.Event {
	return memory.Event{ID: id, Type: event.Left, CreatedMS: s.now().UnixMilli(), Body: fmt.Appendf(nil, `{"noticeId":%q,"é":"😀"}`, id)}
}

func (s *site) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// pass advances the clocks.
func (s *site) pass(d time.Duration) { s.ahead.Add(int64(d)) }

// Finish calls the store's Finish and reports the result to the test.
func (s *site) Finish(ctx context.Context, d webhook.Delivery, r webhook.Result) error {
	if s.onFinish != nil {
		if err := s.onFinish(ctx, d, r); err != nil {
			return err
		}
	}
	err := s.Store.Finish(ctx, d, r)
	if err == nil {
		s.ended <- ended{d, r}
	}
	return err
}

// work runs a worker until the returned function is called, or the test ends.
func (s *site) work(sender func(*webhook.SenderConfig), change func(*webhook.WorkerConfig)) (stop func()) {
	s.t.Helper()
	send := newSender(s.t, func(c *webhook.SenderConfig) {
		c.Now = s.now
		if sender != nil {
			sender(c)
		}
	})
	c := webhook.WorkerConfig{Queue: s, Sender: send, Now: s.now, Policy: policy(), Poll: 5 * time.Millisecond, Log: zerolog.Nop()}
	c.Schedule = slowly()
	if change != nil {
		change(&c)
	}
	w, err := webhook.NewWorker(c)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// slowly is a schedule of ten attempts an hour apart, so that no retry is due while the test checks
// the first attempt, even on a slow machine.
func slowly() webhook.Schedule { return slices.Repeat(webhook.Schedule{time.Hour}, 9) }

// next waits for the next result that is stored.
func (s *site) next() ended {
	s.t.Helper()
	return receiveFrom(s.t, s.ended, "a stored result")
}

func receiveFrom[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(faultPatience):
		t.Fatalf("%s: nothing within %s", what, faultPatience)
		panic("not reached")
	}
}

// hit is one attempt as a receiver saw it.
type hit struct {
	header http.Header
	body   string
}

func (h hit) id() string { return h.header.Get("Webhook-Id") }

// hits serves attempts: it sends each to the channel once it is read, then calls answer; nil
// answers 200.
func hits(t *testing.T, answer http.HandlerFunc) (url string, seen chan hit) {
	t.Helper()
	seen = make(chan hit, 1<<15)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		seen <- hit{r.Header, string(body)}
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, seen
}

// wantBacklog checks the numbers of waiting and dead deliveries.
func (s *site) wantBacklog(pending, dead int) {
	s.t.Helper()
	b, err := s.Backlog(s.t.Context())
	if err != nil || b.Pending != pending || b.Dead != dead {
		s.t.Errorf("%d wait and %d are dead, want %d and %d (%v)", b.Pending, b.Dead, pending, dead, err)
	}
}
