package remember_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// calls that have run, with what models say of them.
type world struct {
	t     *testing.T
	store record.Store

	mu     sync.Mutex
	agents map[string]memory.Agent
	said   map[string]int64                          // how many messages, by call
	log    []string                                  // what was asked and stored, in order
	answer func(ctx context.Context) (string, error) // of the model
	counts map[string]int
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, store: storetest.New(t).Store, agents: map[string]memory.Agent{}, said: map[string]int64{}, counts: map[string]int{},
		answer: func(context.Context) (string, error) { return "[]", nil },
	}
}

func (w *world) note(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, s)
}

func (w *world) noted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

// server starts a server that extracts and returns its jobs with what stops it.
func (w *world) server(name string) (*job.AfterCall, func()) {
	r := job.New(job.Config{Store: w.store, Now: time.Now})
	x := remember.Extractions(r, remember.Extraction{
		Head: func(_ context.Context, _, id string) (memory.Head, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			a, ok := w.agents[id]
			if !ok {
				return memory.Head{}, fault.New(fault.NotFound, "agent not found")
			}
			return memory.Head{Agent: &a, Rev: w.said[id]}, nil
		},
		Part: func(_ context.Context, a *memory.Agent, p *job.Progress) (remember.Prompt, bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.said[a.ID] == 0 && !a.Status.Ended() {
				return remember.Prompt{}, false, nil
			}
			p.UpTo = w.said[a.ID]
			return remember.Prompt{System: "s", User: "u"}, a.Name != "silent", nil
		},
		Ask: func(ctx context.Context, a *memory.Agent, model string, _ remember.Prompt) (string, error) {
			w.note(name + " asks " + model + " about " + a.ID)
			return w.answer(ctx)
		},
		Extract: func(_ context.Context, a *memory.Agent, answer string, from, to job.Progress) error {
			part := ""
			if to.UpTo > 0 {
				part = fmt.Sprintf(" %d-%d", from.UpTo, to.UpTo)
			}
			w.note(name + " stores " + answer + " of " + a.ID + part)
			return nil
		},
		RetryAfter: func(error) time.Duration { return 0 },
		Count: func(outcome string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.counts[outcome]++
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	return x, func() { cancel(); <-done }
}

// join adds a running agent whose facts are to be extracted.
func (w *world) join(x *job.AfterCall, id string) {
	w.t.Helper()
	a := *agent(`{"extract":true,"extraction_model":"small"}`)
	a.ID, a.Name, a.Status = id, id, memory.Running
	w.set(a)
	for range 2 { // a repeated join is no error
		if err := x.Joined(w.t.Context(), &a); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) set(a memory.Agent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.agents[a.ID] = a
}

func (w *world) end(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.agents[id]
	a.Status = memory.Stopped
	w.agents[id] = a
}

func (w *world) say(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said[id]++
}

// jobs returns how many stored jobs are still to be done.
func (w *world) jobs() int {
	w.t.Helper()
	at := record.Space{Project: job.Project, Name: "facts/job"}
	list, _, err := w.store.Records(w.t.Context(), at, record.Query{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(slices.DeleteFunc(list, func(r record.Record) bool {
		j, ok := job.Record(at, &r)
		return ok && j.State == job.Failed
	}))
}

// TestExtract: a call is asked about once it has ended, once, and by one server.
func TestExtract(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, stopA := w.server("a")
		_, stopB := w.server("b")
		defer stopA()
		defer stopB()
		for _, id := range []string{"one", "silent", "gone"} {
			w.join(a, id)
		}
		time.Sleep(10 * time.Minute) // fake time
		synctest.Wait()
		if got := w.noted(); len(got) != 0 || w.jobs() != 3 {
			t.Fatalf("during the calls: %q, %d jobs", got, w.jobs())
		}
		w.end("one")
		w.end("silent")
		w.mu.Lock()
		delete(w.agents, "gone")
		w.mu.Unlock()
		a.Ended("p", "one")
		synctest.Wait()
		if got := w.noted(); len(got) != 2 || got[0][1:] != " asks small about one" || got[1][1:] != " stores [] of one" {
			t.Fatalf("%q", got)
		}
		time.Sleep(10 * time.Minute) // fake time
		synctest.Wait()
		if got := w.noted(); len(got) != 2 || w.jobs() != 0 || w.counts["ok"] != 1 || w.counts["nothing"] != 1 || len(w.counts) != 2 {
			t.Errorf("%q, %d jobs, %v", got, w.jobs(), w.counts)
		}
	})
}

// TestExtractOnce: many calls, two servers, each call once; a project has at most half of the
// places.
func TestExtractOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		running, most := 0, 0
		w.answer = func(ctx context.Context) (string, error) {
			w.mu.Lock()
			running++
			most = max(most, running)
			w.mu.Unlock()
			time.Sleep(time.Second) // fake time
			w.mu.Lock()
			running--
			w.mu.Unlock()
			return "[]", nil
		}
		a, stopA := w.server("a")
		_, stopB := w.server("b")
		defer stopA()
		defer stopB()
		for i := range 40 {
			w.join(a, "call-"+string(rune('A'+i)))
		}
		for i := range 40 {
			w.end("call-" + string(rune('A'+i)))
		}
		time.Sleep(10 * time.Minute) // fake time
		synctest.Wait()
		stored := map[string]int{}
		for _, l := range w.noted() {
			if _, of, ok := strings.Cut(l, " of "); ok {
				stored[of]++
			}
		}
		for id, n := range stored {
			if n != 1 {
				t.Errorf("%s was stored %d times", id, n)
			}
		}
		if len(stored) != 40 || w.jobs() != 0 || most > 4 {
			t.Errorf("%d stored, %d jobs left, at most %d at a time on two servers", len(stored), w.jobs(), most)
		}
	})
}

// TestExtractFails: failures are tried again with growing pauses, and given up in the end. A panic
// is a failure.
func TestExtractFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var at []time.Duration
		began := time.Now()
		w.answer = func(context.Context) (string, error) {
			at = append(at, time.Since(began))
			return "", errors.New("overloaded")
		}
		x, stop := w.server("a")
		defer stop()
		w.join(x, "one")
		w.end("one")
		time.Sleep(24 * time.Hour) // fake time
		synctest.Wait()
		if len(at) != 8 || w.counts["retried"] != 7 || w.counts["given_up"] != 1 || w.jobs() != 0 {
			t.Fatalf("%d times: %v, %v, %d jobs", len(at), at, w.counts, w.jobs())
		}
		for i := 1; i < len(at); i++ {
			if pause, most := at[i]-at[i-1], 10*time.Second<<(i-1); pause < most/2 || pause > most+time.Second {
				t.Errorf("pause %d is %s, want %s to %s", i, pause, most/2, most)
			}
		}
	})
}

// TestExtractSurvives: a call is asked about again after the server that asked was killed, and at
// once after one that stopped.
func TestExtractSurvives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hang := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		w.answer = hang
		x, stop := w.server("a")
		w.join(x, "one")
		w.end("one")
		x.Ended("p", "one")
		synctest.Wait()
		stop()
		w.answer = func(context.Context) (string, error) { return "[1]", nil }
		_, stop = w.server("b")
		synctest.Wait()
		if got := w.noted(); len(got) != 3 || got[2] != "b stores [1] of one" {
			t.Errorf("after a stop: %q", got)
		}
		stop()

		// A killed server leaves its claim.
		claimed := &storetest.CutOff{Store: w.store}
		dead := newWorld(t)
		dead.store, dead.answer, dead.agents = claimed, hang, w.agents
		x, stop = dead.server("dead")
		dead.join(x, "two")
		dead.end("two")
		x.Ended("p", "two")
		synctest.Wait()
		claimed.Cut(errors.New("killed"))
		stop()
		w.log = nil
		_, stop = w.server("c")
		defer stop()
		time.Sleep(50 * time.Second) // fake time
		synctest.Wait()
		if got := w.noted(); len(got) != 0 {
			t.Errorf("during the claim: %q", got)
		}
		time.Sleep(3 * time.Minute) // fake time
		synctest.Wait()
		if got := w.noted(); len(got) != 2 || got[1] != "c stores [1] of two" || w.jobs() != 0 {
			t.Errorf("after the claim: %q, %d jobs", got, w.jobs())
		}
	})
}

// TestExtractDuring: while a call runs, what is new is asked for once in each window, by one
// server, and the end asks for the rest alone. What was asked for survives a server.
func TestExtractDuring(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, stopA := w.server("a")
		_, stopB := w.server("b")
		defer func() { stopA(); stopB() }()
		w.join(a, "one")
		time.Sleep(10 * time.Minute) // fake time: nothing is said
		for range 29 {
			w.say("one")
			time.Sleep(3 * time.Second) // fake time
		}
		got := w.noted()
		if len(got) < 4 || len(got) > 6 {
			t.Fatalf("in 87 s: %q", got)
		}
		stopA()
		stopB()
		a, stopA = w.server("c")
		_, stopB = w.server("d")
		time.Sleep(2 * time.Minute) // fake time
		w.say("one")
		w.end("one")
		a.Ended("p", "one")
		time.Sleep(2 * time.Minute) // fake time
		from := 0
		for _, l := range w.noted() {
			if _, part, ok := strings.Cut(l, " of one "); ok {
				begin, end := 0, 0
				if _, err := fmt.Sscanf(part, "%d-%d", &begin, &end); err != nil || begin != from || end <= begin {
					t.Errorf("%s comes after %d", l, from)
				}
				from = end
			}
		}
		if from != 30 || w.jobs() != 0 || w.counts["ok"] != 1 || w.counts["part"] != len(w.noted())/2-1 || len(w.counts) != 2 {
			t.Errorf("%q, %d jobs, %v", w.noted(), w.jobs(), w.counts)
		}
	})
}

// TestExtractDuringFails: what fails while a call runs is asked for again in the next window, at
// most so often, and the end of the call has all of its tries.
func TestExtractDuringFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		asked := 0
		w.answer = func(context.Context) (string, error) {
			asked++
			return "", errors.New("overloaded")
		}
		x, stop := w.server("a")
		defer stop()
		w.join(x, "one")
		w.say("one")
		time.Sleep(2 * time.Hour) // fake time
		synctest.Wait()
		if asked != 20 || w.counts["retried"] != 20 || len(w.counts) != 1 {
			t.Fatalf("%d requests, %v", asked, w.counts)
		}
		w.end("one")
		time.Sleep(24 * time.Hour) // fake time
		synctest.Wait()
		if asked != 28 || w.counts["given_up"] != 1 || w.jobs() != 0 {
			t.Errorf("%d requests, %v, %d jobs", asked, w.counts, w.jobs())
		}
	})
}
