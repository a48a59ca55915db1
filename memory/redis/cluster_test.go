package redis_test

import (
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memorytest"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// TestCluster runs the contracts on a real cluster of three nodes: a script or a transaction over two slots fails there.
func TestCluster(t *testing.T) {
	t.Parallel()
	url := redistest.Cluster(t)
	on := func(t *testing.T) *redis.Store { return open(t, redis.Options{URL: redistest.Prefix(t, url)}) }
	t.Run("store", func(t *testing.T) { memorytest.Run(t, func(t *testing.T) memory.Ledger { return on(t) }) })
	t.Run("items", func(t *testing.T) {
		memorytest.RunItems(t, func(t *testing.T) memorytest.ItemStore { return on(t) })
	})
	t.Run("working", func(t *testing.T) {
		memorytest.RunWorking(t, func(t *testing.T) memorytest.WorkingStore { return on(t) })
	})
	t.Run("conversations", func(t *testing.T) {
		memorytest.RunConversations(t, func(t *testing.T) memory.ConversationStore { return on(t) })
	})
	t.Run("agents are spread", func(t *testing.T) {
		s := on(t)
		for n := range 30 {
			create(t, s, agent(n))
			if err := s.Update(t.Context(), "acme", agent(n).ID, says("hello")); err != nil {
				t.Fatal(err)
			}
		}
		nodes := map[string]bool{}
		for n := range 30 {
			nodes[redistest.Node(t, url, s.AgentTag("acme", agent(n).ID))] = true
		}
		if len(nodes) != 3 {
			t.Errorf("30 agents lie on %d of 3 nodes", len(nodes))
		}
	})
}
