package responses_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/llmadapter/responses"
)

// answered is what a client gets of a chat completion.
func answered(t *testing.T, request, contentType, chat string, broken bool) *http.Response {
	t.Helper()
	r, err := responses.Parse([]byte(request))
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	w := responses.NewWriter(rec, r, func(http.Header) responses.Ref { return responses.Ref{Agent: "a", Seq: 2} }, 1700000000)
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", "7")
	w.WriteHeader(http.StatusOK)
	for piece := range strings.SplitAfterSeq(chat, "\n\n") {
		if n, err := io.WriteString(w, piece); n != len(piece) || err != nil {
			t.Fatalf("wrote %d of %d: %v", n, len(piece), err)
		}
		if err := w.FlushError(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(broken); err != nil {
		t.Fatal(err)
	}
	return rec.Result()
}

// events returns the events of a stream, shortened to what differs, and checks their numbers.
func events(t *testing.T, res *http.Response) []string {
	t.Helper()
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream" || res.Header.Get("Content-Length") != "" {
		t.Errorf("headers %v", res.Header)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for e := range strings.SplitSeq(strings.TrimSuffix(string(body), "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(e, "\ndata: ")
		if !ok {
			if e != ":" {
				t.Errorf("not an event: %q", e)
			}
			continue
		}
		var v struct {
			Type, Delta, Text, Refusal, Arguments, Message string
			Number                                         int `json:"sequence_number"`
			Item                                           json.RawMessage
			Response                                       struct{ Status, ID string }
		}
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if name != "event: "+v.Type || v.Number != len(out) {
			t.Errorf("event %d: %s", len(out), e)
		}
		s := strings.TrimPrefix(v.Type, "response.")
		for _, more := range []string{v.Delta, v.Text, v.Refusal, v.Arguments, v.Message, v.Response.Status, string(v.Item)} {
			if more != "" {
				s += " " + more
			}
		}
		out = append(out, s)
	}
	return out
}

func chunks(deltas ...string) string {
	var b strings.Builder
	for _, d := range deltas {
		fmt.Fprintf(&b, "data: {\"id\":\"c1\",\"model\":\"m-2\",\"choices\":[{\"index\":0,\"delta\":%s}]}\n\n", d)
	}
	return b.String()
}

const (
	done  = "data: [DONE]\n\n"
	usage = `{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":1}}`
)

func finish(reason string) string {
	return `data: {"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + "\"}]}\n\n"
}

// TestStream checks the events for chat streams as servers send them.
func TestStream(t *testing.T) {
	t.Parallel()
	began := []string{"created in_progress", "in_progress in_progress"}
	item := func(state, content string) string {
		return `{"id":"msg_a_2","type":"message","status":"` + state + `","role":"assistant","content":[` + content + `]}`
	}
	text := func(s string) string {
		return `{"type":"output_text","text":"` + s + `","annotations":[],"logprobs":[]}`
	}
	said := func(s, state string, deltas ...string) []string {
		out := []string{"output_item.added " + item("in_progress", ""), "content_part.added"}
		for _, d := range deltas {
			out = append(out, "output_text.delta "+d)
		}
		return append(out, "output_text.done "+s, "content_part.done", "output_item.done "+item(state, text(s)))
	}
	call := func(n int, state, id, name, args string) string {
		return fmt.Sprintf(`{"id":"fc_a_2_%d","type":"function_call","status":"%s","call_id":"%s","name":"%s","arguments":"%s"}`, n, state, id, name, args)
	}
	for _, tt := range []struct {
		name, chat string
		broken     bool
		want       []string
	}{
		{"words", chunks(`{"role":"assistant"}`, `{"content":"Hel"}`, `{"content":"lo."}`) + finish("stop") + done, false, append(said("Hello.", "completed", "Hel", "lo."), "completed completed")},
		{"no end mark", chunks(`{"content":"Hello."}`) + strings.TrimSuffix(finish("stop"), "\n\n"), false, append(said("Hello.", "completed", "Hello."), "completed completed")},
		{"its limit", chunks(`{"content":"Hel"}`) + finish("length") + done, false, append(said("Hel", "incomplete", "Hel"), "incomplete incomplete")},
		{"nothing", finish("stop") + done, false, []string{
			"output_item.added " + item("in_progress", ""), "output_text.done", "content_part.done", "output_item.done " + item("completed", text("")), "completed completed",
		}},
		{"a refusal", chunks(`{"refusal":"No."}`) + done, false, []string{
			"output_item.added " + item("in_progress", ""), "content_part.added", "refusal.delta No.", "refusal.done No.", "content_part.done",
			"output_item.done " + item("completed", `{"type":"refusal","refusal":"No."}`), "completed completed",
		}},
		{"reasoning", chunks(`{"reasoning_content":"Hm","reasoning":"Hm"}`, `{"content":"Hi"}`) + done, false, []string{
			`output_item.added {"id":"rs_a_2","type":"reasoning","status":"in_progress","content":[],"summary":[]}`, "content_part.added", "reasoning_text.delta Hm",
			"output_item.added " + item("in_progress", ""), "content_part.added", "output_text.delta Hi",
			"reasoning_text.done Hm", "content_part.done", `output_item.done {"id":"rs_a_2","type":"reasoning","status":"completed","content":[{"type":"reasoning_text","text":"Hm"}],"summary":[]}`,
			"output_text.done Hi", "content_part.done", "output_item.done " + item("completed", text("Hi")), "completed completed",
		}},
		{"two calls", chunks(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}`, `{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`,
			`{"tool_calls":[{"index":1,"id":"c2","function":{"name":"g","arguments":"[1]"}}]}`) + finish("tool_calls") + done, false, []string{
			"output_item.added " + call(0, "in_progress", "c1", "f", ""), "function_call_arguments.delta {}",
			"output_item.added " + call(1, "in_progress", "c2", "g", ""), "function_call_arguments.delta [1]",
			"function_call_arguments.done {}", "output_item.done " + call(0, "completed", "c1", "f", "{}"),
			"function_call_arguments.done [1]", "output_item.done " + call(1, "completed", "c2", "g", "[1]"), "completed completed",
		}},
		{"an error inside", chunks(`{"content":"Hel"}`) + "data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n", true, []string{
			"output_item.added " + item("in_progress", ""), "content_part.added", "output_text.delta Hel",
			"output_text.done Hel", "content_part.done", "output_item.done " + item("incomplete", text("Hel")), "error overloaded", "failed failed",
		}},
		{"broken", chunks(`{"content":"Hel"}`), true, []string{
			"output_item.added " + item("in_progress", ""), "content_part.added", "output_text.delta Hel",
			"output_text.done Hel", "content_part.done", "output_item.done " + item("incomplete", text("Hel")), "error the answer broke off", "failed failed",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := events(t, answered(t, `{"input":"x","stream":true}`, "text/event-stream", tt.chat, tt.broken))
			if diff := cmp.Diff(append(began[:2:2], tt.want...), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWhole checks that a response in one piece has the same parts, whether the chat completion was
// a stream or not, and that a stream is made from an answer in one piece.
func TestWhole(t *testing.T) {
	t.Parallel()
	const request = `{"model":"m-1","input":"x","store":false,"previous_response_id":"resp_a_1","metadata":{"k":"v"},"temperature":0.5`
	want := `{"id":"resp_a_2","object":"response","created_at":1700000000,"status":"completed","background":false,"error":null,"incomplete_details":null,"model":"m-2",
		"output":[{"id":"msg_a_2","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi <b>","annotations":[],"logprobs":[]}]}],
		"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":2,"cache_write_tokens":0},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":8},
		"instructions":null,"max_output_tokens":null,"metadata":{"k":"v"},"parallel_tool_calls":true,"previous_response_id":"resp_a_1","reasoning":{"effort":null,"summary":null},
		"store":true,"temperature":0.5,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":null,"truncation":"disabled","user":null}`
	whole := `{"id":"c1","model":"m-2","choices":[{"index":0,"message":{"role":"assistant","content":"Hi <b>"},"finish_reason":"stop"}],"usage":` + usage + `}`
	stream := chunks(`{"content":"Hi <b>"}`) + finish("stop") + "data: {\"choices\":[],\"usage\":" + usage + "}\n\n" + done
	for kind, chat := range map[string]string{"application/json": whole, "text/event-stream": stream} {
		res := answered(t, request+"}", kind, chat, false)
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(compact(t, want), compact(t, string(body))); diff != "" || res.Header.Get("Content-Type") != "application/json" || res.ContentLength != int64(len(body)) {
			t.Errorf("%s: %v\n%s", kind, res.Header, diff)
		}
	}
	got := events(t, answered(t, request+`,"stream":true}`, "application/json", whole, false))
	if len(got) != 9 || got[4] != "output_text.delta Hi <b>" || got[8] != "completed completed" {
		t.Errorf("%q", got)
	}
}

// TestPassed checks that errors pass unchanged.
func TestPassed(t *testing.T) {
	t.Parallel()
	r, err := responses.Parse([]byte(`{"input":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	w := responses.NewWriter(rec, r, nil, 0)
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"error":{}}`)
	if err := w.Finish(false); err != nil || rec.Code != 429 || rec.Body.String() != `{"error":{}}` {
		t.Errorf("%v %d %s", err, rec.Code, rec.Body)
	}
}
