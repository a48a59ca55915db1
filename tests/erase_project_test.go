package tests

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type receipt struct {
	Project, User string
	ErasedAt      string `json:"erased_at"`
	Erased        struct {
		Agents, Memories         int
		Conversations, Endpoints *int
	}
	Shared  []string `json:"shared_agents"`
	SharedN int      `json:"shared_total"`
}

// TestEraseUser: a user's data is erased in all agents and ledgers, other users' data is not, and
// agents with several users are named. The call can be repeated.
func TestEraseUser(t *testing.T) {
	t.Parallel()
	s := start(t)
	scope := func(user string) map[string]any {
		return map[string]any{"heardlog": map[string]any{"scope": map[string]any{"user_id": user}}}
	}
	mine := s.join("mine", scope("anna/1"))
	s.say(mine, user("private"), assistant("b"))
	ended := s.join("ended", scope("anna/1"))
	s.post(agent(ended, "/leave"), nil).ok(nil)
	alone := s.join("alone", map[string]any{"channel": "c", "agent_rtc_uid": "0", "remote_rtc_uids": []string{"anna/1"}})
	shared := s.join("shared", map[string]any{"channel": "d", "agent_rtc_uid": "0", "remote_rtc_uids": []string{"anna/1", "bob"}})
	s.say(shared, user("of somebody"))
	theirs := s.join("theirs", scope("bob"))
	s.post(agent(theirs, "/messages"), map[string]any{"role": "user", "content": "private too", "scope": map[string]any{"user_id": "anna/1"}}).ok(nil)
	s.say(theirs, user("of bob"))
	if got := s.post("/v1/memories", map[string]any{"memory_type": "human", "content": "private as well", "metadata": map[string]any{"user_id": "anna/1"}}); got.status > 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := s.post("/v1/memories", map[string]any{"memory_type": "human", "content": "of bob", "metadata": map[string]any{"user_id": "bob"}}); got.status > 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}

	var got receipt
	s.do("DELETE", "/v1/users/anna%2F1", nil).ok(&got)
	if got.Project != "default" || got.User != "anna/1" || got.ErasedAt == "" || got.Erased.Agents != 3 || got.Erased.Memories != 2 || got.SharedN != 1 || !cmp.Equal(got.Shared, []string{shared}) {
		t.Errorf("receipt %+v", got)
	}
	for _, id := range []string{mine, ended, alone} {
		s.get(agent(id, "")).refused(http.StatusNotFound, "TaskNotFound")
	}
	for _, id := range []string{shared, theirs} {
		s.get(agent(id, "")).ok(nil)
	}
	var found struct{ Memories []struct{ Content string } }
	s.post("/v1/memories/search", map[string]any{"scope": "user", "limit": 100}).ok(&found)
	if len(found.Memories) != 2 || found.Memories[0].Content != "of bob" || found.Memories[1].Content != "of bob" {
		t.Errorf("left are %+v", found)
	}
	got = receipt{}
	s.do("DELETE", "/v1/users/anna%2F1", nil).ok(&got)
	if got.Erased.Agents != 0 || got.Erased.Memories != 0 || got.SharedN != 1 {
		t.Errorf("again: %+v", got)
	}
	long := make([]byte, 257)
	for i := range long {
		long[i] = 'x'
	}
	s.do("DELETE", "/v1/users/"+string(long), nil).refused(http.StatusBadRequest, "InvalidFieldValue", "257")
}

// TestEraseProject: a project's data is erased, another project's is not. The call needs the
// project's own credentials.
func TestEraseProject(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	for _, who := range [][]string{alice, bob} {
		for _, name := range []string{"a", "b"} {
			s.join(name, nil, who...)
		}
		if got := s.post("/v1/memories", map[string]any{"memory_type": "human", "content": "x", "metadata": map[string]any{"user_id": "u"}}, who...); got.status > 204 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		if got := s.do("PUT", "/v1/conversations/c", "[]", who...); got.status > 204 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	s.do("DELETE", "/v1/projects/p2", nil, alice...).refused(http.StatusNotFound, "TaskNotFound", "p2")
	var got receipt
	s.do("DELETE", "/v1/projects/p1", nil, alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "confirm")
	s.do("DELETE", "/v1/projects/p1?confirm=p2", nil, alice...).refused(http.StatusBadRequest, "InvalidFieldValue", "confirm")
	s.do("DELETE", "/v1/projects/p1?confirm=p1", nil, alice...).ok(&got)
	if got.Project != "p1" || got.Erased.Agents != 2 || got.Erased.Memories != 1 || got.Erased.Conversations == nil || *got.Erased.Conversations != 1 || got.Erased.Endpoints == nil {
		t.Errorf("receipt %+v", got)
	}
	for i, who := range [][]string{alice, bob} {
		agents := s.find("", who...).Agents
		var saved struct{ Total int }
		s.get("/v1/conversations", who...).ok(&saved)
		if want := 2 * i; len(agents) != want || saved.Total != i {
			t.Errorf("project %d has %d agents and %d conversations", i+1, len(agents), saved.Total)
		}
	}
}
