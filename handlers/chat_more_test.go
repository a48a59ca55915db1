package handlers_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// TestChatReconcile checks a platform that sends its own list each time: nothing is stored twice,
// its echo shows what was heard, and the upstream gets what we know better instead of what the
// platform believes.
func TestChatReconcile(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(func(l *memory.LLMSettings) { l.Greeting = "Hello" })
	call := func(answer string, messages ...string) {
		t.Helper()
		res := p.post(t.Context(), agent, `{"messages":[`+strings.Join(messages, ",")+`],"fake":{"answer":"`+answer+`"},"stream":true}`)
		if body := p.read(res); res.StatusCode != 200 {
			t.Fatalf("%s %s", res.Status, body)
		}
	}
	msg := func(role, text string) string {
		return `{"role":"` + role + `","content":"` + text + `"}`
	}
	sys, hello := msg("system", "Be brief."), msg("assistant", "Hello!")
	q1, q2, q3 := msg("user", "When is my train?"), msg("user", "Say again"), msg("user", "Thanks")
	call("It leaves at nine from platform two.", sys, hello, q1)
	call("At nine, **platform two**.", sys, hello, q1, msg("assistant", "It leaves at"), q2)
	if diff := cmp.Diff([]string{
		"assistant: Hello", "user: When is my train?", "assistant: It leaves at (interrupted)", "user: Say again", "assistant: At nine, **platform two**.",
	}, lines(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}
	heard := "At nine"
	turn := int64(2)
	if _, err := p.mem.Turns.Interrupt(t.Context(), "p1", agent, agents.InterruptRequest{TurnID: &turn, Heard: &heard}); err != nil {
		t.Fatal(err)
	}
	call("Bye.", sys, hello, q1, msg("assistant", "It leaves at"), q2, msg("assistant", "At nine, platform two."), q3)
	if diff := cmp.Diff([]string{
		"assistant: Hello", "user: When is my train?", "assistant: It leaves at (interrupted)", "user: Say again", "assistant: At nine (interrupted)",
		"user: Thanks", "assistant: Bye.",
	}, lines(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}
	var up struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.Unmarshal(p.llm.Requests()[2].Body, &up); err != nil {
		t.Fatal(err)
	}
	if n := len(up.Messages); n != 7 || up.Messages[5].Content != "At nine" {
		t.Errorf("upstream got %+v", up.Messages)
	}
}

// TestChatModeHeader checks that the header chooses the mode, and a wrong one is refused.
func TestChatModeHeader(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	p.read(p.post(t.Context(), agent, say("one", "")))
	p.read(p.post(t.Context(), agent, `{"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"You said: one"},{"role":"user","content":"two"}]}`, prompt.ModeHeader, "inject"))
	if got := len(p.ledger(agent)); got != 6 {
		t.Errorf("inject stored %d messages, want all: 6", got)
	}
	if res := p.post(t.Context(), agent, say("x", ""), prompt.ModeHeader, "both"); res.StatusCode != 400 {
		t.Errorf("%s", res.Status)
	}
}

// TestChatIdempotencyKey checks that a repeat with the same Idempotency-Key generates the answer
// again and stores nothing twice.
func TestChatIdempotencyKey(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	for range 2 {
		if res := p.post(t.Context(), agent, say("one", ""), "Idempotency-Key", "k1"); res.StatusCode != 200 {
			t.Fatalf("%s %s", res.Status, p.read(res))
		}
	}
	if diff := cmp.Diff([]string{"user: one", "assistant: You said: one (superseded)", "assistant: You said: one"}, lines(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}
	if got := p.ledger(agent)[0].ID; got != "k1" {
		t.Errorf("id %q", got)
	}
	if res := p.post(t.Context(), agent, say("other", ""), "Idempotency-Key", "k1"); res.StatusCode != 400 || !strings.Contains(p.read(res), `"code":"conflict"`) {
		t.Errorf("other words under the same key: %s", res.Status) // OpenAI's clients repeat a 409
	}
	if res := p.post(t.Context(), agent, say("one", ""), "Idempotency-Key", strings.Repeat("k", memory.MaxMessageID+1)); res.StatusCode != 400 {
		t.Errorf("long key: %s", res.Status)
	}
}

// TestChatAgentNamed checks that a header or the body may name the agent, and that an unknown one
// is created if that is allowed.
func TestChatAgentNamed(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	call := func(body string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	if status, body := call(say("one", ""), "X-Agent-Id", agent); status != 200 {
		t.Errorf("header: %d %s", status, body)
	}
	if status, body := call(say("two", `,"metadata":{"agent_id":"`+agent+`","tier":"gold"}`)); status != 200 {
		t.Errorf("body: %d %s", status, body)
	}
	if got := string(p.llm.Requests()[1].Body); strings.Contains(got, agent) || !strings.Contains(got, `"metadata":{"tier":"gold"}`) {
		t.Errorf("upstream got %s", got)
	}
	if got := len(p.ledger(agent)); got != 4 {
		t.Errorf("%d messages, want 4", got)
	}
	status, body := call(say("three", ""))
	want := `{"error":{"message":"metadata.agent_id: is required, because the call names no agent: send it, or the header X-Agent-Id, or a key that GET /v1/profiles lists, or use the base URL /v1/agents/{id}","type":"invalid_request_error","param":"metadata.agent_id","code":"missing"}}` + "\n"
	if status != 400 || body != want {
		t.Errorf("no agent: %d %s", status, body)
	}
	if status, body := call(say("x", ""), "X-Agent-Id", "../etc"); status != 404 {
		t.Errorf("a name that is none: %d %s", status, body)
	}
	if res := p.post(t.Context(), "auto-1", say("x", "")); res.StatusCode != 404 {
		t.Errorf("a path makes no agent: %s", res.Status)
	}
}

// TestChatBadBodies checks that bodies that cannot be read are refused with the field, in OpenAI's
// form.
func TestChatBadBodies(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	for body, want := range map[string]string{
		``:                  "empty",
		`{`:                 "not valid JSON",
		`[]`:                "not a JSON object",
		`{"messages":"hi"}`: "messages: must be an array",
		`{"messages":[{"role":"user","content":7}]}`: "messages[0].content: must be a string",
		`{"messages":[]}`: "messages: is empty",
		`{"messages":[{"role":"user","content":"a"}]} x`: "more than one JSON value",
	} {
		res := p.post(t.Context(), agent, body)
		got := p.read(res)
		var e struct {
			Error struct{ Message, Type string }
		}
		if err := json.Unmarshal([]byte(got), &e); err != nil || res.StatusCode != 400 || !strings.Contains(e.Error.Message, want) || e.Error.Type != "invalid_request_error" {
			t.Errorf("%s: %s %s, want %q", body, res.Status, got, want)
		}
	}
	if got := p.ledger(agent); len(got) != 0 {
		t.Errorf("stored %q", lines(got))
	}
}

// TestChatHeadersUp checks that of the client's headers only those of traces go upstream, and that
// llm.headers cannot change ours.
func TestChatHeadersUp(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(func(l *memory.LLMSettings) {
		l.URL, l.APIKey = p.back+"/v1/chat/completions", "agent-key"
		l.Headers = map[string]secret.String{"X-Tenant": "t1", "host": "evil", "content-length": "3", "Authorization": "Basic x"}
	})
	p.read(p.post(t.Context(), agent, say("hi", ""), "Cookie", "c=1", "Authorization", "Bearer client-token", "X-Custom", "1",
		"Traceparent", "00-1-2-3", "X-Request-Id", "r-1"))
	h := p.llm.Requests()[0].Header
	for k, want := range map[string]string{
		"Cookie": "", "X-Custom": "", "Traceparent": "00-1-2-3", "X-Request-Id": "r-1", "Authorization": "Bearer agent-key",
		"X-Tenant": "t1", "Accept-Encoding": "", llmadapter.ViaHeader: "test-instance", "Content-Type": "application/json",
	} {
		if got := h.Get(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
	// The server's own key is never sent to an agent's URL.
	agent = p.join(func(l *memory.LLMSettings) { l.URL = p.back + "/v1/chat/completions" })
	p.read(p.post(t.Context(), agent, say("hi", "")))
	if got := p.llm.Requests()[1].Header.Get("Authorization"); got != "" {
		t.Errorf("Authorization %q", got)
	}
}

// TestChatLoop checks that an llm.url that points to the server itself is refused.
func TestChatLoop(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	id := ""
	agent := p.join(func(l *memory.LLMSettings) { l.URL = "http://placeholder" })
	id = agent
	loop := p.join(func(l *memory.LLMSettings) { l.URL = p.url + "/v1/agents/" + id + "/chat/completions" })
	res := p.post(t.Context(), loop, say("hi", ""))
	if body := p.read(res); res.StatusCode != 400 || !strings.Contains(body, "points back at this server") {
		t.Errorf("%s %s", res.Status, body)
	}
}

// TestThink checks that think runs a turn without a client.
func TestThink(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	m := memory.Message{Role: memory.User, Source: memory.SourceCommand, Content: "Ask for the ticket"}
	if err := p.run.Think(t.Context(), "p1", agent, m); err != nil {
		t.Fatal(err)
	}
	msgs := p.settled(agent, 2)
	if diff := cmp.Diff([]string{"user: Ask for the ticket", "assistant: You said: Ask for the ticket"}, lines(msgs)); diff != "" {
		t.Error(diff)
	}
	if msgs[0].Source != memory.SourceCommand || msgs[1].Source != memory.SourceLLM || msgs[1].Method != memory.AssumedFull {
		t.Errorf("%+v", msgs)
	}
	if err := p.run.Think(t.Context(), "p1", "nobody", m); err == nil {
		t.Error("an unknown agent was accepted")
	}
	if err := p.run.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.run.Think(t.Context(), "p1", agent, m); err == nil {
		t.Error("a closed runner took a turn")
	}
}

// TestThinkFails checks that a failed turn without a client says the failure message, and that an
// interrupted one is over.
func TestThinkFails(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(func(l *memory.LLMSettings) { script(map[string]any{"status": 500})(l); l.FailureMessage = "Sorry." })
	m := memory.Message{Role: memory.User, Source: memory.SourceCommand, Content: "x"}
	if err := p.run.Think(t.Context(), "p1", agent, m); err != nil {
		t.Fatal(err)
	}
	if got := p.settled(agent, 2)[1]; got.Content != "Sorry." || got.Source != memory.SourceLLMFailure || got.Failure == nil {
		t.Errorf("%+v", got)
	}
	agent = p.join(script(map[string]any{"hang": true}))
	if err := p.run.Think(t.Context(), "p1", agent, m); err != nil {
		t.Fatal(err)
	}
	if _, err := p.llm.WaitRequests(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	p.mem.Turns.Cut(t.Context(), "p1", agent, agents.ErrInterrupted)
	if got := p.settled(agent, 2)[1]; got.State != memory.Empty {
		t.Errorf("%+v", got)
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(func(l *memory.LLMSettings) { l.URL = p.back + "/v1/chat/completions?v=1" })
	odd := p.join(func(l *memory.LLMSettings) { l.URL = p.back + "/answer" })
	for path, want := range map[string]int{"/v1/models": 200, "/v1/agents/" + agent + "/models": 200, "/v1/agents/nobody/models": 404, "/v1/agents/" + odd + "/models": 501} {
		res, err := http.Get(p.url + path) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		body := p.read(res)
		res.Body.Close()
		if res.StatusCode != want || want == 200 && !strings.Contains(body, `"fake-1"`) {
			t.Errorf("%s: %s %s", path, res.Status, body)
		}
	}
}

// TestChatCustomAndTools checks that a custom upstream gets every field, and that tool calls and
// results keep theirs in the ledger.
func TestChatCustomAndTools(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(func(l *memory.LLMSettings) {
		l.Vendor = memory.VendorCustom
		l.SystemMessages = []json.RawMessage{json.RawMessage(`{"role":"system","content":"Be brief, {{who}}."}`)}
		l.Variables = map[string]string{"who": "Ann"}
	})
	p.read(p.post(t.Context(), agent, `{"messages":[{"role":"user","content":"Book it","timestamp":1780000009000,"speech_start_ms":5,"metadata":{"source":"asr","user":"42"}}],"fake":{"tool_name":"book","tool_args":"{\"seat\":1}"},"stream":true}`))
	calls := p.ledger(agent)[1].ToolCalls
	var parsed []struct {
		ID       string
		Function struct{ Name, Arguments string }
	}
	if err := json.Unmarshal(calls, &parsed); err != nil || len(parsed) != 1 || parsed[0].Function.Name != "book" || parsed[0].Function.Arguments != `{"seat":1}` {
		t.Fatalf("calls %s, %v", calls, err)
	}
	p.read(p.post(t.Context(), agent, `{"messages":[{"role":"tool","tool_call_id":"`+parsed[0].ID+`","content":"done"}]}`))
	if diff := cmp.Diff([]string{"user: Book it", "assistant: ", "tool: done", "assistant: You said: Book it"}, lines(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}
	var up struct {
		TurnID        *int64 `json:"turn_id"`
		Timestamp     int64
		Interruptable bool
		Messages      []json.RawMessage
	}
	if err := json.Unmarshal(p.llm.Requests()[1].Body, &up); err != nil {
		t.Fatal(err)
	}
	if up.TurnID == nil || up.Timestamp == 0 || !up.Interruptable || len(up.Messages) != 4 {
		t.Fatalf("upstream got %s", p.llm.Requests()[1].Body)
	}
	if diff := cmp.Diff(`{"role":"user","content":"Book it","speech_start_ms":5,"turn_id":0,"timestamp":1780000009000,"metadata":{"source":"asr","user":"42"}}`, string(up.Messages[1])); diff != "" {
		t.Error(diff)
	}
	if got := string(p.llm.Requests()[0].Body); !strings.Contains(got, `"speech_start_ms":5`) || !strings.Contains(got, `{"role":"system","content":"Be brief, Ann."}`) {
		t.Errorf("first call %s", got)
	}
}

// TestThinkAtShutdown checks that a server that stops ends turns without a client and stores what
// they have.
func TestThinkAtShutdown(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(script(map[string]any{"chunks": []string{"One. ", "Two."}, "hang_after": 1}))
	if err := p.run.Think(t.Context(), "p1", agent, memory.Message{Role: memory.User, Source: memory.SourceCommand, Content: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.llm.WaitRequests(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.run.Close(over); err == nil {
		t.Error("Close does not say that it ran out of time")
	}
	if got := p.ledger(agent); len(got) != 2 || got[1].Failure != nil {
		t.Errorf("stored %+v", got)
	}
	p.run = nil
}
