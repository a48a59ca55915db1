package agents_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
)

// readCounter counts what is read of a store.
type readCounter struct {
	memory.Ledger
	reads atomic.Int64
}

func (s *readCounter) Head(ctx context.Context, project, id string) (memory.Head, error) {
	s.reads.Add(1)
	return s.Ledger.Head(ctx, project, id)
}

func (s *readCounter) Recent(ctx context.Context, project, id string, n int, historyOnly bool) (memory.Head, []memory.Message, error) {
	s.reads.Add(1)
	return s.Ledger.Recent(ctx, project, id, n, historyOnly)
}

// TestHistoryIsOneRead: a history of the agent's own length asks the store once, which is a round
// trip where servers share it.
func TestHistoryIsOneRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ own, said, want, reads int }{{4, 60, 4, 1}, {0, 60, 32, 1}, {50, 60, 50, 2}, {50, 10, 10, 1}} {
		store := &readCounter{Ledger: storetest.New(t)}
		s := newService(t, func(c *agents.Config) { c.Ledger = store })
		a, err := s.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: "n", Settings: memory.Settings{LLM: memory.LLMSettings{MaxHistory: c.own}}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.said {
			if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{{Role: memory.User, Content: fmt.Sprint(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		store.reads.Store(0)
		_, msgs, err := s.Messages.History(t.Context(), "p", a.ID, 0)
		if err != nil || len(msgs) != c.want || msgs[len(msgs)-1].Content != fmt.Sprint(c.said-1) {
			t.Errorf("%+v: %d messages: %v", c, len(msgs), err)
		}
		if n := store.reads.Load(); n != int64(c.reads) {
			t.Errorf("%+v: %d reads", c, n)
		}
	}
}
