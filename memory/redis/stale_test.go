package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// endUnseen ends agent 1 while its entry in the index cannot be written, and lets the index be written again.
func endUnseen(t *testing.T, srv *redistest.Server, s *redis.Store) {
	t.Helper()
	create(t, s, agent(1))
	redistest.Do(t, srv.URL(), "ACL", "SETUSER", "default", "resetkeys", "~heardlog:{acme/agent*", "~heardlog:{/}*", "~heardlog:{acme/}:check", "%R~heardlog:{acme/}*")
	if err := s.Update(t.Context(), "acme", agent(1).ID, ends(5)); err != nil {
		t.Fatal(err)
	}
	redistest.Do(t, srv.URL(), "ACL", "SETUSER", "default", "allkeys")
}

// TestStaleQuota wants an agent's place that has ended, or whose keys were dropped, and that the index counts as live: it is free at once.
func TestStaleQuota(t *testing.T) {
	t.Parallel()
	for name, stale := range map[string]func(*testing.T, *redistest.Server, *redis.Store){
		"ended": endUnseen,
		"dropped": func(t *testing.T, srv *redistest.Server, s *redis.Store) {
			create(t, s, agent(1))
			for _, k := range redistest.Keys(t, srv.URL(), s.AgentTag("acme", agent(1).ID)) {
				redistest.Do(t, srv.URL(), "DEL", k)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			s := open(t, redis.Options{URL: srv.URL()})
			stale(t, srv, s)
			if _, _, err := s.Create(t.Context(), agent(2), 1, memory.Change{}); err != nil {
				t.Errorf("the place of an agent that is no more: %v", err)
			}
			if _, _, err := s.Create(t.Context(), agent(3), 1, memory.Change{}); err == nil {
				t.Error("the place of an agent that lives was given away")
			}
		})
	}
}

// TestStaleEnd has an agent's end written and its entry not, as where a server dies between the two: the entry is due for a look at once, and a look puts it right, also where the server that ended it goes on.
func TestStaleEnd(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redis.Options{URL: srv.URL()})
	endUnseen(t, srv, s)
	text := redistest.Do(t, srv.URL(), "ZSCORE", s.ProjectTag("acme")+":check", agent(1).ID)
	score, err := strconv.ParseFloat(text, 64)
	if err != nil || score > float64(time.Now().Add(time.Minute).UnixMilli()) {
		t.Errorf("looked at in %s, %v", text, err)
	}
	redistest.Do(t, srv.URL(), "ZADD", s.ProjectTag("acme")+":check", "0", agent(1).ID)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		n, err := s.Count(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n[memory.Stopped] == 1 && n[memory.Running] == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond) // between two looks, not in place of one
	}
	if n, err := s.Sweep(t.Context(), 1000, 10); n != 1 || err != nil {
		t.Errorf("sweep: %d, %v", n, err)
	}
}

// TestSweepWithoutEntry erases an ended agent whose entry was dropped: it goes, with what named it, and the sweep comes to its end.
func TestSweepWithoutEntry(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	s := open(t, redis.Options{URL: url})
	create(t, s, agent(1))
	if err := s.Update(t.Context(), "acme", agent(1).ID, ends(5)); err != nil {
		t.Fatal(err)
	}
	redistest.Do(t, url, "DEL", s.ProjectTag("acme")+":info")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i, want := range []int{1, 0} {
		if n, err := s.Sweep(ctx, 1000, 10); n != want || err != nil {
			t.Errorf("sweep %d: %d, %v", i, n, err)
		}
	}
	if n, err := s.Count(t.Context()); err != nil || n[memory.Stopped] != 0 {
		t.Errorf("counted %v, %v", n, err)
	}
}

// TestManyExpired has more agents expire at once than one go settles: all of them are gone after one look, in all projects.
func TestManyExpired(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	s := open(t, redis.Options{URL: url})
	const many = 450
	for _, project := range []string{"acme", "bolt"} {
		a := agent(0)
		a.Project = project
		create(t, s, a)
		for n := range many {
			id := fmt.Sprintf("gone-%05d", n)
			tag := s.ProjectTag(project)
			redistest.Do(t, url, "EVAL", `
redis.call('HSET', KEYS[1] .. ':info', ARGV[1], ARGV[2])
for _, list in ipairs({':all', ':st4'}) do redis.call('ZADD', KEYS[1] .. list, 0, ARGV[1]) end
redis.call('ZADD', KEYS[1] .. ':ended', 5, ARGV[1])
redis.call('ZADD', KEYS[1] .. ':check', 10, ARGV[1])
return 1`, "1", tag, id, fmt.Sprintf(`%016d{"t":"x","r":1,"s":4,"a":1,"z":5,"x":10}`, n))
		}
	}
	open(t, redis.Options{URL: url}) // which looks first after five seconds
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		n, err := s.Count(ctx)
		if err != nil {
			t.Fatalf("%v are left, %v", n, err)
		}
		if n[memory.Stopped] == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond) // between two looks, not in place of one
	}
}
