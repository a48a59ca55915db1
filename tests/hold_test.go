package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	heardlog "github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// hold is a legal hold as the API shows it.
type hold struct {
	ID        string   `json:"id"`
	UserID    string   `json:"user_id"`
	Names     []string `json:"names"`
	AgentID   string   `json:"agent_id"`
	Label     *struct{ Name, Value string }
	Reason    string `json:"reason"`
	SetBy     string `json:"set_by"`
	SetByName string `json:"set_by_name"`
	SetAt     string `json:"set_at"`
}

// hold puts what a path names under hold.
func (s *server) hold(path, reason string) (h hold) {
	s.t.Helper()
	s.do("PUT", path+"/hold", map[string]string{"reason": reason}).ok(&h)
	return h
}

// unheld lists the calls that delete and that no hold refuses, with the reason.
var unheld = map[string]string{
	"/v1/agents/{id}/scores/{score}":                  "a score is a remark about the call, which stays in the audit of whoever sets it",
	"/v1/replays/{replay}":                            "the results of a replay are of copies",
	"/v1/memory-models/{name}":                        "belongs to no caller",
	"/v1/patterns/{id}":                               "belongs to no caller",
	"/v1/knowledge/{base}":                            "belongs to no caller",
	"/v1/knowledge/{base}/entries/{id}":               "belongs to no caller",
	"/v1/saved-conversations":                         "belongs to no caller",
	"/v1/saved-conversations/{id}":                    "belongs to no caller",
	"/v1/conversations":                               "the old path of saved conversations",
	"/v1/webhooks/endpoints/{id}":                     "a setting",
	"/v1/webhooks/endpoints/{id}/secrets/{secret_id}": "a setting",
	"/v1/session":                                     "a sign-in",
	"/v1/keys/{id}":                                   "a credential",
	"/v1/users/{user}/hold":                           "lifts the hold",
	"/v1/agents/{id}/hold":                            "lifts the hold",
	"/v1/labels/{label}/{value}/hold":                 "lifts the hold",
}

// TestHold: nothing under hold is erased by any call; every refusal names the hold. A call that
// deletes and is neither tried here nor in unheld fails the test.
func TestHold(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	s.putCaller("anna", "aliases", `{"aliases":["+4915112345678"]}`)
	id := s.join("call", map[string]any{"labels": map[string]string{"case": "4711"}, "heardlog": map[string]any{"scope": map[string]any{"user_id": "anna"}}})
	var answer, conversation struct{ ID string }
	s.say(id, user("I live at the harbour"))
	s.post(agent(id, "/responses"), `{"input":"and now"}`).ok(&answer)
	s.do("PUT", agent(id, "/working-memory/k"), `{"value":"v"}`).ok(nil)
	s.do("PUT", agent(id, "/summary"), map[string]any{"summary": "So far.", "up_to_seq": 1}).ok(nil)
	saved := s.checkpoint(id)
	var fact, item struct{ ID string }
	s.post(userPath("anna", "/facts"), `{"content":"Likes tea."}`).is(http.StatusCreated, &fact)
	s.post(v1+"/vectors/notes", `{"user_id":"anna","documents":[{"id":"d","embedding":[1,0]}]}`).ok(nil)
	s.post(v1+"/memories", `{"memory_type":"human","content":"a note","metadata":{"user_id":"anna"}}`).is(http.StatusCreated, &item)
	s.post(openAIConversations, `{"items":[{"type":"message","role":"user","content":"in a conversation"}]}`).ok(&conversation)
	var items struct{ Data []struct{ ID string } }
	s.get(openAIConversations + "/" + conversation.ID + "/items").ok(&items)

	a := func(more string) string { return "/agents/" + id + more }
	type call struct{ route, method, path, body string }
	deletes := func(route, path string) call { return call{route, "DELETE", v1 + path, ""} }
	ofAgent := []call{
		deletes("/v1/agents/{id}", a("")), deletes("/v1/agents/{id}/summary", a("/summary")),
		deletes("/v1/agents/{id}/working-memory", a("/working-memory")), deletes("/v1/agents/{id}/working-memory/{key}", a("/working-memory/k")),
		deletes("/v1/agents/{id}/checkpoints/{checkpoint}", a(fmt.Sprint("/checkpoints/", saved.ID))),
		deletes("/v1/agents/{id}/responses/{response}", a("/responses/"+answer.ID)), deletes("/v1/responses/{response}", "/responses/"+answer.ID),
		deletes("/v1/kv/{namespace}", "/kv/agent:"+id), deletes("/v1/kv/{namespace}/{key}", "/kv/agent:"+id+"/k"),
		{"/api/conversational-ai-agent/v2/projects/{appid}/agents/{id}", "DELETE", agora + a(""), ""},
		{"/api/conversational-ai-agent/v2/projects/{appid}/agents/{id}/summary", "DELETE", agora + a("/summary"), ""},
		{"/api/conversational-ai-agent/v2/projects/{appid}/agents/{id}/working-memory", "DELETE", agora + a("/working-memory"), ""},
		{"/api/conversational-ai-agent/v2/projects/{appid}/agents/{id}/working-memory/{key}", "DELETE", agora + a("/working-memory/k"), ""},
		deletes("/v1/projects/{project}", "/projects/default?confirm=default"), deletes("/v1/users/{user}", "/users/anna"),
	}
	ofUser := append(slices.Clone(ofAgent),
		deletes("/v1/users/{user}", "/users/"+url.PathEscape("+4915112345678")),
		deletes("/v1/users/{user}/facts", "/users/anna/facts"), deletes("/v1/users/{user}/facts/{id}", "/users/anna/facts/"+fact.ID),
		deletes("/v1/vectors/{collection}", "/vectors/notes?user_id=anna"), deletes("/v1/vectors/{collection}/{id}", "/vectors/notes/d?user_id=anna"),
		call{"", "POST", v1 + "/vectors/notes/delete", `{"user_id":"anna","ids":["d"]}`},
		call{"", "POST", v1 + "/memories/clear", `{"scope":"user","user_id":"anna"}`},
		call{"", "POST", v1 + "/users/anna/facts/decay", `{"factor":0.01,"drop_below":0.99}`},
		call{"", "PUT", v1 + "/users/anna/aliases", `{"aliases":[]}`},
	)
	ofLabel := append(slices.Clone(ofAgent), call{"", "PATCH", v1 + a(""), `{"labels":{"case":"0"}}`},
		call{"", "POST", v1 + a("/update"), `{"labels":{"case":null}}`}, call{"", "POST", agora + a("/update"), `{"properties":{"labels":{"case":"1"}}}`})
	ofConversation := []call{
		deletes("/v1/conversations/{id}", "/conversations/"+conversation.ID),
		deletes("/v1/conversations/{id}/items/{item}", "/conversations/"+conversation.ID+"/items/"+items.Data[0].ID),
	}

	tried := map[string]bool{}
	for _, tt := range []struct {
		path  string
		calls []call
	}{
		{agent(id), ofAgent}, {v1 + "/labels/case/4711", ofLabel}, {userPath("+4915112345678"), ofUser}, {agent(strings.TrimPrefix(conversation.ID, "conv_")), ofConversation},
	} {
		reason := "the reason of " + tt.path
		h := s.hold(tt.path, reason)
		for _, c := range tt.calls {
			tried[c.route] = true
			got := s.do(c.method, c.path, c.body)
			if got.status != http.StatusConflict || !strings.Contains(string(got.body), h.ID) || !strings.Contains(string(got.body), reason) {
				t.Errorf("%s %s under hold on %s: %d %s", c.method, c.path, tt.path, got.status, got.body)
			}
		}
		s.get(tt.path + "/hold").ok(nil)
		s.do("DELETE", tt.path+"/hold", nil).is(http.StatusNoContent, nil)
		s.get(tt.path+"/hold").refused(http.StatusNotFound, "TaskNotFound", "is not under hold")
	}
	for _, route := range routesThatDelete(t) {
		if !tried[route] && unheld[route] == "" {
			t.Errorf("DELETE %s was not tried under hold, and unheld does not say why", route)
		}
	}
	// What was refused is all there, and goes once no hold is left.
	for _, path := range []string{agent(id, "/summary"), agent(id, "/working-memory/k"), userPath("anna", "/facts/"+fact.ID), v1 + "/vectors/notes/d?user_id=anna", v1 + "/memories/" + item.ID} {
		s.get(path).ok(nil)
	}
	if got := s.ledger(id); got[0].Content != "I live at the harbour" {
		t.Errorf("the first message: %+v", got[0])
	}
	s.do("DELETE", userPath("anna"), nil).ok(nil)
	s.get(agent(id)).refused(http.StatusNotFound, "TaskNotFound")
}

// routesThatDelete returns the paths of openapi.yaml that take a DELETE.
func routesThatDelete(t *testing.T) (out []string) {
	path := ""
	for line := range strings.Lines(string(heardlog.Spec)) {
		if m := regexp.MustCompile(`^  (/\S*):\n$`).FindStringSubmatch(line); m != nil {
			path = m[1]
		} else if line == "    delete:\n" {
			out = append(out, path)
		}
	}
	if len(out) < 30 {
		t.Errorf("openapi.yaml has only %d calls that delete: the test reads it wrongly", len(out))
	}
	return out
}

// TestHoldIsKept: a hold says who set it and why, is in the audit log with its end, survives a
// restart, and covers what comes under it later.
func TestHoldIsKept(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_CREDENTIALS=default=root:secret")
	root := []string{"Authorization", basic("root", "secret")}
	do := func(method, path string, body any) answer { t.Helper(); return s.do(method, path, body, root...) }
	var key struct{ ID, Secret string }
	do("POST", v1+"/keys", `{"name":"legal","scopes":["admin"]}`).is(http.StatusCreated, &key)
	var reader struct{ ID, Secret string }
	do("POST", v1+"/keys", `{"name":"reads","scopes":["read","write"]}`).is(http.StatusCreated, &reader)
	set := func(path, body string) answer {
		return s.do("PUT", path, body, "Authorization", basic(key.ID, key.Secret))
	}
	labels := v1 + "/labels/case/4711/hold"
	s.do("PUT", labels, `{"reason":"x"}`, "Authorization", basic(reader.ID, reader.Secret)).refused(http.StatusForbidden, "InvalidPermission")
	s.do("GET", v1+"/holds", nil, "Authorization", basic(reader.ID, reader.Secret)).refused(http.StatusForbidden, "InvalidPermission")
	set(labels, `{}`).refused(http.StatusBadRequest, "MissingRequiredField", "reason")
	set(labels, fmt.Sprintf(`{"reason":%q}`, strings.Repeat("x", 1001))).refused(http.StatusBadRequest, "InvalidFieldValue", "reason")
	set(agent("unknown", "/hold"), `{"reason":"x"}`).refused(http.StatusNotFound, "TaskNotFound")
	var h, again hold
	set(labels, `{"reason":"case 4711"}`).ok(&h)
	if h.SetBy != key.ID || h.SetByName != "legal" || h.Reason != "case 4711" || h.Label == nil || h.Label.Value != "4711" || h.SetAt == "" {
		t.Errorf("the hold: %+v", h)
	}
	set(labels, `{"reason":"case 4711, second request"}`).ok(&again)
	if again.ID != h.ID || again.Reason == h.Reason {
		t.Errorf("the hold set again: %+v", again)
	}
	set(userPath("anna", "/hold"), `{"reason":"asked"}`).ok(nil)
	var id struct {
		ID string `json:"agent_id"`
	}
	do("POST", v1+"/agents", `{"name":"later","properties":{"labels":{"case":"4711"}}}`).ok(&id)
	s = s.again()
	do("DELETE", agent(id.ID), nil).refused(http.StatusConflict, "TaskConflict", h.ID, "second request", "legal")
	var page struct {
		Holds []hold
		Next  string `json:"next_cursor"`
	}
	do("GET", v1+"/holds?limit=1", nil).ok(&page)
	first := slices.Clone(page.Holds)
	page.Holds = nil
	do("GET", v1+"/holds?limit=1&cursor="+url.QueryEscape(page.Next), nil).ok(&page)
	if len(first) != 1 || first[0].ID != h.ID || len(page.Holds) != 1 || page.Holds[0].UserID != "anna" {
		t.Errorf("the list: %+v, %+v", first, page)
	}
	do("DELETE", labels, nil).is(http.StatusNoContent, nil)
	do("DELETE", agent(id.ID), nil).is(http.StatusNoContent, nil)
	audit := string(do("GET", v1+"/audit", nil).ok(nil).body)
	for _, want := range []string{"hold.set", "hold.lift", h.ID, "case 4711, second request", key.ID} {
		if !strings.Contains(audit, want) {
			t.Errorf("the audit log does not have %q: %s", want, audit)
		}
	}
}

// TestHoldLimits: calls about holds and erasures need credentials, keep to the rate limit, and take
// no large body.
func TestHoldLimits(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_CREDENTIALS=default=root:secret")
	limited := start(t, "HEARDLOG_RATE_LIMIT=1")
	calls := [][2]string{{"GET", "/holds"}, {"GET", "/erasures"}, {"GET", "/erasures/x"}}
	for _, what := range []string{"/users/anna", "/agents/x", "/labels/case/4711"} {
		for _, method := range []string{"PUT", "GET", "DELETE"} {
			calls = append(calls, [2]string{method, what + "/hold"})
		}
		s.do("PUT", v1+what+"/hold", `{"reason":"`+strings.Repeat("x", 2<<20)+`"}`, "Authorization", basic("root", "secret")).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	}
	for _, c := range calls {
		s.do(c[0], v1+c[1], nil).refused(http.StatusUnauthorized, "InvalidPermission")
		for limited.do(c[0], v1+c[1], nil).status != http.StatusTooManyRequests {
		}
	}
}
