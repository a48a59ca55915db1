package agents_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
)

// lateStore is a store whose disk takes, or refuses, what it was told early when the test says so.
type lateStore struct {
	memory.Ledger
	disk chan error // one for each early change
}

var errEarly = errors.New("the decision is made")

func (s lateStore) UpdateEarly(ctx context.Context, project, id string, decide memory.Decision, kept func(error)) (bool, error) {
	var c memory.Change
	err := s.Update(ctx, project, id, func(view memory.AgentView) (_ memory.Change, err error) {
		if c, err = decide(view); err == nil {
			err = errEarly
		}
		return memory.Change{}, err
	})
	if !errors.Is(err, errEarly) {
		return false, err
	}
	go func() {
		err := <-s.disk
		if err == nil {
			err = s.Update(context.WithoutCancel(ctx), project, id, func(memory.AgentView) (memory.Change, error) { return c, nil })
		}
		kept(err)
	}()
	return true, nil
}

func newLate(t *testing.T) (*agents.Service, lateStore, string) {
	t.Helper()
	store := lateStore{storetest.New(t), make(chan error, 1)}
	s := newService(t, func(c *agents.Config) { c.Ledger = store })
	return s, store, join(t, s, nil).ID
}

// A turn begins while its words are on their way to the disk: watchers are notified when they are
// there, and its answer is stored behind them.
func TestBeginBeforeTheDisk(t *testing.T) {
	t.Parallel()
	s, store, id := newLate(t)
	feed := s.Messages.Follow("p", id)
	changed, stop := feed.Wake(), feed.Close
	defer stop()
	turn := begin(t, s, id, nil, user("When is my train?"))
	if len(turn.Context) != 1 || turn.Context[0].Content != "When is my train?" {
		t.Fatalf("the turn's context is %v", turn.Context)
	}
	select {
	case <-changed:
		t.Error("somebody was told of words that are not kept")
	default:
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Turns.Settle(context.WithoutCancel(t.Context()), turn, agents.Answer{Generated: "At two.", Sent: "At two.", Complete: true})
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("the answer was stored before its question: %v", err)
	// It must not; that it would later cannot be seen sooner.
	case <-time.After(20 * time.Millisecond):
	}
	store.disk <- nil
	for _, wait := range []func() error{func() error { return s.Turns.Durable(turn) }, func() error { return <-done }} {
		if err := wait(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Error("nobody was told")
	}
	_, msgs, err := s.Messages.Recent(t.Context(), "p", id, 10)
	if err != nil || len(msgs) != 2 || msgs[0].Role != memory.User || msgs[1].Content != "At two." {
		t.Errorf("the ledger holds %v: %v", msgs, err)
	}
}

// A disk that refuses: the turn never was. Nothing is stored or announced, and the agent is free
// for the next.
func TestBeginLost(t *testing.T) {
	t.Parallel()
	s, store, id := newLate(t)
	cut := make(chan error, 1)
	turn := begin(t, s, id, func(err error) { cut <- err }, user("When is my train?"))
	store.disk <- fault.New(fault.Unavailable, "the disk is full")
	if err := s.Turns.Durable(turn); !fault.Is(err, fault.Unavailable) {
		t.Errorf("durable: %v", err)
	}
	if err := <-cut; !fault.Is(err, fault.Unavailable) {
		t.Errorf("the answer was cut with %v", err)
	}
	if _, busy := s.Turns.Busy(t.Context(), "p", id); !busy {
		t.Error("the turn was over before it was settled")
	}
	if _, err := s.Turns.Settle(t.Context(), turn, agents.Answer{Generated: "At two.", Complete: true}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("settle: %v", err)
	}
	if _, busy := s.Turns.Busy(t.Context(), "p", id); busy {
		t.Error("the agent is still answering")
	}
	if _, msgs, err := s.Messages.Recent(t.Context(), "p", id, 10); err != nil || len(msgs) != 0 {
		t.Errorf("the ledger holds %v: %v", msgs, err)
	}
	again := begin(t, s, id, nil, user("When is my train?"))
	store.disk <- nil
	if again.TurnID != 0 {
		t.Errorf("the next turn is %d", again.TurnID)
	}
	settle(t, s, again, agents.Answer{Generated: "At two.", Sent: "At two.", Complete: true})
}

// An answer in flight is replaced by a later call for its turn only once that call's own words are
// kept.
func TestBeginLostReplacesNothing(t *testing.T) {
	t.Parallel()
	s, store, id := newLate(t)
	cut := make(chan error, 1)
	first := begin(t, s, id, func(err error) { cut <- err }, user("When is my train?"))
	store.disk <- nil
	if err := s.Turns.Durable(first); err != nil {
		t.Fatal(err)
	}
	store.disk <- fault.New(fault.Unavailable, "the disk is full")
	if _, err := s.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{Plan: plan(), Cut: func(error) {}}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("begin: %v", err)
	}
	select {
	case err := <-cut:
		t.Errorf("the first answer was cut: %v", err)
	default:
	}
	settle(t, s, first, agents.Answer{Generated: "At two.", Sent: "At two.", Complete: true})
	if _, busy := s.Turns.Busy(t.Context(), "p", id); busy {
		t.Error("the agent is still answering")
	}
}

// toldStore calls stored when an update is stored, before the caller of Update knows.
type toldStore struct {
	memory.Ledger
	stored func()
}

func (s toldStore) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	err := s.Ledger.Update(ctx, project, id, decide)
	s.stored()
	return err
}

// Whoever reads an answer in the ledger finds the agent idle, however long its call takes to end: a
// think or speak that follows at once is not taken for one that comes while the agent speaks.
func TestIdleWithTheAnswer(t *testing.T) {
	t.Parallel()
	var look func()
	store := toldStore{storetest.New(t), func() {
		if look != nil {
			look()
		}
	}}
	s := newService(t, func(c *agents.Config) { c.Ledger = store })
	id := join(t, s, nil).ID
	turn := begin(t, s, id, nil, user("When is my train?"))
	looked := 0
	look = func() {
		if _, msgs, err := s.Messages.Recent(t.Context(), "p", id, 10); err != nil || len(msgs) != 2 {
			t.Fatalf("the ledger holds %v: %v", msgs, err)
		}
		if _, busy := s.Turns.Busy(t.Context(), "p", id); busy {
			t.Error("the agent is still answering")
		}
		looked++
	}
	settle(t, s, turn, agents.Answer{Generated: "At two.", Sent: "At two.", Complete: true})
	if looked != 1 {
		t.Errorf("looked %d times", looked)
	}
}
