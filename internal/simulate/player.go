package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// patience limits every wait for something that should happen at once.
const patience = 15 * time.Second

// maxAnswer limits how many bytes of the server's answer are read, unless it is a stream.
const maxAnswer = 8 << 20

// player plays one transcript, as the platform.
type player struct {
	cfg      Config
	call     Call
	platform platform
	upstream *upstream

	agent     string
	run       string // the name of this call, unique
	list      []entry
	known     int // how much of list was sent or received in a kept exchange
	turn      int64
	questions int // tries of one question count once
	requests  int
	ghosts    int  // discarded answers since the last one that was kept
	again     bool // the last question was discarded: the next one repeats its turn
	open      *exchange
	want      []want
	problems  []string
}

// want is a row that the record should have.
type want struct {
	Row
	line int
	// It opens a turn: words of the caller and of the platform do, a tool's result does not.
	opens bool
}

func (p *player) now() time.Time { return p.cfg.Now() }

func (p *player) problem(s *Step, format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf("line %d: ", s.Line)+fmt.Sprintf(format, args...))
}

// join makes the agent.
func (p *player) join(ctx context.Context) error {
	properties := map[string]any{"channel": "room-" + p.run}
	for k, v := range p.call.Properties {
		properties[k] = v
	}
	if p.platform.key != "" {
		own := map[string]any{}
		if h := p.call.Properties["heardlog"]; h != nil {
			if err := json.Unmarshal(h, &own); err != nil {
				return err
			}
		}
		own["keys"] = []string{p.platform.key + p.run}
		properties["heardlog"] = own
	}
	llm := map[string]any{"url": p.upstream.url, "vendor": p.platform.vendor, "model": "simulated"}
	if p.call.Greeting != "" {
		llm["greeting_message"] = p.call.Greeting
	}
	properties["llm"] = llm
	var out struct {
		AgentID string `json:"agent_id"`
	}
	if err := p.do(ctx, http.MethodPost, "/v1/agents", map[string]any{"name": p.run, "properties": properties}, &out); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	p.agent = out.AgentID
	if g := p.call.Greeting; g != "" {
		p.list = append(p.list, entry{role: "assistant", content: g, atMS: p.now().UnixMilli(), source: "greeting"})
		p.want = append(p.want, want{Row: Row{Generated: g, Heard: g, Source: "greeting"}})
		p.turn++
	}
	return nil
}

// step plays one step. An error ends the call; a difference from what was expected is a problem.
func (p *player) step(ctx context.Context, s *Step) error {
	switch {
	case s.Say != "":
		p.list = append(p.list, entry{role: "assistant", content: s.Say, turn: p.turn, atMS: p.now().UnixMilli(), source: "command"})
		p.expect(s, Row{Generated: s.Say, Heard: s.Say})
		return nil
	case len(s.Event) > 0:
		return p.event(ctx, s)
	case s.Interrupt != nil:
		return p.do(ctx, http.MethodPost, "/v1/agents/"+url.PathEscape(p.agent)+"/interrupt", map[string]any{"heard": *s.Interrupt}, nil)
	}
	return p.ask(ctx, s)
}

// ask plays a question of the caller, or the result of a tool.
func (p *player) ask(ctx context.Context, s *Step) error {
	kept := len(p.list)
	if !p.again {
		p.questions++
	}
	if s.Ask != "" {
		p.list = append(p.list, entry{role: "user", content: s.Ask, turn: p.turn, atMS: p.now().UnixMilli(), source: "asr"})
	} else {
		p.list = append(p.list, entry{role: "tool", content: s.Result, toolCallID: p.lastCall(), turn: p.turn})
	}
	x, err := p.send(ctx, s)
	if err != nil {
		return err
	}
	if err := p.listen(ctx, s, x); err != nil {
		return err
	}
	p.shown(s, x)
	if s.Discard {
		p.list, p.again = p.list[:kept], true
		p.ghosts++
		return nil
	}
	p.again = false
	p.keep(s, x)
	p.known = len(p.list)
	return nil
}

// shown checks which texts reached the model.
func (p *player) shown(s *Step, x *exchange) {
	if s.Shown == nil && s.Hidden == nil {
		return
	}
	prompt := p.upstream.prompt(x.id)
	for _, text := range s.Shown {
		if !strings.Contains(prompt, text) {
			p.problem(s, "the model was not shown %q", text)
		}
	}
	for _, text := range s.Hidden {
		if strings.Contains(prompt, text) {
			p.problem(s, "the model was shown %q", text)
		}
	}
}

// event posts an event of the platform about the last answers.
func (p *player) event(ctx context.Context, s *Step) error {
	from := s.From
	if from == "" {
		from = p.call.Platform
	}
	body := strings.ReplaceAll(string(s.Event), `"$NOW"`, strconv.FormatInt(p.now().UnixMilli(), 10))
	body = strings.ReplaceAll(body, "$CALL", p.run)
	var out struct {
		Event     string            `json:"event"`
		Recorded  []json.RawMessage `json:"recorded"`
		Unmatched int               `json:"unmatched"`
	}
	path := "/v1/agents/" + url.PathEscape(p.agent) + "/evidence/" + url.PathEscape(from)
	if strings.Contains(string(s.Event), "$CALL") { // the event names the call itself
		path = "/v1/evidence/" + url.PathEscape(from)
	}
	if err := p.do(ctx, http.MethodPost, path, json.RawMessage(body), &out); err != nil {
		return fmt.Errorf("line %d: %w", s.Line, err)
	}
	switch {
	case out.Event == "":
		p.problem(s, "the server does not read this event")
	case len(out.Recorded) == 0 && out.Unmatched > 0:
		p.problem(s, "the event fits no answer of the record")
	}
	return nil
}

// keep adds the answer, as the platform believes it was heard, to its list, and the row that the
// record should have.
func (p *player) keep(s *Step, x *exchange) {
	e := entry{role: "assistant", content: s.echo(), turn: p.turn, atMS: p.now().UnixMilli(), source: "llm"}
	if s.Tool != nil {
		e.toolCalls = x.script.calls()
		if len(x.toolIDs) != 1 || x.toolIDs[0] != x.script.callID {
			p.problem(s, "the tool calls that came are %q, want one, %q", x.toolIDs, x.script.callID)
		}
	}
	// An answer that is closed after its last word was not over yet.
	cut := s.cut() >= 0 || plain(s.heard()) != plain(s.Answer)
	if cut {
		e.original = s.sent()
	}
	if e.content != "" || e.toolCalls != nil {
		p.list = append(p.list, e)
	}
	if s.Forget {
		p.list = slices.DeleteFunc(p.list, func(e entry) bool { return e.role == "tool" || e.toolCalls != nil })
	}
	row := Row{Generated: s.sent(), Heard: s.heard(), Interrupted: cut, Caller: s.Ask, Ghosts: p.ghosts}
	if s.Ask == "" { // the ghosts of a turn are counted in its first row
		for i := range p.want {
			if w := &p.want[len(p.want)-1-i]; w.Caller != "" {
				w.Ghosts, row.Ghosts = w.Ghosts+p.ghosts, 0
				break
			}
		}
	}
	if s.Tool != nil {
		row.Tool = s.Tool.Name
	} else {
		p.turn++
	}
	p.ghosts = 0
	p.expect(s, row)
}

// expect adds a row that the record should have, changed by the step's want.
func (p *player) expect(s *Step, row Row) {
	if w := s.Want; w != nil {
		if w.None {
			return
		}
		set(&row.Caller, w.Caller)
		set(&row.Generated, w.Generated)
		set(&row.Heard, w.Heard)
		set(&row.Interrupted, w.Interrupted)
		set(&row.Ghosts, w.Ghosts)
		row.Method, row.Source = w.Method, w.Source
	}
	p.want = append(p.want, want{Row: row, line: s.Line, opens: s.Result == ""})
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// lastCall returns the id of the newest tool call in the list.
func (p *player) lastCall() string {
	for _, e := range slices.Backward(p.list) {
		var calls []struct{ ID string }
		if json.Unmarshal(e.toolCalls, &calls) == nil && len(calls) > 0 {
			return calls[0].ID
		}
	}
	return ""
}

// messages returns the list as the platform sends it: its system message, and the newest messages
// within its window.
func (p *player) messages() []map[string]any {
	list := p.list
	if p.call.New {
		list = list[p.known:]
	}
	if n := p.call.Window; n > 0 && len(list) > n {
		list = list[len(list)-n:]
		// Every model refuses a result without its call.
		for len(list) > 1 && list[0].role == "tool" {
			list = list[1:]
		}
	}
	var out []map[string]any
	if p.call.System != "" {
		out = append(out, map[string]any{"role": "system", "content": p.call.System})
	}
	for i, e := range list {
		if p.platform.merges && e.role == "user" && i > 0 && list[i-1].role == "user" {
			last := out[len(out)-1]
			last["content"] = last["content"].(string) + " " + e.content //nolint:errcheck // this loop set it
			continue
		}
		m := map[string]any{"role": e.role, "content": e.content}
		if e.toolCalls != nil {
			m["tool_calls"] = e.toolCalls
			if e.content == "" {
				m["content"] = nil
			}
		}
		if e.toolCallID != "" {
			m["tool_call_id"] = e.toolCallID
		}
		if p.platform.message != nil {
			p.platform.message(e, m)
		}
		out = append(out, m)
	}
	return out
}

// pace returns how long something takes at the speed of the playback; 0 if there is no waiting.
func (p *player) pace(d time.Duration) time.Duration {
	if p.cfg.Pace <= 0 {
		return 0
	}
	return time.Duration(float64(d) / p.cfg.Pace)
}

// speak waits while the answer is spoken and the caller thinks, if the call is played in time.
func (p *player) speak(ctx context.Context, s *Step) {
	if !s.Discard {
		pause(ctx, p.pace(time.Duration(len(split(s.heard()))+3)*msPerWord*time.Millisecond))
	}
}

// request returns a request to the server.
func (p *player) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(p.cfg.Server, "/")+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if p.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+p.cfg.Key)
	}
	return req, nil
}

// do makes a request and decodes the answer into out, unless out is nil.
func (p *player) do(ctx context.Context, method, path string, body, out any) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(raw)
	}
	req, err := p.request(ctx, method, path, r)
	if err != nil {
		return err
	}
	res, err := p.cfg.Client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: the server answered %d: %.1000s", method, path, res.StatusCode, bytes.TrimSpace(b))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}
