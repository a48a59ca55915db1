package compat_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAgoraClients runs an agent from join to leave, as each of Agora's clients does, under both
// bases and with every kind of credentials.
func TestAgoraClients(t *testing.T) {
	t.Parallel()
	llm := fakeLLM(t)
	open := start(t)
	guarded := start(t, "HEARDLOG_CREDENTIALS=app1=customer:customer-secret")
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("customer:customer-secret"))
	for name, c := range map[string]*agoraClient{
		"community":              newAgoraClient(guarded, "/api/conversational-ai-agent/v2/projects/app1", basic, true),
		"community in China":     newAgoraClient(guarded, "/cn/api/conversational-ai-agent/v2/projects/app1", basic, true),
		"SDK, empty credentials": newAgoraClient(open, "/api/conversational-ai-agent/v2/projects/app1", "", false),
		"SDK, token":             newAgoraClient(guarded, "/api/conversational-ai-agent/v2/projects/app1", "agora token=customer-secret", false),
		"SDK, quoted token":      newAgoraClient(guarded, "/api/conversational-ai-agent/v2/projects/app1", `agora token="customer-secret"`, false),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testAgoraLife(t, c, llm, "agent of "+name)
		})
	}
}

func testAgoraLife(t *testing.T, c *agoraClient, llm, name string) {
	ctx := t.Context()
	settings := object{"url": llm + "/v1/chat/completions", "api_key": "sk-secret-of-the-agent", "vendor": "custom", "style": "openai",
		"system_messages": []object{{"role": "system", "content": "Be brief."}}, "params": object{"model": "m1"}, "greeting_message": "Hello", "max_history": 10}
	a, err := c.join(ctx, name, settings)
	if err != nil {
		t.Fatal(err)
	}
	if a.AgentID == "" || a.Status != "RUNNING" || time.Since(time.Unix(a.CreateTS, 0)).Abs() > time.Minute {
		t.Errorf("joined %+v", a)
	}
	_, err = c.join(ctx, name, settings)
	if taken, ok := errors.AsType[*agoraError](err); !ok || taken.Status != 409 || taken.Reason != "TaskConflict" || taken.AgentID != a.AgentID || taken.TaskID != a.AgentID {
		t.Errorf("a second of the same name: %v", err)
	}
	if ids, err := c.list(ctx, "", 0); err != nil || !slices.Contains(ids, a.AgentID) {
		t.Errorf("list %v %v", ids, err)
	}
	if ids, err := c.list(ctx, "0,1,2", 1); err != nil || !slices.Contains(ids, a.AgentID) {
		t.Errorf("list in pages of one %v %v", ids, err)
	}
	u, err := c.update(ctx, a.AgentID, object{"system_messages": []object{{"role": "system", "content": "Be polite."}}, "params": object{"model": "m2"}})
	if err != nil || u.Status != "RUNNING" || u.AgentID != a.AgentID || u.CreateTS != a.CreateTS {
		t.Errorf("update %+v %v", u, err)
	}
	if err := c.speak(ctx, a.AgentID, "One moment."); err != nil {
		t.Error("speak", err)
	}
	if err := c.think(ctx, a.AgentID, "When is my train?"); err != nil {
		t.Error("think", err)
	}
	eventually(t, "the thought is answered", func() bool {
		h, err := c.history(ctx, a.AgentID)
		return err == nil && len(h.Contents) == 4
	})
	if err := c.interrupt(ctx, a.AgentID); err != nil {
		t.Error("interrupt", err)
	}
	h, err := c.history(ctx, a.AgentID)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"greeting 0 assistant: Hello", "command 1 assistant: One moment.", "command 2 user: When is my train?"}
	got := []string{}
	for _, m := range h.Contents {
		got = append(got, fmt.Sprintf("%v %d %s", m.Metadata["source"], m.TurnID, strings.TrimSuffix(m.said(), " [interrupted]")))
	}
	// How much was heard of the interrupted answer depends on the time since its first token.
	if last := strings.TrimSpace(got[len(got)-1]); !strings.HasPrefix(last, "llm 2 assistant:") || !strings.HasPrefix("llm 2 assistant: "+trains, last) {
		t.Errorf("the interrupted answer is %q", last)
	}
	got = got[:len(got)-1]
	if diff := cmp.Diff(want, got); diff != "" || h.Status != "RUNNING" {
		t.Errorf("history of a %s agent: %s", h.Status, diff)
	}
	checkUpdatedPrompt(t, llm)

	if err := c.leave(ctx, a.AgentID); err != nil {
		t.Error("leave", err)
	}
	if got := reasonOf(t, c.leave(ctx, a.AgentID)); got != "404 TaskNotFound" {
		t.Errorf("leaving twice: %s", got)
	}
	for what, err := range map[string]error{"speak": c.speak(ctx, a.AgentID, "x"), "think": c.think(ctx, a.AgentID, "x"), "interrupt": c.interrupt(ctx, "nobody")} {
		if got := reasonOf(t, err); got != "404 TaskNotFound" {
			t.Errorf("%s after the end: %s", what, got)
		}
	}
	q, err := c.query(ctx, a.AgentID)
	if err != nil || q.Status != "STOPPED" || q.StopTS < q.StartTS || q.Message != "agent exits with reason: OK" || q.Name != name {
		t.Errorf("query %+v %v", q, err)
	}
	if h, err := c.history(ctx, a.AgentID); err != nil || h.Status != "STOPPED" || len(h.Contents) != 4 {
		t.Errorf("history after the end %+v %v", h, err)
	}
	var turns struct {
		Total int `json:"total_turn_count"`
	}
	if err := c.do(ctx, "GET", "/agents/"+a.AgentID+"/turns?page_index=1&page_size=10", nil, &turns); err != nil || turns.Total != 3 {
		t.Errorf("turns %+v %v", turns, err)
	}
	if b, err := c.join(ctx, name, settings); err != nil || b.AgentID == a.AgentID {
		t.Errorf("the name is not free again: %+v %v", b, err)
	}
}

// checkUpdatedPrompt checks that the LLM got the thought, with the updated settings and the fields
// of a custom LLM.
func checkUpdatedPrompt(t *testing.T, llm string) {
	t.Helper()
	for _, r := range requests(t, llm) {
		p := r.prompt()
		if r.Body.Model != "m2" || len(p) != 4 {
			continue
		}
		if diff := cmp.Diff([]string{"system: Be polite.", "assistant: Hello", "assistant: One moment.", "user: When is my train?"}, p); diff != "" {
			t.Error("upstream", diff)
		}
		if got := r.Header.Get("Authorization"); got != "Bearer sk-secret-of-the-agent" {
			t.Errorf("Authorization %q", got)
		}
		return
	}
	t.Error("the LLM was never asked with the updated settings")
}

// TestAgoraJoinErrors checks that the error of a bad join names the field.
func TestAgoraJoinErrors(t *testing.T) {
	t.Parallel()
	c := newAgoraClient(start(t), "/api/conversational-ai-agent/v2/projects/app1", "", false)
	whole := func(edit func(p object)) object {
		p := object{"channel": "c", "token": "", "agent_rtc_uid": "1", "remote_rtc_uids": []string{"2"}, "llm": object{"url": "http://127.0.0.1:9/v1"}}
		edit(p)
		return object{"name": "n", "properties": p}
	}
	for _, tt := range []struct {
		name   string
		body   any
		reason string
		detail string
	}{
		{"no name", object{"properties": object{}}, "400 MissingRequiredField", "name"},
		{"no channel", whole(func(p object) { delete(p, "channel") }), "400 MissingRequiredField", "properties.channel"},
		{"a number for an id", whole(func(p object) { p["agent_rtc_uid"] = 1 }), "400 InvalidFieldValue", "properties.agent_rtc_uid"},
		{"a bare id", whole(func(p object) { p["remote_rtc_uids"] = "2" }), "400 InvalidFieldValue", "properties.remote_rtc_uids"},
		{"idle too long", whole(func(p object) { p["idle_timeout"] = 259201 }), "400 InvalidFieldValue", "properties.idle_timeout"},
		{"history too long", whole(func(p object) { p["llm"].(object)["max_history"] = 1025 }), "400 InvalidFieldValue", "properties.llm.max_history"},
		{"not an object", "[1]", "400 InvalidRequestBody", ""},
	} {
		err := c.do(t.Context(), "POST", "/join", tt.body, nil)
		if got := reasonOf(t, err); got != tt.reason {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.reason)
		}
		if !strings.Contains(err.Error(), tt.detail) {
			t.Errorf("%s: %v does not name %q", tt.name, err, tt.detail)
		}
	}
}

// TestAgoraEngine uses the server as the custom LLM of Agora's engine, which sends its whole window
// with its own fields on each call. Nothing is stored twice, and the upstream gets those fields.
func TestAgoraEngine(t *testing.T) {
	t.Parallel()
	llm := fakeLLM(t)
	s := start(t, "HEARDLOG_LLM_URL="+llm+"/v1", "HEARDLOG_LLM_VENDOR=custom")
	id := s.join(t, "engine", nil)
	now := time.Now().UnixMilli()
	entry := func(role, text string, turn int, source string, more object) object {
		meta := object{"source": source}
		for k, v := range more {
			meta[k] = v
		}
		return object{"role": role, "content": text, "turn_id": turn, "timestamp": now + int64(turn)*1000, "metadata": meta}
	}
	call := func(turn int, msgs ...object) {
		t.Helper()
		body := object{"messages": append([]object{{"role": "system", "content": "Be brief."}}, msgs...), "turn_id": turn, "timestamp": now, "interruptable": true,
			"model": "m1", "user_uid": "42", "channel": "room-1", "stream": true, "context": object{"presence": object{"42": object{"selection": "ticket 17"}}}}
		s.call(t, 200, "POST", "/v1/agents/"+id+"/chat/completions", body, nil)
	}
	greeting := entry("assistant", "Hello", 0, "greeting", nil)
	first := entry("user", "When is my train?", 1, "asr", object{"user": "42"})
	call(1, greeting, first)
	cut := entry("assistant", "The train leaves at ", 1, "llm", object{"interrupted": true, "interrupt_timestamp": now + 1500, "original": trains})
	second := entry("user", "And back?", 2, "asr", object{"user": "42"})
	call(2, greeting, first, cut, second)
	// Its window is short.
	call(3, cut, second, entry("assistant", "You said: And back?", 2, "llm", nil), entry("user", "Bye", 3, "asr", nil))

	msgs := s.ledger(t, id)
	want := []string{
		"assistant: Hello", "user: When is my train?", "assistant: The train leaves at [interrupted]", "user: And back?",
		"assistant: You said: And back?", "user: Bye", "assistant: You said: Bye",
	}
	got := said(msgs)
	for i := range got {
		got[i] = strings.ReplaceAll(got[i], "  [", " [")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if m := msgs[2]; m.Metadata["original"] != trains || m.Generated != trains {
		t.Errorf("the cut answer %+v", m)
	}
	for i, turn := range []int64{0, 1, 1, 2, 2, 3, 3} {
		if msgs[i].TurnID != turn {
			t.Errorf("%s has turn %d, want %d", msgs[i].said(), msgs[i].TurnID, turn)
		}
	}
	if m := msgs[1]; m.Metadata["user"] != "42" || m.Metadata["source"] != "asr" {
		t.Errorf("the speaker is lost: %+v", m)
	}
	var bodies []struct{ Body map[string]json.RawMessage }
	up := &server{url: llm, client: httpClient(t)}
	up.call(t, 200, "GET", "/requests", nil, &bodies)
	last := bodies[2].Body
	for _, k := range []string{"turn_id", "timestamp", "interruptable", "user_uid", "channel", "context"} {
		if _, ok := last[k]; !ok {
			t.Errorf("the LLM did not get %s", k)
		}
	}
	if m := string(last["messages"]); !strings.Contains(m, `"original"`) || !strings.Contains(m, `"turn_id"`) || !strings.Contains(m, `"source":"asr"`) {
		t.Errorf("the LLM did not get the messages' own fields: %s", m)
	}
}
