package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

const conversationsPath = v1 + "/saved-conversations"

func conversation(id string) string { return conversationsPath + "/" + url.PathEscape(id) }

func (s *server) save(id string, body any, headers ...string) {
	s.t.Helper()
	if got := s.do(http.MethodPut, conversation(id), body, headers...); got.status != http.StatusNoContent || len(got.body) > 0 {
		s.t.Fatalf("save %q: %d %s", id, got.status, got.body)
	}
}

// TestConversations saves what a client may save and loads it again, byte for byte.
//
// Rules: 001-30, 001-31, 001-32, 001-34
func TestConversations(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_SECRET_KEY=a long enough secret")
	s.get(conversation("c")).refused(http.StatusNotFound, "NotFound", "there is no conversation")
	for _, tt := range []struct{ name, body, want string }{
		{"object", `{"messages":[{"role":"user","content":"a"}],"summary":"s"}`, ""},
		{"spaces and order", " {\n \"summary\" : null , \"messages\":[ ] }\n", ""},
		{"escapes and numbers", `{"messages":["\u00e9\ud83d\ude00\u0000 é",1.50,1e400,0.1000000000000000055511151231257827,123456789012345678901234567890],"summary":"\/"}`, ""},
		{"what else it holds", `{"tool_exchange":{"open":true},"messages":[],"Messages":7,"messages_":8}`, ""},
		{"without anything", `{}`, ""},
		{"the same name twice", `{"messages":[],"summary":"a","summary":"b"}`, ""},
		{"a list", `[{"role":"user","content":"a"}]`, `{"messages":[{"role":"user","content":"a"}],"summary":null}`},
		{"a list with spaces", "\n[ 1,\t{} ]\n", "{\"messages\":[ 1,\t{} ],\"summary\":null}"},
		{"an empty list", `[]`, `{"messages":[],"summary":null}`},
	} {
		if tt.want == "" {
			tt.want = tt.body
		}
		s.save("c", tt.body)
		if got := s.get(conversation("c")).ok(nil); string(got.body) != tt.want {
			t.Errorf("%s: saved %q, loaded %q, want %q", tt.name, tt.body, got.body, tt.want)
		}
	}
	before := string(s.get(conversation("c")).body)
	put := func(body any) answer { return s.do(http.MethodPut, conversation("c"), body) }
	for body, words := range map[string]string{
		``: "empty", ` `: "empty", `null`: "must be an object", `"text"`: "must be an object", `7`: "must be an object", `true`: "must be an object",
		`{"messages":[}`: "not valid JSON", `[] []`: "not valid JSON", "[\"\xff\"]": "UTF-8", strings.Repeat("[", 65) + strings.Repeat("]", 65): "64 levels",
	} {
		put(body).refused(http.StatusBadRequest, "InvalidRequestBody", words)
	}
	for body, words := range map[string]string{
		`{"messages":{}}`: "messages: must be a list", `{"messages":null}`: "messages: must be a list", `{"messages":[],"summary":7}`: "summary: is neither",
		`{"summary":["a"]}`: "summary: is neither",
	} {
		put(body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
	put(`["`+strings.Repeat("x", 1<<20)+`"]`).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	if got := s.get(conversation("c")).ok(nil); string(got.body) != before {
		t.Errorf("what was refused left %q", got.body)
	}
	large := `["` + strings.Repeat("x", 1<<20-4) + `"]`
	s.save("large", large)
	s = s.again()
	if got := s.get(conversation("large")).ok(nil); string(got.body) != `{"messages":`+large+`,"summary":null}` {
		t.Errorf("after a restart %d bytes are left of %d", len(got.body), len(large))
	}
}

// TestConversationIDs: any name that can be read, whatever a path makes of it.
//
// Rules: 001-33
func TestConversationIDs(t *testing.T) {
	t.Parallel()
	s := start(t)
	ids := []string{"%", "%2F", "+1 555", "-", "1", "10", "2", "?a=b&c#d", "A", "Z", "a", "a b", "a/b/c", "z", "é", "会話", "😀", strings.Repeat("é", 256)}
	want := append([]string{}, ids[:len(ids)-4]...)
	want = append(want, "é", strings.Repeat("é", 256), "会話", "😀")
	for i, id := range ids {
		s.save(id, fmt.Sprintf("[%d]", i))
	}
	for i, id := range ids {
		if got := s.get(conversation(id)).ok(nil); string(got.body) != fmt.Sprintf(`{"messages":[%d],"summary":null}`, i) {
			t.Errorf("%q loads as %s", id, got.body)
		}
	}
	var got []string
	type list struct {
		Conversations []string
		Total         int
		NextCursor    string `json:"next_cursor"`
	}
	for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
		var page list
		s.get(conversationsPath + "?limit=4&cursor=" + url.QueryEscape(cursor)).ok(&page)
		if page.Total != len(ids) || n > len(ids) {
			t.Fatalf("page %d: %+v", n, page)
		}
		got, cursor = append(got, page.Conversations...), page.NextCursor
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
	for _, id := range []string{"%20", "a%20", "a%00b", "a%0Ab", strings.Repeat("x", 257), "%E2%80%8B", "%FF", "%2E", "%2E%2E"} {
		for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
			s.do(method, conversationsPath+"/"+id, `[]`).refused(http.StatusBadRequest, "InvalidFieldValue", "id: ")
		}
	}
	s.get(conversationsPath+"?limit=x").refused(http.StatusBadRequest, "InvalidFieldValue", "limit")
	s.get(conversationsPath+"?limit=1001").refused(http.StatusBadRequest, "InvalidFieldValue", "limit")
	s.get(conversationsPath+"?cursor=%00").refused(http.StatusBadRequest, "InvalidFieldValue", "cursor")
	for range 2 { // silent when it is not there
		if got := s.do(http.MethodDelete, conversation("a/b/c"), nil); got.status != http.StatusNoContent {
			t.Errorf("delete: %d %s", got.status, got.body)
		}
	}
	s.get(conversation("a/b/c")).refused(http.StatusNotFound, "NotFound", "there is no conversation")
	for _, n := range []int{len(ids) - 1, 0} {
		var list struct{ Total int }
		if s.get(conversationsPath).ok(&list); list.Total != n {
			t.Errorf("%d are left to clear, want %d", list.Total, n)
		}
		s.do(http.MethodDelete, conversationsPath, nil).is(http.StatusNoContent, nil)
	}
}

// TestConversationTenants: names of one project are another's too, and each sees its own.
func TestConversationTenants(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants, "HEARDLOG_MAX_CONVERSATIONS=2")
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	s.save("c", `["alice's"]`, alice...)
	s.save("d", `[]`, alice...)
	s.get(conversation("c"), bob...).refused(http.StatusNotFound, "NotFound", "there is no conversation")
	s.save("c", `["bob's"]`, bob...)
	var out struct {
		Conversations []string
		Total         int
	}
	s.get(conversationsPath, bob...).ok(&out)
	if d := cmp.Diff([]string{"c"}, out.Conversations); d != "" || out.Total != 1 {
		t.Errorf("bob sees %+v", out)
	}
	s.do(http.MethodDelete, conversationsPath, nil, bob...).is(http.StatusNoContent, nil)
	if s.get(conversationsPath, bob...).ok(&out); out.Total != 0 {
		t.Errorf("bob has %d left", out.Total)
	}
	if got := s.get(conversation("c"), alice...).ok(nil); !strings.Contains(string(got.body), "alice's") {
		t.Errorf("after bob's calls alice loads %s", got.body)
	}
	s.save("d", `[]`, alice...) // one that is there may be saved again at the limit
	s.do(http.MethodPut, conversation("e"), `[]`, alice...).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "2 conversations")
	for _, c := range []struct{ method, path string }{{"PUT", "/c"}, {"GET", "/c"}, {"DELETE", "/c"}, {"GET", ""}, {"DELETE", ""}} {
		s.do(c.method, conversationsPath+c.path, `[]`).refused(http.StatusUnauthorized, "InvalidPermission")
	}
}

// TestOwnPaths: calls about conversations, memories, memory models and working memories need the
// same access as all others.
func TestOwnPaths(t *testing.T) {
	t.Parallel()
	closed, open, limited, small := start(t, twoTenants), start(t), start(t, "HEARDLOG_RATE_LIMIT=1"), start(t, "HEARDLOG_MAX_BODY=1024")
	const id = "/0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		method, path string
		large        bool // takes a body
	}{
		{"GET", "/conversations", false},
		{"DELETE", "/conversations", false},
		{"PUT", "/conversations/c", true},
		{"GET", "/conversations/c", false},
		{"DELETE", "/conversations/c", false},
		{"GET", "/saved-conversations", false},
		{"DELETE", "/saved-conversations", false},
		{"PUT", "/saved-conversations/c", true},
		{"GET", "/saved-conversations/c", false},
		{"DELETE", "/saved-conversations/c", false},
		{"POST", "/memories", true},
		{"POST", "/memories/search", true},
		{"POST", "/memories/clear", true},
		{"POST", "/recall", true},
		{"POST", "/agents/a/recall", true},
		{"GET", "/memories" + id, false},
		{"POST", "/memories" + id + "/status", true},
		{"POST", "/memory-model/validate", true},
		{"POST", "/agents/a/checkpoints", true},
		{"GET", "/agents/a/checkpoints", false},
		{"DELETE", "/agents/a/checkpoints/1", false},
		{"POST", "/agents/a/checkpoints/1/restore", true},
		{"GET", "/jobs", false},
		{"GET", "/memory-models", false},
		{"PUT", "/memory-models/m", true},
		{"GET", "/memory-models/m", false},
		{"DELETE", "/memory-models/m", false},
		{"POST", "/leave", true},
		{"POST", "/agents/a/pause", true},
		{"POST", "/agents/a/resume", false},
		{"GET", "/usage", false},
		{"DELETE", "/users/anna", false},
		{"GET", "/users", false},
		{"GET", "/users/anna", false},
		{"GET", "/users/anna/export", false},
		{"PUT", "/users/anna/aliases", true},
		{"PUT", "/users/anna/consent", true},
		{"DELETE", "/projects/none", false},
		{"GET", "/agents/a/working-memory", false},
		{"DELETE", "/agents/a/working-memory", false},
		{"PUT", "/agents/a/working-memory/k", true},
		{"GET", "/agents/a/working-memory/k", false},
		{"DELETE", "/agents/a/working-memory/k", false},
		{"GET", "/kv", false},
		{"GET", "/kv/n", false},
		{"DELETE", "/kv/n", false},
		{"PUT", "/kv/n/k", true},
		{"GET", "/kv/n/k", false},
		{"DELETE", "/kv/n/k", false},
		{"POST", "/kv/n/k/expire", true},
		{"POST", "/kv/n/k/increment", true},
		{"POST", "/kv/n/batch/get", true},
		{"POST", "/kv/n/batch/set", true},
		{"POST", "/kv/n/search", true},
		{"POST", "/kv/n/gc", true},
	} {
		closed.do(c.method, v1+c.path, `{}`).refused(http.StatusUnauthorized, "InvalidPermission")
		open.do(c.method, v1+c.path, `{}`, "Host", "evil.example").refused(http.StatusForbidden, "InvalidPermission", "evil.example")
		for limited.do(c.method, v1+c.path, `{}`).status != http.StatusTooManyRequests {
		}
		if c.large {
			small.do(c.method, v1+c.path, strings.Repeat(" ", 2000)).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
		}
	}
	if got := closed.do(http.MethodHead, kvPath("n", "k"), nil); got.status != http.StatusUnauthorized {
		t.Errorf("%+v", got)
	}
	for limited.do(http.MethodHead, kvPath("n", "k"), nil).status != http.StatusTooManyRequests {
	}
}

// TestConversationRunner: a runner loads a conversation before a turn and saves it after. It names
// conversations itself: a run without a name leaves saved ones alone, and load and save are
// independent of what the agent had before.
//
// Rules: 001-35
func TestConversationRunner(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	turn := func(agentID, text string) string {
		t.Helper()
		s.chat(agent(agentID, "/chat/completions"), text, false).ok(nil)
		reqs := llm.Requests()
		return string(reqs[len(reqs)-1].Body)
	}
	within := func(agentID, conv, text string) string { // a turn within a conversation
		t.Helper()
		saved := []byte("[]")
		if got := s.get(conversation(conv)); got.status == http.StatusOK {
			saved = got.body
		}
		if got := s.do(http.MethodPut, agent(agentID, "/snapshot"), saved); got.status >= 300 {
			t.Fatalf("restore: %d %s", got.status, got.body)
		}
		told := turn(agentID, text)
		s.save(conv, s.get(agent(agentID, "/snapshot")).ok(nil).body)
		return told
	}
	first := s.join("first", nil)
	turn(first, "Said to nobody in particular")
	var list struct{ Total int }
	if s.get(conversationsPath).ok(&list); list.Total != 0 {
		t.Fatalf("a turn without a conversation saved %d", list.Total)
	}
	if told := within(first, "anna", "When does it leave?"); strings.Contains(told, "nobody in particular") {
		t.Errorf("the empty conversation begins with %s", told)
	}
	within(first, "bert", "Where is it?")
	s.post(agent(first, "/leave"), nil).ok(nil)
	s = s.again()
	second := s.join("second", nil)
	turn(second, "Something else")
	told := within(second, "anna", "And on Sundays?")
	for text, want := range map[string]bool{"When does it leave?": true, "At nine.": true, "And on Sundays?": true, "Where is it?": false, "Something else": false} {
		if strings.Contains(told, text) != want {
			t.Errorf("in the conversation the LLM is told %q: %v, want %v: %s", text, !want, want, told)
		}
	}
	var saved struct {
		Messages []struct{ Role, Content string }
		Summary  *string
	}
	s.get(conversation("anna")).ok(&saved)
	if len(saved.Messages) != 4 || saved.Messages[0].Content != "When does it leave?" || saved.Messages[3].Content != "At nine." || saved.Summary != nil {
		t.Errorf("the conversation is %+v", saved)
	}
	before := s.get(conversation("anna")).body
	within(second, "bert", "Still there?")
	if after := s.get(conversation("anna")).body; string(after) != string(before) {
		t.Error("a turn within one conversation changed another")
	}
}
