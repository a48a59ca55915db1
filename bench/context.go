package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// What part 8 reads: a memory of so many messages, in a window of so many tokens.
const (
	contextMessages = 1000
	contextTokens   = 4000
)

// maxBatch is the most messages that one append may bring.
const maxBatch = 1000

// benchContext is part 8: the context of a long memory with a limit of tokens, counted by the
// estimate and exactly, asked for again and right after an append.
func (b *bench) benchContext(ctx context.Context) error {
	b.sayf("\n8. context of a memory of %d messages in a window of %d tokens, one client", contextMessages, contextTokens)
	p, _, err := b.startServer(ctx, b.db("context"), b.level)
	if err != nil {
		return err
	}
	c, err := dial(ctx, p.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	id, err := populateOne(c, p.addr, "context", 0, "", turnsBody(contextMessages))
	if err != nil {
		return err
	}
	add := appendOne(c, p.addr, id)
	runs := max(200, b.calls)
	for _, count := range []struct{ name, tokens string }{{"the estimate", "estimate"}, {"exact tokens", "gpt-4o"}} {
		req := request("POST", "/v1/agents/"+id+"/context", p.addr,
			fmt.Appendf(nil, `{"policy":{"preset":"full","max_tokens":%d,"tokens":%q}}`, contextTokens, count.tokens), "")
		read := func() error { return wantOK(c, req) }
		if err := read(); err != nil {
			return err
		}
		size, kept := len(c.body), bytes.Count(c.body, []byte(`"role"`))
		if kept < 50 || kept >= contextMessages {
			return fmt.Errorf("the window holds %d messages", kept)
		}
		again, err := timed(ctx, runs, nil, read)
		if err != nil {
			return err
		}
		b.atMost(8, "asked again, by "+count.name+", p50", micros(again.at(.5)), "µs", 1000, "p99 %.0f µs; %d messages, %d bytes", micros(again.at(.99)), kept, size)
		after, err := timed(ctx, max(50, runs/20), add, read)
		if err != nil {
			return err
		}
		b.atMost(8, "right after an append, by "+count.name+", p50", micros(after.at(.5)), "µs", 1000, "p99 %.0f µs; the append is not counted", micros(after.at(.99)))
	}
	return b.benchLong(ctx, p, c)
}

// benchLong is part 8 of a memory far longer than any window: its context right after an append,
// and appends under a policy that cuts the memory itself.
func (b *bench) benchLong(ctx context.Context, p *process, c *conn) error {
	for _, row := range []struct {
		name, policy string
		context      bool
	}{
		{"context right after an append", fmt.Sprintf(`{"preset":"full","max_tokens":%d}`, contextTokens), true},
		{"an append that cuts", `{"preset":"ossa","apply":"write"}`, false},
	} {
		join := fmt.Appendf(nil, `{"name":%q,"properties":{"idle_timeout":0,"heardlog":{"policy":%s}}}`, row.name, row.policy)
		id, err := joined(c, request("POST", "/v1/join", p.addr, join, ""))
		if err != nil {
			return err
		}
		path := "/v1/agents/" + id + "/messages"
		// A system message keeps the beginning of the memory where it is.
		if err := wantOK(c, request("POST", path, p.addr, []byte(`{"role":"system","content":"Be brief."}`), "")); err != nil {
			return err
		}
		for n := 0; n < b.long; n += maxBatch {
			if err := wantOK(c, request("POST", path, p.addr, turnsBody(min(maxBatch, b.long-n)), "")); err != nil {
				return err
			}
		}
		add := appendOne(c, p.addr, id)
		before, do := (func() error)(nil), add
		if row.context {
			req := request("POST", "/v1/agents/"+id+"/context", p.addr, []byte("{}"), "")
			before, do = add, func() error { return wantOK(c, req) }
		}
		times, err := timed(ctx, max(50, b.calls/20), before, do)
		if err != nil {
			return err
		}
		b.atMost(8, fmt.Sprintf("of %d messages, %s, p50", b.long, row.name), micros(times.at(.5)), "µs", 5000, "p99 %.0f µs", micros(times.at(.99)))
	}
	return nil
}

// turnsBody returns a batch of n messages, each with another text.
func turnsBody(n int) []byte {
	var buf bytes.Buffer
	buf.WriteString(`{"messages":[`)
	for i := range n {
		role, source, text := "user", "asr", question(i)
		if i%2 == 1 {
			role, source, text = "assistant", "llm", reply(i)
		}
		if i > 0 {
			buf.WriteByte(',')
		}
		fmt.Fprintf(&buf, `{"role":%q,"source":%q,"content":%q}`, role, source, text)
	}
	buf.WriteString(`]}`)
	return buf.Bytes()
}

// appendOne returns a function that appends one message to an agent.
func appendOne(c *conn, addr, id string) func() error {
	req := request("POST", "/v1/agents/"+id+"/messages", addr, []byte(`{"role":"user","source":"asr","content":"`+question(7)+`"}`), "")
	return func() error { return wantOK(c, req) }
}

// joined makes a request to join and returns the new agent's id.
func joined(c *conn, req []byte) (string, error) {
	if err := wantOK(c, req); err != nil {
		return "", err
	}
	var answer struct {
		AgentID string `json:"agent_id"`
	}
	err := json.Unmarshal(c.body, &answer)
	return answer.AgentID, err
}

// timed runs do n times and returns how long each took. before, if not nil, runs before each.
func timed(ctx context.Context, n int, before, do func() error) (samples, error) {
	times := make(samples, 0, n)
	for range n {
		if before != nil {
			if err := before(); err != nil {
				return nil, err
			}
		}
		start := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
	}
	return times, ctx.Err()
}
