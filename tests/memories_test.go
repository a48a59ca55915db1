package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

const memoriesPath = v1 + "/memories"

// item is a memory in answers.
type item struct {
	ID         string
	Content    json.RawMessage
	MemoryType string `json:"memory_type"`
	Status     string
	Category   string
	Metadata   struct {
		UserID    *string `json:"user_id"`
		SessionID *string `json:"session_id"`
		TaskID    *string `json:"task_id"`
		AgentID   *string `json:"agent_id"`
		Extra     json.RawMessage
	}
	CreatedAt  time.Time       `json:"created_at"`
	UpdatedAt  time.Time       `json:"updated_at"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
	ToolName   string          `json:"tool_name"`
	IsError    bool            `json:"is_error"`
	Ledger     *struct {
		AgentID string `json:"agent_id"`
		Seq     int64
	}
}

func (it item) text() string {
	var s string
	if json.Unmarshal(it.Content, &s) != nil {
		return string(it.Content)
	}
	return s
}

type found struct {
	Memories  []item
	Total     int
	Truncated bool
}

func (f found) texts() []string {
	out := []string{}
	for _, it := range f.Memories {
		out = append(out, it.text())
	}
	return out
}

// remember adds a memory; more is further members of the body, scope those of its metadata.
func (s *server) remember(kind, content, scope, more string, headers ...string) item {
	s.t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		s.t.Fatal(err)
	}
	body := fmt.Sprintf(`{"memory_type":%q`, kind)
	if !strings.Contains(more, `,"content":`) {
		body += `,"content":` + string(text)
	}
	if !strings.Contains(more, `,"metadata":`) {
		body += `,"metadata":{` + scope + `}`
	}
	got := s.post(memoriesPath, body+more+"}", headers...)
	var it item
	if err := json.Unmarshal(got.body, &it); err != nil || got.status != http.StatusCreated {
		s.t.Fatalf("add: %d %s", got.status, got.body)
	}
	if got.header.Get("Location") != memoriesPath+"/"+it.ID {
		s.t.Errorf("Location %q of %s", got.header.Get("Location"), it.ID)
	}
	return it
}

func (s *server) search(body string, headers ...string) found {
	s.t.Helper()
	var f found
	s.post(memoriesPath+"/search", body, headers...).ok(&f)
	return f
}

// wantFound checks the texts that a search returns.
func (s *server) wantFound(what, body string, want ...string) {
	s.t.Helper()
	if want == nil {
		want = []string{}
	}
	if d := cmp.Diff(want, s.search(body).texts()); d != "" {
		s.t.Errorf("%s: search %s (-want +got):\n%s", what, body, d)
	}
}

// TestMemoryShape: a memory comes back as it was given, at once, later and after a restart.
//
// Rules: 003-2, 003-3, 003-4, 003-5, 003-18
func TestMemoryShape(t *testing.T) {
	t.Parallel()
	s := start(t)
	human := s.remember("human", "Hi é \u2028", `"user_id":"u","session_id":"s","task_id":"t","agent_id":"nobody","extra":{"b":[1.50],"a":null}`, `,"category":"episodic","importance":0.25,"created_at":"2026-05-28T20:31:40.123+02:00"`)
	if len(human.ID) != 32 || strings.Trim(human.ID, "0123456789abcdef") != "" || human.text() != "Hi é \u2028" || human.MemoryType != "human" || human.Status != "accepted" ||
		*human.Metadata.UserID != "u" || *human.Metadata.SessionID != "s" || *human.Metadata.TaskID != "t" || *human.Metadata.AgentID != "nobody" ||
		string(human.Metadata.Extra) != `{"b":[1.50],"a":null}` || human.Category != "episodic" || human.Ledger != nil {
		t.Errorf("a human's: %+v", human)
	}
	if at := time.Date(2026, 5, 28, 18, 31, 40, 123e6, time.UTC); !human.CreatedAt.Equal(at) || !human.UpdatedAt.Equal(at) {
		t.Errorf("its times: %v, %v", human.CreatedAt, human.UpdatedAt)
	}
	ai := s.remember("ai", "", "", `,"tool_calls":[{"id":"c1","name":"seat"}]`)
	if string(ai.ToolCalls) != `[{"id":"c1","name":"seat"}]` || ai.Metadata.UserID != nil || ai.Metadata.AgentID != nil || string(ai.Metadata.Extra) != "{}" || time.Since(ai.CreatedAt).Abs() > time.Minute {
		t.Errorf("an ai's: %+v", ai)
	}
	tool := s.remember("tool", "12A", "", `,"tool_call_id":"c1","tool_name":"seat","is_error":true`)
	if tool.ToolCallID != "c1" || tool.ToolName != "seat" || !tool.IsError {
		t.Errorf("a tool's: %+v", tool)
	}
	system := s.remember("system", "Be brief.", "", `,"status":"draft"`)
	if system.MemoryType != "system" || system.Status != "draft" {
		t.Errorf("a system's: %+v", system)
	}
	parts := s.remember("human", "x", "", `,"content":[{"type":"text","text":"seen"},{"type":"image_url","image_url":{"url":"u"}}]`)
	if string(parts.Content) != `[{"type":"text","text":"seen"},{"type":"image_url","image_url":{"url":"u"}}]` {
		t.Errorf("parts: %s", parts.Content)
	}
	// IDs may be equal: get returns the first.
	const twice = "0123456789abcdef0123456789abcdef"
	first := s.remember("human", "first", "", `,"id":"`+twice+`"`)
	s.remember("human", "second", "", `,"id":"`+twice+`"`)
	if first.ID != twice {
		t.Errorf("the id given became %s", first.ID)
	}
	all := []item{human, ai, tool, system, parts, first}
	for range 2 {
		for _, want := range all {
			var got item
			s.get(memoriesPath + "/" + want.ID).ok(&got)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("get (-want +got):\n%s", d)
			}
		}
		if f := s.search(`{"limit":0}`); f.Total != 7 || len(f.Memories) != 0 {
			t.Errorf("there are %+v", f)
		}
		s = s.again()
	}
	for _, tt := range []struct{ kind, orbiter, openai string }{{"human", "human", "user"}, {"user", "human", "user"}, {"assistant", "ai", "assistant"}, {"developer", "system", "developer"}} {
		it := s.remember(tt.kind, "x", "", "")
		var got item
		s.get(memoriesPath + "/" + it.ID + "?role_names=openai").ok(&got)
		if it.MemoryType != tt.orbiter || got.MemoryType != tt.openai {
			t.Errorf("%s is %s and %s", tt.kind, it.MemoryType, got.MemoryType)
		}
	}
	if it := s.remember("human", "x", "", `,"role_names":"openai"`); it.MemoryType != "user" {
		t.Errorf("added, it is %s", it.MemoryType)
	}
	for _, id := range []string{strings.Repeat("0", 32), "x", "..", strings.ToUpper(twice), twice + "0", "search"} {
		s.get(memoriesPath+"/"+id).refused(http.StatusNotFound, "TaskNotFound")
	}
	s.get(memoriesPath+"/"+twice+"?role_names=klingon").refused(http.StatusBadRequest, "InvalidFieldValue", "role_names")
}

// TestMemoryRefused: what is wrong is named.
func TestMemoryRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, words := range map[string]string{
		`{"memory_type":"ghost","content":"x"}`:                                                                 "memory_type: must be one of",
		`{"memory_type":"human","content":7}`:                                                                   "content: is neither",
		`{"memory_type":"human","content":"x","id":"abc"}`:                                                      "id: must be 32 hex digits",
		`{"memory_type":"human","content":"x","status":"maybe"}`:                                                "status: must be one of",
		`{"memory_type":"human","content":"x","category":"other"}`:                                              "category: must be one of",
		`{"memory_type":"human","content":"x","importance":2}`:                                                  "importance: must be at most 1, not 2",
		`{"memory_type":"human","content":"x","metadata":{"user_id":"` + strings.Repeat("u", 257) + `"}}`:       "metadata.user_id: is 257",
		`{"memory_type":"human","content":"x","metadata":{"user_id":7}}`:                                        "metadata.user_id",
		`{"memory_type":"human","content":"x","metadata":{"userid":"u"}}`:                                       "userid: is not a field",
		`{"memory_type":"human","content":"x","metadata":{"agent_id":"a\u0000"}}`:                               "metadata.agent_id",
		`{"memory_type":"human","content":"x","metadata":{"extra":[]}}`:                                         "metadata.extra: must be an object",
		`{"memory_type":"human","content":"x","metadata":{"extra":{"a":"` + strings.Repeat("x", 17000) + `"}}}`: "metadata.extra: is 17",
		`{"memory_type":"human","content":"x","created_at":"yesterday"}`:                                        "created_at",
		`{"memory_type":"human","content":"x","tool_calls":[{"id":"c"}]}`:                                       "tool_calls: is allowed in",
		`{"memory_type":"system","content":"x","tool_calls":[]}`:                                                "tool_calls: is allowed in",
		`{"memory_type":"system","content":"x","tool_call_id":"c"}`:                                             "tool_call_id: is allowed in",
		`{"memory_type":"human","content":"x","is_error":true}`:                                                 "is_error: is allowed in",
		`{"memory_type":"human","content":"x","tool_name":"n"}`:                                                 "tool_name: is allowed in",
		`{"memory_type":"human","content":"x","role_names":"klingon"}`:                                          "role_names",
	} {
		s.post(memoriesPath, body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
	for body, words := range map[string]string{
		`{"content":"x"}`: "memory_type: is required", `{"memory_type":"human"}`: "content: is required", `{"memory_type":"system"}`: "content: is required",
		`{"memory_type":"tool","content":"x"}`: "tool_call_id: is required",
	} {
		s.post(memoriesPath, body).refused(http.StatusBadRequest, "MissingRequiredField", words)
	}
	for body, words := range map[string]string{
		`{"scope":"planet"}`: "scope: must be one of", `{"limit":-1}`: "limit: must be a whole number from 0", `{"limit":1001}`: "limit: must be a whole number from 0", `{"max_rounds":-1}`: "max_rounds: must be a whole number from 0",
		`{"type":"ghost"}`: "type: must be one of", `{"status":"maybe"}`: "status: must be one of", `{"category":"other"}`: "category: must be one of", `{"userid":"u"}`: "userid: is not a field",
		`{"query":"` + strings.Repeat("x", 1001) + `"}`: "query: has 1001", `{"user_id":"\u0000"}`: "user_id", `{"role_names":"klingon"}`: "role_names",
	} {
		s.post(memoriesPath+"/search", body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
	for body, words := range map[string]string{`{"scope":"planet"}`: "scope: must be one of", `{"user_id":"\u0000"}`: "user_id", `{"query":"x"}`: "query: is not a field"} {
		s.post(memoriesPath+"/clear", body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
	id := "/" + s.remember("human", "x", "", "").ID
	s.post(memoriesPath+id+"/status", `{"status":"maybe"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "status")
	s.post(memoriesPath+id+"/status", `{"status":"draft","role_names":"x"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "role_names")
	s.post(memoriesPath+id+"/status", `{}`).refused(http.StatusBadRequest, "MissingRequiredField", "status")
	if f := s.search(`{}`); f.Total != 1 {
		t.Errorf("what was refused is stored: %+v", f)
	}
}

// TestMemorySearch checks the rules of the search one by one.
//
// Rules: 003-1, 003-7, 003-8, 003-9, 003-10, 003-11, 003-12, 003-13, 003-14, 003-15, 003-16,
// 003-19, 003-21
func TestMemorySearch(t *testing.T) {
	t.Parallel()
	s := start(t)
	const u = `"user_id":"u"`
	s.remember("system", "Rules of the house", u, "")
	s.remember("human", "One", u+`,"session_id":"s1","task_id":"t1"`, "")
	s.remember("ai", "Answer one", u+`,"session_id":"s1","task_id":"t1"`, `,"category":"summary"`)
	s.remember("human", "Two", u+`,"session_id":"s1","task_id":"t2"`, `,"status":"draft"`)
	s.remember("human", "Three", u+`,"session_id":"s2","task_id":"t1","agent_id":"x"`, `,"status":"discard"`)
	s.remember("human", "Foreign", `"user_id":"v","session_id":"s1","task_id":"t1"`, "")
	all := []string{"Rules of the house", "One", "Answer one", "Two", "Three"}
	for _, tt := range []struct {
		name, body string
		want       []string
	}{
		{"task is the default scope, and ids that are not set are not compared", `{"user_id":"u"}`, all},
		{"empty ids count as none", `{"user_id":"u","session_id":"","task_id":""}`, all},
		{"user", `{"scope":"user","user_id":"u"}`, all},
		{"ids outside the scope are ignored", `{"scope":"user","user_id":"u","session_id":"s1","task_id":"t2"}`, all},
		{"session", `{"scope":"session","user_id":"u","session_id":"s1","task_id":"nothing"}`, []string{"One", "Answer one", "Two"}},
		{"what lacks an id does not match", `{"scope":"task","task_id":"t1","user_id":"u"}`, []string{"One", "Answer one", "Three"}},
		{"task and session", `{"scope":"task","task_id":"t1","session_id":"s1"}`, []string{"One", "Answer one", "Foreign"}},
		{"agent", `{"scope":"user","agent_id":"x"}`, []string{"Three"}},
		{"nothing asked", `{}`, append(slices.Clone(all), "Foreign")},
		{"type", `{"user_id":"u","type":"human"}`, []string{"One", "Two", "Three"}},
		{"type in the other words", `{"user_id":"u","type":"assistant"}`, []string{"Answer one"}},
		{"drafts", `{"user_id":"u","status":"draft"}`, []string{"Two"}},
		{"discarded", `{"user_id":"u","status":"discard"}`, []string{"Three"}},
		{"accepted", `{"user_id":"u","status":"accepted"}`, []string{"Rules of the house", "One", "Answer one"}},
		{"category", `{"user_id":"u","category":"summary"}`, []string{"Answer one"}},
		{"a part of the content in any case; system messages too", `{"user_id":"u","query":"ONE"}`, []string{"One", "Answer one"}},
		{"the limit takes the oldest", `{"user_id":"u","limit":2}`, []string{"Rules of the house", "One"}},
		{"no limit of nothing", `{"user_id":"u","limit":0}`, []string{}},
		{"rounds: system messages from before the cut stay", `{"user_id":"u","max_rounds":2}`, []string{"Rules of the house", "Two", "Three"}},
		{"as many rounds as there are cut nothing", `{"user_id":"u","max_rounds":3}`, all},
		{"rounds of what was filtered", `{"user_id":"u","type":"human","max_rounds":1}`, []string{"Three"}},
	} {
		s.wantFound(tt.name, tt.body, tt.want...)
	}
	for i := range 9 {
		s.remember("human", fmt.Sprint("n", i), `"user_id":"w"`, "")
	}
	s.remember("ai", "calls", `"user_id":"w"`, `,"tool_calls":[{"id":"c1"},{"id":"c2"}]`)
	s.wantFound("a dangling call at the end goes", `{"user_id":"w","limit":100,"query":"calls"}`)
	s.remember("tool", "result of c1", `"user_id":"w"`, `,"tool_call_id":"c1","tool_name":"n"`)
	// A call with only some of its results stays.
	if got := s.search(`{"user_id":"w","limit":100}`); len(got.Memories) != 11 {
		t.Errorf("a half-answered batch: %v", got.texts())
	}
	s.remember("tool", "result of nothing", `"user_id":"w"`, `,"tool_call_id":"c9","tool_name":"n"`)
	if got := s.search(`{"user_id":"w","limit":100}`); len(got.Memories) != 11 || got.Total != 12 {
		t.Errorf("an orphan at the end stays: %v of %d", got.texts(), got.Total)
	}
	s.wantFound("results alone are orphans", `{"user_id":"w","type":"tool"}`)
	s.wantFound("of answers alone calls are dangling", `{"user_id":"w","type":"ai"}`)
	// Ten by default, even if they part a call from its results.
	if got := s.search(`{"user_id":"w"}`); len(got.Memories) != 10 || got.Memories[9].text() != "calls" {
		t.Errorf("the default limit gives %v", got.texts())
	}
	if a, b := s.search(`{"user_id":"w","limit":100}`), s.search(`{"user_id":"w","limit":100}`); !cmp.Equal(a, b) {
		t.Error("two searches of the same differ")
	}
}

// TestMemoryStatus: what may become what.
//
// Rules: 003-6
func TestMemoryStatus(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, tt := range []struct {
		from, to string
		ok       bool
	}{
		{"draft", "accepted", true}, {"draft", "discard", true}, {"draft", "draft", false}, {"accepted", "discard", true}, {"accepted", "accepted", false},
		{"accepted", "draft", false}, {"discard", "accepted", false}, {"discard", "draft", false}, {"discard", "discard", false},
	} {
		it := s.remember("human", "x", `"user_id":"u"`, `,"status":"`+tt.from+`","created_at":"2026-01-01T00:00:00Z"`)
		got := s.post(memoriesPath+"/"+it.ID+"/status", `{"status":"`+tt.to+`"}`)
		if !tt.ok {
			got.refused(http.StatusConflict, "TaskConflict", "status: ")
			continue
		}
		var now, again item
		got.ok(&now)
		if now.Status != tt.to || !now.UpdatedAt.After(now.CreatedAt) || !now.CreatedAt.Equal(it.CreatedAt) {
			t.Errorf("%s to %s: %+v", tt.from, tt.to, now)
		}
		s.get(memoriesPath + "/" + it.ID).ok(&again)
		if d := cmp.Diff(now, again); d != "" {
			t.Errorf("get (-answered +got):\n%s", d)
		}
	}
	s.post(memoriesPath+"/"+strings.Repeat("0", 32)+"/status", `{"status":"discard"}`).refused(http.StatusNotFound, "TaskNotFound")
	s.post(memoriesPath+"/x/status", `{"status":"discard"}`).refused(http.StatusNotFound, "TaskNotFound")
}

// TestMemoryClear: a scope is cleared, with its system messages, and the answer counts them.
//
// Rules: 003-17
func TestMemoryClear(t *testing.T) {
	t.Parallel()
	s := start(t)
	clear := func(body any, want int) {
		t.Helper()
		var out struct{ Removed int }
		s.post(memoriesPath+"/clear", body).ok(&out)
		if out.Removed != want {
			t.Errorf("clear %v removed %d, want %d", body, out.Removed, want)
		}
	}
	agentID := s.join("a", nil)
	secret := s.remember("human", "secret words", `"user_id":"u","task_id":"t1","agent_id":"`+agentID+`"`, `,"metadata":{"user_id":"u","task_id":"t1","agent_id":"`+agentID+`","extra":{"k":"secret"}}`)
	s.remember("system", "rules", `"user_id":"u","task_id":"t1"`, "")
	s.remember("human", "draft", `"user_id":"u","task_id":"t2"`, `,"status":"draft"`)
	s.remember("human", "other", `"user_id":"v","task_id":"t1"`, "")
	for range 250 { // more than one page
		s.remember("human", "many", `"user_id":"m"`, "")
	}
	clear(`{"scope":"task","user_id":"u","task_id":"t3"}`, 0)
	clear(`{"scope":"task","user_id":"u","task_id":"t1"}`, 2)
	s.wantFound("after the first", `{"limit":3}`, "draft", "other", "many")
	s.get(memoriesPath+"/"+secret.ID).refused(http.StatusNotFound, "TaskNotFound")
	page := s.get(agent(agentID, "/messages")).ok(nil)
	if m := s.ledger(agentID); len(m) != 1 || m[0].State != "removed" || m[0].Content != "" || strings.Contains(string(page.body), "secret") {
		t.Errorf("the ledger after the clear: %s", page.body)
	}
	if h := s.history(agentID); len(h.Contents) != 0 {
		t.Errorf("the history after the clear: %+v", h)
	}
	clear(`{"scope":"user","user_id":"u","task_id":"ignored"}`, 1)
	clear(`{"scope":"user","user_id":"m"}`, 250)
	s.remember("human", "new", "", "")
	s = s.again()
	s.wantFound("after a restart", `{}`, "other", "new")
	clear(nil, 2)
	clear(`{}`, 0)
	s.wantFound("after all", `{}`)
}

// TestMemoriesOfAgents: messages of agents are memories, and memories of agents are messages. Only
// accepted ones reach an LLM.
func TestMemoriesOfAgents(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Hello."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("a", nil)
	of := `"user_id":"anna","agent_id":"` + id + `"`
	kept := s.remember("human", "I like window seats.", of, "")
	if kept.Ledger == nil || kept.Ledger.AgentID != id || kept.Ledger.Seq != 1 || *kept.Metadata.AgentID != id {
		t.Errorf("its place: %+v", kept)
	}
	draft := s.remember("human", "She may be afraid of flying.", of, `,"status":"draft"`)
	gone := s.remember("human", "She hates trains.", of, `,"status":"discard"`)
	s.remember("human", "Said to nobody.", `"user_id":"anna","agent_id":"unknown"`, "")
	told := func() string {
		t.Helper()
		s.chat(agent(id, "/chat/completions"), "And now?", false).ok(nil)
		reqs := llm.Requests()
		return string(reqs[len(reqs)-1].Body)
	}
	body := told()
	for text, want := range map[string]bool{"window seats": true, "afraid": false, "trains": false, "nobody": false} {
		if strings.Contains(body, text) != want {
			t.Errorf("the LLM is told %q: %v, want %v: %s", text, !want, want, body)
		}
	}
	for _, m := range s.history(id).Contents {
		if strings.Contains(m.Content, "afraid") || strings.Contains(m.Content, "trains") {
			t.Errorf("history shows %q", m.Content)
		}
	}
	s.wantFound("all of hers", `{"scope":"user","user_id":"anna"}`, "I like window seats.", "She may be afraid of flying.", "She hates trains.", "Said to nobody.")
	s.wantFound("the agent's", `{"scope":"user","agent_id":"`+id+`"}`, "I like window seats.", "She may be afraid of flying.", "She hates trains.")
	s.post(memoriesPath+"/"+draft.ID+"/status", `{"status":"accepted"}`).ok(nil)
	s.post(memoriesPath+"/"+kept.ID+"/status", `{"status":"discard"}`).ok(nil)
	s.post(memoriesPath+"/"+gone.ID+"/status", `{"status":"accepted"}`).refused(http.StatusConflict, "TaskConflict", "final")
	if body = told(); !strings.Contains(body, "afraid") || strings.Contains(body, "window seats") {
		t.Errorf("after the changes the LLM is told %s", body)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	late := s.remember("human", "After the call.", of, "") // it runs no more: the project keeps it
	if late.Ledger != nil || *late.Metadata.AgentID != id {
		t.Errorf("after the end: %+v", late)
	}
	// All its messages belong to carl.
	scoped := s.join("b", map[string]any{"heardlog": map[string]any{"scope": map[string]any{"user_id": "carl", "session_id": "s9"}}})
	s.chat(agent(scoped, "/chat/completions"), "Where is my train?", false).ok(nil)
	s.say(scoped, map[string]any{"role": "user", "content": "Said of Dora", "scope": map[string]any{"user_id": "dora"}}, user("Said by Carl"))
	s.wantFound("what an agent of a scope holds", `{"scope":"session","user_id":"carl","session_id":"s9"}`, "Where is my train?", "Hello.", "Said by Carl")
	s.wantFound("what has a scope of its own", `{"scope":"user","user_id":"dora"}`, "Said of Dora")
	s.post(v1+"/join", `{"name":"c","properties":{"heardlog":{"scope":{"user_id":"a\u0000"}}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "properties.heardlog.scope.user_id")
	carls := s.search(`{"scope":"user","user_id":"carl","type":"ai"}`).Memories[0]
	s.post(memoriesPath+"/clear", `{"scope":"user","user_id":"carl"}`).ok(nil)
	for _, again := range []func() answer{ // nothing brings back what was cleared
		func() answer { return s.post(agent(scoped, "/interrupt"), `{"heard":"Hello."}`) },
		func() answer {
			return s.post(agent(scoped, "/evidence/twilio"), `{"type":"interrupt","utteranceUntilInterrupt":"Hello"}`)
		},
		func() answer { return s.post(memoriesPath+"/"+carls.ID+"/status", `{"status":"discard"}`) },
	} {
		again()
		if page := s.get(agent(scoped, "/messages")).ok(nil); strings.Contains(string(page.body), "Hello") || strings.Contains(string(page.body), "train") {
			t.Errorf("after the clear the ledger shows %s", page.body)
		}
	}
	s.wantFound("the agent's, after its end", `{"scope":"user","agent_id":"`+id+`","query":"call"}`, "After the call.")
	if p := s.list("?state=0,1,2,3,4,5,6"); len(p.Data.List) != 2 {
		t.Errorf("the project has more agents than were joined: %+v", p)
	}
}

// TestMemoryTenants: two projects never see each other's.
func TestMemoryTenants(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	id := s.join("a", nil, alice...)
	const scope = `"user_id":"u","session_id":"s","task_id":"t"`
	own := s.remember("human", "alice's own", scope, "", alice...)
	held := s.remember("human", "alice's agent's", scope+`,"agent_id":"`+id+`"`, "", alice...)
	// The other project has no such agent.
	stray := s.remember("human", "bob's", scope+`,"agent_id":"`+id+`"`, "", bob...)
	if held.Ledger == nil || stray.Ledger != nil {
		t.Errorf("%+v, %+v", held, stray)
	}
	for _, q := range []string{`{}`, `{"scope":"user","user_id":"u"}`, `{"scope":"user","agent_id":"` + id + `"}`, `{"session_id":"s"}`, `{"task_id":"t"}`} {
		if f := s.search(q, bob...); !slices.Equal(f.texts(), []string{"bob's"}) || f.Total != 1 {
			t.Errorf("bob finds %v of %d with %s", f.texts(), f.Total, q)
		}
	}
	for _, it := range []item{own, held} {
		missing := s.get(memoriesPath+"/"+strings.Repeat("0", 32), bob...)
		foreign := s.get(memoriesPath+"/"+it.ID, bob...)
		if foreign.status != http.StatusNotFound || without(foreign.body, it.ID) != without(missing.body, strings.Repeat("0", 32)) {
			t.Errorf("another's memory is answered %d %s", foreign.status, foreign.body)
		}
		s.post(memoriesPath+"/"+it.ID+"/status", `{"status":"discard"}`, bob...).refused(http.StatusNotFound, "TaskNotFound")
	}
	var out struct{ Removed int }
	s.post(memoriesPath+"/clear", nil, bob...).ok(&out)
	if f := s.search(`{}`, alice...); out.Removed != 1 || !slices.Equal(f.texts(), []string{"alice's own", "alice's agent's"}) {
		t.Errorf("bob removed %d, alice has %v", out.Removed, f.texts())
	}
}

// TestMemoriesOfAFullLedger: the limit of an agent's ledger includes memories. A project's own
// ledger has no such limit.
func TestMemoriesOfAFullLedger(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_MESSAGES=2")
	of := `"agent_id":"` + s.join("a", nil) + `"`
	for i := range 2 {
		s.remember("human", fmt.Sprint(i), of, "")
	}
	s.post(memoriesPath, `{"memory_type":"human","content":"x","metadata":{`+of+`}}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "as many messages as it may")
	for i := range 4 {
		s.remember("human", fmt.Sprint(i), "", "")
	}
	if f := s.search(`{}`); f.Total != 6 {
		t.Errorf("there are %d", f.Total)
	}
}

// TestMemoryRepeats: an Idempotency-Key adds a memory once to a project's or an agent's ledger,
// even in concurrent calls.
func TestMemoryRepeats(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("a", nil)
	for _, scope := range []string{"", `"agent_id":"` + id + `"`} {
		ids := make([]string, 8)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() { ids[i] = s.remember("human", "once", scope, "", "Idempotency-Key", "k").ID })
		}
		wg.Wait()
		if slices.Sort(ids); ids[0] != ids[7] {
			t.Errorf("repeats gave %v", ids)
		}
		s.post(memoriesPath, `{"memory_type":"human","content":"twice","metadata":{`+scope+`}}`, "Idempotency-Key", "k").refused(http.StatusConflict, "TaskConflict")
		more := `"user_id":"else"` // the same text of another user is another memory
		if scope != "" {
			more = scope + "," + more
		}
		s.post(memoriesPath, `{"memory_type":"human","content":"once","metadata":{`+more+`}}`, "Idempotency-Key", "k").refused(http.StatusConflict, "TaskConflict")
	}
	s.post("/v1/agents/"+id+"/messages", `{"role":"user","content":"a message"}`, "Idempotency-Key", "m")
	s.post(memoriesPath, `{"memory_type":"human","content":"a message","metadata":{"agent_id":"`+id+`"}}`, "Idempotency-Key", "m").refused(http.StatusConflict, "TaskConflict")
	s.remember("human", "cleared", `"user_id":"c"`, "", "Idempotency-Key", "c")
	s.post(memoriesPath+"/clear", `{"user_id":"c"}`)
	s.post(memoriesPath, `{"memory_type":"human","content":"cleared","metadata":{"user_id":"c"}}`, "Idempotency-Key", "c").refused(http.StatusConflict, "TaskConflict")
	if f := s.search(`{}`); f.Total != 2 {
		t.Errorf("there are %v", f.texts())
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { s.remember("human", fmt.Sprint(i), `"user_id":"u"`, "") })
	}
	wg.Wait()
	if f := s.search(`{"scope":"user","user_id":"u","limit":100}`); f.Total != 50 || len(f.Memories) != 50 {
		t.Errorf("of 50 at once %d are there", f.Total)
	}
}

// TestMemoriesAreTold: webhooks and tails report memories of agents like any message, drafts once
// they are accepted, and cleared ones without their text. They report no memories of the project's
// own ledger.
//
// Rules: 003-22
func TestMemoriesAreTold(t *testing.T) {
	t.Parallel()
	s := start(t)
	h := newHook(t)
	s.hookTo(h, map[string]any{"events": []string{"agent.message"}})
	id := s.join("a", nil)
	of := `"user_id":"u","agent_id":"` + id + `"`
	tail := s.stream(agent(id, "/events?types=memory"))
	acts := func(want ...string) {
		t.Helper()
		for _, w := range want {
			e, ok := tail.next()
			if !ok || e.name != "memory" || !strings.Contains(string(e.data), w) {
				t.Fatalf("the tail tells %s %s, want %s", e.name, e.data, w)
			}
		}
	}
	s.remember("human", "nobody's", `"user_id":"u"`, "")
	draft := s.remember("human", "a draft", of, `,"status":"draft"`)
	s.post(memoriesPath+"/"+draft.ID+"/status", `{"status":"accepted"}`).ok(nil)
	if c := h.next(t); !strings.Contains(string(c.body), "a draft") {
		t.Errorf("told at first: %s", c.body)
	}
	s.search(`{"scope":"user","user_id":"u","query":"draft"}`)
	s.search(`{"scope":"user","user_id":"nobody","agent_id":"` + id + `"}`)
	acts(`"added"`, `"searched","count":1`, `"searched","count":0`)
	s.post(memoriesPath+"/clear", `{"scope":"user","user_id":"u"}`).ok(nil)
	if c := h.next(t); !strings.Contains(string(c.body), `"removed"`) || strings.Contains(string(c.body), "draft") {
		t.Errorf("told of the clear: %s", c.body)
	}
	acts(`"cleared"`)
	h.quiet(t)
}
