package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// itemList is a page of items.
type itemList struct {
	Data []struct {
		ID, Type, Role, Status, Output, Name string
		Content                              []struct{ Type, Text string }
	}
	HasMore bool   `json:"has_more"`
	FirstID string `json:"first_id"`
	LastID  string `json:"last_id"`
}

// texts returns the items, shortened.
func (l itemList) texts() []string {
	out := []string{}
	for _, it := range l.Data {
		text := it.Type
		for _, p := range it.Content {
			text = it.Role + ": " + p.Text
		}
		out = append(out, text+it.Output+it.Name)
	}
	return out
}

const openAIConversations = v1 + "/conversations"

// TestOpenAIConversations plays a conversation of OpenAI's Conversations API.
func TestOpenAIConversations(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_MAX_MESSAGES=8", "HEARDLOG_MAX_AGENTS=2")
	var made, read struct {
		ID, Object string
		CreatedAt  int64 `json:"created_at"`
		Metadata   map[string]string
	}
	s.post(openAIConversations, `{"metadata":{"topic":"trains"},"items":[{"role":"user","content":"I am Anna."}]}`, "X-Heardlog-User", "anna").ok(&made)
	if made.Object != "conversation" || !strings.HasPrefix(made.ID, "conv_") || made.CreatedAt == 0 || made.Metadata["topic"] != "trains" {
		t.Fatalf("%+v", made)
	}
	path, id := openAIConversations+"/"+made.ID, strings.TrimPrefix(made.ID, "conv_")
	s.get(path).ok(&read)
	if diff := cmp.Diff(made, read); diff != "" {
		t.Error(diff)
	}
	var joined struct {
		UserID string `json:"user_id"`
		Labels map[string]string
	}
	if s.get(agent(id)).ok(&joined); joined.UserID != "anna" || joined.Labels["topic"] != "trains" {
		t.Errorf("the agent is %+v", joined)
	}
	var answer struct {
		ID           string
		Conversation struct{ ID string }
	}
	for _, named := range []string{`"` + made.ID + `"`, `{"id":"` + made.ID + `"}`} {
		// An assistant message of the input is new, not an echo.
		s.post(v1+"/responses", `{"input":[{"role":"assistant","content":"Hello."},{"role":"user","content":"When?"}],"conversation":`+named+`}`).ok(&answer)
		if answer.Conversation.ID != made.ID {
			t.Errorf("%+v", answer)
		}
	}
	if body := string(last(llm).Body); strings.Count(body, "Hello.") != 2 || !strings.Contains(body, "I am Anna.") {
		t.Errorf("the LLM was sent %s", body)
	}
	want := []string{"user: I am Anna.", "assistant: Hello.", "user: When?", "assistant: At nine.", "assistant: Hello.", "user: When?", "assistant: At nine."}
	var all, page itemList
	s.get(path + "/items?order=asc&limit=100").ok(&all)
	if diff := cmp.Diff(want, all.texts()); diff != "" || all.HasMore || all.FirstID != all.Data[0].ID || all.LastID != all.Data[6].ID {
		t.Error(diff, all)
	}
	for _, order := range []string{"asc", "desc"} {
		got, after := []string{}, ""
		for {
			s.get(fmt.Sprintf("%s/items?order=%s&limit=2%s", path, order, after)).ok(&page)
			got = append(got, page.texts()...)
			if !page.HasMore {
				break
			}
			after = "&after=" + page.LastID
		}
		if order == "desc" {
			for i := range len(got) / 2 {
				got[i], got[len(got)-1-i] = got[len(got)-1-i], got[i]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(order, diff)
		}
	}
	for _, from := range []string{v1 + "/responses/", agent(id, "/responses/")} {
		s.get(from + answer.ID + "/input_items?limit=2").ok(&page)
		if diff := cmp.Diff([]string{"user: When?", "assistant: Hello."}, page.texts()); diff != "" || !page.HasMore {
			t.Error(diff)
		}
		s.get(from+answer.ID+"/input_items?order=up").failed(400, "invalid", "order")
		s.get(from+"resp_nobody_2/input_items").failed(404, "not_found", "resp_nobody_2")
	}
	s.get(path+"/items?limit=101").failed(400, "invalid", "limit")
	s.get(path+"/items?after=msg_other_1").failed(400, "invalid", "msg_other_1")

	item := path + "/items/" + all.Data[1].ID
	s.get(item).ok(nil)
	s.do("DELETE", item, nil).ok(&read)
	s.get(item).failed(404, "not_found", all.Data[1].ID)
	s.do("DELETE", item, nil).failed(404, "not_found", all.Data[1].ID)
	s.post(path+"/items", `{"items":[{"role":"user","content":[{"type":"input_text","text":"Look:"},{"type":"input_image","image_url":"data:image/png;base64,eA=="}]}]}`).ok(&page)
	if len(page.Data) != 1 || len(page.Data[0].Content) != 2 || page.Data[0].Content[1].Type != "input_image" {
		t.Errorf("%+v", page)
	}
	s.post(path+"/items", `{"items":[{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"ten"}]}`).failed(422, "quota", "8")
	s.post(path+"/items", `{}`).failed(400, "missing", "items")
	s.post(path+"/items", `{"items":[{"role":"pope","content":"x"}]}`).failed(400, "invalid", "items[0].role")
	read.Metadata = nil
	s.post(path, `{"metadata":{"mood":"good"}}`).ok(&read)
	if diff := cmp.Diff(map[string]string{"mood": "good"}, read.Metadata); diff != "" {
		t.Error(diff)
	}
	s.post(path, `{"metadata":{"mood":5}}`).failed(400, "invalid", "metadata.mood")
	s.post(openAIConversations, `{"metadata":{"`+strings.Repeat("k", 65)+`":"x"}}`).failed(400, "invalid", "metadata")
	s.post(v1+"/responses", `{"input":"x","conversation":"`+made.ID+`","previous_response_id":"`+answer.ID+`"}`).failed(400, "invalid", "conversation")
	s.post(v1+"/responses", `{"input":"x","conversation":7}`).failed(400, "invalid", "conversation")

	s.post(openAIConversations, nil).ok(&read) // without a body
	s.post(openAIConversations, `{}`).failed(422, "quota", "2")
	s.post(agent(strings.TrimPrefix(read.ID, "conv_"), "/leave"), nil).ok(nil)
	s.post(openAIConversations+"/"+read.ID+"/items", `{"items":[{"role":"user","content":"x"}]}`).failed(410, "stopped", "")
	s.get(openAIConversations + "/" + read.ID + "/items").ok(&page)
	var gone struct {
		Object  string
		Deleted bool
	}
	if s.do("DELETE", path, nil).ok(&gone); gone.Object != "conversation.deleted" || !gone.Deleted {
		t.Errorf("%+v", gone)
	}
	s.get(agent(id)).refused(404, "NotFound")
	for _, id := range []string{made.ID, "conv_A B", "conv_nobody"} {
		path := openAIConversations + "/" + strings.ReplaceAll(id, " ", "%20")
		s.get(path).failed(404, "not_found", id)
		s.do("DELETE", path, nil).failed(404, "not_found", id)
		s.post(path, `{}`).failed(404, "not_found", id)
		s.get(path+"/items").failed(404, "not_found", id)
		s.post(path+"/items", `{"items":[]}`).failed(404, "not_found", id)
		s.get(path+"/items/msg_a_1").failed(404, "not_found", id)
		s.do("DELETE", path+"/items/msg_a_1", nil).failed(404, "not_found", id)
		s.post(v1+"/responses", `{"input":"x","conversation":"`+id+`"}`).failed(404, "not_found", id)
	}
}

// TestOpenAIConversationsAccess checks who may use them.
func TestOpenAIConversationsAccess(t *testing.T) {
	t.Parallel()
	closed, open, limited, small := start(t, twoTenants), start(t), start(t, "HEARDLOG_RATE_LIMIT=1"), start(t, "HEARDLOG_MAX_BODY=1024")
	for _, c := range []struct {
		method, path string
		large        bool // takes a body
	}{
		{"POST", openAIConversations, true},
		{"GET", openAIConversations + "/conv_a", false},
		{"POST", openAIConversations + "/conv_a", true},
		{"DELETE", openAIConversations + "/conv_a", false},
		{"GET", openAIConversations + "/conv_a/items", false},
		{"POST", openAIConversations + "/conv_a/items", true},
		{"GET", openAIConversations + "/conv_a/items/msg_a_1", false},
		{"DELETE", openAIConversations + "/conv_a/items/msg_a_1", false},
		{"GET", v1 + "/responses/resp_a_1/input_items", false},
		{"GET", agent("a", "/responses/resp_a_1/input_items"), false},
	} {
		closed.do(c.method, c.path, `{}`).failed(http.StatusUnauthorized, "unauthenticated", "authorization")
		open.do(c.method, c.path, `{}`, "Host", "evil.example").failed(http.StatusForbidden, "forbidden", "evil.example")
		for limited.do(c.method, c.path, `{}`).status != http.StatusTooManyRequests {
		}
		if c.large {
			small.do(c.method, c.path, `{"metadata":{},"x":"`+strings.Repeat(" ", 2000)+`"}`).failed(http.StatusRequestEntityTooLarge, "too_large", "1024")
		}
	}
	var made struct{ ID string }
	alice, bob := []string{"Authorization", "Bearer alice:wonder"}, []string{"Authorization", "Bearer bob:builder"}
	closed.post(openAIConversations, `{}`, alice...).ok(&made)
	closed.get(openAIConversations+"/"+made.ID, bob...).failed(404, "not_found", made.ID)
	closed.do("DELETE", openAIConversations+"/"+made.ID, nil, bob...).failed(404, "not_found", made.ID)
	closed.get(openAIConversations+"/"+made.ID, alice...).ok(nil)
}

// TestSavedConversationsMoved checks the former paths of saved conversations. What OpenAI's API has
// there is told apart by the ID.
func TestSavedConversationsMoved(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_CONVERSATIONS=2")
	put := func(path string) answer { return s.do("PUT", v1+path, `[]`) }
	for _, a := range []answer{put("/conversations/anna"), s.get(v1 + "/conversations/anna"), s.get(v1 + "/conversations"), s.do("DELETE", v1+"/conversations/anna", nil), s.do("DELETE", v1+"/conversations", nil)} {
		if a.status >= 300 || a.header.Get("Deprecation") == "" || !strings.Contains(a.header.Get("Link"), "</v1/saved-conversations>") {
			t.Errorf("%s: %d %v", a.call, a.status, a.header)
		}
	}
	s.get(v1+"/conversations/anna").refused(404, "NotFound", "anna")
	s.get(v1+"/conversations?limit=x").refused(400, "InvalidFieldValue", "limit")
	put("/conversations/conv_1").refused(400, "InvalidFieldValue", "/v1/saved-conversations/conv_1")
	if got := put("/saved-conversations/conv_1"); got.status != 204 || got.header.Get("Deprecation") != "" {
		t.Errorf("%+v", got)
	}
	s.get(v1+"/conversations/conv_1").failed(404, "not_found", "conv_1")
	s.get(v1 + "/saved-conversations/conv_1").ok(nil)
	put("/conversations/b")
	put("/conversations/c").refused(422, "ResourceQuotaLimitExceeded", "2")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		s.do(method, v1+"/conversations/"+strings.Repeat("x", 300), `[]`).refused(400, "InvalidFieldValue", "id")
	}
}
