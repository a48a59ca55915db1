package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memorytest"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// TestMessagesDropped takes an agent's messages away, as a server does whose memory is full: that is an error and no empty history. The others are looked after, and the agent can be erased.
func TestMessagesDropped(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	told := &notices{told: make(chan struct{}, 1)}
	s := open(t, redis.Options{URL: url, CacheBytes: 1, Notice: told.add})
	for n := range 2 {
		create(t, s, agent(n))
		if err := s.Update(t.Context(), "acme", agent(n).ID, says("hello")); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Do(t, url, "DEL", s.AgentTag("acme", agent(1).ID)+":m")
	if _, list, err := s.Recent(t.Context(), "acme", agent(1).ID, 10, true); !fault.Is(err, fault.Internal) {
		t.Errorf("%d messages, %v", len(list), err)
	}
	live := 0
	if err := s.Live(t.Context(), func(memory.Head) error { live++; return nil }); err != nil || live != 1 {
		t.Errorf("%d live, %v", live, err)
	}
	told.want(t, "agent "+agent(1).ID)
	if err := s.Erase(t.Context(), "acme", agent(1).ID); err != nil {
		t.Errorf("erase: %v", err)
	}
	if _, err := s.Head(t.Context(), "acme", agent(1).ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("erased: %v", err)
	}
}

// TestHeadDropped makes an agent of the id of one whose head a server has dropped, and not its messages: the new one has none of them.
func TestHeadDropped(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	s := open(t, redis.Options{URL: url, CacheBytes: 1})
	create(t, s, agent(1))
	if err := s.Update(t.Context(), "acme", agent(1).ID, says("old")); err != nil {
		t.Fatal(err)
	}
	redistest.Do(t, url, "DEL", s.AgentTag("acme", agent(1).ID)+":h")
	if err := s.Erase(t.Context(), "acme", agent(1).ID); err != nil && !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
	create(t, s, agent(1))
	if err := s.Update(t.Context(), "acme", agent(1).ID, says("new")); err != nil {
		t.Fatal(err)
	}
	if got := memorytest.Whole(t, s, agent(1)); len(got) != 1 || got["new"] != 1 {
		t.Errorf("the ledger is %v", got)
	}
}

// TestNoEnd ends an agent through a server that keeps ended ones for ever; it was made through one that does not.
func TestNoEnd(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	create(t, open(t, redis.Options{URL: url + "&ttl=24h"}), agent(1))
	s := open(t, redis.Options{URL: url + "&ttl=0"})
	if err := s.Update(t.Context(), "acme", agent(1).ID, ends(5)); err != nil {
		t.Fatal(err)
	}
	if got := redistest.Do(t, url, "PTTL", s.AgentTag("acme", agent(1).ID)+":h"); got != "-1" {
		t.Errorf("it goes in %s ms", got)
	}
}

// TestTurnBeyondDoubles asks for a turn whose number is not told from its neighbour's by a sorted set.
func TestTurnBeyondDoubles(t *testing.T) {
	t.Parallel()
	s := open(t, redis.Options{})
	create(t, s, agent(1))
	const big = int64(1) << 53
	add := func(turn int64, n int) {
		t.Helper()
		err := s.Update(t.Context(), "acme", agent(1).ID, func(tx memory.AgentView) (memory.Change, error) {
			h := tx.Head()
			var c memory.Change
			for i := range n {
				c.Append = append(c.Append, memory.Message{Seq: h.NextSeq + int64(i), Rev: h.Rev + 1, Role: memory.User, Content: fmt.Sprint(turn), TurnID: turn})
			}
			return c, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(big, 1)
	add(big+1, 60)
	if err := s.Update(t.Context(), "acme", agent(1).ID, func(tx memory.AgentView) (memory.Change, error) {
		list, err := tx.Turn(big + 1)
		if err == nil && (len(list) != 60 || list[0].TurnID != big+1) {
			err = fmt.Errorf("%d messages, the first of turn %d", len(list), list[0].TurnID)
		}
		return memory.Change{}, err
	}); err != nil {
		t.Error(err)
	}
}

// TestRewriteWarned demands a warning where a server that writes each command to its disk stops doing so at times.
func TestRewriteWarned(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes")
	told := &notices{told: make(chan struct{}, 1)}
	open(t, redis.Options{URL: srv.URL(), Notice: told.add})
	told.mu.Lock()
	defer told.mu.Unlock()
	if !strings.Contains(strings.Join(told.list, "\n"), "no-appendfsync-on-rewrite") {
		t.Errorf("told %q", told.list)
	}
}

// TestWaitsInTime has a write wait behind one that does not come to its end: it fails within the store's time.
func TestWaitsInTime(t *testing.T) {
	t.Parallel()
	s := open(t, redis.Options{Timeout: 200 * time.Millisecond})
	create(t, s, agent(1))
	inside, free := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- s.Update(context.WithoutCancel(t.Context()), "acme", agent(1).ID, func(memory.AgentView) (memory.Change, error) {
			select {
			case <-inside:
			default:
				close(inside)
			}
			<-free
			return memory.Change{}, nil
		})
	}()
	<-inside
	if err := s.Update(t.Context(), "acme", agent(1).ID, says("x")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("behind it: %v", err)
	}
	close(free)
	<-done
}
