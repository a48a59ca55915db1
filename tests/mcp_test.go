package tests

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/heardlog/heardlog/longterm/mcp"
)

// headed adds headers to requests.
type headed struct {
	http.RoundTripper
	headers []string
}

func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for i := 0; i < len(h.headers); i += 2 {
		r.Header.Set(h.headers[i], h.headers[i+1])
	}
	return h.RoundTripper.RoundTrip(r)
}

// tools is a connected client.
type tools struct {
	t testing.TB
	*sdk.ClientSession
}

// connect connects a client of the official SDK through a transport.
func connect(t testing.TB, transport sdk.Transport) tools {
	t.Helper()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return tools{t, s}
}

// overHTTP connects to POST /mcp.
func (s *server) overHTTP(headers ...string) tools {
	s.t.Helper()
	c := &http.Client{Transport: headed{s.client.Transport, headers}}
	return connect(s.t, &sdk.StreamableClientTransport{Endpoint: s.url + "/mcp", HTTPClient: c, DisableStandaloneSSE: true})
}

// overPipes connects to the subcommand.
func (s *server) overPipes(user, key string) tools {
	s.t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	c := mcp.Command{User: user, URL: s.url, Key: key, Timeout: patience}
	go func() { done <- c.Serve(ctx, in, out) }()
	s.t.Cleanup(func() {
		cancel()
		_ = toServer.Close()
		if err := <-done; err != nil {
			s.t.Errorf("the subcommand: %v", err)
		}
	})
	return connect(s.t, &sdk.IOTransport{Reader: fromServer, Writer: toServer})
}

// call uses a tool and reads the result into out. It returns the text of an error.
func (c tools) call(name string, args map[string]any, out any) string {
	c.t.Helper()
	r, err := c.CallTool(c.t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	text := ""
	for _, part := range r.Content {
		if t, ok := part.(*sdk.TextContent); ok {
			text += t.Text
		}
	}
	if r.IsError {
		return text
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		c.t.Fatalf("%s: %v: %s", name, err, text)
	}
	return ""
}

// wantRefusal uses a tool that must fail with words.
func (c tools) wantRefusal(name string, args map[string]any, words ...string) {
	c.t.Helper()
	why := c.call(name, args, new(any))
	for _, w := range words {
		if !strings.Contains(why, w) {
			c.t.Errorf("%s %v: %q lacks %q", name, args, why, w)
		}
	}
}

// TestMCPReads: the tools find what their caller said and heard, and nothing of another caller,
// over HTTP and over pipes.
func TestMCPReads(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	auth := []string{"Authorization", "Bearer wonder"}
	id := s.join("a", caller("anna"), auth...)
	s.post(agent(id, "/messages"), map[string]any{"messages": []any{
		user("I am allergic to peanuts."), assistant("Noted. The table in the garden is yours."), user("Thanks."),
	}}, auth...).ok(nil)
	s.post(agent(id, "/interrupt"), `{"turn_id":0,"heard":"Noted. The table"}`, auth...).ok(nil)
	other := s.join("b", caller("ben"), auth...)
	s.post(agent(other, "/messages"), map[string]any{"messages": []any{user("I am allergic to shellfish.")}}, auth...).ok(nil)

	for how, c := range map[string]tools{
		"http": s.overHTTP(append(auth, "X-Heardlog-User", "anna")...), "pipes": s.overPipes("anna", "wonder"),
	} {
		list, err := c.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) < 5 {
			t.Fatalf("%s: %v, %v", how, list, err)
		}
		for _, tool := range list.Tools {
			if b, _ := json.Marshal(tool.InputSchema); strings.Contains(string(b), "user") {
				t.Errorf("%s: %s takes the caller from the model: %s", how, tool.Name, b)
			}
		}
		var found recalled
		c.call("recall", map[string]any{"query": "What am I allergic to?"}, &found)
		if len(found.Hits) == 0 || found.Hits[0].Content != "I am allergic to peanuts." || found.Strength != "strong" {
			t.Errorf("%s: %+v", how, found)
		}
		for _, text := range found.texts() {
			if strings.Contains(text, "shellfish") || strings.Contains(text, "garden") {
				t.Errorf("%s: %q was found", how, text)
			}
		}
		c.call("recall", map[string]any{"query": "submarine volcano"}, &found)
		if len(found.Hits) != 0 || found.Strength != "none" {
			t.Errorf("%s: %+v", how, found)
		}
		var page struct {
			Turns []struct {
				Seq           int64
				Role, Content string
				Cut           bool
			}
			Next string `json:"next_cursor"`
		}
		c.call("get_call", map[string]any{"agent_id": id, "limit": 2}, &page)
		if len(page.Turns) != 2 || page.Turns[1].Content != "Noted. The table" || !page.Turns[1].Cut || page.Next == "" {
			t.Errorf("%s: %+v", how, page)
		}
		c.wantRefusal("get_call", map[string]any{"agent_id": other}, "has no call", other)
		c.wantRefusal("get_call", map[string]any{"agent_id": "nobody"}, "has no call")
		c.wantRefusal("get_call", map[string]any{"agent_id": id, "limit": 1000}, "limit", "200")
		c.wantRefusal("recall", map[string]any{"query": "peanuts", "user_id": "ben"}, "user_id")
		c.wantRefusal("recall", map[string]any{"query": "peanuts", "from": "yesterday"}, "from", "yesterday")
		c.wantRefusal("recall", map[string]any{"query": ""}, "query")
		c.wantRefusal("recall", map[string]any{"query": strings.Repeat("x", 5000)}, "query", "4000")
		var none struct{ Strength string }
		// 6,000 bytes
		if text := c.call("recall", map[string]any{"query": strings.Repeat("語", 2000)}, &none); text != "" {
			t.Errorf("a long query of another script: %s", text)
		}
	}
	s.post(v1+"/vectors/faq", `{"documents":[{"id":"1","content":"The garden is open in summer."}]}`, auth...)
	s.post(v1+"/vectors/private", `{"documents":[{"id":"1","content":"The garden key is under the mat."}]}`, auth...)
	knowing := s.overHTTP(append(auth, "X-Heardlog-User", "anna", "X-Heardlog-Knowledge", "faq, other")...)
	var texts struct {
		Results []struct{ ID, Content string }
	}
	if knowing.call("search_knowledge", map[string]any{"collection": "faq", "query": "When is the garden open?"}, &texts); len(texts.Results) != 1 {
		t.Errorf("knowledge: %+v", texts)
	}
	knowing.wantRefusal("search_knowledge", map[string]any{"collection": "private", "query": "garden"}, "faq, other", "private")
	var found recalled
	foreign := s.overHTTP("Authorization", "Bearer builder", "X-Heardlog-User", "anna")
	if foreign.call("recall", map[string]any{"query": "peanuts"}, &found); len(found.Hits) != 0 {
		t.Errorf("another project: %+v", found)
	}
	foreign.wantRefusal("get_call", map[string]any{"agent_id": id}, "has no call")
}

// TestMCPFacts: facts are stored when the tool answers, belong to the caller, and are erased by
// their ids alone. Changes need the scope.
func TestMCPFacts(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	auth := []string{"Authorization", "Bearer wonder"}
	c := s.overHTTP(append(auth, "X-Heardlog-User", "anna")...)
	type fact struct{ ID, Content, Kind, State string }
	var list struct {
		Facts []fact
		Next  string `json:"next_cursor"`
	}
	var stored, second fact
	c.call("remember", map[string]any{"content": "Prefers a window seat.", "kind": "preference", "topics": []string{"travel"}}, &stored)
	if stored.ID == "" || stored.Content != "Prefers a window seat." || stored.Kind != "preference" || stored.State != "active" {
		t.Fatalf("stored: %+v", stored)
	}
	s.get(v1+"/users/anna/facts/"+stored.ID, auth...).ok(nil)
	s.overPipes("anna", "wonder").call("remember", map[string]any{"content": "Lives in Lisbon."}, &second)
	if c.call("list_facts", map[string]any{"limit": 1}, &list); len(list.Facts) != 1 || list.Next == "" {
		t.Errorf("first page: %+v", list)
	}
	if c.call("list_facts", map[string]any{"limit": 1, "cursor": list.Next}, &list); len(list.Facts) != 1 {
		t.Errorf("second page: %+v", list)
	}
	if c.call("list_facts", map[string]any{"query": "seat"}, &list); len(list.Facts) != 1 || list.Facts[0].ID != stored.ID {
		t.Errorf("by words: %+v", list)
	}
	ben := s.overHTTP(append(auth, "X-Heardlog-User", "ben")...)
	if ben.call("list_facts", nil, &list); len(list.Facts) != 0 {
		t.Errorf("another caller: %+v", list)
	}
	type forgot struct {
		Candidates      []fact
		Erased, Missing []string
	}
	var none, found, gone forgot
	if ben.call("forget", map[string]any{"ids": []string{stored.ID}}, &none); len(none.Erased) != 0 || len(none.Missing) != 1 {
		t.Errorf("another caller: %+v", none)
	}
	if c.call("forget", map[string]any{"what": "window"}, &found); len(found.Candidates) != 1 || len(found.Erased) != 0 {
		t.Errorf("candidates: %+v", found)
	}
	s.get(v1+"/users/anna/facts/"+stored.ID, auth...).ok(nil)
	if c.call("forget", map[string]any{"ids": []string{stored.ID, "", ".."}}, &gone); len(gone.Erased) != 1 || len(gone.Missing) != 2 {
		t.Errorf("erased: %+v", gone)
	}
	s.get(v1+"/users/anna/facts/"+stored.ID, auth...).refused(404, "TaskNotFound")
	s.get(v1+"/users/anna/facts/"+second.ID, auth...).ok(nil)

	c.wantRefusal("forget", nil, "what", "ids")
	c.wantRefusal("forget", map[string]any{"ids": make([]string, 21)}, "21", "20")
	c.wantRefusal("remember", map[string]any{"content": "We agreed on 10.", "kind": "agreement"}, "agreement")
	c.wantRefusal("remember", map[string]any{"content": "x", "kind": "rumour"}, "profile", "rumour")
	c.wantRefusal("remember", map[string]any{"content": strings.Repeat("long ", 100)}, "content", "300")
	c.wantRefusal("remember", map[string]any{"content": "The card is 4111 1111 1111 1111."}, "content")

	var key struct{ Secret string }
	if a := s.post(v1+"/keys", `{"name":"reader","scopes":["read"]}`, auth...); json.Unmarshal(a.body, &key) != nil || key.Secret == "" {
		t.Fatalf("a key: %d %s", a.status, a.body)
	}
	reader := s.overHTTP("Authorization", "Bearer "+key.Secret, "X-Heardlog-User", "anna")
	if reader.call("list_facts", nil, &list); len(list.Facts) != 1 {
		t.Errorf("with read: %+v", list)
	}
	reader.wantRefusal("remember", map[string]any{"content": "Has a dog."}, "scope write")
	reader.wantRefusal("forget", map[string]any{"ids": []string{second.ID}}, "scope write")
}

// TestMCPArguments: each value in the schemas of arguments has a single type. Null is as if the
// argument were missing, and what is wrong is said in words.
func TestMCPArguments(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("a", caller("anna"))
	s.post(agent(id, "/messages"), map[string]any{"messages": []any{user("I am allergic to peanuts.")}}).ok(nil)
	c := s.overHTTP("X-Heardlog-User", "anna", "X-Heardlog-Knowledge", "menu")
	list, err := c.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 6 {
		t.Fatalf("%v, %v", list, err)
	}
	var walk func(where string, v any)
	walk = func(where string, v any) {
		m, _ := v.(map[string]any)
		if kind, ok := m["type"]; ok {
			if _, ok := kind.(string); !ok && !strings.HasSuffix(where, ".properties") {
				t.Errorf("%s has the types %v", where, kind)
			}
		}
		for name, in := range m {
			walk(where+"."+name, in)
		}
	}
	needed := map[string]map[string]any{
		"recall": {"query": "peanuts"}, "remember": {"content": "Likes tea."}, "forget": {"what": "tea"}, "list_facts": {}, "get_call": {"agent_id": id},
		"search_knowledge": {"collection": "menu", "query": "tea"},
	}
	wrong := map[string][]any{"string": {7, true, []any{"x"}, map[string]any{}}, "integer": {"7", 1.5, true, []any{1}, 1e30}, "array": {"x", 7, []any{7}, []any{nil}, map[string]any{}}}
	for _, tool := range list.Tools {
		b, err := json.Marshal(tool.InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		var schema struct {
			Properties map[string]struct{ Type string }
			Required   []string
		}
		var all any
		if json.Unmarshal(b, &schema) != nil || json.Unmarshal(b, &all) != nil {
			t.Fatalf("%s: %s", tool.Name, b)
		}
		walk(tool.Name, all)
		args := map[string]any{}
		for name := range schema.Properties {
			args[name] = nil
		}
		for name, v := range needed[tool.Name] {
			args[name] = v
		}
		if why := c.call(tool.Name, args, new(any)); why != "" && tool.Name != "search_knowledge" {
			t.Errorf("%s %v: %s", tool.Name, args, why)
		}
		for name, p := range schema.Properties {
			for _, v := range wrong[p.Type] {
				args := maps.Clone(needed[tool.Name])
				args[name] = v
				if why := c.call(tool.Name, args, new(any)); !strings.HasPrefix(why, name) || !strings.Contains(why, "must be ") || goWords(why) {
					t.Errorf("%s %v: %q", tool.Name, args, why)
				}
			}
		}
		for _, name := range schema.Required {
			for _, args := range []map[string]any{{}, {name: nil}, nil} {
				if why := c.call(tool.Name, args, new(any)); !strings.Contains(why, ": is required") || goWords(why) {
					t.Errorf("%s %v: %q", tool.Name, args, why)
				}
			}
		}
		if why := c.call(tool.Name, map[string]any{"user_id": "ben"}, new(any)); !strings.HasPrefix(why, "user_id: is not an argument of "+tool.Name+"; its arguments are ") {
			t.Errorf("%s: %q", tool.Name, why)
		}
	}
	var found recalled
	if why := c.call("recall", map[string]any{"query": "peanuts", "limit": 5.0, "from": nil}, &found); why != "" || len(found.Hits) == 0 {
		t.Errorf("%s %+v", why, found)
	}
}

// goWords reports whether a text for a caller has words that only readers of our source know.
func goWords(s string) bool {
	for _, w := range []string{"reflect", "Value>", "unmarshal", "Go struct", "Go value", "json:", "interface {}", "map[", "*errors", "strconv", "nil", "int64", "float64"} {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// TestMCPRefusals: calls that are not valid requests of the protocol, that name no caller, or that
// come from another site's page.
func TestMCPRefusals(t *testing.T) {
	t.Parallel()
	const path, list = "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	s := start(t, twoTenants, "HEARDLOG_CORS_ORIGINS=https://app.example", "HEARDLOG_MAX_BODY=20000")
	as := []string{"Authorization", "Bearer wonder", "X-Heardlog-User", "anna"}
	s.post(path, list, as...).ok(nil)
	s.post(path, list, append(as, "Origin", "https://app.example")...).ok(nil)
	s.post(path, list, append(as, "Origin", "https://evil.example")...).refused(403, "InvalidPermission", "pages")
	s.post(path, list, "X-Heardlog-User", "anna").refused(401, "InvalidPermission")
	s.post(path, list, as[:2]...).refused(400, "MissingRequiredField", "X-Heardlog-User")
	s.post(path, list, "Authorization", "Bearer wonder", "X-Heardlog-User", "anonymous").refused(400, "InvalidFieldValue", "withheld")
	s.post(path, list, append(as, "X-Heardlog-Knowledge", strings.Repeat("a,", 17))...).refused(400, "InvalidFieldValue", "16")
	s.post(path, `{"jsonrpc":"1.0"}`, as...).refused(400, "InvalidRequestBody", "2.0")
	s.post(path, " \n["+list+"]", as...).refused(400, "InvalidRequestBody", "list")
	s.post(path, `{"jsonrpc"`, as...).refused(400, "InvalidRequestBody")
	s.post(path, strings.Repeat(" ", 2<<20)+list, as...).refused(413, "InvalidRequestBody")
	if a := s.post(path, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, as...); a.status != http.StatusAccepted {
		t.Errorf("a notification: %d %s", a.status, a.body)
	}
	if a := s.get(path, as...); a.status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d %s", a.status, a.body)
	}
	s = start(t, "HEARDLOG_RATE_LIMIT=bytes=1") // the first request takes more than that
	s.post(path, list, "X-Heardlog-User", "anna").ok(nil)
	s.post(path, list, "X-Heardlog-User", "anna").refused(http.StatusTooManyRequests, "ConcurrencyLimitExceeded")
}

// TestMCPCallPages: a page of a call without turns does not end it, and without consent no call can
// be read.
func TestMCPCallPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("a", caller("anna"))
	call := map[string]any{"role": "assistant", "content": "", "tool_calls": []any{map[string]any{
		"id": "c1", "type": "function", "function": map[string]any{"name": "weather", "arguments": "{}"},
	}}}
	result := map[string]any{"role": "tool", "tool_call_id": "c1", "content": "rain"}
	s.post(agent(id, "/messages"), map[string]any{"messages": []any{user("Will it rain?"), call, result, assistant("It will.")}}).ok(nil)
	c := s.overHTTP("X-Heardlog-User", "anna")
	var page struct {
		Turns []struct{ Content string }
		Next  string `json:"next_cursor"`
	}
	c.call("get_call", map[string]any{"agent_id": id, "limit": 1}, &page)
	if len(page.Turns) != 1 || page.Turns[0].Content != "Will it rain?" || page.Next == "" {
		t.Errorf("the first page: %+v", page)
	}
	for how, more := range map[string]map[string]any{"cursor": {"cursor": page.Next}, "after_seq": {"after_seq": 1}} {
		page.Next = ""
		more["agent_id"], more["limit"] = id, 1
		if c.call("get_call", more, &page); len(page.Turns) != 1 || page.Turns[0].Content != "It will." || page.Next != "" {
			t.Errorf("%s: behind a tool's messages: %+v", how, page)
		}
	}
	c.wantRefusal("get_call", map[string]any{"agent_id": id, "cursor": "x"}, "cursor")
	c.wantRefusal("get_call", map[string]any{"agent_id": id, "after_seq": 4}, "has no call")
	s.putCaller("anna", "consent", `{"remember":"none"}`)
	c.wantRefusal("get_call", map[string]any{"agent_id": id}, "allow")
}
