package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// memoryBodies are the calls of an agent's memory that take a body, and their methods.
var memoryBodies = map[string]string{"/clear": "POST", "/summary": "PUT", "/context": "POST", "/snapshot": "PUT", "/trim": "POST", "/repair": "POST"}

// summaryOf is the answer of the summary calls.
type summaryOf struct {
	Summary   *string `json:"summary"`
	UpdatedMS unixMS  `json:"updated_at"`
	UpToSeq   int64   `json:"up_to_seq"`
}

func (h history) texts() []string {
	out := []string{}
	for _, m := range h.Contents {
		out = append(out, m.Content)
	}
	return out
}

// TestClear: cleared messages leave the memory under every base path and over a restart. Summary
// and ledger stay.
//
// Rules: 000-21, 001-25
func TestClear(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, base := range []string{v1, agora, cn} {
		id := s.join("n"+base, nil)
		s.say(id, user("a"), assistant("b"))
		s.do("PUT", base+"/agents/"+id+"/summary", `{"summary":"They greeted."}`).ok(nil)
		if got := s.post(base+"/agents/"+id+"/clear", nil); got.status != http.StatusNoContent || len(got.body) != 0 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		s.say(id, user("c"))
		s = s.again()
		if d := cmp.Diff([]string{"c"}, s.history(id).texts()); d != "" {
			t.Errorf("history (-want +got):\n%s", d)
		}
		if d := cmp.Diff([]string{"c"}, s.historyAll(id)); d != "" {
			t.Errorf("the whole history (-want +got):\n%s", d)
		}
		if d := cmp.Diff([]string{"0 user: a", "0 assistant: b", "1 user: c"}, texts(s.ledger(id))); d != "" {
			t.Errorf("ledger (-want +got):\n%s", d)
		}
		for _, m := range s.ledger(id) {
			if cleared := m.Content != "c"; cleared != (m.InMemory != nil) {
				t.Errorf("%s: in_memory %v", m.Content, m.InMemory)
			}
		}
		var sum summaryOf
		if s.get(agent(id, "/summary")).ok(&sum); sum.Summary == nil || *sum.Summary != "They greeted." {
			t.Errorf("summary %+v", sum)
		}
	}
	id := s.join("refusals", nil)
	s.post(agent(id, "/clear"), `{"all":true}`).refused(http.StatusBadRequest, "InvalidFieldValue", "all")
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.post(agent(id, "/clear"), nil).refused(http.StatusGone, "TaskNotFound", "stopped")
}

func (s *server) historyAll(id string) []string {
	var h history
	s.get(agent(id, "/history?limit=all")).ok(&h)
	return h.texts()
}

// TestSummary: the summary is null at first, can be replaced and removed, and is no message. With a
// seq, the messages that it covers leave the memory.
//
// Rules: 001-20
func TestSummary(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	at := agent(id, "/summary")
	if got := s.get(at).ok(nil); string(got.body) != "{\"summary\":null}\n" {
		t.Errorf("without one: %s", got.body)
	}
	said := s.say(id, user("a"), assistant("b"), user("c"), assistant("d"))
	var sum summaryOf
	for _, text := range []string{"first", "second \"é\"\n"} {
		s.do("PUT", at, map[string]any{"summary": text}).ok(&sum)
		if sum.Summary == nil || *sum.Summary != text || sum.UpdatedMS == 0 {
			t.Errorf("set %q, got %+v", text, sum)
		}
	}
	if n := len(s.ledger(id)); n != 4 {
		t.Errorf("the ledger has %d messages: a summary is none", n)
	}
	s = s.again()
	s.do("PUT", agent(id, "/summary"), map[string]any{"summary": "cut", "up_to_seq": said[1].Seq}).ok(&sum)
	if sum.UpToSeq != said[1].Seq {
		t.Errorf("%+v", sum)
	}
	if d := cmp.Diff([]string{"c", "d"}, s.history(id).texts()); d != "" {
		t.Errorf("history (-want +got):\n%s", d)
	}
	for body, words := range map[string]string{
		`{}`: "summary", `{"summary":""}`: "empty", `{"summary":"a","up_to_seq":-1}`: "up_to_seq", `{"summary":"a","x":1}`: "x",
	} {
		got := s.do("PUT", at, body)
		var e struct{ Detail string }
		if err := json.Unmarshal(got.body, &e); err != nil || got.status != http.StatusBadRequest || !strings.Contains(e.Detail, words) {
			t.Errorf("%s: %d %s, want a 400 that says %s", body, got.status, got.body, words)
		}
	}
	s.do("PUT", at, `{"summary":"a","up_to_seq":99}`).refused(http.StatusConflict, "TaskConflict", "99", "4")
	if got := s.do("DELETE", at, nil); got.status != http.StatusNoContent {
		t.Errorf("%d %s", got.status, got.body)
	}
	if s.get(at).ok(&sum); sum.Summary != nil && *sum.Summary != "" {
		t.Errorf("taken away: %+v", sum)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.do("PUT", at, `{"summary":"a"}`).refused(http.StatusGone, "TaskNotFound")
	s.do("DELETE", at, nil).refused(http.StatusGone, "TaskNotFound")
	s.get(at).ok(nil)
}

// TestErase: an erased agent, live or ended, is gone for every call under every base path, also
// after a restart, and its name is free.
//
// Rules: 000-21
func TestErase(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, base := range []string{v1, agora, cn} {
		for _, ended := range []bool{false, true} {
			id := s.join("n", nil)
			s.say(id, user("a"), assistant("b"))
			tail := s.tail(id)
			if ended {
				s.post(agent(id, "/leave"), nil).ok(nil)
			}
			if got := s.do("DELETE", base+"/agents/"+id, nil); got.status != http.StatusNoContent || len(got.body) != 0 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			tail.end()
			s.do("DELETE", base+"/agents/"+id, nil).absent()
			s = s.again()
			for _, c := range calls {
				if path, ok := cutAgent(c.path); ok {
					s.do(c.method, agent(id, path), c.body).absent()
				}
			}
		}
	}
}

// cutAgent returns the part of a path after the agent.
func cutAgent(path string) (string, bool) {
	const of = "/v1/agents/{id}"
	if len(path) < len(of) || path[:len(of)] != of {
		return "", false
	}
	return path[len(of):], true
}
