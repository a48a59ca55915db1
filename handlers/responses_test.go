package handlers_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// response is what these tests read of a response, or of an error.
type response struct {
	ID, Status string
	Output     []struct {
		ID, Type, Name string
		CallID         string `json:"call_id"`
		Arguments      string
		Content        []struct{ Text string }
	}
	Incomplete struct{ Reason string } `json:"incomplete_details"`
	Error      struct{ Message, Type, Param, Code string }
}

func (r *response) text() string {
	var b strings.Builder
	for _, it := range r.Output {
		for _, c := range it.Content {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

// send makes a request of the Responses API below base, which is "" or the path of an agent.
func (p *proxy) send(ctx context.Context, method, path, body string, header ...string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, p.url+"/v1"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { res.Body.Close() })
	return res
}

// respond asks for a response in one piece.
func (p *proxy) respond(status int, path, body string, header ...string) response {
	p.t.Helper()
	res := p.send(p.t.Context(), http.MethodPost, path, body, header...)
	text := p.read(res)
	var out response
	if err := json.Unmarshal([]byte(text), &out); err != nil || res.StatusCode != status {
		p.t.Fatalf("%s: %d %v %s", body, res.StatusCode, err, text)
	}
	return out
}

func last(events string) (name string, r response) {
	list := strings.Split(strings.TrimSuffix(events, "\n\n"), "\n\n")
	name, data, _ := strings.Cut(list[len(list)-1], "\ndata: ")
	var e struct{ Response response }
	_ = json.Unmarshal([]byte(data), &e) // an empty response fails the test
	return strings.TrimPrefix(name, "event: "), e.Response
}

// TestResponse plays a conversation by previous_response_id alone, in one piece and as a stream.
func TestResponse(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	first := p.respond(200, "/agents/"+agent+"/responses", `{"model":"m-1","instructions":"Be brief.","input":"When is my train?"}`)
	if first.ID != "resp_"+agent+"_2" || first.Status != "completed" || first.text() != "The train leaves at nine from platform two. Shall I book a seat for you?" {
		t.Errorf("%+v", first)
	}
	res := p.send(t.Context(), http.MethodPost, "/responses", `{"input":[{"role":"user","content":[{"type":"input_text","text":"And back?"}]}],"stream":true,"previous_response_id":"`+first.ID+`"}`)
	body := p.read(res)
	name, second := last(body)
	if name != "response.completed" || second.ID != "resp_"+agent+"_4" || !strings.HasPrefix(body, "event: response.created\n") || res.Header.Get("X-Heardlog-Seq") != "4" {
		t.Errorf("%v %s", res.Header, body)
	}
	want := []string{"user: When is my train?", "assistant: " + first.text(), "user: And back?", "assistant: " + second.text()}
	if diff := cmp.Diff(want, lines(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}
	wantBody := `{"messages":[{"role":"user","content":"When is my train?"},{"role":"assistant","content":"The train leaves at nine from platform two. Shall I book a seat for you?"},{"role":"user","content":"And back?"}],"model":"m-default","stream":true,"stream_options":{"include_usage":true}}`
	if diff := cmp.Diff(wantBody, string(p.llm.Requests()[1].Body)); diff != "" {
		t.Error(diff)
	}

	// Both can be read, as they stand in the memory.
	for path, want := range map[string]response{"/responses/" + second.ID: second, "/agents/" + agent + "/responses/" + first.ID: first} {
		res := p.send(t.Context(), http.MethodGet, path, "")
		var got response
		if err := json.Unmarshal([]byte(p.read(res)), &got); err != nil || res.StatusCode != 200 {
			t.Fatal(res.Status, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	for _, path := range []string{"/responses/resp_" + agent + "_1", "/responses/resp_" + agent + "_9", "/responses/x", "/responses/msg_" + agent + "_2", "/responses/resp_no-agent_2", "/agents/" + p.join(nil) + "/responses/" + first.ID} {
		if res := p.send(t.Context(), http.MethodGet, path, ""); res.StatusCode != 404 {
			t.Errorf("GET %s: %s", path, res.Status)
		}
	}
}

// TestResponseAgent checks that requests find their agent as chat completions do.
func TestResponseAgent(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	first := p.respond(200, "/responses", `{"input":"Hello","metadata":{"agent_id":"`+agent+`","k":"v"}}`)
	if first.ID != "resp_"+agent+"_2" || strings.Contains(string(p.llm.Requests()[0].Body), "metadata") {
		t.Errorf("%+v, sent %s", first, p.llm.Requests()[0].Body)
	}
	if r := p.respond(200, "/responses", `{"input":"Hello"}`, "X-Agent-Id", agent); r.ID != "resp_"+agent+"_4" {
		t.Errorf("%+v", r)
	}
	if r := p.respond(400, "/responses", `{"input":"Hello"}`); r.Error.Code != "missing" || r.Error.Param != "metadata.agent_id" {
		t.Errorf("%+v", r.Error)
	}
}

// TestResponseTools plays a call of a tool, continued by previous_response_id.
func TestResponseTools(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	path := "/agents/" + agent + "/responses"
	const tools = `,"tools":[{"type":"function","name":"weather","parameters":{"type":"object"},"strict":false}]`
	r := p.respond(200, path, `{"input":"Rain in Ulm?","fake":{"tool_name":"weather","tool_args":"{\"city\":\"Ulm\"}"}`+tools+`}`)
	if len(r.Output) != 1 || r.Output[0].Type != "function_call" || r.Output[0].Name != "weather" || r.Output[0].Arguments != `{"city":"Ulm"}` {
		t.Fatalf("%+v", r)
	}
	id := r.Output[0].CallID
	r = p.respond(200, path, `{"input":[{"type":"function_call_output","call_id":"`+id+`","output":"yes"}],"previous_response_id":"`+r.ID+`","fake":{"answer":"It rains."}`+tools+`}`)
	if r.text() != "It rains." {
		t.Errorf("%+v", r)
	}
	want := []string{"user: Rain in Ulm?", "assistant: ", "tool: yes", "assistant: It rains."}
	if diff := cmp.Diff(want, lines(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}
	if m := p.ledger(agent)[3]; m.TurnID != 0 {
		t.Errorf("turn %d", m.TurnID)
	}
	var seen struct{ Messages []struct{ Role string } }
	if err := json.Unmarshal(p.llm.Requests()[1].Body, &seen); err != nil || len(seen.Messages) != 3 || seen.Messages[2].Role != "tool" {
		t.Errorf("sent %s", p.llm.Requests()[1].Body)
	}
}

// TestResponseResent checks that a client may send the whole list, with copies of the items or with
// their IDs alone.
func TestResponseResent(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	for name, item := range map[string]func(id, text string) string{
		"copies": func(id, text string) string {
			return `{"id":"` + id + `","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"` + text + `","annotations":[]}]}`
		},
		"references": func(id, _ string) string { return `{"type":"item_reference","id":"` + id + `"}` },
	} {
		agent := p.join(nil)
		first := p.respond(200, "/responses", `{"input":[{"role":"user","content":"When is my train?"}]}`, "X-Agent-Id", agent)
		list := `{"role":"user","content":"When is my train?"},` + item(first.Output[0].ID, first.text()) + `,{"role":"user","content":"And back?"}`
		second := p.respond(200, "/agents/"+agent+"/responses", `{"input":[`+list+`]}`)
		want := []string{"user: When is my train?", "assistant: " + first.text(), "user: And back?", "assistant: " + second.text()}
		msgs := p.ledger(agent)
		if diff := cmp.Diff(want, lines(msgs)); diff != "" || msgs[1].Method != memory.EchoDiff {
			t.Errorf("%s: %s %s", name, msgs[1].Method, diff)
		}
		if other := p.respond(404, "/agents/"+p.join(nil)+"/responses", `{"input":[{"type":"item_reference","id":"`+first.Output[0].ID+`"}]}`); other.Error.Param != "input[0].id" {
			t.Errorf("%s: %+v", name, other.Error)
		}
		if none := p.respond(404, "/agents/no-agent/responses", `{"input":[{"type":"item_reference","id":"`+first.Output[0].ID+`"}]}`); !strings.Contains(none.Error.Message, `no agent "no-agent"`) {
			t.Errorf("%s: %+v", name, none.Error)
		}
	}
}

// TestResponsePrevious checks which previous responses are refused.
func TestResponsePrevious(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent, other := p.join(nil), p.join(nil)
	r := p.respond(200, "/agents/"+agent+"/responses", `{"input":"Hello"}`)
	for path, previous := range map[string]string{
		"/agents/" + other + "/responses": r.ID, "/responses": "resp_no-agent_2", "/agents/" + agent + "/responses": "resp_" + agent + "_3", "/responses?": "x", "/responses?a": "resp_" + agent + "_1",
	} {
		path, _, _ = strings.Cut(path, "?")
		got := p.respond(400, path, `{"input":"Hello","previous_response_id":"`+previous+`"}`)
		if got.Error.Code != "previous_response_not_found" || got.Error.Param != "previous_response_id" || got.Error.Type != "invalid_request_error" {
			t.Errorf("%s %s: %+v", path, previous, got.Error)
		}
	}
	if n := len(p.ledger(agent)) + len(p.ledger(other)); n != 2 {
		t.Errorf("%d messages are stored", n)
	}
}

// TestResponseBranch: a request that names the response before the last one turns the last answer
// into a ghost.
func TestResponseBranch(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	begin := func() (agent, path, more string) {
		agent = p.join(nil)
		path = "/agents/" + agent + "/responses"
		r := p.respond(200, path, `{"input":"Hello"}`)
		more = `,"previous_response_id":"` + r.ID + `"`
		p.respond(200, path, `{"input":"To Bern?","fake":{"answer":"At nine."}`+more+`}`)
		return agent, path, more
	}
	agent, path, more := begin()
	p.respond(200, path, `{"input":"To Rome?","fake":{"answer":"At ten."}`+more+`}`)
	want := []string{"user: Hello", "assistant: You said: Hello", "user: To Bern? (superseded)", "assistant: At nine. (superseded)", "user: To Rome?", "assistant: At ten."}
	if diff := cmp.Diff(want, lines(p.ledger(agent))); diff != "" {
		t.Errorf("other words: %s", diff)
	}

	agent, path, more = begin() // a client that repeats its request
	p.respond(200, path, `{"input":"To Bern?","fake":{"answer":"At ten."}`+more+`}`)
	want = []string{"user: Hello", "assistant: You said: Hello", "user: To Bern?", "assistant: At nine. (superseded)", "assistant: At ten."}
	if diff := cmp.Diff(want, lines(p.ledger(agent))); diff != "" {
		t.Errorf("the same words: %s", diff)
	}

	agent, path, more = begin() // what the caller has heard cannot be taken back
	heard := "At nine."
	if _, err := p.mem.Turns.Interrupt(t.Context(), "p1", agent, agents.InterruptRequest{Heard: &heard}); err != nil {
		t.Fatal(err)
	}
	p.respond(200, path, `{"input":"To Rome?","fake":{"answer":"At ten."}`+more+`}`)
	want = []string{"user: Hello", "assistant: You said: Hello", "user: To Bern?", "assistant: At nine.", "user: To Rome?", "assistant: At ten."}
	if diff := cmp.Diff(want, lines(p.ledger(agent))); diff != "" {
		t.Errorf("heard: %s", diff)
	}
}

// TestResponseLeft checks that the answer of a client that goes away is stored with what it was
// sent, and that its next request may name it.
func TestResponseLeft(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(nil)
	path := "/agents/" + agent + "/responses"
	ctx, leave := context.WithCancel(t.Context())
	res := p.send(ctx, http.MethodPost, path, `{"input":"Count.","stream":true,"fake":{"answer":"one two three four","hang_after":2}}`)
	for seen := ""; !strings.Contains(seen, `"two "`); {
		b := make([]byte, 4096)
		n, err := res.Body.Read(b)
		if seen += string(b[:n]); err != nil {
			t.Fatal(err, seen)
		}
	}
	leave()
	r := p.respond(200, path, `{"input":"Stop.","previous_response_id":"resp_`+agent+`_2","fake":{"answer":"Yes."}}`)
	if r.text() != "Yes." {
		t.Errorf("%+v", r)
	}
	want := []string{"user: Count.", "assistant: one two  (interrupted)", "user: Stop.", "assistant: Yes."}
	if diff := cmp.Diff(want, lines(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}
	var left response
	if err := json.Unmarshal([]byte(p.read(p.send(t.Context(), http.MethodGet, path+"/resp_"+agent+"_2", ""))), &left); err != nil || left.Status != "incomplete" || left.Incomplete.Reason != "interrupted" {
		t.Errorf("%v %+v", err, left)
	}
}

// TestResponseFailures checks errors before and inside an answer.
func TestResponseFailures(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	path := "/agents/" + p.join(nil) + "/responses"
	if r := p.respond(429, path, `{"input":"x","stream":true,"fake":{"status":429}}`); r.Error.Message == "" {
		t.Errorf("%+v", r)
	}
	if r := p.respond(400, path, `{"input":[{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_audio"}]}]}`); r.Error.Param != "input[0].content[1].input_audio" {
		t.Errorf("%+v", r.Error)
	}
	res := p.send(t.Context(), http.MethodPost, path, `{"input":"x","stream":true,"fake":{"answer":"one two three","cut_after":2}}`)
	b := make([]byte, 1<<16)
	n := 0
	var err error
	for err == nil {
		var k int
		k, err = res.Body.Read(b[n:])
		n += k
	}
	name, r := last(string(b[:n]))
	if name != "response.failed" || r.Status != "failed" || r.Error.Code != "upstream_truncated" || err.Error() == "EOF" {
		t.Errorf("%v %s %+v", err, name, r)
	}
}
