package sqlite_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestTailsReadWhileWritten has so little memory that tails come and go, and wants head and
// messages of each read to be of one moment all the same: no message is newer than the head, none
// is missing, and nothing that was acknowledged before the read is.
func TestTailsReadWhileWritten(t *testing.T) {
	t.Parallel()
	const agents, rounds = 20, 150
	s := openWith(t, sqlite.Options{}, engine.Options{CacheBytes: 60 << 10})
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
					// The one before changes too.
					if last := tx.Head().Last; err == nil && last.Seq > 0 {
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
