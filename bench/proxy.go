package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// burst is how many chunks a burst stream has, and memoryLen how many messages come before each
// question.
const (
	burst     = 52
	memoryLen = 20
)

// proxies are the fake upstream, and the two ways to it: the standard library's proxy and Heardlog.
type proxies struct {
	upstream, reverse, own *process
}

// chatBody returns a call of about 1 KB: a system message, a question and a tool.
func chatBody(stream bool) []byte {
	return fmt.Appendf(nil, `{"model":"bench-1","temperature":0.2,"max_tokens":256,"stream":%v,"messages":[{"role":"system","content":"%s"},{"role":"user","content":"%s"}],`+
		`"tools":[{"type":"function","function":{"name":"book","description":"Book an appointment","parameters":{"type":"object","properties":{`+
		`"day":{"type":"string","description":"The day, as YYYY-MM-DD"},"time":{"type":"string","description":"The time, as HH:MM"}},"required":["day","time"]}}}]}`,
		stream, strings.Repeat("You are the receptionist of a small practice. ", 8), sentence)
}

func (b *bench) startProxies(ctx context.Context) (x proxies, err error) {
	if x.upstream, err = b.startRole(ctx, "upstream"); err != nil {
		return x, err
	}
	if x.reverse, err = b.startRole(ctx, "reverseproxy", "-upstream", x.upstream.addr); err != nil {
		return x, err
	}
	x.own, _, err = b.startServer(ctx, b.db("proxy"), b.level)
	return x, err
}

// callers makes the requests of a comparison: the same body for all, with an agent for each caller
// of Heardlog.
type callers struct {
	agents population
	path   string // of the upstream, with the query that says how it answers
	body   []byte
}

func (x proxies) callers(ctx context.Context, name string, n int, query string, stream bool) (callers, error) {
	c := callers{path: "/v1/chat/completions?" + query, body: chatBody(stream)}
	var err error
	// The window counts the question too.
	c.agents, err = populate(ctx, x.own.addr, name, n, messagesBody(memoryLen), memoryLen+1, "http://"+x.upstream.addr+c.path)
	return c, err
}

// of returns caller i's request to a process; extra holds more header lines.
func (c callers) of(x proxies, p *process, i int, extra string) []byte {
	if p == x.own {
		return request("POST", "/v1/agents/"+c.agents.ids[i]+"/chat/completions", p.addr, c.body, extra)
	}
	return request("POST", c.path, p.addr, c.body, extra)
}

// contenders returns the three ways under the same load.
func (c callers) contenders(x proxies, clients, total int, read func(*conn, []byte) error) (direct, reverse, own *contender) {
	way := func(name string, p *process) *contender {
		return &contender{name: name, proc: p, load: load{
			addr: p.addr, clients: clients, total: total, read: read,
			request: func(i int) []byte { return c.of(x, p, i, "") },
		}}
	}
	return way("direct", x.upstream), way("ReverseProxy", x.reverse), way("heardlog", x.own)
}

// benchProxy is part 3.
func (b *bench) benchProxy(ctx context.Context) error {
	b.sayf("\n3. proxy with %d messages put in front; Heardlog's figures include its two durable writes a call", memoryLen)
	x, err := b.startProxies(ctx)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context, proxies) error{b.benchUnary, b.benchBurst, b.benchFirstToken, b.benchCancel} {
		if err := part(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) benchUnary(ctx context.Context, x proxies) error {
	c, err := x.callers(ctx, "unary", 64, "", false)
	if err != nil {
		return err
	}
	direct, reverse, own := c.contenders(x, 64, b.calls, nil)
	if err := interleave(ctx, b.rounds, direct, reverse, own); err != nil {
		return err
	}
	b.sayf("  direct, unary: %.0f/s", median(direct.rates()))
	b.compare("unary, 64 clients", reverse, own)
	return nil
}

func (b *bench) benchBurst(ctx context.Context, x proxies) error {
	c, err := x.callers(ctx, "burst", 32, fmt.Sprintf("chunks=%d", burst), true)
	if err != nil {
		return err
	}
	direct, reverse, own := c.contenders(x, 32, b.calls/2, func(c *conn, req []byte) error {
		_, err := wantStream(c, req, burst)
		return err
	})
	if err := interleave(ctx, b.rounds, direct, reverse, own); err != nil {
		return err
	}
	b.sayf("  direct, streams of %d chunks: %.0f/s", burst, median(direct.rates()))
	b.compare("streams in a burst, 32 clients", reverse, own)
	b.atMost(3, "CPU a burst chunk", median(own.cpus())/burst, "µs", 8, "ReverseProxy %.1f µs", median(reverse.cpus())/burst)
	return nil
}

func (b *bench) compare(what string, reverse, own *contender) {
	b.atLeast(3, what+", requests/s against ReverseProxy", ratio(own.rates(), reverse.rates()), "x", 1,
		"%.0f/s against %.0f/s", median(own.rates()), median(reverse.rates()))
	b.atMost(3, what+", CPU a request against ReverseProxy", ratio(own.cpus(), reverse.cpus()), "x", 1,
		"%.0f against %.0f µs", median(own.cpus()), median(reverse.cpus()))
}

// errLost is a stream that ended without all of its chunks and [DONE].
var errLost = errors.New("the stream was cut")

// wantStream reads a stream to its end and returns when its first event came.
func wantStream(c *conn, req []byte, chunks int) (first time.Time, err error) {
	h, err := c.send(req)
	if err != nil {
		return first, err
	}
	c.body = c.body[:0]
	err = c.read(h, func(p []byte) {
		if first.IsZero() {
			first = time.Now()
		}
		c.body = append(c.body, p...)
	})
	switch {
	case err != nil:
		return first, errors.Join(errLost, err)
	case h.status != 200:
		return first, fmt.Errorf("status %d: %.300s", h.status, c.body)
	case !bytes.HasSuffix(c.body, []byte("data: [DONE]\n\n")) || bytes.Count(c.body, []byte("data: ")) != chunks+2:
		return first, errLost
	case h.closing:
		return first, errors.New("the server closes the connection")
	}
	return first, nil
}

// benchFirstToken measures the time to the first token at a moderate rate in an open loop: calls
// start on time, whether or not earlier ones have ended.
func (b *bench) benchFirstToken(ctx context.Context, x proxies) error {
	const rate, clients = 200, 64
	c, err := x.callers(ctx, "first", clients, "chunks=10&gap_us=5000", true)
	if err != nil {
		return err
	}
	ways := []*process{x.upstream, x.reverse, x.own}
	all := make([]samples, len(ways))
	var p50, p99 [3][]float64
	for round := -1; round < b.rounds; round++ {
		for i, p := range ways {
			got, err := openLoop(ctx, p.addr, clients, b.paced, rate, func(n, _ int) []byte { return c.of(x, p, n, "") })
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if round < 0 {
				continue
			}
			all[i] = append(all[i], got...)
			p50[i] = append(p50[i], micros(got.at(.5))/1000)
			p99[i] = append(p99[i], micros(got.at(.99))/1000)
		}
	}
	const note = "%.2f ms against %.2f direct and %.2f through ReverseProxy, %d/s in an open loop"
	b.atMost(3, "time to first token, added at p50", added(p50[2], p50[0]), "ms", 0.5, note,
		median(p50[2]), median(p50[0]), median(p50[1]), rate)
	b.atMost(3, "time to first token, added at p99", added(p99[2], p99[0]), "ms", 5, note,
		median(p99[2]), median(p99[0]), median(p99[1]), rate)
	return nil
}

// added returns the median of the rounds' differences.
func added(a, b []float64) float64 {
	out := slices.Clone(a)
	for i := range out {
		out[i] -= b[i]
	}
	return median(out)
}

// openLoop starts total calls at a rate and returns the time to the first token of each. req
// returns a client's call number n.
func openLoop(ctx context.Context, addr string, clients, total, rate int, req func(client, n int) []byte) (samples, error) {
	type client struct {
		*conn
		number, calls int
	}
	free := make(chan client, clients)
	for i := range clients {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		free <- client{c, i, 0}
	}
	out := make(samples, total)
	errs := make([]error, total)
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := range total {
		select {
		case <-tick.C:
		case <-ctx.Done():
			wg.Wait()
			return nil, ctx.Err()
		}
		c := <-free // there are far more clients than calls at a time, so this does not wait
		wg.Go(func() {
			defer func() { free <- client{c.conn, c.number, c.calls + 1} }()
			r := req(c.number, c.calls)
			start := time.Now()
			first, err := wantStream(c.conn, r, openChunks)
			out[i], errs[i] = first.Sub(start), err
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// openChunks is how many chunks the streams of an open loop have.
const openChunks = 10
