package agents_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/storetest"
)

// processes serve one store. Their questions wait in left until the test delivers them. In a
// database, too, a question may arrive after the process that asked it is gone.
type processes struct {
	store memory.Store
	mu    sync.Mutex
	left  []memory.Question
	reply []memory.Reply
}

// process is one of them.
type process struct {
	*agents.Service
	calls chan memory.Question
	// held, if not nil, runs in place of an update that begins a turn.
	held func(update func(memory.Decision) error, decide memory.Decision) error
}

func (all *processes) start(t *testing.T) *process {
	t.Helper()
	p := &process{calls: make(chan memory.Question)}
	p.Service = newService(t, func(c *agents.Config) {
		c.Ledger, c.Peers = heldStore{engine.New(all.store, engine.Options{Shared: true}), p}, wire{all: all, calls: p.calls}
	})
	run(t, p.Service)
	return p
}

// deliver delivers all questions to p, which has handled them when deliver returns.
func (all *processes) deliver(p *process) {
	all.mu.Lock()
	list := slices.Clone(all.left)
	all.mu.Unlock()
	for _, q := range list {
		p.calls <- q
	}
	synctest.Wait()
}

// heldStore is a process's store.
type heldStore struct {
	memory.Ledger
	p *process
}

func (s heldStore) UpdateEarly(ctx context.Context, project, id string, decide memory.Decision, _ func(error)) (bool, error) {
	update := func(decide memory.Decision) error { return s.Update(ctx, project, id, decide) }
	if s.p.held != nil {
		return false, s.p.held(update, decide)
	}
	return false, update(decide)
}

// wire is what a process knows of the others. The methods that it lacks are not called.
type wire struct {
	memory.Peers
	all   *processes
	calls chan memory.Question
}

func (wire) Beat(context.Context, []memory.Seen) (bool, error)             { return true, nil }
func (wire) Asked(context.Context) ([]memory.Question, error)              { return nil, nil }
func (wire) Notified() bool                                                { return true }
func (wire) Take(context.Context, memory.Question) error                   { return nil }
func (w wire) Calls() <-chan memory.Question                               { return w.calls }
func (wire) Seen(context.Context, string, string) (s memory.Seen, _ error) { return s, nil }
func (wire) NewLive(_ context.Context, at int64, _ func(memory.Head) error) (int64, error) {
	return at, nil
}

func (w wire) Ask(_ context.Context, q memory.Question) (none memory.Reply, _ error) {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	q.No = int64(len(w.all.left) + 1)
	w.all.left = append(w.all.left, q)
	return none, nil
}

func (w wire) Reply(_ context.Context, _ memory.Question, r memory.Reply) error {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	w.all.reply = append(w.all.reply, r)
	return nil
}

// words is a user message that a client sends again with the same ID.
func words(text string) memory.Message {
	m := user(text)
	m.ID = text
	return m
}

// questions are the calls that ask other processes about the answer to "one".
var questions = map[string]struct {
	ask  func(t *testing.T, s *agents.Service, id string)
	want error // nil: it only asks
}{
	"overtakes": {func(t *testing.T, s *agents.Service, id string) {
		p := agents.Plan{Append: []memory.Message{words("two")}, Overtakes: true}
		beginPlan(t, s, id, p)
	}, agents.ErrOvertaken},
	"repeats": {func(t *testing.T, s *agents.Service, id string) { begin(t, s, id, nil, words("one")) }, agents.ErrSuperseded},
	"interrupts": {func(t *testing.T, s *agents.Service, id string) {
		if _, err := s.Turns.Interrupt(t.Context(), "p", id, agents.InterruptRequest{}); err != nil {
			t.Error(err)
		}
	}, agents.ErrInterrupted},
	"interrupts the turn": {func(t *testing.T, s *agents.Service, id string) {
		// It has no answer to show.
		_, _ = s.Turns.Interrupt(t.Context(), "p", id, agents.InterruptRequest{TurnID: new(int64)})
	}, agents.ErrInterrupted},
	"cuts": {func(t *testing.T, s *agents.Service, id string) { s.Turns.Cut(t.Context(), "p", id, agents.ErrThink) }, agents.ErrThink},
	"barges in": {func(t *testing.T, s *agents.Service, id string) {
		if _, err := s.Turns.AmendLive(t.Context(), "p", id, agents.LiveAnswer{Cut: true}, nil); err != nil {
			t.Error(err)
		}
	}, agents.ErrBargeIn},
	"looks": {func(t *testing.T, s *agents.Service, id string) { s.Turns.Busy(t.Context(), "p", id) }, nil},
}

// TestQuestionOfTheDead: a process asks others about an answer and dies. Its question neither cuts
// nor reports an answer that begins afterwards, whether to the same words or to later ones.
func TestQuestionOfTheDead(t *testing.T) {
	t.Parallel()
	for name, q := range questions {
		for _, next := range []string{"one", "two", "three"} {
			t.Run(name+", then "+next, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					all := &processes{store: storetest.Shared{Store: storetest.New(t).Store}}
					first, dead, alive := all.start(t), all.start(t), all.start(t)
					id := join(t, first.Service, nil).ID
					begin(t, first.Service, id, nil, words("one")) // and it dies
					q.ask(t, dead.Service, id)                     // this one, too
					if len(all.left) == 0 {
						t.Fatal("nothing was asked: the test proves nothing")
					}
					var cause error
					turn := begin(t, alive.Service, id, func(err error) { cause = err }, words(next))
					all.deliver(alive)
					if cause != nil || len(all.reply) > 0 {
						t.Errorf("an answer that began after the question: cut by %v, replies %v", cause, all.reply)
					}
					settle(t, alive.Service, turn, agents.Answer{Generated: "whole", Sent: "whole", Complete: true})
				})
			})
		}
	}
}

// TestQuestionOfTheLiving: an answer that began before the question is cut, also if its process is
// still waiting for the store, which others can see before it does.
func TestQuestionOfTheLiving(t *testing.T) {
	t.Parallel()
	for name, q := range questions {
		for _, held := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					all := &processes{store: storetest.Shared{Store: storetest.New(t).Store}}
					speaks, asks := all.start(t), all.start(t)
					id := join(t, speaks.Service, nil).ID
					stored := make(chan struct{})
					if !held {
						close(stored)
					}
					speaks.held = func(update func(memory.Decision) error, decide memory.Decision) error {
						defer func() { <-stored }()
						return update(decide)
					}
					var cause error
					begun := make(chan *agents.Turn, 1)
					go func() { begun <- begin(t, speaks.Service, id, func(err error) { cause = err }, words("one")) }()
					synctest.Wait()
					q.ask(t, asks.Service, id)
					all.deliver(speaks)
					if held {
						close(stored)
					}
					synctest.Wait()
					if !errors.Is(cause, q.want) {
						t.Errorf("cut by %v, want %v", cause, q.want)
					}
					settle(t, speaks.Service, <-begun, agents.Answer{Generated: "whole", Sent: "who", Err: cause})
					synctest.Wait()
					if len(all.reply) == 0 {
						t.Error("the process that asked got no reply")
					}
				})
			})
		}
	}
}

// TestQuestionAtAStaleLedger: a process plans its answer on a ledger that has changed, at a place
// that another answer has. A question about that other answer does not cut it.
func TestQuestionAtAStaleLedger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := &processes{store: storetest.Shared{Store: storetest.New(t).Store}}
		first, asks, stale := all.start(t), all.start(t), all.start(t)
		id := join(t, first.Service, nil).ID
		again := make(chan struct{})
		stale.held = func(update func(memory.Decision) error, decide memory.Decision) error {
			stale.held = nil
			lost := errors.New("the ledger has changed")
			err := update(func(view memory.AgentView) (c memory.Change, _ error) {
				if _, err := decide(view); err != nil {
					return c, err
				}
				return c, lost
			})
			if !errors.Is(err, lost) {
				return err
			}
			<-again
			return update(decide)
		}
		var cause error
		begun := make(chan *agents.Turn)
		go func() { begun <- begin(t, stale.Service, id, func(err error) { cause = err }, words("two")) }()
		synctest.Wait()
		begin(t, first.Service, id, nil, words("one"))
		questions["interrupts"].ask(t, asks.Service, id)
		all.deliver(stale)
		close(again)
		turn := <-begun
		all.deliver(stale)
		if cause != nil || len(all.reply) > 0 {
			t.Errorf("an answer that began after the question: cut by %v, replies %v", cause, all.reply)
		}
		settle(t, stale.Service, turn, agents.Answer{Generated: "whole", Sent: "whole", Complete: true})
	})
}
