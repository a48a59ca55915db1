package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/internal/peek"
)

// wire is a server with an LLM that answers each call with the bytes that the call names.
type wire struct {
	*server
	llm *fake.LLM
	id  string
}

func newWire(t *testing.T, properties any, env ...string) *wire {
	t.Helper()
	llm, base := upstream(t, fake.Script{})
	s := start(t, append([]string{"HEARDLOG_LLM_URL=" + base}, env...)...)
	return &wire{s, llm, s.join("n", properties)}
}

// events returns deltas as a stream; finish is its finish_reason.
func events(finish string, deltas ...string) string {
	var b strings.Builder
	for _, d := range deltas {
		b.WriteString(`data: {"id":"c","choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]}` + "\n\n")
	}
	return b.String() + `data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"` + finish + `"}]}` + "\n\ndata: [DONE]\n\n"
}

// completion returns a message as an answer in one piece.
func completion(finish, message string) string {
	return `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":` + message + `,"finish_reason":"` + finish + `"}]}`
}

// ask sends messages, JSON without brackets, and makes the LLM answer raw.
func (w *wire) ask(mode, messages, raw string) answer {
	w.t.Helper()
	return w.post(agent(w.id, "/chat/completions"), w.body(messages, raw), "X-Heardlog-Mode", mode)
}

func (w *wire) body(messages, raw string) string {
	stream, kind := !strings.HasPrefix(raw, "{"), "text/event-stream"
	if !stream {
		kind = "application/json"
	}
	fake, err := json.Marshal(map[string]any{"raw": raw, "type": kind})
	if err == nil && !stream {
		fake, err = json.Marshal(map[string]any{"body": raw, "type": kind})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	b, _ := json.Marshal(stream)
	return `{"stream":` + string(b) + `,"messages":[` + messages + `],"fake":` + string(fake) + `}`
}

// respond asks through the Responses API and returns the response, which a stream ends with.
func (w *wire) respond(input, raw string) peek.Value {
	w.t.Helper()
	body := strings.Replace(w.body("", raw), `"messages":[]`, `"model":"m","input":`+input, 1)
	res := string(w.post(agent(w.id, "/responses"), body).ok(nil).body)
	if strings.HasPrefix(raw, "{") {
		return peek.Parse([]byte(res))
	}
	last := strings.TrimSpace(res[strings.LastIndex(res, "\ndata: ")+7:])
	return peek.At([]byte(last), "response")
}

// members returns what the values of a list have at a path, joined by commas.
func members(list peek.Value, path ...string) string {
	var out []string
	for _, v := range list.List() {
		if m := v.At(path...); m.Exists() {
			out = append(out, string(m))
		}
	}
	return strings.Join(out, ",")
}

// sent returns the messages of the last request to the LLM, those of the agent's settings left out.
func (w *wire) sent() string {
	w.t.Helper()
	seen := w.llm.Requests()
	if len(seen) == 0 {
		w.t.Fatal("the LLM was not asked")
	}
	return string(peek.At(seen[len(seen)-1].Body, "messages"))
}

const (
	asksUser = `{"role":"user","content":"When?"}`
	result   = `{"role":"tool","tool_call_id":"c1","content":"9"}`
	plain    = `{"content":"At nine."}`
)

// TestSentBack: what an LLM wrote beside its words goes back to it with the call that it belongs
// to, in both modes, streamed and whole.
func TestSentBack(t *testing.T) {
	t.Parallel()
	call := `{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}`
	for name, tt := range map[string]struct {
		deltas []string // ending with the call
		whole  string
		want   string // in the next prompt, once
	}{
		"reasoning_content": {[]string{`{"role":"assistant","reasoning_content":"Let me "}`, `{"reasoning_content":"see."}`, `{"tool_calls":[` + call + `}]}`},
			`{"role":"assistant","content":null,"reasoning_content":"Let me see.","tool_calls":[` + strings.Replace(call, `"index":0,`, "", 1) + `}]}`, `"reasoning_content":"Let me see."`},
		"reasoning_details": {[]string{`{"reasoning_details":[{"type":"reasoning.text","text":"Let ","index":0,"id":"r1","format":"x"}]}`,
			`{"reasoning_details":[{"type":"reasoning.text","text":"me.","signature":"s1","index":0,"id":"r1","format":"x"}]}`, `{"tool_calls":[` + call + `}]}`},
			`{"role":"assistant","content":null,"reasoning_details":[{"type":"reasoning.text","text":"Let me.","index":0,"id":"r1","format":"x","signature":"s1"}],"tool_calls":[` + call + `}]}`,
			`"reasoning_details":[{"type":"reasoning.text","text":"Let me.","index":0,"id":"r1","format":"x","signature":"s1"}]`},
		"encrypted": {[]string{`{"reasoning_details":[{"type":"reasoning.encrypted","data":"AAAA","index":0}]}`, `{"tool_calls":[` + call + `}]}`},
			`{"role":"assistant","content":null,"reasoning_details":[{"type":"reasoning.encrypted","data":"AAAA","index":0}],"tool_calls":[` + call + `}]}`, `"data":"AAAA"`},
		"signature of a call": {[]string{`{"tool_calls":[` + call + `,"extra_content":{"google":{"thought_signature":"sig"}}}]}`},
			`{"role":"assistant","content":null,"tool_calls":[` + call + `,"extra_content":{"google":{"thought_signature":"sig"}}}]}`, `"extra_content":{"google":{"thought_signature":"sig"}}`},
		"thinking parts": {[]string{`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Let "}]}]}`, `{"content":[{"type":"thinking","thinking":[{"type":"text","text":"me."}]}]}`, `{"tool_calls":[` + call + `}]}`},
			`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"Let me."}]}],"tool_calls":[` + call + `}]}`, `"thinking":[{"type":"text","text":"Let me."}]`},
		"a member of tomorrow": {[]string{`{"tomorrow":{"a":[1,"x"]}}`, `{"tool_calls":[` + call + `}]}`},
			`{"role":"assistant","content":null,"tomorrow":{"a":[1,"x"]},"tool_calls":[` + call + `}]}`, `"tomorrow":{"a":[1,"x"]}`},
	} {
		for kind, raw := range map[string]string{"streamed": events("tool_calls", tt.deltas...), "whole": completion("tool_calls", tt.whole)} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				w := newWire(t, nil)
				w.ask("inject", asksUser, raw).ok(nil)
				w.ask("inject", result, events("stop", plain)).ok(nil)
				if got := w.sent(); strings.Count(got, tt.want) != 1 || strings.Count(got, `"c1"`) != 2 {
					t.Errorf("inject: the LLM is sent %s", got)
				}
				// A client that keeps only the calls: the ledger has the rest.
				w = newWire(t, nil)
				w.ask("reconcile", asksUser, raw).ok(nil)
				w.ask("reconcile", asksUser+`,{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},`+result, events("stop", plain)).ok(nil)
				if got := w.sent(); strings.Count(got, tt.want) != 1 {
					t.Errorf("reconcile: the LLM is sent %s", got)
				}
				// A list that lacks the call, which is put back.
				w = newWire(t, nil)
				w.ask("reconcile", asksUser, raw).ok(nil)
				w.ask("reconcile", asksUser+`,{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},`+result, events("stop", plain)).ok(nil)
				w.ask("reconcile", asksUser+`,{"role":"user","content":"Hello?"}`, events("stop", plain)).ok(nil)
				if got := w.sent(); strings.Count(got, tt.want) != 1 || strings.Count(got, `"c1"`) != 2 {
					t.Errorf("put back: the LLM is sent %s", got)
				}
			})
		}
	}
}

// TestThoughtsSetting: thoughts of plain answers go back only where that is set, never to another
// upstream; those that a client sends itself do.
func TestThoughtsSetting(t *testing.T) {
	t.Parallel()
	thought := events("stop", `{"reasoning_content":"Hm."}`, plain)
	for setting, want := range map[string]bool{"": false, "calls": false, "all": true, "never": false} {
		w := newWire(t, map[string]any{"llm": map[string]any{"thoughts": setting}})
		if setting == "" {
			w = newWire(t, nil)
		}
		w.ask("inject", asksUser, thought).ok(nil)
		w.ask("inject", `{"role":"user","content":"Sure?"}`, thought).ok(nil)
		if got := strings.Contains(w.sent(), "Hm."); got != want {
			t.Errorf("%q: %s", setting, w.sent())
		}
		w.ask("reconcile", asksUser+`,{"role":"assistant","content":"At nine.","reasoning_content":"own"},{"role":"user","content":"Sure?"}`, thought).ok(nil)
		if got := strings.Contains(w.sent(), `"reasoning_content":"own"`); got != (setting != "never") {
			t.Errorf("%q, the client's own: %s", setting, w.sent())
		}
	}
}

// TestMembers: which members of a client's message pass, by vendor and setting.
func TestMembers(t *testing.T) {
	t.Parallel()
	list := `{"role":"system","content":"Be brief.","cache_control":{"type":"ephemeral"},"odd":1},` +
		`{"role":"user","content":"When?","mine":2,"cache_control":{"type":"ephemeral"}},` +
		`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"},"audio":{"id":"a1"},"refusal":null},` +
		`{"role":"function","name":"f","content":"9"},{"role":"user","content":"Sure?"},{"role":"assistant","content":"At","prefix":true}`
	for name, tt := range map[string]struct {
		properties map[string]any
		have, not  []string
	}{
		"default": {nil, []string{`"cache_control":{"type":"ephemeral"}`, `"function_call":{"name":"f","arguments":"{}"}`, `"role":"function"`, `"prefix":true`, `"audio":{"id":"a1"}`}, []string{`"odd"`, `"mine"`, `"refusal"`}},
		"listed":  {map[string]any{"llm": map[string]any{"message_members": []string{"odd"}}}, []string{`"odd":1`, `"function_call"`}, []string{`"mine"`, `"cache_control"`, `"prefix"`}},
		"custom":  {map[string]any{"llm": map[string]any{"vendor": "custom"}}, []string{`"odd":1`, `"mine":2`, `"cache_control"`, `"function_call"`, `"prefix":true`, `"refusal":null`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range []string{"reconcile", "inject"} {
				w := newWire(t, tt.properties)
				w.ask(mode, list, events("stop", plain)).ok(nil)
				for _, want := range tt.have {
					if mode == "inject" && want == `"refusal":null` { // the ledger does not keep what says nothing
						continue
					}
					if !strings.Contains(w.sent(), want) {
						t.Errorf("%s: %s is missing in %s", mode, want, w.sent())
					}
				}
				for _, not := range tt.not {
					if strings.Contains(w.sent(), not) {
						t.Errorf("%s: %s is in %s", mode, not, w.sent())
					}
				}
			}
		})
	}
}

// TestCallDeltas: which deltas are one call, in the ledger, upstream and in the Responses API.
func TestCallDeltas(t *testing.T) {
	t.Parallel()
	one, two := `"function":{"name":"f","arguments":"{\"n\":1}"}}`, `"function":{"name":"f","arguments":"{\"n\":2}"}}`
	for name, deltas := range map[string][]string{
		"index 0 for all": {`{"tool_calls":[{"index":0,"id":"c1",` + one + `]}`, `{"tool_calls":[{"index":0,"id":"c2",` + two + `]}`},
		"index null":      {`{"tool_calls":[{"index":null,"id":"c1",` + one + `]}`, `{"tool_calls":[{"index":null,"id":"c2",` + two + `]}`},
		"in one delta":    {`{"tool_calls":[{"index":0,"id":"c1",` + one + `,{"index":0,"id":"c2",` + two + `]}`},
		"in pieces":       {`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"n\""}}]}`, `{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`, `{"tool_calls":[{"index":0,"id":"c2","function":{"name":"f","arguments":""}}]}`, `{"tool_calls":[{"index":0,"id":"c2","function":{"arguments":"{\"n\":2}"}}]}`},
		"sent again":      {`{"tool_calls":[{"index":0,"id":"c1",` + one + `]}`, `{"tool_calls":[{"index":1,"id":"c2",` + two + `]}`, `{"tool_calls":[{"index":1,"id":"c2",` + two + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, nil)
			raw := events("tool_calls", deltas...)
			w.ask("inject", asksUser, raw).ok(nil)
			w.ask("inject", result+`,{"role":"tool","tool_call_id":"c2","content":"10"}`, events("stop", plain)).ok(nil)
			var calls string
			for _, m := range peek.Parse([]byte(w.sent())).List() {
				calls += members(m.At("tool_calls"), "function", "arguments")
			}
			if calls != `"{\"n\":1}","{\"n\":2}"` || strings.Contains(w.sent(), "unknown") {
				t.Errorf("the LLM is sent %s", w.sent())
			}
			if res := w.respond(`"When?"`, raw); members(res.At("output"), "arguments") != `"{\"n\":1}","{\"n\":2}"` {
				t.Errorf("the response is %s", res)
			}
		})
	}
}

// TestCallsAgain: an SDK's loop sends the model's calls back with their results. They are the same
// calls; a call without arguments has an empty object.
func TestCallsAgain(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{"object": `,"arguments":"{}"`, "null": `,"arguments":null`, "empty": `,"arguments":""`, "missing": ``} {
		for kind, raw := range map[string]string{
			"streamed": events("tool_calls", `{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f"`+args+`}}]}`),
			"whole":    completion("tool_calls", `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f"`+args+`}}]}`),
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				w := newWire(t, nil)
				w.ask("inject", asksUser, raw).ok(nil)
				again := `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f"` + args + `}}]},` + result
				for range 2 { // the second time, the first failed
					w.ask("inject", again, events("stop", plain)).ok(nil)
					if got := w.sent(); strings.Count(got, `"arguments":"{}"`) != 1 || strings.Count(got, `"c1"`) != 2 || strings.Contains(got, "may have been") {
						t.Errorf("the LLM is sent %s", got)
					}
				}
				w = newWire(t, nil)
				w.ask("reconcile", asksUser+","+again, events("stop", plain)).ok(nil)
				if got := w.sent(); strings.Count(got, `"arguments":"{}"`) != 1 {
					t.Errorf("reconcile: the LLM is sent %s", got)
				}
			})
		}
	}
}

// TestParts: parts of other APIs are translated; what cannot be is refused and named.
func TestParts(t *testing.T) {
	t.Parallel()
	const image = `{"type":"image_url","image_url":{"url":"https://a.example/b.png"`
	for in, want := range map[string]string{
		`{"type":"input_text","text":"When?"}`:                                                                        `{"type":"text","text":"When?"}`,
		`{"type":"output_text","text":"When?","annotations":[]}`:                                                      `{"type":"text","text":"When?"}`,
		`{"type":"text","text":"When?","cache_control":{"type":"ephemeral"}}`:                                         `{"type":"text","text":"When?","cache_control":{"type":"ephemeral"}}`,
		`{"type":"input_image","image_url":"https://a.example/b.png","detail":"low"}`:                                 image + `,"detail":"low"}}`,
		`{"type":"image_url","image_url":"https://a.example/b.png"}`:                                                  image + `}}`,
		`{"type":"image","source":{"type":"url","url":"https://a.example/b.png"}}`:                                    image + `}}`,
		`{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"QUJD"}}`:                         `{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,QUJD"}}`,
		`{"type":"image","image":"https://a.example/b.png"}`:                                                          image + `}}`,
		`{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,QUJD"}`:                     `{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,QUJD"}}`,
		`{"type":"input_file","file_id":"file-1"}`:                                                                    `{"type":"file","file":{"file_id":"file-1"}}`,
		`{"type":"document","title":"a.pdf","source":{"type":"base64","media_type":"application/pdf","data":"QUJD"}}`: `{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,QUJD"}}`,
		`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"Clause 7."}}`:                   `{"type":"text","text":"Clause 7."}`,
		`{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}}`:                                         `{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}}`,
		`{"type":"audio","base64":"QUJD","mime_type":"audio/mpeg"}`:                                                   `{"type":"input_audio","input_audio":{"data":"QUJD","format":"mp3"}}`,
		`{"type":"hologram","text":"When?"}`:                                                                          "messages[0].content[1].type: must be one of",
		`{"type":"input_image"}`:                                                                                      "messages[0].content[1]: has no content",
		`{"type":"document","source":{"type":"url","url":"https://a.example/b.pdf"}}`:                                 "messages[0].content[1]: has no content",
	} {
		for _, mode := range []string{"inject", "reconcile"} {
			w := newWire(t, nil)
			list := `{"role":"user","content":[{"type":"text","text":"Now."},` + in + `]}`
			got := w.ask(mode, list, events("stop", plain))
			if strings.HasPrefix(want, "messages") {
				got.failed(400, "invalid", want)
				if n := len(w.llm.Requests()); n > 0 || len(w.history(w.id).Contents) > 0 {
					t.Errorf("%s %s: asked %d times", mode, in, n)
				}
				continue
			}
			got.ok(nil)
			if !strings.Contains(w.sent(), want) {
				t.Errorf("%s %s: the LLM is sent %s", mode, in, w.sent())
			}
			// In a later turn, too.
			w.ask("inject", `{"role":"user","content":"Sure?"}`, events("stop", plain)).ok(nil)
			if !strings.Contains(w.sent(), want) {
				t.Errorf("%s %s: later the LLM is sent %s", mode, in, w.sent())
			}
		}
	}
	w := newWire(t, map[string]any{"llm": map[string]any{"vendor": "custom"}})
	w.ask("inject", `{"role":"user","content":[{"type":"hologram","beam":1}]}`, events("stop", plain)).ok(nil)
	if !strings.Contains(w.sent(), `{"type":"hologram","beam":1}`) {
		t.Errorf("custom: %s", w.sent())
	}
}

// TestThoughtsInText: what a model thinks within its text is not heard; tags within code are text.
func TestThoughtsInText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"reasoning\n</think>\n\nAt nine.":                "At nine.",
		"<mm:think>Hm.</mm:think>At nine.":               "At nine.",
		"<thought>Hm.</thought>\nAt nine.":               "At nine.",
		"<thinking>Hm.</thinking>At nine.":               "At nine.",
		"[THINK]Hm.[/THINK]At nine.":                     "At nine.",
		"\u25c1think\u25b7Hm.\u25c1/think\u25b7At nine.": "At nine.",
		"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>At nine.<|return|>": "At nine.",
		"Write `<think>` before the plan.":       "Write `<think>` before the plan.",
		"Use ```\n<think>\nx\n</think>\n``` so.": "Use ```\n<think>\nx\n</think>\n``` so.",
		"1 < 2 and [1] and <b>x</b>.":            "1 < 2 and [1] and <b>x</b>.",
	} {
		pieces := make([]string, 0, len(in))
		for _, r := range in {
			b, err := json.Marshal(string(r))
			if err != nil {
				t.Fatal(err)
			}
			pieces = append(pieces, `{"content":`+string(b)+`}`)
		}
		whole, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		for kind, raw := range map[string]string{
			"in pieces": events("stop", pieces...), "in one delta": events("stop", `{"content":`+string(whole)+`}`),
			"whole": completion("stop", `{"role":"assistant","content":`+string(whole)+`}`),
		} {
			w := newWire(t, nil)
			w.ask("inject", asksUser, raw).ok(nil)
			if got := w.last(w.id).Content; got != want {
				t.Errorf("%q %s: heard %q", in, kind, got)
			}
			res := w.respond(`"Sure?"`, raw)
			kept := peek.Parse(w.get(agent(w.id, "/responses/"+res.Path("id").Text())).ok(nil).body)
			for _, res := range []peek.Value{res, kept} {
				var got string
				for _, item := range res.At("output").List() {
					if item.At("type").Str() == "message" {
						got += item.At("content", "0", "text").Str()
					}
				}
				if got != want {
					t.Errorf("%q %s: the response is %s", in, kind, res)
				}
			}
			if want == "At nine." && strings.Contains(w.sent(), "Hm.") {
				t.Errorf("%q: the LLM is sent %s", in, w.sent())
			}
		}
	}
}

// TestFinishReasons: an answer that broke off is told apart from a whole one.
func TestFinishReasons(t *testing.T) {
	t.Parallel()
	for finish, tt := range map[string]struct {
		complete bool
		reason   string // of the response that is incomplete
	}{
		"stop": {true, ""}, "length": {true, "max_output_tokens"}, "max_tokens": {true, "max_output_tokens"}, "content_filter": {true, "content_filter"},
		"abort": {false, "abort"}, "error": {false, "error"}, "malformed_function_call": {false, "malformed_function_call"}, "insufficient_system_resource": {false, "insufficient_system_resource"},
	} {
		for _, raw := range []string{events(finish, plain), completion(finish, `{"role":"assistant","content":"At nine."}`)} {
			w := newWire(t, nil)
			w.ask("inject", asksUser, raw).ok(nil)
			list := w.get(agent(w.id, "/messages")).ok(nil).body
			if got := peek.At(list, "messages", "1", "generated_complete").Bool(); got != tt.complete {
				t.Errorf("%s: generated_complete %v", finish, got)
			}
			told := peek.At(list, "messages", "1", "metadata", "finish_reason").Text()
			if want := map[bool]string{true: "", false: finish}[finish == "stop"]; told != want {
				t.Errorf("%s: metadata.finish_reason %q", finish, told)
			}
			res := w.respond(`"Sure?"`, raw)
			if got := res.Path("incomplete_details.reason").Text(); got != tt.reason || (res.Path("status").Text() == "completed") != (tt.reason == "") {
				t.Errorf("%s: the response is %s", finish, res)
			}
		}
	}
}

// TestUsageAnywhere and characters that were cut in two.
func TestVendorShapes(t *testing.T) {
	t.Parallel()
	const usage = `{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}`
	for name, last := range map[string]string{
		"Moonshot": `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":` + usage + `}]}`,
		"Groq":     `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","usage":` + usage + `}}`,
		"OpenAI":   `{"id":"c","choices":[],"usage":` + usage + `}`,
	} {
		w := newWire(t, nil)
		w.ask("inject", asksUser, `data: {"choices":[{"index":0,"delta":{"content":"Fine \ud83d"}}]}`+"\n\n"+`data: {"choices":[{"index":0,"delta":{"content":"\ude00 then."}}]}`+"\n\ndata: "+last+"\n\ndata: [DONE]\n\n").ok(nil)
		list := w.get(agent(w.id, "/messages")).ok(nil).body
		if got := peek.At(list, "messages", "1", "usage", "prompt_tokens").Int(); got != 7 {
			t.Errorf("%s: %s", name, list)
		}
		if got := peek.At(list, "messages", "1", "content").Text(); got != "Fine \U0001F600 then." {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestHeardInPrompt: what was heard of an answer stands in the prompt at its place, whatever the
// platform's list lacks, in this turn and in later ones.
func TestHeardInPrompt(t *testing.T) {
	t.Parallel()
	const answer = "The train leaves at nine from platform two."
	whole := events("stop", `{"content":"The train leaves at nine "}`, `{"content":"from platform two."}`)
	for name, report := range map[string]func(w *wire){
		"pipecat": func(w *wire) {
			w.tell(w.id, "pipecat", `{"label":"rtvi-ai","type":"bot-output","data":{"text":"`+answer+`","will_be_spoken":true,"spoken_status":"in-progress","spoken_progress":{"accumulated":"The train leaves at nine","remaining":" from platform two."}}}`)
			w.tell(w.id, "pipecat", `{"label":"rtvi-ai","type":"bot-interrupted"}`)
		},
		"interrupt": func(w *wire) {
			w.post(agent(w.id, "/interrupt"), `{"heard":"The train leaves at nine"}`).ok(nil)
		},
		"interrupt, all": func(w *wire) { w.post(agent(w.id, "/interrupt"), `{"heard":"`+answer+`"}`).ok(nil) },
	} {
		for _, projection := range []string{"heard_only", "heard_marked", "heard_and_unsaid", "generated"} {
			for kind, raw := range map[string]string{"streamed": whole, "whole": completion("stop", `{"role":"assistant","content":"`+answer+`"}`)} {
				t.Run(name+"/"+projection+"/"+kind, func(t *testing.T) {
					t.Parallel()
					w := newWire(t, map[string]any{"heardlog": map[string]any{"projection": projection}})
					w.ask("reconcile", asksUser, raw).ok(nil)
					report(w)
					heard := "The train leaves at nine"
					if projection == "generated" || name == "interrupt, all" {
						heard = answer
					}
					check := func(more int) {
						t.Helper()
						list := peek.Parse([]byte(w.sent())).List()
						if len(list) != 3+more || list[1].Path("role").Text() != "assistant" || !strings.HasPrefix(list[1].Path("content").Text(), heard) {
							t.Errorf("the LLM is sent %s", w.sent())
						}
						if strings.Count(w.sent(), "The train leaves") != 1 || heard != answer && projection == "heard_only" && strings.Contains(w.sent(), "platform") {
							t.Errorf("the LLM is sent %s", w.sent())
						}
					}
					list := asksUser + `,{"role":"user","content":"And back?"}`
					w.ask("reconcile", list, events("stop", `{"content":"At six."}`)).ok(nil)
					check(0)
					w.ask("reconcile", list+`,{"role":"assistant","content":"At six."},{"role":"user","content":"Thanks."}`, events("stop", plain)).ok(nil)
					check(2)
				})
			}
		}
	}
}

// TestGreetingInPlace: a greeting that a platform's list has behind the caller's question stands
// before it, as in the ledger.
func TestGreetingInPlace(t *testing.T) {
	t.Parallel()
	w := newWire(t, map[string]any{"llm": map[string]any{"greeting_message": "Hello, how can I help?"}})
	const greets = `{"role":"assistant","content":"Hello, how can I help?"}`
	w.ask("reconcile", greets+","+asksUser, events("stop", plain)).ok(nil)
	for range 2 {
		w.ask("reconcile", asksUser+","+greets+`,{"role":"assistant","content":"At nine."},{"role":"user","content":"Sure?"}`, events("stop", plain)).ok(nil)
		var said []string
		for _, m := range peek.Parse([]byte(w.sent())).List() {
			said = append(said, m.Path("content").Text())
		}
		if got := strings.Join(said, "|"); got != "Hello, how can I help?|When?|At nine.|Sure?" {
			t.Errorf("the LLM is sent %s", got)
		}
	}
}

// TestOtherUpstream: what one LLM wrote for itself does not reach another, which is asked when the
// first fails. What it wrote goes on to itself.
func TestOtherUpstream(t *testing.T) {
	t.Parallel()
	call := events("tool_calls", `{"reasoning_content":"Hm."}`, `{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"sig"}}}]}`)
	first, second := &turnByTurn{answers: []string{call, ""}}, &turnByTurn{answers: []string{events("stop", plain)}}
	s := start(t, "HEARDLOG_LLM_URL="+first.serve(t), fallbacks(t, map[string]any{"name": "spare", "url": second.serve(t)}))
	w := &wire{s, nil, s.join("n", nil)}
	w.ask("inject", asksUser, call).ok(nil)
	w.ask("inject", result, call).ok(nil)
	if len(first.seen) != 2 || !strings.Contains(first.seen[1], `"sig"`) || !strings.Contains(first.seen[1], `"reasoning_content":"Hm."`) {
		t.Errorf("the first was sent %q", first.seen)
	}
	if len(second.seen) != 1 || strings.Contains(second.seen[0], "sig") || strings.Contains(second.seen[0], "Hm.") || !strings.Contains(second.seen[0], `"id":"c1"`) {
		t.Errorf("the spare was sent %q", second.seen)
	}
}

// TestNoMembers: an empty list of members lets none pass, also after a restart.
func TestNoMembers(t *testing.T) {
	t.Parallel()
	w := newWire(t, map[string]any{"llm": map[string]any{"message_members": []string{}}})
	w.server = w.again()
	w.ask("inject", `{"role":"user","content":"When?","cache_control":{"type":"ephemeral"}}`, events("stop", plain)).ok(nil)
	if strings.Contains(w.sent(), "cache_control") {
		t.Errorf("the LLM is sent %s", w.sent())
	}
}

// TestResponseOfError: a response whose LLM answers with an error is failed, and has used nothing
// that is known.
func TestResponseOfError(t *testing.T) {
	t.Parallel()
	w := newWire(t, nil)
	for _, raw := range []string{`{"error":{"message":"no such model","code":503}}`, `data: {"error":{"message":"no such model","code":503}}` + "\n\n"} {
		r := w.respond(`"Hello"`, raw)
		if r.At("status").Str() != "failed" || string(r.At("usage")) != "null" || !strings.Contains(r.At("error", "message").Str(), "no such model") {
			t.Errorf("%s: %s", raw, r)
		}
	}
}
