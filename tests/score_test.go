package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// scoreOf is a score of a call or a turn.
type scoreOf struct {
	ID, Name                string
	Value                   any
	TurnID                  *int64 `json:"turn_id"`
	Comment, Author, Source string
	UpdatedAt               string `json:"updated_at"`
}

func (s *server) scores(id string) (list []scoreOf) {
	s.t.Helper()
	var out struct{ Scores []scoreOf }
	s.get(agent(id, "/scores")).ok(&out)
	for i := range out.Scores {
		if out.Scores[i].UpdatedAt == "" {
			s.t.Errorf("score %q has no time", out.Scores[i].ID)
		}
		out.Scores[i].UpdatedAt = ""
	}
	return out.Scores
}

// TestScores: calls and turns are scored while they run and later, found by their scores, and keep
// them over a restart and an export; webhooks are told.
func TestScores(t *testing.T) {
	t.Parallel()
	h := receive(t, hookSecret)
	s := start(t, subscribed(t, h, hookSecret, "agent.scored"))
	id, other := s.join("desk", map[string]any{"labels": map[string]string{"line": "sales"}}), s.join("night", nil)
	s.post(agent(id, "/messages"), `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}]}`)

	var made scoreOf
	s.post(agent(id, "/scores"), `{"name":"resolved","value":true,"comment":"It is done.","author":"anna","source":"human"}`).is(http.StatusCreated, &made)
	if made.ID == "" || made.Value != true || made.Author != "anna" {
		t.Errorf("made %+v", made)
	}
	told := h.of(t, 10003, 1)[0]
	for _, part := range []string{`"score_name":"resolved"`, `"value":true`, `"author":"anna"`, `"labels":{"line":"sales"}`} {
		if !strings.Contains(string(told.body), part) {
			t.Errorf("the event %s has no %s", told.body, part)
		}
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.post(agent(id, "/scores"), `{"id":"r1","name":"tone","value":"friendly","turn_id":0}`).is(http.StatusCreated, nil)
	s.post(agent(id, "/scores"), `{"id":"r1","name":"tone","value":"cold","turn_id":0}`).is(http.StatusOK, nil)
	s.post(agent(other, "/scores"), `{"name":"stars","value":4.50}`).is(http.StatusCreated, nil)
	want := []scoreOf{
		{ID: made.ID, Name: "resolved", Value: true, Comment: "It is done.", Author: "anna", Source: "human"},
		{ID: "r1", Name: "tone", Value: "cold", TurnID: new(int64(0))},
	}
	s = s.again()
	if diff := cmp.Diff(want, s.scores(id)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for query, want := range map[string]string{
		"score.resolved=true": "desk", "score.resolved=false": "", "score.tone=": "desk", "score.tone=friendly": "", "score[tone]=cold": "desk",
		"score.stars=4.5": "night", "score.stars=4.500": "night", "score.stars=": "night", "score.stars=4": "",
		"score.tone=cold&score.resolved=true&label.line=sales": "desk", "score.tone=cold&score.stars=": "",
	} {
		if got := strings.Join(s.finds(query), " "); got != want {
			t.Errorf("%s finds %q, not %q", query, got, want)
		}
	}
	var shown struct{ Scores []scoreOf }
	if s.get(agent(id)).ok(&shown); len(shown.Scores) != 2 {
		t.Errorf("the call shows %+v", shown)
	}

	s.do(http.MethodDelete, agent(id, "/scores/r1"), nil).is(http.StatusNoContent, nil)
	s.do(http.MethodDelete, agent(id, "/scores/r1"), nil).is(http.StatusNoContent, nil)
	if got := s.finds("score.tone="); len(got) != 0 || len(s.scores(id)) != 1 {
		t.Errorf("a deleted score finds %q", got)
	}
	s.do(http.MethodDelete, agent(id), nil).is(http.StatusNoContent, nil)
	s.get(agent(id, "/scores")).refused(http.StatusNotFound, "NotFound")
	if got := s.finds("score.resolved="); len(got) != 0 {
		t.Errorf("an erased call is found by its score: %q", got)
	}
}

// TestScoreRefusals: what breaks a limit is refused with the name of the field, and nothing of it
// is stored.
func TestScoreRefusals(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("desk", nil)
	for body, field := range map[string]string{
		`{"value":1}`: "name", `{"name":"x"}`: "value", `{"name":"x","value":null}`: "value", `{"name":"x","value":{}}`: "value", `{"name":"x","value":[1]}`: "value",
		`{"name":"x","value":""}`: "value", `{"name":"x","value":1,"turn_id":5}`: "turn_id", `{"name":"x","value":1,"turn_id":-1}`: "turn_id",
		`{"name":"` + strings.Repeat("x", 65) + `","value":1}`: "name", `{"name":"x","value":"` + strings.Repeat("x", 201) + `"}`: "value",
		`{"name":"x","value":1,"comment":"` + strings.Repeat("x", 2001) + `"}`: "comment", `{"name":"a\nb","value":1}`: "name", `{"name":"x","value":1,"stars":2}`: "stars",
	} {
		s.post(agent(id, "/scores"), body).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
	s.post(agent("nobody", "/scores"), `{"name":"x","value":1}`).refused(http.StatusNotFound, "NotFound")
	for _, bad := range []string{"score.=1", "score=1", "score.x=" + strings.Repeat("x", 300)} {
		field, _, _ := strings.Cut(bad, "=")
		s.get(v1+"/agents?"+bad).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
	for i := range 100 {
		s.post(agent(id, "/scores"), fmt.Sprintf(`{"name":"n","value":%d}`, i)).is(http.StatusCreated, nil)
	}
	s.post(agent(id, "/scores"), `{"name":"n","value":1}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "100 scores")
}

// TestScoresRefused checks who may not score calls or see reports and checks, and what is too much.
func TestScoresRefused(t *testing.T) {
	t.Parallel()
	closed, open, limited := start(t, twoTenants), start(t), start(t, "HEARDLOG_RATE_LIMIT=1", "HEARDLOG_RATE_BURST=1")
	id, stranger := open.join("desk", nil), closed.from("127.0.3.1")
	open.post(agent(id, "/scores"), `{"name":"x","value":"`+strings.Repeat("x", 2<<20)+`"}`).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	for _, call := range []struct{ method, path, body string }{
		{"GET", v1 + "/reports", ""}, {"GET", agent("a", "/checks"), ""}, {"GET", agent("a", "/scores"), ""}, {"POST", agent("a", "/scores"), `{"name":"x","value":1}`}, {"DELETE", agent("a", "/scores/x"), ""},
	} {
		stranger.do(call.method, call.path, call.body).is(http.StatusUnauthorized, nil)
		for limited.do(call.method, call.path, call.body).status != http.StatusTooManyRequests {
		}
	}
}
