package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

type checkpointOf struct {
	ID         int64  `json:"id"`
	CreatedAt  string `json:"created_at"`
	Messages   int
	Bytes      int
	Compressed bool
}

// checkpoint saves an agent's memory.
func (s *server) checkpoint(id string) (c checkpointOf) {
	s.t.Helper()
	s.post(agent(id, "/checkpoints"), nil).is(http.StatusCreated, &c)
	return c
}

// TestCheckpoints: a checkpoint is saved on demand, survives a restart, and brings back the context
// byte for byte, in another agent too.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_SECRET_KEY=a key that is long enough")
	id := s.join("ann", nil)
	s.say(id, user("a word of the caller"), assistant("two"), user("three"))
	context := func(id string) string {
		_, messages, _ := strings.Cut(string(s.post(agent(id, "/context"), `{}`).ok(nil).body), `"messages":`)
		return messages
	}
	before := context(id)
	c := s.checkpoint(id)
	if c.Messages != 3 || !c.Compressed || c.Bytes == 0 || c.CreatedAt == "" {
		t.Errorf("%+v", c)
	}
	s.say(id, assistant("four"))
	second := s.checkpoint(id)
	if got := s.post(agent(id, "/clear"), nil); got.status != http.StatusNoContent {
		t.Fatal(got.status)
	}
	s = s.again()
	var list struct{ Checkpoints []checkpointOf }
	s.get(agent(id, "/checkpoints")).ok(&list)
	if d := cmp.Diff([]checkpointOf{second, c}, list.Checkpoints); d != "" {
		t.Errorf("the list (-want +got):\n%s", d)
	}
	other := s.join("bea", nil)
	restore := func(body any) answer { return s.post(agent(id, fmt.Sprintf("/checkpoints/%d/restore", c.ID)), body) }
	for _, into := range []struct {
		id   string
		body any
	}{{id, nil}, {other, map[string]string{"into_agent_id": other}}} {
		var out struct {
			AgentID  string `json:"agent_id"`
			Messages int
		}
		if restore(into.body).ok(&out); out.AgentID != into.id || out.Messages != 3 {
			t.Errorf("%+v", out)
		}
		if after := context(into.id); after != before {
			t.Errorf("the context of %s is\n%s\nand was\n%s", into.id, after, before)
		}
	}
	restore(`{"into":"x"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "into")
	restore(`{"into_agent_id":"nobody"}`).refused(http.StatusNotFound, "TaskNotFound", "nobody")
	s.post(agent(id, "/checkpoints"), `{"a":1}`).refused(http.StatusBadRequest, "InvalidFieldValue", "a")
	for _, bad := range []string{"x", "0", "-1"} {
		s.do("DELETE", agent(id, "/checkpoints/"+bad), nil).refused(http.StatusBadRequest, "InvalidFieldValue", "checkpoint")
	}
	for range 2 {
		s.do("DELETE", agent(id, fmt.Sprintf("/checkpoints/%d", c.ID)), nil).is(http.StatusNoContent, nil)
	}
	restore(nil).refused(http.StatusNotFound, "TaskNotFound", fmt.Sprint(c.ID))
	s.get(agent(id, "/checkpoints?limit=1")).refused(http.StatusBadRequest, "InvalidFieldValue", "limit")

	s.post(agent(other, "/leave"), nil).ok(nil)
	s.post(agent(id, fmt.Sprintf("/checkpoints/%d/restore", second.ID)), map[string]string{"into_agent_id": other}).refused(http.StatusGone, "TaskNotFound", "stopped")
	s.post(agent(other, "/checkpoints"), nil).refused(http.StatusGone, "TaskNotFound", "stopped")
	for _, c := range []struct{ method, path string }{{"POST", ""}, {"GET", ""}, {"DELETE", "/1"}} {
		s.do(c.method, agent("nobody", "/checkpoints", c.path), nil).absent("nobody")
	}
	s.do("DELETE", agent(id), nil).is(http.StatusNoContent, nil)
	s.get(agent(id, "/checkpoints")).refused(http.StatusNotFound, "TaskNotFound")
}

// TestCheckpointsOfAnother: an erased agent takes no checkpoints of one whose ID goes on behind its
// own.
func TestCheckpointsOfAnother(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Mm-hm."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	for _, id := range []string{"desk", "desk-2"} {
		s.post(v1+"/chat/completions", map[string]any{"model": "m", "messages": []any{user("Hello")}}, "X-Agent-Id", id).ok(nil)
		s.checkpoint(id)
	}
	s.deleted204(agent("desk", ""))
	var list struct{ Checkpoints []struct{ ID int64 } }
	if s.get(agent("desk-2", "/checkpoints")).ok(&list); len(list.Checkpoints) != 1 {
		t.Errorf("%+v", list)
	}
}
