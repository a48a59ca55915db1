package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// What a voice turn may lose to its memory, compared with a direct call on the same host, in ms at
// p50, p95 and p99.
var (
	budgetPass   = [3]float64{.5, 2, 5}
	budgetMerge  = [3]float64{1, 3, 8}
	budgetChunk  = [3]float64{.05, .3, 1}
	budgetCancel = [3]float64{5, 20, 50}
)

// listTurns is the length of a list that a platform sends again with each call.
const listTurns = 200

// benchBudget is part 5.
func (b *bench) benchBudget(ctx context.Context) error {
	b.sayf("\n5. latency budget of a voice turn: what is added to a direct call")
	x, err := b.startProxies(ctx)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context, proxies) error{b.budgetInject, b.budgetThinking, b.budgetReconcile, b.budgetRemember, b.budgetChunks, b.budgetCancels} {
		if err := part(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// question and reply return what is said in turn i.
func question(i int) string { return "Question " + strconv.Itoa(i) + ". " + sentence }
func reply(i int) string {
	return "Answer " + strconv.Itoa(i) + ". Thursday at two is free, and so is Friday at a quarter past nine. Which of the two suits you better?"
}

// upstreamReply is the fake LLM's answer in an open loop.
var upstreamReply = string(bytes.Repeat([]byte(" word"), openChunks))

// listBody returns call n of a platform that sends its newest listTurns turns each time. The agent
// had the first turns before call 0; later turns are the calls themselves. echo is what the
// platform believes was heard of the last answer.
func listBody(n int, echo string) []byte {
	body := []byte(`{"model":"bench-1","stream":true,"messages":[{"role":"system","content":"You are the receptionist of a small practice."}`)
	last := n + listTurns - 1
	for i := n; i <= last; i++ {
		said := reply(i)
		switch {
		case i == last-1:
			said = echo
		case i >= listTurns-1:
			said = upstreamReply
		}
		body = fmt.Appendf(body, `,{"role":"user","content":%q}`, question(i))
		if i < last {
			body = fmt.Appendf(body, `,{"role":"assistant","content":%q}`, said)
		}
	}
	return append(body, `]}`...)
}

// ledgerBody returns the messages of an agent that has had listTurns-1 turns.
func ledgerBody() []byte {
	body := []byte(`{"messages":[`)
	for i := range listTurns - 1 {
		body = fmt.Appendf(body, `{"role":"user","content":%q,"source":"asr"},{"role":"assistant","content":%q,"source":"llm"},`, question(i), reply(i))
	}
	return append(body[:len(body)-1], `]}`...)
}

// budgetInject measures the shortest path: one new message, and a small memory in front.
func (b *bench) budgetInject(ctx context.Context, x proxies) error {
	c, err := x.callers(ctx, "budget", budgetClients, openQuery, true)
	if err != nil {
		return err
	}
	return b.budgetFirst(ctx, x, "one new message, 20 in front: first token, added at", budgetPass,
		func(p *process, client, _ int) []byte { return c.of(x, p, client, "") })
}

// thinkingUS is the time to the first token of the LLM of budgetThinking, far less than that of
// real ones.
const thinkingUS = 20_000

// budgetThinking is budgetInject with an LLM that takes a moment, as all do: work that goes on
// meanwhile costs the caller nothing.
func (b *bench) budgetThinking(ctx context.Context, x proxies) error {
	c, err := x.callers(ctx, "thinking", budgetClients, fmt.Sprintf("%s&first_us=%d", openQuery, thinkingUS), true)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("the same, an LLM of %d ms: first token, added at", thinkingUS/1000)
	return b.budgetFirst(ctx, x, what, budgetPass, func(p *process, client, _ int) []byte { return c.of(x, p, client, "") })
}

// budgetReconcile measures the longest path: the platform sends its whole list each time.
func (b *bench) budgetReconcile(ctx context.Context, x proxies) error {
	path := "/v1/chat/completions?" + openQuery
	agents, err := populate(ctx, x.own.addr, "lists", budgetClients, ledgerBody(), 2*listTurns, "http://"+x.upstream.addr+path)
	if err != nil {
		return err
	}
	// Of Heardlog's agents, over all rounds; a client makes one call at a time.
	calls := make([]int, budgetClients)
	return b.budgetFirst(ctx, x, fmt.Sprintf("%d turns sent again: first token, added at", listTurns), budgetMerge, func(p *process, client, n int) []byte {
		if p != x.own {
			return request("POST", path, p.addr, listBody(n, reply(0)), "")
		}
		n = calls[client]
		calls[client]++
		echo := reply(listTurns - 2)
		if n > 0 {
			echo = upstreamReply
		}
		return request("POST", "/v1/agents/"+agents.ids[client]+"/chat/completions", p.addr, listBody(n, echo), "")
	})
}

// The open loops of the budget.
const (
	budgetClients = 64
	budgetRate    = 200
	openQuery     = "chunks=10&gap_us=5000"
)

// quantiles are those that have limits in the budget.
var quantiles = [3]float64{.5, .95, .99}

// budgetFirst compares the time to the first token directly, through the ReverseProxy and through
// Heardlog.
func (b *bench) budgetFirst(ctx context.Context, x proxies, what string, limits [3]float64, req func(p *process, client, n int) []byte) error {
	ways := []*process{x.upstream, x.reverse, x.own}
	got := make([][]samples, len(ways)) // by target and round
	var cpu [3]time.Duration
	for round := -1; round < b.rounds; round++ {
		for i, p := range ways {
			before, err := p.cpu()
			if err != nil {
				return err
			}
			s, err := openLoop(ctx, p.addr, budgetClients, b.paced, budgetRate, func(client, n int) []byte { return req(p, client, n) })
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			after, err := p.cpu()
			if err != nil {
				return err
			}
			if round >= 0 {
				got[i] = append(got[i], s)
				cpu[i] += (after - before) / time.Duration(b.paced*b.rounds)
			}
		}
	}
	b.sayf("  CPU a call: %.0f µs, ReverseProxy %.0f, the upstream itself %.0f", micros(cpu[2]), micros(cpu[1]), micros(cpu[0]))
	b.budgetRows(what, limits, got[0], got[1], got[2])
	return nil
}

// budgetRows adds the rows of one path of the budget; samples are by round.
func (b *bench) budgetRows(what string, limits [3]float64, direct, reverse, own []samples) {
	for i, q := range quantiles {
		at := func(rounds []samples) (ms []float64) {
			for _, s := range rounds {
				ms = append(ms, micros(s.at(q))/1000)
			}
			return ms
		}
		d, r, o := at(direct), at(reverse), at(own)
		b.atMost(5, fmt.Sprintf("%s p%g", what, q*100), added(o, d), "ms", limits[i],
			"%.2f against %.2f direct; ReverseProxy adds %.2f", median(o), median(d), added(r, d))
	}
}

// budgetChunks measures how long a chunk takes from the upstream's write to the client's read. Both
// clocks are this machine's.
func (b *bench) budgetChunks(ctx context.Context, x proxies) error {
	const live = 32
	c, err := x.callers(ctx, "chunks", live, "chunks=50&gap_us=20000&stamp=1", true)
	if err != nil {
		return err
	}
	ways := []*process{x.upstream, x.reverse, x.own}
	got := make([][]samples, len(ways))
	for round := range max(1, b.rounds/2) {
		for i, p := range ways {
			s, err := chunkDelays(ctx, p.addr, live, func(n int) []byte { return c.of(x, p, n, "") })
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", p.name, round, err)
			}
			got[i] = append(got[i], s)
		}
	}
	b.budgetRows("a chunk, added at", budgetChunk, got[0], got[1], got[2])
	return nil
}

// chunkDelays reads live streams at once and returns the delay of each stamped chunk but the first.
func chunkDelays(ctx context.Context, addr string, live int, req func(int) []byte) (samples, error) {
	out := make([]samples, live)
	errs := make([]error, live)
	var wg sync.WaitGroup
	for i := range live {
		wg.Go(func() {
			c, err := dial(ctx, addr)
			if err != nil {
				errs[i] = err
				return
			}
			defer c.Close()
			out[i], errs[i] = streamDelays(c, req(i))
		})
	}
	wg.Wait()
	return slices.Concat(out...), errors.Join(errs...)
}

func streamDelays(c *conn, req []byte) (out samples, err error) {
	h, err := c.send(req)
	if err != nil || h.status != 200 {
		return nil, errors.Join(err, fmt.Errorf("status %d", h.status))
	}
	err = c.read(h, func(p []byte) {
		now := time.Now()
		for {
			_, rest, ok := bytes.Cut(p, []byte(stampMark))
			if !ok {
				return
			}
			digits, after, _ := bytes.Cut(rest, []byte(`"`))
			if ns, err := strconv.ParseInt(string(digits), 10, 64); err == nil {
				out = append(out, now.Sub(time.Unix(0, ns)))
			}
			p = after
		}
	})
	if err == nil && len(out) < 2 {
		err = errors.New("the stream held no stamped chunks")
	}
	if err != nil {
		return nil, err
	}
	return out[1:], nil
}

// budgetCancels measures how long the upstream takes to notice, mid-stream, that the client has
// closed its connection.
func (b *bench) budgetCancels(ctx context.Context, x proxies) error {
	const workers = 4
	c, err := x.callers(ctx, "leave", workers, "chunks=1000&gap_us=5000", true)
	if err != nil {
		return err
	}
	got, err := cancels(ctx, x.upstream.addr, x.own.addr, workers, max(1, b.cancels/workers), 3, func(w, n int) (string, []byte) {
		id := fmt.Sprintf("cancel-budget-%d-%d", w, n)
		return id, c.of(x, x.own, w, "X-Request-Id: "+id+"\r\n")
	})
	if err != nil {
		return err
	}
	for i, q := range quantiles {
		b.atMost(5, fmt.Sprintf("client gone until the upstream is closed, p%g", q*100), micros(got.at(q))/1000, "ms", budgetCancel[i], "")
	}
	return nil
}
