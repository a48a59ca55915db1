package compat_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

// TestOpenAIJSONMode checks that an answer in JSON mode is stored unchanged, and that the requested
// format reaches the model unchanged.
func TestOpenAIJSONMode(t *testing.T) {
	t.Parallel()
	const said = "{\"at\": \"9:00\",\n \"platforms\": [2, 3], \"late\": null}"
	llm := fakeLLM(t)
	s := start(t, "HEARDLOG_LLM_URL="+llm+"/v1")
	id := s.join(t, "json", scripted(object{"answer": said}))
	client := openAI(s, "/v1/agents/"+id)

	p := ask(openai.SystemMessage("Answer in JSON."), openai.UserMessage("When is my train?"))
	p.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: "departure", Strict: openai.Bool(true),
			Schema: object{"type": "object", "properties": object{"at": object{"type": "string"}}, "required": []string{"at"}},
		},
	}}
	text, _ := drain(t, client.Chat.Completions.NewStreaming(t.Context(), p))
	if text != said {
		t.Errorf("streamed %q", text)
	}
	p.Messages = append(p.Messages, openai.AssistantMessage(text), openai.UserMessage("And the next?"))
	p.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONObject: &shared.ResponseFormatJSONObjectParam{}}
	whole, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got := whole.Choices[0].Message.Content; got != said {
		t.Errorf("whole %q", got)
	}

	msgs := s.ledger(t, id)
	if len(msgs) != 4 || msgs[1].Content != said || msgs[1].Metadata["interrupted"] == true || msgs[1].Evidence.Method != "echo_diff" || msgs[3].Content != said {
		t.Errorf("the ledger has %+v", msgs)
	}
	want := []string{
		`{"type":"json_schema","json_schema":{"name":"departure","strict":true,"schema":{"type":"object","properties":{"at":{"type":"string"}},"required":["at"]}}}`,
		`{"type":"json_object"}`,
	}
	for i, call := range requests(t, llm) {
		var got, wanted any
		if err := json.Unmarshal(call.Body.ResponseFormat, &got); err != nil {
			t.Fatalf("call %d: the model was shown response_format %s: %v", i, call.Body.ResponseFormat, err)
		}
		if err := json.Unmarshal([]byte(want[i]), &wanted); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("call %d: %s", i, diff)
		}
	}
}

// toolStream returns a stream of two concurrent tool calls, with interleaved pieces of their
// arguments and usage at the end.
func toolStream() []string {
	chunk := func(choices string) string {
		return `data: {"id":"c1","object":"chat.completion.chunk","created":1780000000,"model":"fake-1","choices":` + choices + "}\n\n"
	}
	delta := func(d string) string { return chunk(`[{"index":0,"delta":` + d + `,"finish_reason":null}]`) }
	call := func(i int, args string) string {
		return delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}`, i, args))
	}
	return []string{
		delta(`{"role":"assistant","content":"One moment."}`),
		delta(`{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"timetable","arguments":""}}]}`),
		call(0, `{"to":`),
		delta(`{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"weather","arguments":"{\"in\":"}}]}`),
		call(0, `"Bern"}`), call(1, `"Bern"}`),
		chunk(`[{"index":0,"delta":{},"finish_reason":"tool_calls"}]`),
		`data: {"id":"c1","object":"chat.completion.chunk","created":1780000000,"model":"fake-1","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42}}` + "\n\n",
		"data: [DONE]\n\n",
	}
}

// TestOpenAIStreamedToolCalls streams two tool calls to a client that keeps its own list, which
// then sends both results and asks again. Nothing is stored twice, the calls are complete, and the
// usage is stored.
func TestOpenAIStreamedToolCalls(t *testing.T) {
	t.Parallel()
	llm := fakeLLM(t)
	s := start(t, "HEARDLOG_LLM_URL="+llm+"/v1")
	id := s.join(t, "calls", scripted(object{"raw_pieces": toolStream()}))
	client := openAI(s, "/v1/agents/"+id)
	p := ask(openai.UserMessage("When is my train, and will it rain?"))
	p.Tools = []openai.ChatCompletionToolUnionParam{
		openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "timetable"}),
		openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "weather"}),
	}
	p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	_, first := drain(t, client.Chat.Completions.NewStreaming(t.Context(), p))
	calls := first.Choices[0].Message.ToolCalls
	if len(calls) != 2 || calls[0].Function.Arguments != `{"to":"Bern"}` || calls[1].Function.Name != "weather" || calls[1].Function.Arguments != `{"in":"Bern"}` || first.Usage.TotalTokens != 42 {
		t.Fatalf("the client put together %+v", first)
	}

	s.call(t, 200, "POST", "/v1/agents/"+id+"/update", object{"properties": object{"llm": object{"params": object{"fake": object{"answer": "At nine, in the sun."}}}}}, nil)
	p.Messages = append(p.Messages, first.Choices[0].Message.ToParam(), openai.ToolMessage(`{"at":"9:00"}`, "call_a"), openai.ToolMessage(`{"rain":false}`, "call_b"))
	p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{}
	second, _ := drain(t, client.Chat.Completions.NewStreaming(t.Context(), p))
	p.Messages = append(p.Messages, openai.AssistantMessage(second), openai.UserMessage("Thanks."))
	third, _ := drain(t, client.Chat.Completions.NewStreaming(t.Context(), p))

	msgs := s.ledger(t, id)
	want := []string{
		"user: When is my train, and will it rain?", "assistant: One moment.", `tool: {"at":"9:00"}`, `tool: {"rain":false}`, "assistant: At nine, in the sun.",
		"user: Thanks.", "assistant: " + third,
	}
	if diff := cmp.Diff(want, said(msgs)); diff != "" {
		t.Fatal(diff)
	}
	if len(msgs[1].ToolCalls) != 2 || msgs[1].Usage.Total != 42 || msgs[2].CallID != "call_a" || msgs[3].CallID != "call_b" || msgs[3].TurnID != 0 || msgs[4].TurnID != 0 {
		t.Errorf("the turn with the calls: %+v", msgs[:5])
	}
	kept, err := json.Marshal(msgs[1].ToolCalls[1])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"function":{"arguments":"{\"in\":\"Bern\"}","name":"weather"},"id":"call_b","type":"function"}`, string(kept)); diff != "" {
		t.Error("a call as it is kept", diff)
	}
	seen := requests(t, llm)
	if len(seen[0].Body.Tools) != 2 || string(seen[0].Body.ToolChoice) != `"required"` || string(seen[0].Body.StreamOptions) != `{"include_usage":true}` {
		t.Errorf("the model was shown %+v", seen[0].Body)
	}
	if diff := cmp.Diff([]string{want[0], want[1], want[2], want[3], want[4], want[5]}, seen[2].prompt()); diff != "" {
		t.Error("the last prompt", diff)
	}
}
