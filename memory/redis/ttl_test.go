package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// pttl gives how long a key of the store lasts, in ms.
func pttl(t *testing.T, url, at string) int64 {
	t.Helper()
	base, _, _ := strings.Cut(url, "?")
	n, err := strconv.ParseInt(redistest.Do(t, base, "PTTL", at), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func keysOf(t *testing.T, url, begin string) []string {
	t.Helper()
	base, _, _ := strings.Cut(url, "?")
	return redistest.Keys(t, base, begin)
}

// fill writes something into every key that an agent may have.
func fill(t *testing.T, s *redis.Store, a memory.Agent) {
	t.Helper()
	err := s.Update(t.Context(), a.Project, a.ID, func(tx memory.AgentView) (memory.Change, error) {
		c, err := says("hello")(tx)
		c.Append[0].ID = "client"
		c.Append[0].Amend(func(r *memory.Rare) { r.Scope.UserID = "ann" })
		return c, err
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMilli()
	e := memory.WorkingEntry{Key: "k", Value: []byte("1"), UpdatedMS: now, ExpiresMS: now + 3_600_000}
	if err := s.PutWorking(t.Context(), a.Project, a.ID, e, memory.WorkingLimit{Keys: 9, Bytes: 99}, now); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Beat(t.Context(), []memory.Seen{{Project: a.Project, ID: a.ID, AskedMS: 1, SpokenMS: 1}}); err != nil {
		t.Fatal(err)
	}
}

// TestTTL: every key of a live agent lasts as long as its life can, every key of an ended one for the ttl, whatever is written to it then; what is not to expire has no end.
func TestTTL(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t) + "&ttl=10m"
	s := open(t, redis.Options{URL: url})
	a := agent(1)
	create(t, s, a)
	fill(t, s, a)
	check := func(when string, least, most time.Duration) {
		t.Helper()
		keys := keysOf(t, url, s.AgentTag(a.Project, a.ID))
		if len(keys) != 9 {
			t.Errorf("%s: keys %q", when, keys)
		}
		for _, at := range keys {
			if left := pttl(t, url, at); left < least.Milliseconds() || left > most.Milliseconds() {
				t.Errorf("%s: %s ends in %v", when, at, time.Duration(left)*time.Millisecond)
			}
		}
	}
	check("live", memory.Lifetime+10*time.Minute, memory.Lifetime+2*time.Hour)
	if err := s.Update(t.Context(), a.Project, a.ID, ends(5)); err != nil {
		t.Fatal(err)
	}
	check("ended", 8*time.Minute, 10*time.Minute)
	if err := s.Update(t.Context(), a.Project, a.ID, says("late")); err != nil {
		t.Fatal(err)
	}
	check("written to after its end", 8*time.Minute, 10*time.Minute)

	forever := open(t, redis.Options{URL: redistest.URL(t) + "&ttl=0"})
	create(t, forever, a)
	if err := forever.Update(t.Context(), a.Project, a.ID, ends(5)); err != nil {
		t.Fatal(err)
	}
	if left := pttl(t, url, forever.AgentTag(a.Project, a.ID)+":h"); left != -1 {
		t.Errorf("with ttl=0 an agent ends in %d ms", left)
	}
}

// TestExpired takes an agent's keys away as their end does: nothing finds it any more, its name and keys are free, and of what found it nothing stays behind.
func TestExpired(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	s := open(t, redis.Options{URL: url})
	a := agent(1)
	a.Name, a.JoinKey = "desk", "join"
	a.Settings.Call = memory.Call{Keys: []string{"call:1"}, Shared: []string{"room:1"}}
	create(t, s, a)
	fill(t, s, a)
	base, _, _ := strings.Cut(url, "?")
	for _, at := range keysOf(t, url, s.AgentTag(a.Project, a.ID)) {
		redistest.Do(t, base, "DEL", at)
	}
	if _, err := s.ByKey(t.Context(), "acme", "call:1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("by key: %v", err)
	}
	if list, _, err := s.Items(t.Context(), "acme", memory.ItemQuery{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("items %+v, %v", list, err)
	}
	page, err := s.Agents(t.Context(), memory.AgentQuery{Project: "acme", Limit: 10})
	if err != nil || page.Total != 0 || len(page.Agents) != 0 {
		t.Errorf("list %+v, %v", page, err)
	}
	for _, at := range keysOf(t, url, s.ProjectTag("acme")) {
		if kind := redistest.Do(t, base, "TYPE", at); kind != "string" {
			t.Errorf("%s is left behind", at)
		}
	}
	b := agent(2)
	b.Name, b.JoinKey, b.Settings.Call = a.Name, a.JoinKey, a.Settings.Call
	create(t, s, b)
}

// TestClaims: what stands in the way of a new agent and belongs to a maker that died is given up, and what belongs to one that may live is not.
func TestClaims(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	s := open(t, redis.Options{URL: url})
	base, _, _ := strings.Cut(url, "?")
	claim := func(id string, age time.Duration) {
		ms := time.Now().Add(-age).UnixMilli()
		tag := s.ProjectTag("acme")
		redistest.Do(t, base, "HSET", tag+":info", id, fmt.Sprintf(`0000000000000001{"t":"dead","r":1,"s":2,"n":"desk","a":1,"p":%d}`, ms))
		redistest.Do(t, base, "HSET", tag+":names", "desk", id)
		redistest.Do(t, base, "ZADD", tag+":pending", strconv.FormatInt(ms, 10), id)
	}
	a := agent(1)
	a.Name = "desk"
	claim("other", time.Second)
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a name that is being given: %v", err)
	}
	claim("other", time.Hour)
	create(t, s, a)
	if page, err := s.Agents(t.Context(), memory.AgentQuery{Project: "acme", Limit: 10}); err != nil || page.Total != 1 {
		t.Errorf("list %+v, %v", page, err)
	}
	claim("third", time.Hour)
	b := agent(2)
	if _, _, err := s.Create(t.Context(), b, 2, memory.Change{}); err != nil {
		t.Errorf("a place that a dead maker holds: %v", err)
	}
}

// TestNotices: what may be lost is said in plain words, and nothing where nothing is.
func TestNotices(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, tt := range []struct{ aof, fsync, save, policy, want string }{
		{"no", "everysec", "", "noeviction", "keeps nothing on disk: all memory is gone when it restarts"},
		{"no", "everysec", "60 1", "noeviction", "since the last one is gone"},
		{"yes", "no", "", "noeviction", "when its machine stops"},
		{"yes", "everysec", "", "noeviction", "a second or two"},
		{"yes", "always", "", "noeviction", ""},
		{"yes", "always", "", "allkeys-lru", "drops memory of agents"},
	} {
		for name, value := range map[string]string{"appendonly": tt.aof, "appendfsync": tt.fsync, "save": tt.save, "maxmemory-policy": tt.policy} {
			redistest.Do(t, server.URL(), "CONFIG", "SET", name, value)
		}
		var told []string
		open(t, redis.Options{URL: server.URL(), Notice: func(text string) { told = append(told, text) }})
		if tt.want == "" && len(told) != 0 || tt.want != "" && (len(told) != 1 || !strings.Contains(told[0], tt.want)) {
			t.Errorf("%+v: %q", tt, told)
		}
		p, err := redis.Probe(t.Context(), server.URL())
		if err != nil || (p.Lossy == "") != (tt.want == "") || !strings.Contains(p.Version, ".") {
			t.Errorf("%+v: %+v, %v", tt, p, err)
		}
	}
}

// TestURL: what a URL may say, and that no error repeats its password.
func TestURL(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "hunter3")
	for _, url := range []string{
		"redis://u:hunter2@/0", "redis://u:hunter2@h/x", "redis://u:hunter2@h?ttl=1s", "redis://u:hunter2@h?ttl=long", "redis://u:hunter2@h?prefix=a{b", "redis://u:hunter2@h?prefix=",
		"redis://u:hunter2@h?colour=red", "redis://:hunter2@" + server.Addr(), "redis://u:hunter2@127.0.0.1:1",
	} {
		s, err := redis.Open(t.Context(), redis.Options{URL: url})
		if err == nil {
			_ = s.Close()
			t.Errorf("%s was opened", url)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
		if name := redis.Redact(url); strings.Contains(name, "hunter2") || strings.Contains(name, "?") {
			t.Errorf("%s is shown as %s", url, name)
		}
	}
	open(t, redis.Options{URL: "redis://:hunter3@" + server.Addr() + "?ttl=1h&prefix=p"})
}

// TestSealed: with a key nothing of what is secret stands in the server, and a store with another key, or none, is not opened.
func TestSealed(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	s := open(t, redis.Options{URL: url, SealKey: []byte("a key")})
	a := agent(1)
	a.Settings.LLM.APIKey = "sk-hunter2"
	create(t, s, a)
	base, _, _ := strings.Cut(url, "?")
	if text := redistest.Do(t, base, "HGET", s.AgentTag(a.Project, a.ID)+":h", "a"); text == "" || strings.Contains(text, "hunter2") {
		t.Errorf("stored: %q", text)
	}
	for _, key := range []string{"", "another key"} {
		if other, err := redis.Open(t.Context(), redis.Options{URL: url, SealKey: []byte(key)}); err == nil {
			_ = other.Close()
			t.Errorf("opened with the key %q", key)
		}
	}
	again := open(t, redis.Options{URL: url, SealKey: []byte("a key")})
	if h, err := again.Head(t.Context(), a.Project, a.ID); err != nil || h.Agent.Settings.LLM.APIKey != "sk-hunter2" {
		t.Errorf("%+v, %v", h.Agent.Settings.LLM, err)
	}
}

// TestIndexLost takes parts of what finds agents away, as a server does that drops keys when its memory is full: the operator is told, and agents are found again as before.
func TestIndexLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{":info", ":all", ":st2", ":ended", ":info :st2 :st4 :names :last :find"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			url := redistest.URL(t)
			told := &notices{told: make(chan struct{}, 1)}
			s := open(t, redis.Options{URL: url, Notice: told.add})
			for n := range 4 {
				a := agent(n)
				a.Name = fmt.Sprint("name ", n)
				a.Settings.Call.Keys = []string{fmt.Sprint("key ", n)}
				create(t, s, a)
			}
			if err := s.Update(t.Context(), "acme", agent(3).ID, ends(5)); err != nil {
				t.Fatal(err)
			}
			for _, suffix := range strings.Fields(lost) {
				redistest.Do(t, url, "DEL", s.ProjectTag("acme")+suffix)
			}
			if lost == ":info" { // before anybody has looked
				if n, err := s.Sweep(t.Context(), 1000, 10); n != 1 || err != nil {
					t.Errorf("%d ended agents were swept, %v", n, err)
				}
				told.want(t, "is lost, as happens where Redis drops keys")
				return
			}
			told.want(t, "is lost, as happens where Redis drops keys")
			deadline := time.Now().Add(time.Minute)
			for {
				page, err := s.Agents(t.Context(), memory.AgentQuery{Project: "acme", Limit: 10})
				if err != nil {
					t.Fatal(err)
				}
				live, err := s.Agents(t.Context(), memory.AgentQuery{Project: "acme", Limit: 10, Statuses: []memory.Status{memory.Running}})
				if err != nil {
					t.Fatal(err)
				}
				last, lastErr := s.LastNamed(t.Context(), "acme", "name 3")
				found, keyErr := s.ByKey(t.Context(), "acme", "key 1")
				if page.Total == 4 && len(page.Agents) == 4 && live.Total == 3 && last == agent(3).ID && found == agent(1).ID && lastErr == nil && keyErr == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d agents of %d, %d live, last %q (%v), by key %q (%v)", len(page.Agents), page.Total, live.Total, last, lastErr, found, keyErr)
				}
				time.Sleep(10 * time.Millisecond) // between two looks
			}
			b := agent(9)
			b.Name = "name 1"
			_, _, err := s.Create(t.Context(), b, 0, memory.Change{})
			if !fault.Is(err, fault.Conflict) {
				t.Errorf("a name that a live agent has: %v", err)
			}
			err = nil
			for n := 0; n == 0 && err == nil; time.Sleep(10 * time.Millisecond) { // between two looks
				if n, err = s.Sweep(t.Context(), 1000, 10); time.Now().After(deadline) {
					t.Fatal("the ended agent is not swept")
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
