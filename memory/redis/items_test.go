package redis_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// saysItem is says with an item of the text's name in a user's scope.
func saysItem(text, user string) memory.Decision {
	return func(tx memory.AgentView) (memory.Change, error) {
		c, err := says(text)(tx)
		c.Append[0].Amend(func(r *memory.Rare) { r.Scope.UserID, r.Item = user, &memory.Item{ID: text} })
		return c, err
	}
}

// found demands each item once in its user's list, by its id, and nothing else in that list.
func found(t *testing.T, s *redis.Store, user string, ids []string) {
	t.Helper()
	list, _, err := s.Items(t.Context(), "acme", memory.ItemQuery{Scope: memory.Scope{UserID: user}, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, it := range list {
		seen[it.Row.ID]++
	}
	if len(list) != len(ids) {
		t.Errorf("user %s has %d items, want %d", user, len(list), len(ids))
	}
	for _, id := range ids {
		if it, err := s.Item(t.Context(), "acme", id); seen[id] != 1 || err != nil || it.Message.Content != id {
			t.Errorf("item %s is listed %d times; by its id: %q, %v", id, seen[id], it.Message.Content, err)
		}
	}
}

// TestItemsOvertaken has several servers write items to one agent, so that most attempts are overtaken after their row was written: whatever was acknowledged is found.
func TestItemsOvertaken(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	var stores []*redis.Store
	for range 4 {
		stores = append(stores, open(t, redis.Options{URL: url}))
	}
	create(t, stores[0], agent(1))
	acked := make([][]string, 4)
	var wg sync.WaitGroup
	for w := range acked {
		wg.Go(func() {
			for n := range 50 {
				id := fmt.Sprintf("w%d-%d", w, n)
				if err := stores[w].Update(t.Context(), "acme", agent(1).ID, saysItem(id, fmt.Sprint("user", w))); err != nil {
					t.Error(err)
				}
				acked[w] = append(acked[w], id)
			}
		})
	}
	wg.Wait()
	for w, ids := range acked {
		found(t, stores[0], fmt.Sprint("user", w), ids)
	}
}

// TestItemNeverStored leaves the row of an item whose commit never arrived: the item that takes its seq later is found, and the other one is not.
func TestItemNeverStored(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redis.Options{URL: srv.URL()})
	create(t, s, agent(1))
	// The agent's own slot refuses writes, as that of a failed node does, and what was written for its items cannot be taken away.
	redistest.Do(t, srv.URL(), "ACL", "SETUSER", "default", "resetkeys", "~heardlog:{acme/}*", "~heardlog:{/}*", "%R~heardlog:{acme/agent*", "-hdel")
	if err := s.Update(t.Context(), "acme", agent(1).ID, saysItem("never", "ann")); err == nil {
		t.Fatal("stored without the right to")
	}
	redistest.Do(t, srv.URL(), "ACL", "SETUSER", "default", "allkeys", "+hdel")
	if n := redistest.Do(t, srv.URL(), "HLEN", s.ProjectTag("acme")+":i:row"); n != "1" {
		t.Fatalf("%s rows are left, want the one of the item that was not stored", n)
	}
	for _, id := range []string{"acked", "more"} {
		if err := s.Update(t.Context(), "acme", agent(1).ID, saysItem(id, "ann")); err != nil {
			t.Fatal(err)
		}
	}
	found(t, s, "ann", []string{"acked", "more"})
}
