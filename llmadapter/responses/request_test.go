package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/llmadapter/responses"
)

// TestChat checks the chat completions request for a request in each of the forms of OpenAI's
// reference.
func TestChat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, body, want string }{
		{"a string", `{"model":"m","input":"Hello"}`, `{"messages":[{"role":"user","content":"Hello"}],"model":"m"}`},
		{
			"instructions and a stream", `{"instructions":"Be brief.","input":"Hello","stream":true,"stream_options":{"include_obfuscation":false}}`,
			`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}],"stream":true,"stream_options":{"include_usage":true}}`,
		},
		{
			"messages", `{"input":[{"role":"developer","content":"Be kind."},{"role":"user","content":[{"type":"input_text","text":"Hi"}]},
				{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[]},{"type":"refusal","refusal":"No."}]},
				{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]}`,
			`{"messages":[{"role":"developer","content":"Be kind."},{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello.\nNo."},{"role":"user","content":[{"text":"a","type":"text"},{"text":"b","type":"text"}]}]}`,
		},
		{
			"an image", `{"input":[{"role":"user","content":[{"type":"input_text","text":"What?"},{"type":"input_image","image_url":"https://x/y.png","detail":"low"}]}]}`,
			`{"messages":[{"role":"user","content":[{"text":"What?","type":"text"},{"image_url":{"detail":"low","url":"https://x/y.png"},"type":"image_url"}]}]}`,
		},
		{
			"tool calls and results", `{"input":[{"role":"user","content":"Weather?"},{"type":"reasoning","id":"rs_1","summary":[]},
				{"role":"assistant","content":"One moment."},{"type":"function_call","id":"fc_1","call_id":"c1","name":"weather","arguments":"{\"city\":\"Ulm\"}"},
				{"type":"function_call","call_id":"c2","name":"time","arguments":"{}"},
				{"type":"function_call_output","call_id":"c1","output":"rain"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"9:00"}]},
				{"type":"function_call","call_id":"c3","name":"more","arguments":""}]}`,
			`{"messages":[{"role":"user","content":"Weather?"},{"role":"assistant","content":"One moment.","tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Ulm\"}"}},{"id":"c2","type":"function","function":{"name":"time","arguments":"{}"}}]},` +
				`{"role":"tool","content":"rain","tool_call_id":"c1"},{"role":"tool","content":"9:00","tool_call_id":"c2"},{"role":"assistant","content":null,"tool_calls":[{"id":"c3","type":"function","function":{"name":"more","arguments":""}}]}]}`,
		},
		{
			"tools", `{"input":"x","tools":[{"type":"function","name":"f","description":null,"parameters":{"type":"object"},"strict":true}],"tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false}`,
			`{"messages":[{"role":"user","content":"x"}],"parallel_tool_calls":false,"tool_choice":{"function":{"name":"f"},"type":"function"},"tools":[{"function":{"name":"f","parameters":{"type":"object"},"strict":true},"type":"function"}]}`,
		},
		{"no tools", `{"input":"x","tools":[],"tool_choice":"auto","parallel_tool_calls":true}`, `{"messages":[{"role":"user","content":"x"}]}`},
		{
			"a schema", `{"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true},"verbosity":"low"}}`,
			`{"messages":[{"role":"user","content":"x"}],"response_format":{"json_schema":{"name":"n","schema":{"type":"object"},"strict":true},"type":"json_schema"},"verbosity":"low"}`,
		},
		{"plain text", `{"input":"x","text":{"format":{"type":"text"}}}`, `{"messages":[{"role":"user","content":"x"}]}`},
		{
			"settings", `{"input":"x","max_output_tokens":9,"reasoning":{"effort":"low","summary":"auto"},"temperature":0.5,"top_p":null,"store":false,"truncation":"auto",
				"include":["reasoning.encrypted_content"],"metadata":{"agent_id":"a1","k":"v"},"user":"u","heardlog":{"policy":"full"},"background":false,"conversation":null}`,
			`{"heardlog":{"policy":"full"},"max_completion_tokens":9,"messages":[{"role":"user","content":"x"}],"metadata":{"agent_id":"a1"},"reasoning_effort":"low","temperature":0.5,"user":"u"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := responses.Parse([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Chat(nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(compact(t, tt.want), compact(t, string(got))); diff != "" {
				t.Error(diff)
			}
			if _, err := llmadapter.ParseRequest(got); err != nil {
				t.Errorf("it is no chat request: %v", err)
			}
		})
	}
}

// compact returns JSON with its members in one order.
func compact(t *testing.T, s string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("%v: %s", err, s)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRefused checks that what cannot be honoured is refused by its name.
func TestRefused(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                            "the body is not a JSON object",
		`[]`:                          "the body is not a JSON object",
		`null`:                        "the body is not a JSON object",
		`{"input":1,"input":2}`:       "names a member twice",
		`{}`:                          "input: is required",
		`{"input":5}`:                 "input: must be a string or an array of items",
		`{"input":["x"]}`:             "input[0]: must be an object",
		`{"input":[{"role":5}]}`:      "input[0].role: must be a string",
		`{"input":[{"role":"x"}]}`:    `input[0].role: must be user, assistant, system or developer, not "x"`,
		`{"input":[{"role":"user"}]}`: "input[0].content: is required",
		`{"input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}`:         `input[0].content[0].type: "input_file" is not supported`,
		`{"input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]}`:        "input[0].content[0].image_url: is required; files of OpenAI",
		`{"input":[{"role":"user","content":[{"type":"input_text"}]}]}`:                       "input[0].content[0].text: is required in a part of type input_text",
		`{"input":[{"role":"assistant","content":[{"type":"refusal","refusal":null}]}]}`:      "input[0].content[0].refusal: is required in a part of type refusal",
		`{"input":[{"role":"assistant","content":[{"type":"input_image","image_url":"u"}]}]}`: `input[0].content[0].type: "input_image" is not supported here`,
		`{"input":[{"type":"web_search_call","id":"ws_1"}]}`:                                  `input[0].type: "web_search_call" is not supported`,
		`{"input":[{"type":"function_call_output","output":"x"}]}`:                            "input[0].call_id: is required",
		`{"input":[{"type":"function_call","call_id":"c"}]}`:                                  "input[0].name: is required",
		`{"input":[{"type":"item_reference","id":"msg_a_1"}]}`:                                `input[0].id: there is no item "msg_a_1"`,
		`{"input":"x","instructions":[]}`:                                                     "instructions: must be a string",
		`{"input":"x","stream":1}`:                                                            "stream: must be true or false",
		`{"input":"x","tools":[{"type":"web_search"}]}`:                                       `tools[0].type: "web_search" is not supported`,
		`{"input":"x","tools":{}}`:                                                            "tools: must be an array of tools",
		`{"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"mcp"}}`: `tool_choice.type: "mcp" is not supported`,
		`{"input":"x","background":true}`:                                                     "background: is not supported",
		`{"input":"x","conversation":{"name":"x"}}`:                                           "conversation: must be the ID of a conversation",
		`{"input":"x","prompt":{"id":"p"}}`:                                                   "prompt: is not supported",
		`{"input":"x","top_logprobs":3}`:                                                      "top_logprobs: is not supported",
		`{"input":"x","include":["file_search_call.results"]}`:                                `include[0]: "file_search_call.results" is not supported`,
		`{"input":"x","text":{"format":{"type":"grammar"}}}`:                                  `text.format.type: must be text, json_object or json_schema, not "grammar"`,
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			r, err := responses.Parse([]byte(body))
			if err == nil {
				_, err = r.Chat(nil)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}

// TestReferences checks that items which a request only names are filled in.
func TestReferences(t *testing.T) {
	t.Parallel()
	r, err := responses.Parse([]byte(`{"input":[{"role":"user","content":"Weather?"},{"type":"item_reference","id":"msg_a_b_2"},{"type":"item_reference","id":"fc_a_b_2_0"},
		{"type":"function_call_output","call_id":"c1","output":"rain"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"msg_a_b_2", "fc_a_b_2_0"}, r.References); diff != "" {
		t.Error(diff)
	}
	stored := map[string]jsontext.Value{}
	for _, id := range r.References {
		ref, ok := responses.ParseRef(id)
		if !ok || ref != (responses.Ref{Agent: "a_b", Seq: 2}) {
			t.Fatalf("%s is of %+v", id, ref)
		}
		for item, v := range responses.Items(ref, "One moment.", []byte(`[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{}"}}]`)) {
			stored[item] = v
		}
	}
	got, err := r.Chat(stored)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"messages":[{"role":"user","content":"Weather?"},{"role":"assistant","content":"One moment.","tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{}"}}]},{"role":"tool","content":"rain","tool_call_id":"c1"}]}`
	if diff := cmp.Diff(compact(t, want), compact(t, string(got))); diff != "" {
		t.Error(diff)
	}
}

// TestParseRef checks which IDs hold a place.
func TestParseRef(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]responses.Ref{
		"resp_a_1": {Agent: "a", Seq: 1}, "resp_a_b_12": {Agent: "a_b", Seq: 12}, "msg_a-1_3": {Agent: "a-1", Seq: 3}, "rs_a_1": {Agent: "a", Seq: 1}, "fc_a_1_2_0": {Agent: "a_1", Seq: 2},
		"resp_a_0": {}, "resp_a_-1": {}, "resp_1": {}, "resp__1": {}, "x_a_1": {}, "": {}, "resp_a_x": {}, "fc_a_1": {}, "resp_a_99999999999999999999": {},
	} {
		if got, ok := responses.ParseRef(id); got != want || ok != (want != responses.Ref{}) {
			t.Errorf("%q: %+v, %v", id, got, ok)
		}
	}
}

// TestLocate checks that errors about the chat request name the fields of the request.
func TestLocate(t *testing.T) {
	t.Parallel()
	r, err := responses.Parse([]byte(`{"instructions":"i","input":[{"type":"reasoning"},{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.Chat(nil); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"messages[1].content": "input[1].content: is odd", "messages[0].content": "instructions: is odd", "messages": "input: is odd", "model": "model: is odd", "messages[9].content": "messages[9].content: is odd",
	} {
		if got := r.Locate(fault.At(fault.Invalid, field, "is odd")); got.Error() != want {
			t.Errorf("%s: %v, want %s", field, got, want)
		}
	}
}
