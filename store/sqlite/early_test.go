package sqlite_test

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite"
)

// Early changes and others, of many callers: each outcome is told once, a reader never sees less
// than what was written before, and all is there when the file is opened again.
func TestUpdateEarly(t *testing.T) {
	t.Parallel()
	const agents, callers, each = 4, 12, 40
	path := filepath.Join(t.TempDir(), "e.db")
	s := open(t, sqlite.Options{Path: path})
	for n := range agents {
		if _, _, err := s.Create(t.Context(), agent("p", n), 0, memory.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	var early, told atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		id := agent("p", c%agents).ID
		wg.Go(func() {
			for i := range each {
				seq := int64(0)
				decide := func(tx memory.AgentView) (memory.Change, error) {
					c, err := appendOne(sentence)(tx)
					seq = c.Append[0].Seq
					return c, err
				}
				if (c+i)%3 == 0 {
					if err := s.Update(t.Context(), "p", id, decide); err != nil {
						t.Error(err)
					}
					continue
				}
				went, err := s.UpdateEarly(t.Context(), "p", id, decide, func(err error) {
					told.Add(1)
					if err != nil {
						t.Error(err)
					}
				})
				if err != nil {
					t.Error(err)
				}
				if went {
					early.Add(1)
				}
				if h, err := s.Head(t.Context(), "p", id); err != nil || h.Last.Seq < seq {
					t.Errorf("the head is at %d behind %d: %v", h.Last.Seq, seq, err)
				}
				if _, list, err := s.Recent(t.Context(), "p", id, 1, false); err != nil || len(list) != 1 || list[0].Seq < seq {
					t.Errorf("the newest message is not %d: %v", seq, err)
				}
				if list, err := s.Messages(t.Context(), "p", id, memory.MessageQuery{AfterSeq: seq - 1, Limit: 1}); err != nil || len(list) != 1 || list[0].Seq != seq {
					t.Errorf("message %d is not in the ledger: %v", seq, err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if early.Load() == 0 || told.Load() != early.Load() {
		t.Errorf("%d went on early, %d were told of the outcome", early.Load(), told.Load())
	}
	s = open(t, sqlite.Options{Path: path})
	total := 0
	for n := range agents {
		list, err := s.Messages(t.Context(), "p", agent("p", n).ID, memory.MessageQuery{Limit: callers * each})
		if err != nil {
			t.Fatal(err)
		}
		total += len(list)
	}
	if total != callers*each {
		t.Errorf("%d messages are in the file, want %d", total, callers*each)
	}
}

// A refusal is told at once, and nothing else comes of it.
func TestUpdateEarlyRefused(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Options{})
	if _, _, err := s.Create(t.Context(), agent("p", 0), 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	kept := func(err error) { t.Errorf("told of the outcome of nothing: %v", err) }
	no := errors.New("no")
	if early, err := s.UpdateEarly(t.Context(), "p", agent("p", 0).ID, func(memory.AgentView) (memory.Change, error) { return memory.Change{}, no }, kept); early || !errors.Is(err, no) {
		t.Errorf("early %v, %v; want the decision's error", early, err)
	}
	if early, err := s.UpdateEarly(t.Context(), "p", agent("p", 0).ID, func(memory.AgentView) (memory.Change, error) { return memory.Change{}, nil }, kept); early || err != nil {
		t.Errorf("early %v, %v for a decision that writes nothing", early, err)
	}
	if _, err := s.UpdateEarly(t.Context(), "p", "nobody", appendOne("x"), kept); !fault.Is(err, fault.NotFound) {
		t.Errorf("unknown agent: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
