package tests

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// dialogue is a WebSocket of the Responses API.
type dialogue struct {
	t    testing.TB
	conn *websocket.Conn
}

// socketEvent is an event of the server.
type socketEvent struct {
	Type     string
	Number   *int    `json:"sequence_number"`
	Stream   *string `json:"stream_id"`
	Delta    string
	Status   int
	Response struct {
		ID, Status string
		Incomplete *struct{ Reason string } `json:"incomplete_details"`
		Output     []struct{ Content []struct{ Text string } }
	}
	Error struct {
		Type, Code, Message, Param string
		Headers                    map[string]string
	}
}

func (s *server) openSocket(path string, headers ...string) *dialogue {
	s.t.Helper()
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	conn, _, err := websocket.Dial(s.t.Context(), s.url+path, &websocket.DialOptions{HTTPHeader: h, HTTPClient: &http.Client{Transport: s.client.Transport}})
	if err != nil {
		s.t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return &dialogue{s.t, conn}
}

// last returns the newest request that an LLM was sent.
func last(llm *fake.LLM) fake.Seen {
	all := llm.Requests()
	return all[len(all)-1]
}

// say sends an event.
func (d *dialogue) say(event string) {
	d.t.Helper()
	if err := d.conn.Write(d.t.Context(), websocket.MessageText, []byte(event)); err != nil {
		d.t.Fatal(err)
	}
}

// next returns the next event.
func (d *dialogue) next() (e socketEvent) {
	d.t.Helper()
	ctx, stop := context.WithTimeout(d.t.Context(), patience)
	defer stop()
	_, b, err := d.conn.Read(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		d.t.Fatalf("%v: %s", err, b)
	}
	return e
}

// until returns the next event of a type, and the deltas before it. It fails on an error.
func (d *dialogue) until(kind string) (socketEvent, string) {
	d.t.Helper()
	words := ""
	for n := 0; ; n++ {
		e := d.next()
		words += e.Delta
		if e.Type == "error" && kind != "error" {
			d.t.Fatalf("%+v", e)
		}
		if e.Type != "error" && (e.Number == nil || *e.Number != n) {
			d.t.Errorf("event %d is %+v", n, e)
		}
		if e.Type == kind {
			return e, words
		}
	}
}

// refused reads an error event.
func (d *dialogue) refused(status int, code, text string) {
	d.t.Helper()
	e := d.next()
	if e.Type != "error" || e.Status != status || e.Error.Code != code || !strings.Contains(e.Error.Message, text) || e.Error.Type == "" {
		d.t.Errorf("%+v, want %d %s %q", e, status, code, text)
	}
}

// closed reads until the server closes the connection.
func (d *dialogue) closed(code websocket.StatusCode) {
	d.t.Helper()
	ctx, stop := context.WithTimeout(d.t.Context(), patience)
	defer stop()
	for {
		if _, _, err := d.conn.Read(ctx); err != nil {
			if got := websocket.CloseStatus(err); got != code {
				d.t.Errorf("closed with %v (%v), want %v", got, err, code)
			}
			return
		}
	}
}

// TestResponsesSocket plays turns over one WebSocket, on both paths.
func TestResponsesSocket(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Hi there."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_MAX_BODY=16384")
	for path, headers := range map[string][]string{v1 + "/responses?model=m": {"X-Agent-Id", "one"}, agent("two", "/responses"): nil} {
		id := "two"
		if headers != nil {
			id = "one"
		} else {
			s.post(v1+"/chat/completions", `{"messages":[{"role":"system","content":"x"}],"metadata":{"agent_id":"two"}}`).ok(nil)
		}
		d := s.openSocket(path, headers...)
		d.say(`{"type":"response.create","model":"m","input":"first"}`)
		first, words := d.until("response.completed")
		if first.Response.Status != "completed" || words != "Hi there." || !strings.HasPrefix(first.Response.ID, "resp_"+id+"_") {
			t.Errorf("%s: %q %+v", path, words, first)
		}
		d.say(`{"type":"response.create","input":"second","previous_response_id":"` + first.Response.ID + `"}`)
		d.until("response.completed")
		var sent struct{ Messages []struct{ Content string } }
		if err := json.Unmarshal(last(llm).Body, &sent); err != nil {
			t.Fatal(err)
		}
		if n := len(sent.Messages); n < 3 || sent.Messages[n-1].Content != "second" || sent.Messages[n-2].Content != "Hi there." {
			t.Errorf("%s: the LLM was sent %s", path, last(llm).Body)
		}
		for event, want := range map[string][3]string{
			`[]`:                                   {"400", "bad_request", "not a JSON object"},
			`{"a":1,"a":2}`:                        {"400", "bad_request", "twice"},
			`{"type":"session.update"}`:            {"400", "invalid", "session.update"},
			`{"type":"response.create"}`:           {"400", "missing", "input"},
			`{"type":"response.create","input":5}`: {"400", "invalid", "input"},
			`{"type":"response.create","stream_id":5,"input":"x"}`:                                           {"400", "invalid", "stream_id"},
			`{"type":"response.create","generate":false,"input":5}`:                                          {"400", "invalid", "input"},
			`{"type":"response.create","input":"x","previous_response_id":"resp_nobody_2"}`:                  {"400", "previous_response_not_found", "resp_nobody_2"},
			`{"type":"response.create","input":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`: {"400", "bad_request", "deeper"},
		} {
			d.say(event)
			status, _ := strconv.Atoi(want[0])
			d.refused(status, want[1], want[2])
		}
		if err := d.conn.Write(t.Context(), websocket.MessageBinary, []byte{1}); err != nil {
			t.Fatal(err)
		}
		d.refused(400, "bad_request", "JSON")
		d.say(`{"type":"response.steer","previous_response_id":"resp_x","input":"no"}`)
		if e := d.next(); e.Type != "response.steer.failed" || e.Error.Code != "steering_not_supported" {
			t.Errorf("%+v", e)
		}
		d.say(`{"type":"response.create","input":"` + strings.Repeat("x", 20000) + `"}`)
		d.refused(413, "too_large", "16384")
		d.closed(websocket.StatusMessageTooBig)
	}
}

// TestResponsesSocketPrepared checks requests with generate: false: they bring input before the one
// that continues them, which is the turn.
func TestResponsesSocketPrepared(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	d := s.openSocket(v1+"/responses", "X-Agent-Id", "a")
	d.say(`{"type":"response.create","generate":false,"model":"m","instructions":"Be brief.","input":[{"role":"developer","content":"The shop is closed."}]}`)
	ready, _ := d.until("response.completed")
	if ready.Response.Status != "completed" || len(ready.Response.Output) != 0 {
		t.Errorf("%+v", ready)
	}
	if n := len(llm.Requests()); n != 0 {
		t.Errorf("the LLM was asked %d times", n)
	}
	for range 2 { // it may be continued more than once
		d.say(`{"type":"response.create","input":"Is it closed?","previous_response_id":"` + ready.Response.ID + `"}`)
		d.until("response.completed")
		if body := string(last(llm).Body); !strings.Contains(body, "The shop is closed.") || !strings.Contains(body, "Is it closed?") || strings.Contains(body, "Be brief.") {
			t.Errorf("the LLM was sent %s", body)
		}
	}
	d.say(`{"type":"response.create","generate":false}`)
	empty, _ := d.until("response.completed")
	d.say(`{"type":"response.create","input":"Still?","previous_response_id":"` + empty.Response.ID + `"}`)
	d.until("response.completed")
	other := s.openSocket(v1+"/responses", "X-Agent-Id", "a")
	other.say(`{"type":"response.create","input":"x","previous_response_id":"` + ready.Response.ID + `"}`)
	other.refused(400, "previous_response_not_found", ready.Response.ID)
}

// TestResponsesSocketCut checks that an answer whose client closes the connection, or cancels the
// response, is stored as far as it was sent, and that the next turn goes on after it.
func TestResponsesSocketCut(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "one two three four", HangAfter: 3})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	end := map[string]func(d *dialogue, id string){
		"closed": func(d *dialogue, _ string) { _ = d.conn.Close(websocket.StatusNormalClosure, "") },
		"lost":   func(d *dialogue, _ string) { _ = d.conn.CloseNow() },
		"canceled": func(d *dialogue, _ string) {
			d.say(`{"type":"response.cancel"}`)
		},
		"canceled by ID": func(d *dialogue, id string) {
			d.say(`{"type":"response.cancel","response_id":"` + id + `"}`)
		},
	}
	for name, end := range end {
		id := strings.ReplaceAll(name, " ", "-")
		d := s.openSocket(v1+"/responses", "X-Agent-Id", strings.ToLower(id))
		d.say(`{"type":"response.create","input":"Count."}`)
		made, _ := d.until("response.created")
		for words := ""; words != "one two three "; {
			words += d.next().Delta
		}
		end(d, made.Response.ID)
		if strings.HasPrefix(name, "canceled") {
			e := d.next()
			for ; !strings.HasPrefix(e.Type, "response.incomplete"); e = d.next() {
				if e.Type == "error" {
					t.Fatalf("%s: %+v", name, e)
				}
			}
			if e.Response.Incomplete == nil || e.Response.Incomplete.Reason != "interrupted" || e.Response.Output[0].Content[0].Text != "one two three " {
				t.Errorf("%s: %+v", name, e)
			}
		}
		var ledger struct{ Messages []message }
		for deadline := time.Now().Add(patience); len(ledger.Messages) < 2 && time.Now().Before(deadline); {
			s.get(agent(strings.ToLower(id), "/messages")).ok(&ledger)
		}
		if m := ledger.Messages; len(m) != 2 || m[1].Content != "one two three " || m[1].Metadata["interrupted"] != true {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestResponsesSocketLanes checks that responses of one stream_id are made one after the other,
// those of several at the same time, and how many there may be.
func TestResponsesSocketLanes(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Done.", HangAfter: 1})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	d := s.openSocket(v1 + "/responses")
	ask := func(agent, lane string) {
		d.say(`{"type":"response.create","metadata":{"agent_id":"` + agent + `"},"input":"x"` + lane + `}`)
	}
	for range 8 {
		ask("first", "") // seven of them wait
	}
	for i := range 8 {
		ask("lane-"+strconv.Itoa(i), `,"stream_id":"`+strconv.Itoa(i)+`"`)
	}
	begun := map[string]bool{}
	for len(begun) < 9 {
		e := d.next()
		if e.Type == "response.created" && e.Stream == nil {
			begun["-"] = true
		} else if e.Type == "response.created" {
			begun[*e.Stream] = true
		}
	}
	ask("more", `,"stream_id":"more"`)
	for e := d.next(); ; e = d.next() {
		if e.Type == "error" {
			if e.Status != 429 || e.Stream == nil || *e.Stream != "more" {
				t.Errorf("%+v", e)
			}
			break
		}
	}
	if n := len(llm.Requests()); n != 9 {
		t.Errorf("%d answers are being made, want 9", n)
	}
	d.say(`{"type":"response.cancel","stream_id":"3"}`)
	for e := d.next(); e.Type != "response.incomplete"; e = d.next() {
		if e.Stream == nil || *e.Stream != "3" {
			continue
		}
	}

	_, base = upstream(t, fake.Script{Answer: "Done."})
	s = start(t, "HEARDLOG_LLM_URL="+base)
	d = s.openSocket(v1+"/responses", "X-Agent-Id", "a")
	for i := range 32 {
		ask("a", `,"stream_id":"`+strconv.Itoa(i)+`"`)
		d.until("response.completed")
	}
	ask("a", `,"stream_id":"32"`)
	d.refused(400, "websocket_stream_limit_reached", "stream_id")
	ask("a", "")
	d.until("response.completed")
}

// TestResponsesSocketErrors checks what a client sees of an LLM's errors: one event that ends the
// response, after which the connection goes on.
func TestResponsesSocketErrors(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]fake.Script{
		"refused":   {Status: 429, Body: `{"error":{"message":"slow down","type":"tokens","code":429}}`, RetryAfter: "7"},
		"no JSON":   {Status: 400, Body: `no`},
		"broke off": {Answer: "one two three", CutAfter: 2},
	} {
		_, base := upstream(t, script)
		s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_RETRIES=0")
		d := s.openSocket(v1+"/responses", "X-Agent-Id", "a")
		for range 2 {
			d.say(`{"type":"response.create","input":"x"}`)
			var e socketEvent
			for e = d.next(); e.Type != "error" && e.Type != "response.failed"; e = d.next() {
			}
			switch {
			case name == "broke off" && (e.Type != "response.failed" || e.Response.Status != "failed"),
				name == "refused" && (e.Status != 429 || e.Error.Headers["retry-after"] != "7" || !strings.Contains(e.Error.Message, "slow down")),
				name == "no JSON" && e.Status != 400:
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
}

// TestResponsesSocketAccess checks who may connect, and that each response is authenticated and
// limited by itself.
func TestResponsesSocketAccess(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Hi."})
	s := start(t, twoTenants, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true", "HEARDLOG_PROJECT_SOCKETS=1", "HEARDLOG_CORS_ORIGINS=https://app.example")
	up := []string{"Connection", "keep-alive, Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	s.get(v1+"/responses", up...).failed(401, "unauthenticated", "authorization")
	s.get(agent("a", "/responses"), up...).failed(401, "unauthenticated", "authorization")
	key := []string{"Authorization", "Bearer alice:wonder"}
	s.get(v1+"/responses", key...).failed(400, "invalid", "WebSocket")
	s.get(agent("a", "/responses"), key...).failed(400, "invalid", "WebSocket")
	s.get(agent("A B", "/responses"), key...).failed(404, "not_found", "agent")
	s.get(v1+"/responses", append(append(key[:2:2], up...), "Origin", "https://other.example")...).failed(403, "forbidden", "HEARDLOG_CORS_ORIGINS")
	d := s.openSocket(v1+"/responses", append(key[:2:2], "X-Agent-Id", "a", "Origin", "https://app.example")...)
	s.get(v1+"/responses", append(key[:2:2], up...)...).failed(429, "rate_limited", "HEARDLOG_PROJECT_SOCKETS")
	d.say(`{"type":"response.create","input":"x"}`)
	d.until("response.completed")
}

// TestResponsesSocketShutdown checks that a server that stops closes idle connections at once and
// lets answers end.
func TestResponsesSocketShutdown(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "one two three", DelayChunk: fake.Duration(100 * time.Millisecond)})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	idle, busy := s.openSocket(v1+"/responses"), s.openSocket(v1+"/responses", "X-Agent-Id", "a")
	busy.say(`{"type":"response.create","input":"x"}`)
	busy.until("response.created")
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	idle.closed(websocket.StatusGoingAway)
	for e := busy.next(); e.Type != "response.completed"; e = busy.next() {
	}
	busy.closed(websocket.StatusGoingAway)
	<-stopped

	_, base = upstream(t, fake.Script{Answer: "one two three", HangAfter: 2})
	s = start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_SHUTDOWN_TIMEOUT=200ms")
	d := s.openSocket(v1+"/responses", "X-Agent-Id", "a")
	d.say(`{"type":"response.create","input":"x"}`)
	for words := ""; words != "one two "; {
		words += d.next().Delta
	}
	s = s.again()
	var ledger struct{ Messages []message }
	s.get(agent("a", "/messages")).ok(&ledger)
	if m := ledger.Messages; len(m) != 2 || m[1].Content != "one two " {
		t.Errorf("%+v", m)
	}
}
