package simulate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// wordsAhead is how many times faster than a voice the model writes, if a call is played in time.
const wordsAhead = 8

// exchange is a request under way.
type exchange struct {
	id      string
	script  *script
	cancel  context.CancelFunc
	body    io.ReadCloser
	toolIDs []string
}

// send makes the request and waits for the beginning of its answer. The exchange has no body if it
// was closed before that.
func (p *player) send(ctx context.Context, s *Step) (*exchange, error) {
	p.requests++
	id := p.run + "-" + strconv.Itoa(p.requests)
	x := &exchange{id: id, script: &script{
		answer: s.Answer, tool: s.Tool, callID: "call_" + id, cut: s.cut(), opening: p.platform.opening, pace: p.pace(msPerWord * time.Millisecond / wordsAhead),
	}}
	p.upstream.expect(id, x.script)
	ctx, x.cancel = context.WithCancel(ctx)
	if x.script.cut == 0 { // it is closed while it waits for its answer
		go x.closeOnArrival(ctx)
	}
	body, err := p.begin(ctx, x)
	if err != nil && (x.script.cut != 0 || ctx.Err() == nil) {
		x.cancel()
		return nil, fmt.Errorf("request %d (line %d): %w", p.requests, s.Line, err)
	}
	x.body = body
	return x, nil
}

// closeOnArrival closes the request as soon as it has reached the upstream.
func (x *exchange) closeOnArrival(ctx context.Context) {
	select {
	case <-x.script.arrived:
		x.cancel()
	case <-ctx.Done():
	}
}

// begin sends the chat completion of an exchange as the platform would, and returns the body of a
// good answer.
func (p *player) begin(ctx context.Context, x *exchange) (io.ReadCloser, error) {
	path := "/v1/chat/completions"
	if p.call.Address == byPath {
		path = "/v1/agents/" + url.PathEscape(p.agent) + "/chat/completions"
	}
	req, err := p.request(ctx, http.MethodPost, path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Request-Id", x.id)
	if p.call.Address == byHeader {
		req.Header.Set("X-Agent-Id", p.agent)
	}
	body := map[string]any{"model": "simulated", "stream": !p.call.Whole, "messages": p.messages()}
	p.platform.request(p, body, req.Header)
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	res, err := p.cfg.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(res.Body, 2000))
		return nil, fmt.Errorf("the server answered %d: %s%s", res.StatusCode, bytes.TrimSpace(b), p.hint(res.StatusCode))
	}
	if got := res.Header.Get("X-Heardlog-Agent"); got != p.agent {
		return nil, errors.Join(fmt.Errorf("agent %q answered, not %s", got, p.agent), res.Body.Close())
	}
	return res.Body, nil
}

// hint returns the usual reason for a first request that did not reach the upstream.
func (p *player) hint(status int) string {
	if status == http.StatusBadGateway && p.requests == 1 {
		return "; the server must reach " + p.upstream.url + " and be allowed to call it (HEARDLOG_OUTBOUND_ALLOW, -listen)"
	}
	return ""
}

// listen reads an answer to its end, or to its cut. An earlier request that was left open is closed
// first.
func (p *player) listen(ctx context.Context, s *Step, x *exchange) error {
	before := p.open
	p.open = nil
	if before != nil {
		if err := p.hangUp(ctx, before); err != nil {
			return err
		}
	}
	if x.body == nil {
		return p.hangUp(ctx, x)
	}
	text, err := p.read(s, x)
	if err != nil {
		x.cancel()
		_ = x.body.Close() // cancelled already
		return fmt.Errorf("request %d (line %d): %w", p.requests, s.Line, err)
	}
	if text != s.sent() {
		p.problem(s, "the answer came as %q, want %q", text, s.sent())
	}
	p.speak(ctx, s)
	switch {
	case x.script.cut < 0:
		x.cancel()
		return x.body.Close()
	case s.Overlap:
		p.open = x
		return nil
	}
	return p.hangUp(ctx, x)
}

// hangUp closes a request before its end. It waits until the server has cancelled the upstream and
// stored what was sent, because a caller's next words do not come in the same millisecond.
func (p *player) hangUp(ctx context.Context, x *exchange) error {
	x.cancel()
	if x.body != nil {
		_ = x.body.Close() // cancelled already
	}
	select {
	case <-x.script.left:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return errors.New("the upstream's answer was not cancelled within 15 s of the client's leaving")
	}
	return p.settled(ctx)
}

// settled waits until the server has stored every answer that has ended. If one is never stored,
// the comparison shows it.
func (p *player) settled(ctx context.Context) error {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		ledger, err := p.ledger(ctx)
		if err != nil {
			return err
		}
		stored := 0
		for _, m := range ledger {
			if m.Role == "assistant" && m.Metadata.Source == "llm" {
				stored++
			}
		}
		if stored >= p.upstream.answered() {
			return nil
		}
		if !pause(ctx, 5*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// read returns the text of an answer up to its cut.
func (p *player) read(s *Step, x *exchange) (string, error) {
	if p.call.Whole {
		return x.readWhole()
	}
	words, opened := make([]string, 0, 32), p.platform.opening == ""
	for lines := bufio.NewReaderSize(x.body, 64<<10); x.script.cut < 0 || len(words) < x.script.cut; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return "", fmt.Errorf("the stream broke off: %w", err)
		}
		data, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			break
		}
		if data == p.platform.opening {
			opened = true
			continue
		}
		word, err := x.chunk(data)
		if err != nil {
			return "", err
		}
		if word != "" {
			words = append(words, word)
		}
	}
	if !opened {
		p.problem(s, "the platform's own first chunk did not come through as it was sent")
	}
	return strings.Join(words, ""), nil
}

// chunk returns the word of a chunk and remembers its tool calls.
func (x *exchange) chunk(data string) (string, error) {
	type message struct {
		Content   string
		ToolCalls []struct{ ID string } `json:"tool_calls"`
	}
	var in struct {
		Error   json.RawMessage
		Choices []struct{ Delta, Message message }
	}
	if err := json.Unmarshal([]byte(data), &in); err != nil {
		return "", fmt.Errorf("a chunk is not JSON: %w", err)
	}
	if len(in.Error) > 0 {
		return "", fmt.Errorf("the server sent an error: %.500s", in.Error)
	}
	if len(in.Choices) == 0 {
		return "", nil
	}
	c := in.Choices[0]
	for _, t := range slices.Concat(c.Delta.ToolCalls, c.Message.ToolCalls) {
		if t.ID != "" {
			x.toolIDs = append(x.toolIDs, t.ID)
		}
	}
	return c.Delta.Content + c.Message.Content, nil
}

func (x *exchange) readWhole() (string, error) {
	b, err := io.ReadAll(io.LimitReader(x.body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("the answer broke off: %w", err)
	}
	return x.chunk(string(b))
}
