package llmadapter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
)

func parse(t *testing.T, body string) *llmadapter.Request {
	t.Helper()
	r, err := llmadapter.ParseRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAssembleAgora builds a request in the form that Agora sends to custom LLMs.
func TestAssembleAgora(t *testing.T) {
	t.Parallel()
	a := llmadapter.Assembly{
		System:    []json.RawMessage{json.RawMessage(`{"role":"system","content":"Be brief, {{who}}."}`)},
		Variables: map[string]string{"who": "Ann"},
		Params:    []byte(`{"model":"m1","user_uid":"42","channel":"room-1"}`),
		To:        llmadapter.Recipient{Custom: true}, TurnID: 1, TimestampMS: 1780000009010,
		Request: parse(t, `{"messages":[{"role":"user","content":"When is my train?"}],"stream":true,"context":{"presence":{"42":{"selection":"ticket 17"}}}}`),
		Messages: []llmadapter.Message{
			{Role: "assistant", Text: "Hello", Entry: &llmadapter.Entry{TurnID: 0, Timestamp: 1780000000100, Source: "greeting"}},
			{Role: "user", Text: "When is my train?", Entry: &llmadapter.Entry{TurnID: 1, Timestamp: 1780000009000, Source: "asr", Metadata: []llmadapter.Member{{Name: "user", Value: []byte(`"42"`)}}}},
		},
	}
	want := `{"messages":[` +
		`{"role":"system","content":"Be brief, Ann."},` +
		`{"role":"assistant","content":"Hello","turn_id":0,"timestamp":1780000000100,"metadata":{"source":"greeting"}},` +
		`{"role":"user","content":"When is my train?","turn_id":1,"timestamp":1780000009000,"metadata":{"source":"asr","user":"42"}}],` +
		`"turn_id":1,"timestamp":1780000009010,"interruptable":true,` +
		`"model":"m1","user_uid":"42","channel":"room-1","stream":true,` +
		`"context":{"presence":{"42":{"selection":"ticket 17"}}}}`
	if diff := cmp.Diff(want, string(a.Append(nil))); diff != "" {
		t.Error(diff)
	}
	// The same for any other vendor: what strict upstreams refuse is gone.
	a.To.Custom = false
	want = `{"messages":[` +
		`{"role":"system","content":"Be brief, Ann."},{"role":"assistant","content":"Hello"},{"role":"user","content":"When is my train?"}],` +
		`"model":"m1","user_uid":"42","channel":"room-1","stream":true}`
	if diff := cmp.Diff(want, string(a.Append(nil))); diff != "" {
		t.Error(diff)
	}
}

// TestAssembleInterrupted checks the fields of an interrupted answer in the custom form.
func TestAssembleInterrupted(t *testing.T) {
	t.Parallel()
	a := llmadapter.Assembly{To: llmadapter.Recipient{Custom: true}, Messages: []llmadapter.Message{{
		Role: "assistant", Text: "The train leaves at ", Entry: &llmadapter.Entry{TurnID: 5, Timestamp: 1780000012345, Source: "llm",
			Interrupted: true, InterruptMS: 1780000013900, Original: "The train leaves at nine from platform two."},
	}}}
	want := `{"messages":[{"role":"assistant","content":"The train leaves at ","turn_id":5,"timestamp":1780000012345,` +
		`"metadata":{"source":"llm","interrupted":true,"interrupt_timestamp":1780000013900,"original":"The train leaves at nine from platform two."}}]`
	if got := string(a.Append(nil)); !strings.HasPrefix(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

// Which value wins, and what never goes up.
func TestAssembleKeys(t *testing.T) {
	t.Parallel()
	const msgs = `{"messages":[{"role":"user","content":"x"}]`
	for name, tt := range map[string]struct{ body, params, model, want string }{
		"model of the request":      {`,"model":"r"`, `{"model":"p"}`, "d", `,"model":"r"}`},
		"model of params":           {``, `{"model":"p"}`, "d", `,"model":"p"}`},
		"model gives way to params": {`,"model":"heardlog"`, `{"model":"p"}`, "d", `,"model":"p"}`},
		"model gives way":           {`,"model":"default"`, ``, "d", `,"model":"d"}`},
		"empty model":               {`,"model":""`, ``, "d", `,"model":"d"}`},
		"nothing to give way to":    {`,"model":"default"`, ``, "", `,"model":"default"}`},
		"no model at all":           {``, ``, "", `}`},
		"params keep their hands off": {`,"stream":true`, `{"messages":[],"stream":false,"a":1}`, "",
			`,"a":1,"stream":true}`},
		"params set no stream":     {``, `{"stream":true}`, "", `}`},
		"request before params":    {`,"temperature":0.5`, `{"temperature":1,"top_p":0.1}`, "", `,"temperature":0.5,"top_p":0.1}`},
		"unknown keys survive":     {`,"x":{"y":[1, 2]},"tools":[],"context":{"mine":1}`, ``, "", `,"x":{"y":[1, 2]},"tools":[],"context":{"mine":1}}`},
		"escaped names":            {`,"str\u0065am":true`, `{"mess\u0061ges":[]}`, "", `,"stream":true}`},
		"our key":                  {`,"metadata":{"agent_id":"a"}`, ``, "", `}`},
		"our key among others":     {`,"metadata":{"k":"v","agent_id":"a"}`, ``, "", `,"metadata":{"k":"v"}}`},
		"our key beside params":    {`,"metadata":{"k":"v","agent_id":"a"}`, `{"metadata":{"p":1}}`, "", `,"metadata":{"k":"v"}}`},
		"platforms' keys":          {`,"call":{},"customer":{},"phoneNumber":{},"elevenlabs_extra_body":{},"user_id":"u","turn_id":1,"timestamp":2,"interruptable":true,"context":{"presence":{}}`, ``, "", `}`},
		"params may set such keys": {``, `{"user_id":"u"}`, "", `,"user_id":"u"}`},
		"one limit of tokens":      {`,"max_completion_tokens":5`, `{"max_tokens":9,"a":1}`, "", `,"a":1,"max_completion_tokens":5}`},
		"the older limit":          {`,"max_tokens":5`, `{"max_completion_tokens":9}`, "", `,"max_tokens":5}`},
		"params null":              {``, `null`, "", `}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := llmadapter.Assembly{
				Request: parse(t, msgs+tt.body+"}"), Params: []byte(tt.params), Model: tt.model,
				Messages: []llmadapter.Message{{Role: "user", Text: "x"}},
			}
			if diff := cmp.Diff(msgs+tt.want, string(a.Append(nil))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Messages in each form.
func TestAssembleMessages(t *testing.T) {
	t.Parallel()
	user := func(text string) llmadapter.Message { return llmadapter.Message{Role: "user", Text: text} }
	for name, tt := range map[string]struct {
		in               []llmadapter.Message
		custom           bool
		want, wantCustom string
	}{
		"merged":       {in: []llmadapter.Message{user("a"), user("b"), {Role: "assistant", Text: "c"}, user("d")}, want: `{"role":"user","content":"a\nb"},{"role":"assistant","content":"c"},{"role":"user","content":"d"}`},
		"merged parts": {in: []llmadapter.Message{user("a"), {Role: "user", Content: []byte(`[{"type":"image_url","image_url":{"url":"u"}}]`)}}, want: `{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]}`},
		"merged raw":   {in: []llmadapter.Message{user("a"), {Role: "user", Content: []byte(`"b\u00e9"`)}}, want: `{"role":"user","content":"a\nbé"}`},
		"two speakers": {in: []llmadapter.Message{{Role: "user", Text: "a", Name: "ann"}, {Role: "user", Text: "b", Name: "bob"}}, want: `{"role":"user","content":"a","name":"ann"},{"role":"user","content":"b","name":"bob"}`},
		"tools":        {in: []llmadapter.Message{{Role: "assistant", ToolCalls: []byte(`[{"id":"1"}]`)}, {Role: "tool", Text: "ok", ToolCallID: "1"}}, want: `{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","content":"ok","tool_call_id":"1"}`},
		"function":     {in: []llmadapter.Message{{Role: "tool", Text: "ok", Name: "f"}}, want: `{"role":"function","content":"ok","name":"f"}`},
		"escapes":      {in: []llmadapter.Message{user("a\"\\\n\x01é\xff")}, want: `{"role":"user","content":"a\"\\\n\u0001é` + "\uFFFD" + `"}`},
		"stripped":     {in: []llmadapter.Message{{Role: "user", Text: "a", Entry: &llmadapter.Entry{TurnID: 3}, Raw: []byte(`{"role":"user","content":"a","x":1}`)}}, want: `{"role":"user","content":"a"}`},
		"kept": {
			in:     []llmadapter.Message{{Role: "user", Text: "a", Entry: &llmadapter.Entry{TurnID: 3, Timestamp: 4, Source: "asr"}, Raw: []byte(`{"x":1,"turn_id":9,"metadata":{"y":2},"role":"user","content":"old"}`)}},
			custom: true, want: `{"role":"user","content":"a","x":1,"turn_id":9,"timestamp":4,"metadata":{"source":"asr"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := llmadapter.Assembly{Messages: tt.in, To: llmadapter.Recipient{Custom: tt.custom}}
			got := string(a.Append(nil))
			if !json.Valid([]byte(got)) || !strings.HasPrefix(got, `{"messages":[`+tt.want+`]`) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// System messages of the agent stand first, variables filled in once; the client's follow, unless
// they say the same.
func TestAssembleSystem(t *testing.T) {
	t.Parallel()
	a := llmadapter.Assembly{
		System:    []json.RawMessage{json.RawMessage(`{"role":"system","content":"Hi {{a}} {{ b }} {{c}}","parts":[{"text":"{{a}}"}]}`)},
		Variables: map[string]string{"a": `"{{b}}"`, "b": "B\n"},
		Request:   parse(t, `{"messages":[{"role":"developer","content":"More"},{"role":"system","content":"Hi \"{{b}}\" B\n {{c}}"},{"role":"user","content":"x"}]}`),
	}
	want := `{"messages":[{"role":"system","content":"Hi \"{{b}}\" B\n {{c}}","parts":[{"text":"\"{{b}}\""}]},{"role":"developer","content":"More"}]}`
	if diff := cmp.Diff(want, string(a.Append(nil))); diff != "" {
		t.Error(diff)
	}
}

func TestParseRequestRefuses(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`{"role":"user","content":"a"},`, llmadapter.MaxMessages)
	for body, want := range map[string]struct {
		code fault.Code
		text string
	}{
		``:                               {fault.BadRequest, "empty"},
		`nope`:                           {fault.BadRequest, "not a JSON object"},
		`{"messages":[`:                  {fault.BadRequest, "not valid JSON"},
		`{"a":1,"a":2,"messages":[]}`:    {fault.BadRequest, "/a"},
		`{}`:                             {fault.Missing, "messages"},
		`{"messages":[]}`:                {fault.Missing, "messages"},
		`{"messages":{}}`:                {fault.Invalid, "messages"},
		`{"messages":["a"]}`:             {fault.Invalid, "messages[0]"},
		`{"messages":[{"content":"a"}]}`: {fault.Missing, "messages[0].role"},
		`{"messages":[{"role":"user","content":"a"},{"role":"user"}]}`: {fault.Missing, "messages[1].content"},
		`{"messages":[{"role":"root","content":"a"}]}`:                 {fault.Invalid, `messages[0].role: must be system, developer, user, assistant, tool or function, not "root"`},
		`{"messages":[{"role":1,"content":"a"}]}`:                      {fault.Invalid, "messages[0].role"},
		`{"messages":[{"role":"user","content":{}}]}`:                  {fault.Invalid, "messages[0].content"},
		`{"messages":[{"role":"user","content":["a"]}]}`:               {fault.Invalid, "messages[0].content[0]"},
		`{"messages":[{"role":"tool","content":"a"}]}`:                 {fault.Missing, "messages[0].tool_call_id"},
		`{"messages":[{"role":"assistant","tool_calls":{}}]}`:          {fault.Invalid, "messages[0].tool_calls"},
		`{"messages":[{"role":"assistant","tool_calls":[{},5]}]}`:      {fault.Invalid, "messages[0].tool_calls[1]"},
		`{"messages":[{"role":"user","content":[{"type":"text"},5]}]}`: {fault.Invalid, "messages[0].content[1]"},
		`{"messages":[{"role":"user","content":"a"}],"stream":"yes"}`:  {fault.Invalid, "stream"},
		`{"messages":[{"role":"user","content":"a"}],"model":3}`:       {fault.Invalid, "model"},
		`{"messages":[` + many + `{"role":"user","content":"a"}]}`:     {fault.Invalid, "more than 4096"},
		`{"messages":[{"role":"user","content":"a"}]}{}`:               {fault.BadRequest, "more than one"},
		`{"messages":[{"role":"user","content":"a","content":"b"}]}`:   {fault.BadRequest, "twice"},
	} {
		_, err := llmadapter.ParseRequest([]byte(body))
		if fault.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%.80s: %s %v, want %s %q", body, fault.CodeOf(err), err, want.code, want.text)
		}
	}
}

func TestParseRequest(t *testing.T) {
	t.Parallel()
	r := parse(t, ` {"stream":true,"model":"m","metadata":{"agent_id":"a1"},"messages":[
		{"role":"system","content":"s"}, {"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"},{"type":"text","text":"b\ud800"}],"turn_id":3,"timestamp":1780000000,"metadata":{"source":"asr"}},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}, {"role":"assistant"}, {"role":"tool","tool_call_id":"c1","content":"ok"}, {"role":"function","name":"f","content":"ok"}]}`)
	if !r.Stream || r.Model != "m" || r.AgentID != "a1" || len(r.Messages) != 6 {
		t.Fatalf("%+v", r)
	}
	if u := r.Messages[1]; u.Text() != "a\nb\uFFFD" || !u.HasTurn || u.TurnID != 3 || u.Timestamp != 1780000000 || u.MetadataString("source") != "asr" {
		t.Errorf("%+v %q", u, u.Text())
	}
	if c := r.Messages[2]; string(c.ToolCalls) != `[{"id":"c1"}]` || c.Text() != "" || !r.Messages[0].IsSystem() {
		t.Errorf("%+v", c)
	}
}

// Whatever is taken must be assembled into JSON that says the same words.
func FuzzAssemble(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"hi {{a}}","x":[{"y":"\u0000"}]}],"stream":true,"metadata":{"agent_id":"a","b":1}}`), []byte(`{"model":"m"}`), true)
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"text":"a"}]},{"role":"user","content":"\ud800"}],"a\u0062":1}`), []byte(`{}`), false)
	f.Fuzz(func(t *testing.T, body, params []byte, custom bool) {
		r, err := llmadapter.ParseRequest(body)
		if err != nil {
			return
		}
		if !json.Valid(params) {
			params = nil
		}
		a := llmadapter.Assembly{Request: r, Params: params, To: llmadapter.Recipient{Custom: custom}, Variables: map[string]string{"a": "\"b"}}
		for i := range r.Messages {
			if !r.Messages[i].IsSystem() {
				a.Messages = append(a.Messages, llmadapter.FromIncoming(&r.Messages[i]))
			}
		}
		out := a.Append(nil)
		if !json.Valid(out) {
			t.Fatalf("not JSON: %q", out)
		}
	})
}

// Every byte in every place of a text is written so that it reads back the same.
func TestAssembleEveryByte(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for at := range 20 {
			text := strings.Repeat("x", at) + string([]byte{byte(c)}) + strings.Repeat("y", 20-at)
			a := llmadapter.Assembly{Messages: []llmadapter.Message{{Role: "user", Text: text}}}
			var got struct{ Messages []struct{ Content string } }
			if err := json.Unmarshal(a.Append(nil), &got); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if want := strings.ToValidUTF8(text, "\uFFFD"); got.Messages[0].Content != want {
				t.Fatalf("%q: %q", want, got.Messages[0].Content)
			}
		}
	}
}
