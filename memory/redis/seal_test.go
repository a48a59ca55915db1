package redis_test

import (
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// TestKeyLater gives a prefix a key that had none: the operator is told, what was in clear can be read, and is encrypted when it is written again. Without the key, or with another, nothing opens then.
func TestKeyLater(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	plain := open(t, redis.Options{URL: url})
	a := agent(1)
	a.Settings.LLM.APIKey = "hidden-key"
	create(t, plain, a)
	if err := plain.SaveConversation(t.Context(), "acme", "c", []byte("hidden-words"), 0); err != nil {
		t.Fatal(err)
	}
	told := &notices{told: make(chan struct{}, 1)}
	key := redis.Options{URL: url, SealKey: []byte("key"), Notice: told.add}
	s := open(t, key)
	told.want(t, "There was no secret key before")
	stored := func() string {
		return redistest.Do(t, url, "HGET", s.AgentTag("acme", a.ID)+":h", "a") + redistest.Do(t, url, "HGET", s.ProjectTag("acme")+":conv", "c")
	}
	if got := stored(); !strings.Contains(got, "hidden-key") || !strings.Contains(got, "hidden-words") {
		t.Fatalf("in clear it would be seen in %q", got)
	}
	h, err := s.Head(t.Context(), "acme", a.ID)
	if err != nil || h.Agent.Settings.LLM.APIKey != "hidden-key" {
		t.Errorf("what was stored in clear: %+v, %v", h.Agent.Settings.LLM, err)
	}
	if body, err := s.LoadConversation(t.Context(), "acme", "c"); err != nil || string(body) != "hidden-words" {
		t.Errorf("what was stored in clear: %q, %v", body, err)
	}
	if err := s.Update(t.Context(), "acme", a.ID, ends(5)); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveConversation(t.Context(), "acme", "c", []byte("hidden-words"), 0); err != nil {
		t.Fatal(err)
	}
	if got := stored(); strings.Contains(got, "hidden") {
		t.Errorf("still in clear: %q", got)
	}
	for _, other := range []string{"", "another"} {
		if s, err := redis.Open(t.Context(), redis.Options{URL: url, SealKey: []byte(other)}); err == nil {
			_ = s.Close()
			t.Errorf("key %q opens it", other)
		}
	}
	again := open(t, key)
	if list, err := again.Agents(t.Context(), memory.AgentQuery{Project: "acme", Limit: 10}); err != nil || len(list.Agents) != 1 || list.Agents[0].Settings.LLM.APIKey != "hidden-key" {
		t.Errorf("the next start: %+v, %v", list, err)
	}
	told.mu.Lock()
	defer told.mu.Unlock()
	if n := strings.Count(strings.Join(told.list, "\n"), "There was no secret key"); n != 1 {
		t.Errorf("told %d times", n)
	}
}
