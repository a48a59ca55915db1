package compat_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

const trains = "The train leaves at nine from platform two. Shall I book a seat for you?"

// openAI returns OpenAI's own client for a base URL of the server.
func openAI(s *server, base string, opts ...option.RequestOption) *openai.Client {
	c := openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(s.url + base), option.WithHTTPClient(s.client), option.WithAPIKey("any"), option.WithMaxRetries(0),
	}, opts...)...)
	return &c
}

func ask(msgs ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "fake-1", Messages: msgs}
}

// drain reads a stream to its end and returns its text.
func drain(t testing.TB, stream *ssestream.Stream[openai.ChatCompletionChunk]) (string, openai.ChatCompletion) {
	t.Helper()
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("a chunk that does not fit: %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatalf("stream: %v", err)
	}
	if len(acc.Choices) == 0 {
		t.Fatal("a stream without choices")
	}
	return acc.Choices[0].Message.Content, acc.ChatCompletion
}

// code returns the HTTP status of an error of the client.
func code(t testing.TB, err error) *openai.Error {
	t.Helper()
	e, ok := errors.AsType[*openai.Error](err)
	if !ok {
		t.Fatalf("not an error of the API: %v", err)
	}
	return e
}

// TestOpenAIInject checks that the client sends only what is new, and the model gets everything.
func TestOpenAIInject(t *testing.T) {
	t.Parallel()
	llm := fakeLLM(t)
	s := start(t, "HEARDLOG_LLM_URL="+llm+"/v1", "HEARDLOG_LLM_API_KEY=sk-upstream-key")
	id := s.join(t, "inject", object{"llm": object{
		"greeting_message": "Hello {{who}}", "system_messages": []object{{"role": "system", "content": "Be brief, {{who}}."}},
		"template_variables": object{"who": "Ann"},
	}})
	client := openAI(s, "/v1/agents/"+id)

	whole, err := client.Chat.Completions.New(t.Context(), ask(openai.UserMessage("When is my train?")))
	if err != nil {
		t.Fatal(err)
	}
	if got := whole.Choices[0].Message.Content; got != trains || whole.Choices[0].FinishReason != "stop" || whole.Usage.TotalTokens != 20 {
		t.Errorf("answer %s", whole.RawJSON())
	}
	text, _ := drain(t, client.Chat.Completions.NewStreaming(t.Context(), ask(openai.UserMessage("A window seat?"))))
	if text != "You said: A window seat?" {
		t.Errorf("streamed %q", text)
	}
	// The second way to name an agent.
	text, _ = drain(t, openAI(s, "/v1", option.WithHeader("X-Agent-Id", id)).Chat.Completions.NewStreaming(t.Context(), ask(openai.UserMessage("Thanks"))))
	if text != "You said: Thanks" {
		t.Errorf("streamed %q", text)
	}

	want := []string{
		"assistant: Hello Ann", "user: When is my train?", "assistant: " + trains,
		"user: A window seat?", "assistant: You said: A window seat?", "user: Thanks", "assistant: You said: Thanks",
	}
	if diff := cmp.Diff(want, said(s.ledger(t, id))); diff != "" {
		t.Error("ledger", diff)
	}
	if diff := cmp.Diff(want, said(s.historyOf(t, id))); diff != "" {
		t.Error("history", diff)
	}
	seen := requests(t, llm)
	if diff := cmp.Diff(append([]string{"system: Be brief, Ann."}, want[:len(want)-1]...), seen[2].prompt()); diff != "" {
		t.Error("upstream", diff)
	}
	if got := seen[0].Header.Get("Authorization"); got != "Bearer sk-upstream-key" {
		t.Errorf("the upstream was shown %q", got)
	}
	for i, m := range s.ledger(t, id) {
		if want := int64((i + 1) / 2); m.TurnID != want {
			t.Errorf("message %d has turn %d, want %d", i, m.TurnID, want)
		}
	}

	page, err := client.Models.List(t.Context())
	if err != nil || len(page.Data) != 1 || page.Data[0].ID != "fake-1" {
		t.Errorf("models: %v %v", page, err)
	}
}

func TestOpenAIUsageChunk(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1")
	p := ask(openai.UserMessage("When is my train?"))
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	_, all := drain(t, openAI(s, "/v1/agents/"+s.join(t, "usage", nil)).Chat.Completions.NewStreaming(t.Context(), p))
	if all.Usage.TotalTokens != 20 {
		t.Errorf("usage %s", all.Usage.RawJSON())
	}
}

// TestOpenAITools checks that a tool call reaches the client, and that the call and its result are
// stored in the turn.
func TestOpenAITools(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(map[bool]string{true: "stream", false: "whole"}[stream], func(t *testing.T) {
			t.Parallel()
			llm := fakeLLM(t)
			s := start(t, "HEARDLOG_LLM_URL="+llm+"/v1")
			id := s.join(t, "tools", scripted(object{"tool_name": "timetable", "tool_args": `{"to":"Bern"}`}))
			client := openAI(s, "/v1/agents/"+id)
			p := ask(openai.UserMessage("When is my train?"))
			p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "timetable"})}
			var call openai.ChatCompletion
			if stream {
				_, call = drain(t, client.Chat.Completions.NewStreaming(t.Context(), p))
			} else {
				whole, err := client.Chat.Completions.New(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				call = *whole
			}
			calls := call.Choices[0].Message.ToolCalls
			if len(calls) != 1 || calls[0].Function.Name != "timetable" || calls[0].Function.Arguments != `{"to":"Bern"}` {
				t.Fatalf("tool calls %+v", calls)
			}
			s.call(t, 200, "POST", "/v1/agents/"+id+"/update", object{"properties": object{"llm": object{"params": object{"fake": object{"answer": "At nine."}}}}}, nil)
			text, err := client.Chat.Completions.New(t.Context(), ask(openai.ToolMessage(`{"at":"9:00"}`, calls[0].ID)))
			if err != nil {
				t.Fatal(err)
			}
			if got := text.Choices[0].Message.Content; got != "At nine." {
				t.Errorf("answer %q", got)
			}
			msgs := s.ledger(t, id)
			want := []string{"user: When is my train?", "assistant: ", `tool: {"at":"9:00"}`, "assistant: At nine."}
			if diff := cmp.Diff(want, said(msgs)); diff != "" {
				t.Fatal(diff)
			}
			if len(msgs[1].ToolCalls) != 1 || msgs[2].CallID != calls[0].ID {
				t.Errorf("calls %v, result of %q", msgs[1].ToolCalls, msgs[2].CallID)
			}
			for _, m := range msgs {
				if m.TurnID != 0 {
					t.Errorf("%s has turn %d", m.said(), m.TurnID)
				}
			}
			if diff := cmp.Diff([]string{"user: When is my train?", "assistant: At nine."}, said(s.historyOf(t, id))); diff != "" {
				t.Error("history", diff)
			}
			if got := requests(t, llm)[1].prompt(); len(got) != 3 || got[1] != "assistant:" || got[2] != `tool: {"at":"9:00"}` {
				t.Errorf("the model saw %q", got)
			}
		})
	}
}

// TestOpenAIReconcile checks that a client that sends its whole list again stores nothing twice,
// and that its shortened copy of an answer counts as what was heard.
func TestOpenAIReconcile(t *testing.T) {
	t.Parallel()
	llm := fakeLLM(t)
	s := start(t, "HEARDLOG_LLM_URL="+llm+"/v1")
	id := s.join(t, "reconcile", nil)
	client := openAI(s, "/v1/agents/"+id)
	list := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage("When is my train?")}
	turn := func() string {
		t.Helper()
		text, _ := drain(t, client.Chat.Completions.NewStreaming(t.Context(), ask(list...)))
		return text
	}
	first := turn()
	list = append(list, openai.AssistantMessage(first), openai.UserMessage("A window seat?"))
	second := turn()
	// The caller interrupted; the platform keeps only what it played.
	list = append(list, openai.AssistantMessage("You said: A"), openai.UserMessage("Aisle, sorry."))
	third := turn()

	msgs := s.ledger(t, id)
	want := []string{
		"user: When is my train?", "assistant: " + trains, "user: A window seat?", "assistant: You said: A [interrupted]",
		"user: Aisle, sorry.", "assistant: " + third,
	}
	if diff := cmp.Diff(want, said(msgs)); diff != "" {
		t.Fatal(diff)
	}
	if m := msgs[3]; m.Generated != second || m.Heard != "You said: A" || m.Evidence.Method != "echo_diff" || m.Metadata["original"] != second {
		t.Errorf("the cut answer: %+v", m)
	}
	if m := msgs[1]; m.Evidence.Method != "echo_diff" || m.Heard != trains {
		t.Errorf("the echoed answer: %+v", m)
	}
	// The same list again asks for the same turn again.
	if again := turn(); again != third {
		t.Errorf("again %q", again)
	}
	live := []string{}
	for _, m := range s.ledger(t, id) {
		if m.State == "final" {
			live = append(live, m.said())
		}
	}
	if diff := cmp.Diff(want, live); diff != "" {
		t.Error("after the same request again", diff)
	}
	if diff := cmp.Diff(want, said(s.historyOf(t, id))); diff != "" {
		t.Error("history", diff)
	}
	seen := requests(t, llm)
	wantPrompt := append([]string{"system: Be brief."}, "user: When is my train?", "assistant: "+trains, "user: A window seat?", "assistant: You said: A", "user: Aisle, sorry.")
	if diff := cmp.Diff(wantPrompt, seen[2].prompt()); diff != "" {
		t.Error("upstream", diff)
	}
}

// TestOpenAICancel checks that if a client disconnects during a stream, the next read of the
// history has what it was sent, and the upstream call ends.
func TestOpenAICancel(t *testing.T) {
	t.Parallel()
	llm := fakeLLM(t)
	s := start(t, "HEARDLOG_LLM_URL="+llm+"/v1")
	id := s.join(t, "cancel", scripted(object{"answer": "one two three four five six", "hang_after": 3}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := openAI(s, "/v1/agents/"+id).Chat.Completions.NewStreaming(ctx, ask(openai.UserMessage("Count.")))
	for range 3 {
		if !stream.Next() {
			t.Fatalf("the stream ended early: %v", stream.Err())
		}
	}
	if msgs := s.historyOf(t, id); len(msgs) != 1 {
		t.Errorf("an answer in flight is shown: %q", said(msgs))
	}
	cancel()
	stream.Close()
	cut := time.Now()
	eventually(t, "the interrupted answer stands in the history", func() bool { return len(s.historyOf(t, id)) == 2 })
	// A server that had not noticed would wait for the upstream, 30 s.
	if took := time.Since(cut); took > 25*time.Second {
		t.Errorf("that took %s", took)
	}
	m := s.ledger(t, id)[1]
	if m.said() != "assistant: one two three  [interrupted]" || m.Metadata["original"] != "one two three " || m.Metadata["interrupt_timestamp"] == nil || m.Sent != "one two three " {
		t.Errorf("%+v", m)
	}
	up := &server{url: llm, client: httpClient(t)}
	eventually(t, "the upstream sees the cancel", func() bool {
		status, body, err := up.try(t.Context(), "GET", "/cancels", nil)
		return err == nil && status == 200 && strings.Contains(string(body), `"phase":"stream"`)
	})
	// The next request gets this answer.
	s.call(t, 200, "POST", "/v1/agents/"+id+"/update", object{"llm": object{"params": object{}}}, nil)
	if _, err := openAI(s, "/v1/agents/"+id).Chat.Completions.New(t.Context(), ask(openai.UserMessage("Go on."))); err != nil {
		t.Fatal(err)
	}
	seen := requests(t, llm)
	if diff := cmp.Diff([]string{"user: Count.", "assistant: one two three", "user: Go on."}, seen[len(seen)-1].prompt()); diff != "" {
		t.Error(diff)
	}
}

// TestOpenAIDrain checks that with on_disconnect drain the whole answer is recorded.
func TestOpenAIDrain(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1")
	p := scripted(object{"answer": "one two three four five six", "delay_chunk": "50ms"})
	p["heardlog"] = object{"on_disconnect": "drain"}
	id := s.join(t, "drain", p)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := openAI(s, "/v1/agents/"+id).Chat.Completions.NewStreaming(ctx, ask(openai.UserMessage("Count.")))
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	cancel()
	stream.Close()
	eventually(t, "the whole answer is known", func() bool {
		msgs := s.ledger(t, id)
		return len(msgs) == 2 && msgs[1].Complete && msgs[1].Generated == "one two three four five six"
	})
	m := s.ledger(t, id)[1]
	if !strings.HasPrefix("one two three four five six", m.Content) || len(m.Content) >= len(m.Generated) || m.Metadata["interrupted"] != true {
		t.Errorf("%+v", m)
	}
}

// TestOpenAIErrors checks that errors have OpenAI's form and the right status.
func TestOpenAIErrors(t *testing.T) {
	t.Parallel()
	dead := "http://127.0.0.1:1/v1"
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_NO_KEY=refuse")
	fails := func(id string) *openai.Error {
		t.Helper()
		var last *openai.Error
		for _, stream := range []bool{false, true} {
			client, p := openAI(s, "/v1/agents/"+id), ask(openai.UserMessage("Hello?"))
			var err error
			if stream {
				st := client.Chat.Completions.NewStreaming(t.Context(), p)
				for st.Next() {
				}
				err = st.Err()
			} else {
				_, err = client.Chat.Completions.New(t.Context(), p)
			}
			e := code(t, err)
			if last != nil && last.StatusCode != e.StatusCode {
				t.Errorf("whole %d, stream %d", last.StatusCode, e.StatusCode)
			}
			last = e
		}
		return last
	}
	gone := s.join(t, "gone", nil)
	s.call(t, 200, "POST", "/v1/agents/"+gone+"/leave", nil, nil)
	if e := fails(gone); e.StatusCode != 410 || e.Code != "stopped" || !strings.Contains(e.Message, "stopped at") || !strings.Contains(e.Message, "OK") {
		t.Errorf("stopped agent: %d %s", e.StatusCode, e.RawJSON())
	}
	if e := fails("no-such-agent"); e.StatusCode != 404 || e.Code != "not_found" {
		t.Errorf("unknown agent: %d %s", e.StatusCode, e.RawJSON())
	}
	if e := fails(s.join(t, "dead", object{"llm": object{"url": dead + "/chat/completions"}})); e.StatusCode != 502 || e.Type != "upstream_error" {
		t.Errorf("dead upstream: %d %s", e.StatusCode, e.RawJSON())
	}
	slow := scripted(object{"hang": true})
	// An answer in one piece has no first token.
	slow["heardlog"] = object{"timeouts": object{"first_token_ms": 100, "total_ms": 300}}
	if e := fails(s.join(t, "slow", slow)); e.StatusCode != 504 {
		t.Errorf("slow upstream: %d %s", e.StatusCode, e.RawJSON())
	}
	e := fails(s.join(t, "limited", scripted(object{"status": 429, "retry_after": "7"})))
	if e.StatusCode != 429 || e.Response.Header.Get("Retry-After") != "7" || e.Type != "fake_error" {
		t.Errorf("limited upstream: %d %v %s", e.StatusCode, e.Response.Header, e.RawJSON())
	}
	_, err := openAI(s, "/v1").Chat.Completions.New(t.Context(), ask(openai.UserMessage("Who?")))
	if e := code(t, err); e.StatusCode != 400 || e.Param != "metadata.agent_id" {
		t.Errorf("no agent: %d %s", e.StatusCode, e.RawJSON())
	}
	// A stream that the upstream broke is not taken for a complete one.
	id := s.join(t, "cut", scripted(object{"answer": "one two three", "cut_after": 2}))
	st := openAI(s, "/v1/agents/"+id).Chat.Completions.NewStreaming(t.Context(), ask(openai.UserMessage("Count.")))
	for st.Next() {
	}
	if st.Err() == nil {
		t.Error("a broken stream ended well")
	}
	eventually(t, "what came of it is stored", func() bool { return len(s.ledger(t, id)) == 2 })
	if m := s.ledger(t, id)[1]; m.Content != "one two " || m.Failure == nil {
		t.Errorf("%+v", m)
	}
	// A failure message replaces the model's answer.
	p := scripted(object{"status": 500})
	p["llm"].(object)["failure_message"] = "Sorry, please say that again."
	id = s.join(t, "sorry", p)
	text, _ := drain(t, openAI(s, "/v1/agents/"+id).Chat.Completions.NewStreaming(t.Context(), ask(openai.UserMessage("Hello?"))))
	if m := s.ledger(t, id)[1]; text != "Sorry, please say that again." || m.Content != text || m.Metadata["source"] != "llm_failure" {
		t.Errorf("said %q, stored %+v", text, m)
	}
}

// TestOpenAIAutoJoin checks that an unknown ID creates an agent if the setting allows it.
func TestOpenAIAutoJoin(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_AUTO_JOIN=true")
	client := openAI(s, "/v1", option.WithHeader("X-Agent-Id", "chat-42"))
	for _, text := range []string{"one", "two"} {
		if _, err := client.Chat.Completions.New(t.Context(), ask(openai.UserMessage(text))); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"user: one", "assistant: You said: one", "user: two", "assistant: You said: two"}
	if diff := cmp.Diff(want, said(s.ledger(t, "chat-42"))); diff != "" {
		t.Error(diff)
	}
	_, err := openAI(s, "/v1/agents/unknown").Chat.Completions.New(t.Context(), ask(openai.UserMessage("one")))
	if e := code(t, err); e.StatusCode != 404 {
		t.Errorf("an agent in the path: %d", e.StatusCode)
	}
}

// TestOpenAITenants checks that two tenants, with every way to send credentials, see nothing of
// each other.
func TestOpenAITenants(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_CREDENTIALS=red=red-id:red-secret,blue=blue-id:blue-secret")
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	red := s.join(t, "desk", object{"llm": object{"greeting_message": "red"}}, "Authorization", "Bearer red-secret")
	blue := s.join(t, "desk", nil, "Authorization", basic("blue-id:blue-secret"))
	send := func(id, auth string) error {
		_, err := openAI(s, "/v1/agents/"+id, option.WithHeader("Authorization", auth)).Chat.Completions.New(t.Context(), ask(openai.UserMessage("Hello")))
		return err
	}
	for _, auth := range []string{"Bearer red-secret", "Bearer red-id:red-secret", basic("red-id:red-secret"), "bearer red-secret"} {
		if err := send(red, auth); err != nil {
			t.Errorf("%.12s…: %v", auth, err)
		}
		if e := code(t, send(blue, auth)); e.StatusCode != 404 {
			t.Errorf("another's agent: %d %s", e.StatusCode, e.RawJSON())
		}
	}
	// The client's own way to send a key.
	if _, err := openAI(s, "/v1/agents/"+red, option.WithAPIKey("red-secret")).Chat.Completions.New(t.Context(), ask(openai.UserMessage("Hi"))); err != nil {
		t.Error(err)
	}
	for _, auth := range []string{"Bearer red-secre", "Bearer blue-id:red-secret", basic("red-id:blue-secret"), "Bearer ", "Digest x", "Bearer red-id"} {
		e := code(t, send(red, auth))
		if e.StatusCode != 401 || e.Type != "authentication_error" || strings.Contains(e.RawJSON(), "secre") {
			t.Errorf("%q: %d %s", auth, e.StatusCode, e.RawJSON())
		}
	}
	auth := []string{"Authorization", "Bearer blue-secret"}
	const base = "/api/conversational-ai-agent/v2/projects/"
	for _, path := range []string{"/v1/agents/" + red, "/v1/agents/" + red + "/history", "/v1/agents/" + red + "/messages", "/v1/agents/" + red + "/turns", base + "red/agents", base + "red/agents/" + red, base + "blue/agents/" + red, base + "blue/agents/" + red + "/history"} {
		status, body, err := s.try(t.Context(), "GET", path, nil, auth...)
		if err != nil || status != 404 || strings.Contains(string(body), "desk") {
			t.Errorf("%s: %d %s %v", path, status, body, err)
		}
	}
	for _, path := range []string{"/leave", "/interrupt", "/update"} {
		s.call(t, 404, "POST", "/v1/agents/"+red+path, object{}, nil, auth...)
	}
	s.call(t, 404, "POST", "/v1/agents/"+red+"/messages", object{"role": "user", "content": "x"}, nil, auth...)
	var list struct {
		Agents []struct {
			AgentID string `json:"agent_id"`
		}
	}
	s.call(t, 200, "GET", "/v1/agents", nil, &list, auth...)
	if len(list.Agents) != 1 || list.Agents[0].AgentID != blue {
		t.Errorf("blue lists %v", list.Agents)
	}
	if n := len(s.ledger(t, red, "Authorization", "Bearer red-secret")); n != 11 {
		t.Errorf("red has %d messages, want a greeting and five turns", n)
	}
}
