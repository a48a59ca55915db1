package compat_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// written is a call that writes, and that a client repeats until it succeeds.
type written struct {
	name, method, path, key string
	body                    any
}

// writtenCalls returns calls that write each kind of thing. id is a live agent, and other one that
// is to end.
func writtenCalls(id, other string) []written {
	return []written{
		{"messages", "POST", "/v1/agents/" + id + "/messages", "", object{"messages": []object{{"id": "m1", "role": "user", "content": "hello"}}}},
		{"messages with a key", "POST", "/v1/agents/" + id + "/messages", "key-1", object{"messages": []object{{"role": "user", "content": "hello again"}}}},
		{"join", "POST", "/v1/agents", "key-2", object{"name": "joined late"}},
		{"leave", "POST", "/v1/agents/" + other + "/leave", "key-3", nil},
		{"key", "PUT", "/v1/kv/space/k", "", object{"value": 1}},
		{"number", "POST", "/v1/kv/space/n/increment", "key-4", object{"delta": 1}},
		{"working memory", "PUT", "/v1/agents/" + id + "/working-memory/k", "", object{"value": 1}},
		{"fact", "POST", "/v1/users/ann/facts", "key-5", object{"content": "likes tea"}},
		{"pattern", "PUT", "/v1/patterns/p1", "", object{"type": "user_preferences", "content": "greet by name"}},
		{"document", "PUT", "/v1/vectors/docs/d1", "", object{"content": "a text", "embedding": []float64{1, 2}}},
		{"memory", "POST", "/v1/memories", "key-6", object{"memory_type": "human", "content": "likes tea"}},
		{"endpoint", "POST", "/v1/webhooks/endpoints", "key-7", object{"url": "https://example.com/hook"}},
		{"deletion of a key", "DELETE", "/v1/kv/space/gone", "", nil},
		{"deletion of a pattern", "DELETE", "/v1/patterns/gone", "", nil},
		{"erasure", "DELETE", "/v1/agents/" + other, "", nil},
	}
}

// call makes the call and returns its status and answer.
func (c *written) call(t *testing.T, s *server) (int, string) {
	t.Helper()
	var headers []string
	if c.key != "" {
		headers = []string{"Idempotency-Key", c.key}
	}
	status, body, err := s.try(t.Context(), c.method, c.path, c.body, headers...)
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return status, string(body)
}

// TestStandbyAway takes the only synchronous standby away. No call that writes is acknowledged,
// also not when it is repeated, elsewhere, or after a restart of the primary: what the primary
// alone has would be gone when the standby takes over. Reads go on, and operators see what is
// missing. When the standby is back, repeats succeed.
func TestStandbyAway(t *testing.T) {
	t.Parallel()
	primary, second := newPair(t)
	store := storeAt("&target_session_attrs=read-write", primary.addr(), second.addr())
	servers := []*server{start(t, store), start(t, store)}
	id, other := servers[0].join(t, "live", nil), servers[0].join(t, "to end", nil)
	calls := writtenCalls(id, other)
	second.down(true)
	refused := func(when string) {
		t.Helper()
		longest := time.Duration(0)
		for i := range calls {
			for n, s := range servers {
				began := time.Now()
				status, body := calls[i].call(t, s)
				longest = max(longest, time.Since(began))
				if status != http.StatusServiceUnavailable {
					t.Errorf("%s: %s through server %d: %d %s", when, calls[i].name, n, status, body)
				}
			}
		}
		if longest > bound {
			t.Errorf("%s: a call took %s", when, longest)
		}
		t.Logf("%s: the longest call took %s", when, longest.Round(time.Millisecond))
	}
	refused("at first")
	refused("again")
	for _, s := range servers {
		s.call(t, 200, "GET", "/v1/agents/"+id+"/history", nil, nil)
		status, body, err := s.try(t.Context(), "GET", "/readyz", nil)
		if err != nil || status != 503 || !strings.Contains(string(body), "waiting for a synchronous standby") {
			t.Errorf("readyz: %d %s %v", status, body, err)
		}
		if n := loud(t, s); n > 6 {
			t.Errorf("%d errors are logged:\n%s", n, s.stderr)
		}
	}
	// The restart makes everything visible that waits.
	primary.down(true)
	primary.up()
	eventually(t, "the database answers again", func() bool {
		status, _, err := servers[0].try(t.Context(), "GET", "/v1/agents/"+id+"/history", nil)
		return err == nil && status == 200
	})
	refused("after a restart")
	// So does canceling the wait by hand. The call that was waiting must fail.
	waits := func() bool {
		return primary.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query NOT LIKE '%counter%'") != "0"
	}
	giveUp := func() {
		primary.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	}
	answer := make(chan int, 1)
	eventually(t, "a call is let through", func() bool {
		giveUp()
		go func() {
			status, _ := calls[0].call(t, servers[0])
			answer <- status
		}()
		for {
			select {
			case status := <-answer:
				if status != 503 {
					t.Errorf("a call whose wait was given up: %d", status)
				}
				return false
			case <-time.After(10 * time.Millisecond):
				if waits() {
					giveUp()
					if status := <-answer; status != 503 {
						t.Errorf("a call whose wait was given up: %d", status)
					}
					return true
				}
			}
		}
	})
	refused("after a cancel")
	second.up()
	for i := range calls {
		c := &calls[i]
		eventually(t, c.name+" succeeds", func() bool {
			status, _ := c.call(t, servers[i%2])
			return status < 300 || c.name == "leave" && status == 404
		})
	}
	primary.down(true)
	second.promote()
	s := start(t, storeAt("", second.addr()))
	if list := s.ledger(t, id); len(list) != 2 {
		t.Errorf("%d messages are there, want 2", len(list))
	}
	line, ok := servers[0].stderr.find(func(l string) bool { return strings.Contains(l, "takes writes again") })
	if !ok {
		t.Errorf("no line says that the database is back:\n%s", servers[0].stderr)
	}
	t.Log(line)
}

// loud returns how many lines of a server's log are errors.
func loud(t *testing.T, s *server) (n int) {
	t.Helper()
	for line := range strings.Lines(s.stderr.String()) {
		var entry struct{ Level string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "error" {
			n++
		}
	}
	return n
}
