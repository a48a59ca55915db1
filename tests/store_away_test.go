package tests

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// awayServer runs a server that passes turns, on a database behind a proxy.
func awayServer(t *testing.T, env ...string) (*server, *postgrestest.Proxy) {
	t.Helper()
	p := postgrestest.NewProxy(t, postgrestest.URL(t))
	_, base := upstream(t, fake.Script{})
	env = append([]string{
		"HEARDLOG_LLM_URL=" + base, "HEARDLOG_STORE=" + p.URL(), "HEARDLOG_ON_STORE_FAILURE=pass", "HEARDLOG_KEPT_FILE=" + filepath.Join(t.TempDir(), "kept"),
	}, env...)
	return start(t, env...), p
}

// ledgerTexts returns the messages of an agent as "turn role: content".
func (s *server) ledgerTexts(id string) (out []string) {
	s.t.Helper()
	var list struct {
		Messages []struct {
			TurnID        int64 `json:"turn_id"`
			Role, Content string
		}
	}
	s.get(agent(id, "/messages?limit=1000")).ok(&list)
	for _, m := range list.Messages {
		out = append(out, fmt.Sprintf("%d %s: %s", m.TurnID, m.Role, m.Content))
	}
	return out
}

// becomes waits until the ledger of an agent is as wanted.
func (s *server) becomes(id string, want []string) {
	s.t.Helper()
	var got []string
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		a := s.get(agent(id, "/messages?limit=1000"))
		if a.status != http.StatusOK {
			continue
		}
		if got = s.ledgerTexts(id); slices.Equal(got, want) {
			return
		}
	}
	s.t.Errorf("the ledger (-want +got):\n%s", cmp.Diff(want, got))
}

// counted returns the value of a metric.
func (s *server) counted(name string) string {
	s.t.Helper()
	for line := range strings.Lines(string(s.get("/metrics").body)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// passed wants an answer that went on without the store.
func (a answer) passed() {
	a.t.Helper()
	if a.status != http.StatusOK || a.header.Get("X-Heardlog-Memory") != "off" || a.header.Get("X-Heardlog-Turn") != "" || a.header.Get("X-Heardlog-Seq") != "" {
		a.t.Errorf("%s: %d %v %s", a.call, a.status, a.header, a.body)
	}
}

// TestAwayDatabase: the database hangs, cuts its connections, or commits without an answer. Calls
// go on, and everything is stored once when it is back.
func TestAwayDatabase(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(p *postgrestest.Proxy){
		"hung": func(p *postgrestest.Proxy) { p.Hole(true) },
		"cut":  func(p *postgrestest.Proxy) { p.Hole(true); p.Cut() },
		"deaf": func(p *postgrestest.Proxy) { p.Deaf(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := awayServer(t)
			id := s.join("n", nil)
			s.chat(agent(id, "/chat/completions"), "one", false).ok(nil)
			want := []string{"0 user: one", "0 assistant: You said: one"}
			s.becomes(id, want)
			fail(p)
			for i, words := range []string{"two", "three", "four"} {
				began := time.Now()
				s.chat(agent(id, "/chat/completions"), words, i == 1).passed()
				if took := time.Since(began); i > 0 && took > 2*time.Second {
					t.Errorf("%s took %v although the store was known to be away", words, took)
				}
				want = append(want, fmt.Sprintf("%d user: %s", i+1, words), fmt.Sprintf("%d assistant: You said: %s", i+1, words))
			}
			p.Hole(false)
			p.Deaf(false)
			p.Cut()
			s.becomes(id, want)
			s.chat(agent(id, "/chat/completions"), "five", false).ok(nil)
			s.becomes(id, append(want, "4 user: five", "4 assistant: You said: five"))
			if got := s.counted(`heardlog_away_turns_total{event="passed"}`); got != "3" {
				t.Errorf("%s turns passed", got)
			}
			if log := s.log.String(); strings.Count(log, "the store is away") != 1 || strings.Count(log, "the store is back") != 1 {
				t.Error("one line each at the beginning and the end of the outage")
			}
		})
	}
}

// TestAwayLate: another server stores a turn while this one has lost the database. The kept turn
// comes after it, and what the other server has of it from the client's list is not doubled.
func TestAwayLate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		next string
		want []string
	}{
		"only what is new": {`{"messages":[{"role":"user","content":"three"}]}`, []string{
			"1 user: three", "1 assistant: You said: three", "2 user: two", "2 assistant: You said: two",
		}},
		"the whole list": {`{"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"You said: one"},{"role":"user","content":"two"},
			{"role":"assistant","content":"You said: two"},{"role":"user","content":"three"}]}`, []string{
			"1 user: two", "1 assistant: You said: two", "2 user: three", "2 assistant: You said: three",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.URL(t)
			p := postgrestest.NewProxy(t, url)
			s, _ := awayServer(t, "HEARDLOG_STORE="+p.URL())
			_, base := upstream(t, fake.Script{})
			other := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_STORE="+url)
			id := s.join(name, nil)
			s.chat(agent(id, "/chat/completions"), "one", false).ok(nil)
			p.Hole(true)
			s.chat(agent(id, "/chat/completions"), "two", false).passed()
			other.post(agent(id, "/chat/completions"), tt.next).ok(nil)
			p.Hole(false)
			p.Cut()
			s.becomes(id, append([]string{"0 user: one", "0 assistant: You said: one"}, tt.want...))
		})
	}
}

// TestAwayResponses: a response that went on without the store does not promise to be stored.
func TestAwayResponses(t *testing.T) {
	t.Parallel()
	s, p := awayServer(t)
	id := s.join("n", nil)
	var first struct{ ID string }
	s.post(agent(id, "/responses"), `{"input":"one"}`).ok(&first)
	p.Hole(true)
	for _, body := range []string{
		`{"input":"two","previous_response_id":"` + first.ID + `"}`, `{"input":"three","stream":true}`, `{"input":"four","previous_response_id":"resp_` + id + `_0"}`,
	} {
		got := s.post(agent(id, "/responses"), body)
		got.passed()
		if !strings.Contains(string(got.body), `"store":false`) {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	p.Hole(false)
	p.Cut()
	s.becomes(id, []string{
		"0 user: one", "0 assistant: You said: one", "1 user: two", "1 assistant: You said: two",
		"2 user: three", "2 assistant: You said: three", "3 user: four", "3 assistant: You said: four",
	})
}

// TestAwayUnknown: an agent that is first named while the database is away is started when it is
// back, with its labels. One that this server does not know but another has is not started again.
func TestAwayUnknown(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	p := postgrestest.NewProxy(t, url)
	s, _ := awayServer(t, "HEARDLOG_STORE="+p.URL(), "HEARDLOG_AUTO_JOIN=true")
	_, base := upstream(t, fake.Script{})
	other := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_STORE="+url, "HEARDLOG_AUTO_JOIN=true")
	other.chat(v1+"/chat/completions", "one", false, "X-Agent-Id", "theirs").ok(nil)
	p.Hole(true)
	for _, id := range []string{"new", "theirs"} {
		s.chat(v1+"/chat/completions", "two", false, "X-Agent-Id", id, "X-Heardlog-Label-Shop", "5").passed()
		s.chat(v1+"/chat/completions", "three", true, "X-Agent-Id", id).passed()
	}
	p.Hole(false)
	p.Cut()
	s.becomes("new", []string{"0 user: two", "0 assistant: You said: two", "1 user: three", "1 assistant: You said: three"})
	s.becomes("theirs", []string{
		"0 user: one", "0 assistant: You said: one", "1 user: two", "1 assistant: You said: two", "2 user: three", "2 assistant: You said: three",
	})
	var got struct{ Labels map[string]string }
	if s.get(agent("new", "")).ok(&got); len(got.Labels) != 1 {
		t.Errorf("labels %v", got.Labels)
	}
}

// TestAwayRefused: without the setting calls are refused, and so is what is not a turn, an agent
// that this server does not know, and one that has ended.
func TestAwayRefused(t *testing.T) {
	t.Parallel()
	s, p := awayServer(t)
	id, ended := s.join("n", nil), s.join("ended", nil)
	s.post(agent(ended, "/leave"), nil).ok(nil)
	p.Hole(true)
	s.chat(agent(id, "/chat/completions"), "one", false).passed()
	s.chat(agent("unknown", "/chat/completions"), "one", false).failed(503, "unavailable", "does not know the agent")
	s.chat(agent(ended, "/chat/completions"), "one", false).failed(410, "stopped", ended)
	if got := s.post(agent(id, "/speak"), `{"text":"Hello"}`); got.status != 503 {
		t.Errorf("speak: %d %s", got.status, got.body)
	}
}
