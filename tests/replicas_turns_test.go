package tests

import (
	"fmt"
	"sync"
	"testing"
)

// TestTurnsNeverFall: on every server, a message with a turn number below the agent's newest is
// refused. Turn numbers in the ledger never decrease, even with many concurrent calls.
func TestTurnsNeverFall(t *testing.T) {
	t.Parallel()
	servers := replicas(t, 3)
	id := servers[0].join("n", nil)
	said := func(turn int) map[string]any {
		return map[string]any{"role": "user", "content": fmt.Sprint("turn ", turn), "turn_id": turn}
	}
	servers[0].post(agent(id, "/messages"), said(5)).ok(nil)
	servers[1].post(agent(id, "/messages"), said(3)).refused(400, "InvalidFieldValue", "turn_id")
	servers[2].post(agent(id, "/messages"), said(5)).ok(nil)
	servers[1].post(agent(id, "/messages"), said(9)).ok(nil)
	servers[0].post(agent(id, "/messages"), said(8)).refused(400, "InvalidFieldValue", "turn_id")

	const calls, first = 40, 10
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := map[string]bool{}
	for n := range calls {
		wg.Go(func() {
			m := said(first + n%20) // each number from two callers
			a := servers[n%len(servers)].post(agent(id, "/messages"), m)
			if a.status != 200 && a.status != 201 && a.status != 400 {
				t.Errorf("turn %v: %d %s", m["turn_id"], a.status, a.body)
			}
			if a.status < 300 {
				mu.Lock()
				defer mu.Unlock()
				stored[m["content"].(string)] = true
			}
		})
	}
	wg.Wait()
	newest, there := int64(0), map[string]bool{}
	for _, m := range servers[1].ledger(id) {
		if m.TurnID < newest {
			t.Errorf("turn %d stands behind %d", m.TurnID, newest)
		}
		newest = max(newest, m.TurnID)
		there[m.Content] = true
	}
	for text := range stored {
		if !there[text] {
			t.Errorf("%q was acknowledged and is not in the ledger", text)
		}
	}
	if len(stored) == 0 || newest != first+19 {
		t.Errorf("%d numbers were stored, the newest is %d", len(stored), newest)
	}
}
