package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// callMessage is a message as a platform sends it.
type callMessage = json.RawMessage

// spokenCall is a whole call of memory/echo/testdata/calls: see the README there.
type spokenCall struct {
	Name     string                 `json:"name"`
	Platform string                 `json:"platform"`
	Class    string                 `json:"class"`
	Language string                 `json:"language"`
	Source   string                 `json:"source"`
	About    string                 `json:"about"`
	Mode     string                 `json:"mode,omitempty"`
	Greeting string                 `json:"greeting,omitempty"`
	Messages map[string]callMessage `json:"messages"`
	Requests []callRequest          `json:"requests"`
	Answers  map[string]callAnswer  `json:"answers"`
	Caller   []string               `json:"caller"`
	Perhaps  []string               `json:"perhaps,omitempty"`
	Said     []string               `json:"said,omitempty"`
	Tools    map[string]string      `json:"tools,omitempty"`
	Order    [][2]string            `json:"order,omitempty"`
}

// callRequest is a request of a call, or an event of the platform.
type callRequest struct {
	List    []string        `json:"list,omitempty"`
	Answer  string          `json:"answer,omitempty"`
	Close   *int            `json:"close,omitempty"`
	Overlap bool            `json:"overlap,omitempty"`
	Event   string          `json:"event,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// callAnswer is what the model answers, and what became of it.
type callAnswer struct {
	Text    string          `json:"text,omitempty"`
	Tools   json.RawMessage `json:"tool_calls,omitempty"`
	Outcome string          `json:"outcome,omitempty"`
	Heard   string          `json:"heard,omitempty"`
}

// callModel is the LLM of the calls: it finds its answer by the request's X-Request-Id.
type callModel struct {
	mu      sync.Mutex
	scripts map[string]*callScript
}

// callScript is one answer of the model. With pieces at least 0 the model sends so many pieces of
// the text and then waits for the end of the request.
type callScript struct {
	answer callAnswer
	pieces int
	begun  chan struct{}
	left   chan struct{}
	once   sync.Once
}

func (m *callModel) expect(id string, s *callScript) {
	s.begun, s.left = make(chan struct{}), make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scripts[id] = s
}

func (m *callModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	m.mu.Lock()
	s := m.scripts[r.Header.Get("X-Request-Id")]
	m.mu.Unlock()
	if s == nil {
		http.Error(w, `{"error":{"message":"no request of a call"}}`, http.StatusBadRequest)
		return
	}
	s.once.Do(func() {
		close(s.begun)
		defer close(s.left)
		s.serve(w, r)
	})
}

func (s *callScript) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	event := func(delta any, finish any) bool {
		b, err := json.Marshal(map[string]any{
			"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
		})
		_, werr := fmt.Fprintf(w, "data: %s\n\n", b)
		return errors.Join(err, werr, rc.Flush()) == nil
	}
	for i, p := range pieces(s.answer.Text) {
		if s.pieces >= 0 && i >= s.pieces || !event(map[string]any{"role": "assistant", "content": p}, nil) {
			break
		}
	}
	if s.pieces >= 0 {
		<-r.Context().Done()
		return
	}
	finish := "stop"
	if s.answer.Tools != nil {
		finish = "tool_calls"
		event(map[string]any{"role": "assistant", "tool_calls": s.answer.Tools}, nil)
	}
	if event(map[string]any{}, finish) {
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}
}

// pieces splits an answer into words, or into pairs of characters if it has no spaces.
func pieces(text string) []string {
	if strings.Contains(text, " ") {
		return strings.SplitAfter(text, " ")
	}
	var out []string
	for r := []rune(text); len(r) > 0; r = r[min(2, len(r)):] {
		out = append(out, string(r[:min(2, len(r))]))
	}
	return out
}

// callKeys are the keys by which the platforms name a call, as a join gives them.
var callKeys = map[string]string{
	"elevenlabs": "elevenlabs.conversation:", "livekit": "livekit.session:", "pipecat": "pipecat.session:", "retell": "retell.call:",
	"telnyx": "telnyx.call:", "twilio": "twilio.call:", "vapi": "vapi.call:",
}

// callAddress adds to a request what the platform names the call with.
func callAddress(platform, run, id string, body map[string]any, h http.Header) {
	switch platform {
	case "agora":
		body["channel"] = "room-" + run
	case "elevenlabs":
		body["elevenlabs_extra_body"] = map[string]any{"conversation_id": run}
	case "livekit":
		h.Set("X-LiveKit-Session-ID", run)
	case "pipecat":
		h.Set("X-Pipecat-Session-Id", run)
	case "retell":
		body["metadata"] = map[string]any{"call_id": run}
	case "telnyx":
		body["metadata"] = map[string]any{"call_control_id": run}
	case "twilio":
		body["metadata"] = map[string]any{"callSid": run}
	case "vapi":
		body["call"] = map[string]any{"id": run}
	default:
		h.Set("X-Agent-Id", id)
	}
}

// callPlayer plays one call.
type callPlayer struct {
	t     *testing.T
	s     *server
	model *callModel
	call  *spokenCall
	run   string
	agent string
	open  *openCall // a request that the platform has not closed yet
	ended int       // answers that the model has ended
	notes []string  // requests that the server refused
}

// openCall is a request under way.
type openCall struct {
	script *callScript
	cancel context.CancelFunc
	body   io.ReadCloser
}

// playCall plays a call and returns the agent's ledger, and what the server refused.
func playCall(t *testing.T, s *server, model *callModel, base, run string, c *spokenCall) ([]message, []string) {
	t.Helper()
	properties := map[string]any{"llm": map[string]any{"url": base, "model": "m"}, "channel": "room-" + run}
	own := map[string]any{}
	if key := callKeys[c.Platform]; key != "" {
		own["keys"] = []string{key + run}
	}
	if c.Mode != "" {
		own["mode"] = c.Mode
	}
	properties["heardlog"] = own
	if c.Greeting != "" {
		properties["llm"].(map[string]any)["greeting_message"] = c.Greeting //nolint:errcheck // set above
	}
	p := &callPlayer{t: t, s: s, model: model, call: c, run: run, agent: s.join(run, properties)}
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Event != "" {
			body := strings.ReplaceAll(string(r.Body), "$CALL", run)
			s.post(agent(p.agent, "/evidence/", r.Event), body).ok(nil)
		} else {
			p.ask(i, r)
		}
	}
	p.hangUp()
	s.post(v1+"/leave", nil, "X-Agent-Id", p.agent).ok(nil) // the platform may have ended it
	return s.ledger(p.agent), p.notes
}

// ask sends one request and reads its answer, to its end or until the platform closes it.
func (p *callPlayer) ask(i int, r *callRequest) {
	id := p.run + "-" + strconv.Itoa(i)
	script := &callScript{answer: p.call.Answers[r.Answer], pieces: -1}
	if r.Close != nil {
		script.pieces = *r.Close
	}
	p.model.expect(id, script)
	list := make([]callMessage, len(r.List))
	for k, name := range r.List {
		list[k] = p.call.Messages[name]
	}
	body := map[string]any{"model": "m", "stream": true, "messages": list}
	h := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {id}}
	callAddress(p.call.Platform, p.run, p.agent, body, h)
	raw, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.s.url+"/v1/chat/completions", bytes.NewReader(raw))
	if err != nil {
		cancel()
		p.t.Fatal(err)
	}
	req.Header = h
	if script.pieces == 0 {
		go func() { // the platform gives up before the first word
			select {
			case <-script.begun:
				if !r.Overlap {
					cancel()
				}
			case <-ctx.Done():
			}
		}()
	}
	x := &openCall{script: script, cancel: cancel}
	before := p.open
	p.open = nil
	resp, err := p.s.client.Do(req)
	if before != nil {
		p.open = before
		p.hangUp()
	}
	switch {
	case err != nil && script.pieces == 0:
	case err != nil:
		cancel()
		p.t.Fatalf("request %d: %v", i, err)
	case resp.StatusCode != http.StatusOK:
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		cancel()
		p.notes = append(p.notes, fmt.Sprintf("request %d refused: %d %.200s", i, resp.StatusCode, b))
		return
	default:
		x.body = resp.Body
		p.read(x)
	}
	if script.pieces < 0 {
		_ = x.body.Close()
		cancel()
		p.ended++
		return
	}
	p.open = x
	if !r.Overlap {
		p.hangUp()
	}
}

// read reads an answer up to its end, or as many words as the model sends.
func (p *callPlayer) read(x *openCall) {
	n := 0
	for lines := bufio.NewScanner(x.body); x.script.pieces < 0 || n < x.script.pieces; {
		if !lines.Scan() {
			return // cut by the server
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if data == "[DONE]" {
			return
		}
		if ok && strings.Contains(data, `"content"`) {
			n++
		}
	}
}

// hangUp closes the open request and waits until its answer is stored: the caller's next words take
// longer than that.
func (p *callPlayer) hangUp() {
	x := p.open
	if x == nil {
		return
	}
	p.open = nil
	x.cancel()
	if x.body != nil {
		_ = x.body.Close()
	}
	select {
	case <-x.script.left:
	case <-time.After(patience):
		p.t.Fatal("the model's answer was not cancelled")
	}
	p.ended++
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		stored := 0
		for _, m := range p.s.ledger(p.agent) {
			if m.made() && m.Content != p.call.Greeting {
				stored++
			}
		}
		if stored >= p.ended {
			return
		}
	}
}

// callUpstream starts the model of the calls and returns it with its URL.
func callUpstream(t *testing.T) (*callModel, string) {
	t.Helper()
	m := &callModel{scripts: map[string]*callScript{}}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	return m, srv.URL + "/v1/chat/completions"
}
