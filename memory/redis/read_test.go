package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// fillWith appends n messages of a role, each of the text.
func fillWith(t *testing.T, s *redis.Store, a memory.Agent, role memory.Role, n int, text string) {
	t.Helper()
	for n > 0 {
		part := min(n, 1000, 1+(2<<20)/len(text))
		n -= part
		err := s.Update(t.Context(), a.Project, a.ID, func(tx memory.AgentView) (memory.Change, error) {
			h := tx.Head()
			var c memory.Change
			for i := range int64(part) {
				c.Append = append(c.Append, memory.Message{Seq: h.NextSeq + i, Rev: h.Rev + 1, Role: role, Content: text, TurnID: h.LastTurn + 1 + i})
			}
			return c, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// given tells how many bytes the server has sent since it was asked last.
func given(t *testing.T, srv *redistest.Server, run func()) int {
	t.Helper()
	count := func() int {
		for line := range strings.Lines(redistest.Do(t, srv.URL(), "INFO", "stats")) {
			if text, ok := strings.CutPrefix(line, "total_net_output_bytes:"); ok {
				n, err := strconv.Atoi(strings.TrimSpace(text))
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		t.Fatal("the server does not count")
		return 0
	}
	before := count()
	run()
	return count() - before
}

// TestReadBounded reads an agent of many large messages: its head costs a message, a decision a view's worth, and who wants them all gets them all, in order.
func TestReadBounded(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redis.Options{URL: srv.URL()})
	a := agent(1)
	a.Settings.LLM.MaxHistory = 1024
	create(t, s, a)
	const size, n = 64 << 10, 300
	fillWith(t, s, a, memory.User, n, strings.Repeat("x", size))
	other := open(t, redis.Options{URL: srv.URL()})
	if got := given(t, srv, func() {
		if h, err := other.Head(t.Context(), "acme", a.ID); err != nil || h.NextSeq != n+1 || h.Last.Seq != n {
			t.Errorf("head: %d, %d, %v", h.NextSeq, h.Last.Seq, err)
		}
	}); got > 4*size {
		t.Errorf("a head took %d bytes", got)
	}
	if got := given(t, srv, func() {
		if err := other.Update(t.Context(), "acme", a.ID, says("y")); err != nil {
			t.Error(err)
		}
	}); got > 2<<20 {
		t.Errorf("a decision took %d bytes", got)
	}
	h, list, err := other.Recent(t.Context(), "acme", a.ID, 250, true)
	if err != nil || len(list) != 250 || h.NextSeq != n+2 || h.Last.Content != "y" {
		t.Fatalf("%d messages, %d, %v", len(list), h.NextSeq, err)
	}
	for i, m := range list {
		if m.Seq != int64(n+2-250+i) {
			t.Fatalf("message %d has seq %d", i, m.Seq)
		}
	}
}

// TestHistoryFarBack looks for a history that stands behind many messages which it does not show: it is found, and no single script looks through all of them.
func TestHistoryFarBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000")
	s := open(t, redis.Options{URL: srv.URL()})
	create(t, s, agent(1))
	for i := range 3 {
		if err := s.Update(t.Context(), "acme", agent(1).ID, says(fmt.Sprint("shown ", i))); err != nil {
			t.Fatal(err)
		}
	}
	fillWith(t, s, agent(1), memory.System, 10_000, "hidden")
	redistest.Do(t, srv.URL(), "SLOWLOG", "RESET")
	for _, n := range []int{1, 2, 3, 32} {
		h, list, err := s.Recent(t.Context(), "acme", agent(1).ID, n, true)
		if err != nil || len(list) != min(n, 3) || list[len(list)-1].Content != "shown 2" || h.Last.Content != "hidden" {
			t.Errorf("%d of 3 shown: %d, %v", n, len(list), err)
		}
	}
	if got := strings.Count(redistest.Do(t, srv.URL(), "SLOWLOG", "GET", "-1"), "EVALSHA"); got < 4*5 {
		t.Errorf("10,000 messages were looked through in %d scripts", got)
	}
}
