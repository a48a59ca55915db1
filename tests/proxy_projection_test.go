package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// told returns the messages of the last call that the upstream got.
func told(t *testing.T, llm *fake.LLM) []toldMessage {
	t.Helper()
	seen := llm.Requests()
	return toldIn(t, seen[len(seen)-1].Body)
}

// toldMessage is a message as an upstream reads it.
type toldMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

func toldIn(t *testing.T, body []byte) []toldMessage {
	t.Helper()
	var sent struct{ Messages []toldMessage }
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return sent.Messages
}

// spoken returns messages as role: content lines.
func spoken(msgs []toldMessage) []string {
	out := make([]string, 0, len(msgs))
	for _, m := range msgs {
		text := string(m.Content)
		var s string
		if json.Unmarshal(m.Content, &s) == nil && text != "null" {
			text = s
		}
		out = append(out, m.Role+": "+text)
	}
	return out
}

// TestProjection checks what the model gets of interrupted answers, by the agent's setting and by
// the call's header, for clients that send the whole list or only new messages.
func TestProjection(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine from platform two. Shall I book?"})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	const whole, cutMark = "At nine from platform two. Shall I book?", "[cut off here]"
	for _, tt := range []struct{ set, header, cut, unheard string }{
		{"", "", "At nine", ""},
		{"heard_only", "", "At nine", ""},
		{"heard_marked", "", "At nine " + cutMark, ""},
		{"heard_and_unsaid", "", `At nine [not heard by the caller: "from platform two. Shall I book?"]`, `[not heard by the caller: "` + whole + `"]`},
		{"generated", "", whole, whole},
		{"generated", "heard_only", "At nine", ""},
		{"", "heard_marked", "At nine " + cutMark, ""},
		{"heard_marked", "generated", whole, whole},
	} {
		for _, mode := range []string{"inject", "reconcile"} {
			t.Run(tt.set+" "+tt.header+" "+mode, func(t *testing.T) {
				properties := map[string]any{"heardlog": map[string]any{"mode": mode, "projection": tt.set}}
				id := s.join(t.Name(), properties)
				ask := func(msgs ...any) []string {
					t.Helper()
					if mode == "inject" {
						msgs = msgs[len(msgs)-1:]
					}
					var headers []string
					if tt.header != "" {
						headers = []string{"X-Heardlog-Projection", tt.header}
					}
					s.post(agent(id, "/chat/completions"), map[string]any{"messages": msgs}, headers...).ok(nil)
					return spoken(told(t, llm))
				}
				ask(user("When?"))
				s.post(agent(id, "/interrupt"), map[string]any{"heard": "At nine"}).ok(nil)
				want := []string{"user: When?", "assistant: " + tt.cut, "user: From where?"}
				if diff := cmp.Diff(want, ask(user("When?"), assistant(whole), user("From where?"))); diff != "" {
					t.Errorf("an answer that was cut:\n%s", diff)
				}
				s.post(agent(id, "/interrupt"), map[string]any{"heard": ""}).ok(nil)
				want = append(want, "assistant: "+tt.unheard, "user: Sorry?")
				if tt.unheard == "" {
					want = append(want[:2], "user: From where?\nSorry?")
				}
				if diff := cmp.Diff(want, ask(user("When?"), assistant(whole), user("From where?"), assistant(whole), user("Sorry?"))); diff != "" {
					t.Errorf("an answer that was not heard:\n%s", diff)
				}
			})
		}
	}
	id := s.join("refused", nil)
	s.chat(agent(id, "/chat/completions"), "x", false, "X-Heardlog-Projection", "all").
		failed(400, "invalid", `"all" is not one of heard_only, heard_marked, heard_and_unsaid, generated`)
}

// TestProjectionEcho: for a platform that does not report what was heard, its echo is the evidence,
// and its spelling is kept.
func TestProjectionEcho(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine from platform two. Shall I book?"})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"heardlog": map[string]any{
		"projection": "heard_and_unsaid", "projection_words": map[string]any{"unsaid": "({{unsaid}} was not said)"},
	}})
	s.chat(agent(id, "/chat/completions"), "When?", false).ok(nil)
	list := []any{user("When?"), assistant("at 9 from platform"), user("Which?")}
	s.post(agent(id, "/chat/completions"), map[string]any{"messages": list}).ok(nil)
	want := []string{"user: When?", `assistant: at 9 from platform ("two. Shall I book?" was not said)`, "user: Which?"}
	if diff := cmp.Diff(want, spoken(told(t, llm))); diff != "" {
		t.Error(diff)
	}
}

// TestProjectionUnplayed is a platform that leaves out an answer that was never played.
func TestProjectionUnplayed(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine from platform two."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for projection, answer := range map[string]string{
		"heard_only": "", "heard_marked": "", "generated": "At nine from platform two.",
		"heard_and_unsaid": `[not heard by the caller: "At nine from platform two."]`,
	} {
		for _, vendor := range []string{"", "custom"} {
			t.Run(projection+" "+vendor, func(t *testing.T) {
				id := s.join(t.Name(), map[string]any{
					"llm": map[string]any{"vendor": vendor}, "heardlog": map[string]any{"projection": projection, "mode": "reconcile"},
				})
				ask := func(msgs ...any) []string {
					t.Helper()
					s.post(agent(id, "/chat/completions"), map[string]any{"messages": msgs}).ok(nil)
					return spoken(told(t, llm))
				}
				list := []any{user("Hi."), assistant("At nine from platform two."), user("When?")}
				ask(list[0])
				ask(list...)
				list = append(list, user("From where?"))
				want := []string{"user: Hi.", "assistant: At nine from platform two.", "user: When?", "assistant: " + answer, "user: From where?"}
				if answer == "" {
					want = append(want[:2], "user: When?\nFrom where?")
				}
				for range 2 { // the second time as a repetition
					if diff := cmp.Diff(want, ask(list...)); diff != "" {
						t.Error(diff)
					}
				}
			})
		}
	}
}

// TestTransforms are the texts that models get beside what was said.
//
// Rules: 002-11
func TestTransforms(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for _, vendor := range []string{"", "custom"} {
		for _, mode := range []string{"inject", "reconcile"} {
			t.Run(vendor+" "+mode, func(t *testing.T) {
				id := s.join(t.Name(), map[string]any{
					"llm": map[string]any{"vendor": vendor},
					"heardlog": map[string]any{"mode": mode, "transform": map[string]any{
						"timestamp": map[string]any{"format": "[%H:%M:%S] ", "zone": "Europe/Berlin"},
						"speaker":   map[string]any{"names": map[string]any{"42": "Anna"}},
					}},
				})
				said := func(text string, ts int64, speaker string) map[string]any {
					return map[string]any{"role": "user", "content": text, "timestamp": ts, "metadata": map[string]any{"source": "asr", "user": speaker}}
				}
				first, second := said("When?", 1780000012345, "42"), said("Now?", 1780000112, "Ben")
				picture := said("", 1780000212345, "42")
				picture["content"] = []any{map[string]any{"type": "image_url", "image_url": map[string]any{"url": "https://a.example/1.png"}}}
				calls := [][]any{{first}, {first, assistant("Yes."), second}, {first, assistant("Yes."), second, assistant("Yes."), picture}}
				for _, msgs := range calls {
					if mode == "inject" {
						msgs = msgs[len(msgs)-1:]
					}
					s.post(agent(id, "/chat/completions"), map[string]any{"messages": msgs}).ok(nil)
				}
				want := []string{
					"user: [22:26:52] Anna: When?", "assistant: Yes.", "user: [22:28:32] Ben: Now?", "assistant: Yes.",
					`user: [{"type":"text","text":"[22:30:12] Anna: "},{"image_url":{"url":"https://a.example/1.png"},"type":"image_url"}]`,
				}
				if diff := cmp.Diff(want, spoken(told(t, llm))); diff != "" {
					t.Error(diff)
				}
				if got := texts(s.history(id).Contents)[0]; got != "0 user: When?" {
					t.Errorf("the history has %q", got)
				}
			})
		}
	}
}

// TestTransformOriginal: a platform sends what it generated and what was heard of answers that are
// not in the ledger.
func TestTransformOriginal(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"heardlog": map[string]any{"transform": map[string]any{"original": true}}})
	cut := assistant("At nine")
	cut["metadata"] = map[string]any{"source": "llm", "interrupted": true, "interrupt_timestamp": 1780000013900, "original": "At nine from platform two."}
	s.post(agent(id, "/chat/completions"), map[string]any{"messages": []any{user("When?"), cut, user("Where?")}}).ok(nil)
	if diff := cmp.Diff([]string{"user: When?", "assistant: At nine from platform two.", "user: Where?"}, spoken(told(t, llm))); diff != "" {
		t.Error(diff)
	}
}

// TestProjectionRefused is each mistake in the settings, named by its path.
func TestProjectionRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, tt := range []struct{ settings, words string }{
		{`{"projection":"all"}`, `properties.heardlog.projection: must be one of heard_only`},
		{`{"projection_words":{"marker":" "}}`, "properties.heardlog.projection_words.marker: is blank"},
		{`{"projection_words":{"unsaid":"cut"}}`, "properties.heardlog.projection_words.unsaid: does not hold {{unsaid}}"},
		{`{"transform":{"timestamp":{"zone":"Berlin"}}}`, `properties.heardlog.transform.timestamp.zone: "Berlin" is not a time zone`},
		{`{"transform":{"timestamp":{"zone":"` + strings.Repeat("x", 65) + `"}}}`, "properties.heardlog.transform.timestamp.zone: must have at most 64 characters, not 65"},
		{`{"transform":{"timestamp":{"format":"%Q"}}}`, "properties.heardlog.transform.timestamp.format: holds %Q"},
		{`{"transform":{"speaker":{"format":"x"}}}`, "properties.heardlog.transform.speaker.format: does not hold {{speaker}}"},
		{`{"transform":{"speaker":{"names":{"42":""}}}}`, "properties.heardlog.transform.speaker.names.42"},
		{`{"projection":"heard_only","transform":{"original":true}}`, "properties.heardlog.transform.original: gives the model the whole text"},
	} {
		s.post(v1+"/join", `{"name":"n","properties":{"heardlog":`+tt.settings+`}}`).refused(400, "InvalidFieldValue", strings.Split(tt.words, ": ")...)
	}
}

// TestProjectionPrefix: each request to the upstream extends the last one, since providers cache
// prefixes. Late evidence changes the message it is about, and none before it.
func TestProjectionPrefix(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "One two three four."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for _, projection := range []string{"heard_only", "heard_marked", "heard_and_unsaid", "generated"} {
		for _, mode := range []string{"inject", "reconcile"} {
			t.Run(projection+" "+mode, func(t *testing.T) {
				id := s.join(t.Name(), map[string]any{"heardlog": map[string]any{"mode": mode, "projection": projection, "transform": map[string]any{
					"timestamp": map[string]any{}, "speaker": map[string]any{},
				}}})
				var list []any
				ask := func(i int) string {
					t.Helper()
					u := user(fmt.Sprintf("Question %d?", i))
					u["metadata"] = map[string]any{"user": "42"}
					list = append(list, u)
					msgs := list
					if mode == "inject" {
						msgs = list[len(list)-1:]
					}
					s.post(agent(id, "/chat/completions"), map[string]any{"messages": msgs}).ok(nil)
					list = append(list, assistant("One two three four."))
					seen := llm.Requests()
					return messagesOf(t, seen[len(seen)-1].Body)
				}
				last := ask(0)
				for i := 1; i < 9; i++ {
					switch i % 3 { // what is learnt of the answer just given
					case 1:
						s.post(agent(id, "/interrupt"), map[string]any{"heard": "One two"}).ok(nil)
					case 2:
						list[len(list)-1] = assistant("one, two three")
					}
					now := ask(i)
					if !strings.HasPrefix(now, last) {
						t.Fatalf("call %d:\n%s\ndoes not go on where the one before ended:\n%s", i, now, last)
					}
					last = now
				}
				s.post(agent(id, "/interrupt"), map[string]any{"turn_id": 3, "heard": "One"}).ok(nil)
				before, after := rawMessages(t, last), rawMessages(t, ask(9))
				if projection != "generated" && before[7] == after[7] {
					t.Errorf("late evidence changed nothing: %s", after[7])
				}
				if diff := cmp.Diff(before[:7], after[:7]); diff != "" {
					t.Errorf("late evidence about turn 3 changed what stands before it:\n%s", diff)
				}
				if diff := cmp.Diff(before[8:], after[8:len(before)]); diff != "" {
					t.Errorf("late evidence about turn 3 changed what stands behind it:\n%s", diff)
				}
			})
		}
	}
}

// TestProjectionLong: a call grows longer than the window, on a platform that sends the whole list
// each time.
func TestProjectionLong(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "One two three four."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LOG_LEVEL=warn")
	id := s.join("n", map[string]any{
		"llm":      map[string]any{"max_history": 8},
		"heardlog": map[string]any{"projection": "heard_and_unsaid", "transform": map[string]any{"timestamp": map[string]any{"format": "%H:%M:%S "}}},
	})
	var list []any
	last := ""
	for i := range 40 {
		list = append(list, user(fmt.Sprintf("Question %d?", i)))
		s.post(agent(id, "/chat/completions"), map[string]any{"messages": list}).ok(nil)
		now := messagesOf(t, lastBody(llm))
		if !strings.HasPrefix(now, last) {
			t.Fatalf("call %d:\n%s\ndoes not go on where the one before ended:\n%s", i, now, last)
		}
		last = now
		list = append(list, assistant("one two, "+strings.Repeat("three", i%2)))
	}
	if n := strings.Count(last, "not heard by the caller"); n != 39 {
		t.Errorf("%d of 39 cut answers have their note", n)
	}
}

// messagesOf returns a body up to the end of its last message.
func messagesOf(t *testing.T, body []byte) string {
	t.Helper()
	var sent struct{ Messages json.RawMessage }
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatal(err)
	}
	end := strings.Index(string(body), string(sent.Messages)) + len(sent.Messages)
	return string(body[:end-1])
}

// rawMessages returns the bytes of each message in messagesOf.
func rawMessages(t *testing.T, body string) []string {
	t.Helper()
	var sent struct{ Messages []json.RawMessage }
	if err := json.Unmarshal([]byte(body+"]}"), &sent); err != nil {
		t.Fatal(err)
	}
	return slices.Collect(func(yield func(string) bool) {
		for _, m := range sent.Messages {
			if !yield(string(m)) {
				return
			}
		}
	})
}
