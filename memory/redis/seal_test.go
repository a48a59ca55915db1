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

// TestSealAfterLoss takes the check value and all else of the whole away while a server runs: what it seals then can be read after a restart, in the same time and where nobody was there to put the value back, and no
// other key opens. An agent that cannot be read does not keep the others from being given.
func TestSealAfterLoss(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	told := &notices{told: make(chan struct{}, 1)}
	key := redis.Options{URL: url, SealKey: []byte("key"), Notice: told.add}
	s := open(t, key)
	prefix := strings.TrimSuffix(s.ProjectTag("acme"), "{acme/}")
	lose := func() {
		redistest.Do(t, url, "DEL", prefix+"{/}:seal", prefix+"{/}:mark", prefix+"{/}:projects")
	}
	lose()
	told.want(t, "has lost what it held")
	if redistest.Do(t, url, "EXISTS", prefix+"{/}:seal") != "1" {
		t.Error("the check value was not put back")
	}
	create(t, s, agent(1))
	lose()
	again := open(t, key)
	if _, err := again.Head(t.Context(), "acme", agent(1).ID); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	for _, other := range []string{"", "another"} {
		if s, err := redis.Open(t.Context(), redis.Options{URL: url, SealKey: []byte(other)}); err == nil {
			_ = s.Close()
			t.Errorf("key %q opens it", other)
		}
	}
	create(t, again, agent(2))
	redistest.Do(t, url, "HSET", again.AgentTag("acme", agent(1).ID)+":h", "a", "nothing")
	var live []string
	err := again.Live(t.Context(), func(h memory.Head) error {
		live = append(live, h.Agent.ID)
		return nil
	})
	if err != nil || len(live) != 1 || live[0] != agent(2).ID {
		t.Errorf("live beside an agent that cannot be read: %v, %v", live, err)
	}
	told.want(t, "agent "+agent(1).ID+" of project acme cannot be read")
}
