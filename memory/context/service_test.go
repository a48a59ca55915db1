package context_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/storetest"
)

// service is the service under test, with the agents whose memories it reads.
type service struct {
	*memctx.Service
	mem *agents.Service
}

func newService(t testing.TB) service {
	var n atomic.Int64
	m := agents.NewService(agents.Config{Ledger: storetest.New(t), Now: time.Now, NewID: func() string { return fmt.Sprint("agent-", n.Add(1)) }})
	return service{memctx.New(m), m}
}

func join(t *testing.T, s service) memory.Agent {
	t.Helper()
	a, err := s.mem.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: t.Name(), Properties: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func user(text string) memory.Message {
	return memory.Message{Role: memory.User, Source: memory.SourceASR, Content: text}
}

func llm(text string) memory.Message {
	return memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, Content: text, Method: memory.AssumedFull}
}

// TestContextIsNeverBehind: who has appended sees it in the context, however many append, read,
// clear and change policies at once, and a context that was given does not change any more.
func TestContextIsNeverBehind(t *testing.T) {
	t.Parallel()
	s := newService(t)
	a := join(t, s)
	full := &window.Policy{Preset: "full"}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 60 {
				text := fmt.Sprint(w, " says ", i)
				if _, err := s.mem.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user(text)}); err != nil {
					t.Error(err)
					return
				}
				got, err := s.Context(t.Context(), "p", a.ID, memctx.Request{Policy: full})
				if err != nil {
					t.Error(err)
					return
				}
				seen, order := false, int64(0)
				for _, m := range got.Messages {
					seen = seen || m.Text == text
					if m.Stored.Seq <= order {
						t.Errorf("message %d stands behind %d", m.Stored.Seq, order)
					}
					order = m.Stored.Seq
				}
				if !seen {
					t.Errorf("%q is not in the context", text)
				}
			}
		})
	}
	wg.Wait()
	got, err := s.Context(t.Context(), "p", a.ID, memctx.Request{Policy: full})
	if err != nil || len(got.Messages) != 360 {
		t.Fatalf("%d messages, %v", len(got.Messages), err)
	}
	if _, err := s.Clear(t.Context(), "p", a.ID); err != nil {
		t.Fatal(err)
	}
	if after, err := s.Context(t.Context(), "p", a.ID, memctx.Request{Policy: full}); err != nil || len(after.Messages) != 0 || len(got.Messages) != 360 {
		t.Errorf("after clearing %d messages, %v", len(after.Messages), err)
	}
	if err := s.mem.Agents.Erase(t.Context(), "p", a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Context(t.Context(), "p", a.ID, memctx.Request{Policy: full}); err == nil {
		t.Error("an erased agent has a context")
	}
}
