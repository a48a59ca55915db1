package sqlite_test

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/sqlite"
)

// TestTailAsLongAsATurnLooksBack wants what a turn and the history of an agent read to come from memory, whatever its max_history.
// That it did is seen by where it stands: two reads of the database give two copies, two of memory the same place.
func TestTailAsLongAsATurnLooksBack(t *testing.T) {
	t.Parallel()
	const messages = 300
	for name, tt := range map[string]struct{ maxHistory, kept int }{
		"default": {memory.DefaultMaxHistory, 48}, "short": {3, 48}, "none given": {0, 48}, "long": {200, 216}, "longer than the ledger": {1024, messages},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "t.db")
			s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			a := agent("p", 1)
			a.Settings.LLM.MaxHistory = tt.maxHistory
			if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
				t.Fatal(err)
			}
			for range messages {
				if err := s.Update(t.Context(), "p", a.ID, appendOne("word")); err != nil {
					t.Fatal(err)
				}
			}
			x := tails{t, s, a.ID}
			x.kept("as appended", tt.kept, x.last)
			x.kept("as appended, for a reader", tt.kept, x.recent)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			x.s = open(t, sqlite.Options{Path: path})
			x.recent(tt.kept) // a reader brings it in
			x.kept("read by a reader", tt.kept, x.recent)
			x.kept("read by a reader, for a decision", tt.kept, x.last)
			if err := x.s.Update(t.Context(), "p", a.ID, appendOne("one more")); err != nil {
				t.Fatal(err)
			}
			x.kept("after an append", tt.kept, x.last)
			x.kept("after an append, for a reader", tt.kept, x.recent)
		})
	}
}

// tails reads an agent's newest messages.
type tails struct {
	t  *testing.T
	s  *sqlite.Store
	id string
}

func (x tails) last(n int) []memory.Message {
	x.t.Helper()
	var out []memory.Message
	err := x.s.Update(x.t.Context(), "p", x.id, func(tx memory.AgentView) (_ memory.Change, err error) {
		out, err = tx.Last(n)
		return memory.Change{}, err
	})
	if err != nil || len(out) == 0 {
		x.t.Fatal(len(out), err)
	}
	return out
}

func (x tails) recent(n int) []memory.Message {
	x.t.Helper()
	_, out, err := x.s.Recent(x.t.Context(), "p", x.id, n, true)
	if err != nil || len(out) == 0 {
		x.t.Fatal(len(out), err)
	}
	return out
}

// kept wants n messages to be in memory.
func (x tails) kept(when string, n int, read func(int) []memory.Message) {
	x.t.Helper()
	one, two := read(n), read(n)
	if len(one) != n || one[0].Seq != one[n-1].Seq-int64(n)+1 {
		x.t.Errorf("%s: %d messages, seq %d to %d", when, len(one), one[0].Seq, one[len(one)-1].Seq)
	}
	if &one[0] != &two[0] {
		x.t.Errorf("%s: the newest %d messages were read from the database", when, n)
	}
}

// TestTailIsBounded wants no more than that to be kept, and a tail to give way when its agent's max_history goes down.
func TestTailIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Options{})
	a := agent("p", 1)
	a.Settings.LLM.MaxHistory = 200
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if err := s.Update(t.Context(), "p", a.ID, appendOne("word")); err != nil {
			t.Fatal(err)
		}
	}
	x := tails{t, s, a.ID}
	if one, two := x.recent(217), x.recent(217); len(one) != 217 || &one[0] == &two[0] {
		t.Errorf("%d messages, kept in memory", len(one))
	}
	x.kept("after a longer read", 216, x.recent)
	err := s.Update(t.Context(), "p", a.ID, func(tx memory.AgentView) (memory.Change, error) {
		c, err := appendOne("x")(tx)
		h := tx.Head()
		h.Agent.Settings.LLM.MaxHistory, h.Agent.Rev = 10, h.Rev+1
		c.Agent = &h.Agent
		return c, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if one, two := x.recent(49), x.recent(49); len(one) != 49 || &one[0] == &two[0] {
		t.Errorf("%d messages, kept in memory", len(one))
	}
	x.kept("with a shorter history", 48, x.recent)
}

// TestTailsReadWhileWritten has so little memory that tails come and go, and wants head and messages of each read to be of one moment all the
// same: no message is newer than the head, none is missing, and nothing that was acknowledged before the read is.
func TestTailsReadWhileWritten(t *testing.T) {
	t.Parallel()
	const agents, rounds = 20, 150
	s := open(t, sqlite.Options{CacheBytes: 60 << 10})
	var stored [agents]atomic.Int64
	for i := range agents {
		if _, _, err := s.Create(t.Context(), agent("p", i), 0, memory.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range agents {
		wg.Go(func() {
			for n := range int64(rounds) {
				err := s.Update(t.Context(), "p", agent("p", i).ID, func(tx memory.AgentView) (memory.Change, error) {
					c, err := appendOne(sentence)(tx)
					if last := tx.Head().Last; err == nil && last.Seq > 0 { // the one before changes too
						last.Rev, last.Content = c.Append[0].Rev, "changed"
						c.Replace = []memory.Message{last}
					}
					return c, err
				})
				if err != nil {
					t.Error(err)
					return
				}
				stored[i].Store(n + 1)
			}
		})
	}
	var reads atomic.Int64
	for r := range 4 {
		wg.Go(func() {
			for i := r; stored[i%agents].Load() < rounds; i++ {
				least := stored[i%agents].Load()
				h, list, err := s.Recent(t.Context(), "p", agent("p", i%agents).ID, 40, false)
				if err != nil || len(list) != int(min(40, h.Last.Seq)) || h.Last.Seq < least {
					t.Errorf("%d messages up to %d, %d were stored: %v", len(list), h.Last.Seq, least, err)
					return
				}
				for k, m := range list {
					want := sentence
					if m.Seq < h.Last.Seq {
						want = "changed"
					}
					if m.Seq != h.Last.Seq-int64(len(list)-1-k) || m.Rev > h.Rev || m.Content != want {
						t.Errorf("message %d of %d, rev %d of %d: %q", m.Seq, h.Last.Seq, m.Rev, h.Rev, m.Content)
						return
					}
				}
				reads.Add(1)
			}
		})
	}
	wg.Wait()
	t.Log(reads.Load(), "reads")
}
