package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// watched is an agent with readers of its live tail.
type watched struct {
	id       string
	conns    []net.Conn
	received atomic.Int64 // messages that all readers got, in all
	wg       sync.WaitGroup
}

// benchTail is part 9: what readers of an agent's live tail cost those who append to it. One client
// appends to three agents in turn: with no reader, with one and with many. It appends as fast as it
// can, and at a steady rate. The readers share the machine with the server and the client.
func (b *bench) benchTail(ctx context.Context) error {
	b.sayf("\n9. append to an agent with 0, 1 and %d readers of its live tail, one client", b.watchers)
	p, _, err := b.startServer(ctx, b.db("tail"), b.level)
	if err != nil {
		return err
	}
	crowds := []int{0, 1, b.watchers}
	agents, err := populate(ctx, p.addr, "tail", len(crowds), nil, 32, "")
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"role": "user", "content": sentence, "source": "asr", "timestamp": 1780000000000})
	if err != nil {
		return err
	}
	total, steady := b.requests/15, b.requests/100
	var fast, slow []*contender
	var crowd []*watched
	for i, n := range crowds {
		w := &watched{id: agents.ids[i]}
		defer w.close()
		if err := w.watch(ctx, p.addr, n); err != nil {
			return err
		}
		req := func(int) []byte { return request("POST", "/v1/agents/"+w.id+"/messages", p.addr, body, "") }
		crowd = append(crowd, w)
		fast = append(fast, &contender{name: fmt.Sprint(n, " readers"), proc: p, load: load{addr: p.addr, clients: 1, total: total, request: req}})
		slow = append(slow, &contender{name: fmt.Sprint(n, " readers"), proc: p, load: load{addr: p.addr, clients: 1, total: steady, request: req}})
	}
	if err := steadily(ctx, b.rounds, steady, 20*time.Millisecond, slow); err != nil {
		return err
	}
	if err := interleave(ctx, b.rounds, fast...); err != nil {
		return err
	}
	warm := func(n int) int { return max(1, n/4) }
	appended := int64(b.rounds*(total+steady) + warm(total) + warm(steady))
	for i, w := range crowd[1:] {
		want := appended * int64(crowds[i+1])
		for end := time.Now().Add(30 * time.Second); w.received.Load() < want && time.Now().Before(end) && ctx.Err() == nil; {
			time.Sleep(10 * time.Millisecond)
		}
		if got := w.received.Load(); got != want {
			return fmt.Errorf("%d readers received %d messages instead of %d", crowds[i+1], got, want)
		}
	}
	for i, n := range crowds[1:] {
		who := fmt.Sprintf("%d readers", n)
		if n == 1 {
			who = "one reader"
		}
		none, some := slow[0], slow[i+1]
		b.atMost(9, "append at 50/s, p50 with "+who+" against none", ratio(some.quantiles(.5), none.quantiles(.5)), "x", 1.15,
			"%.0f against %.0f µs; p99 %.0f against %.0f µs; server's CPU an append %.0f against %.0f µs", median(some.quantiles(.5)), median(none.quantiles(.5)),
			median(some.quantiles(.99)), median(none.quantiles(.99)), median(some.cpus()), median(none.cpus()))
		none, some = fast[0], fast[i+1]
		least := 0.8
		if n > 1 {
			least = 0.2 // each append is then many events to write and read, on the same cores
		}
		b.atLeast(9, "append, as fast as one client can, with "+who+" against none", ratio(some.rates(), none.rates()), "x", least,
			"%.0f/s against %.0f/s; p50 %.0f against %.0f µs, p99 %.0f against %.0f µs; server's CPU an append %.0f against %.0f µs",
			median(some.rates()), median(none.rates()), median(some.quantiles(.5)), median(none.quantiles(.5)), median(some.quantiles(.99)), median(none.quantiles(.99)),
			median(some.cpus()), median(none.cpus()))
	}
	return nil
}

// steadily runs the contenders in turn, each with a pause before each request, and records the
// latencies.
func steadily(ctx context.Context, rounds, total int, gap time.Duration, list []*contender) error {
	for r := -1; r < rounds; r++ {
		for _, c := range list {
			one, err := dial(ctx, c.load.addr)
			if err != nil {
				return err
			}
			n, lat := total, samples(nil)
			if r < 0 {
				n = max(1, total/4)
			}
			before, err := c.proc.cpu()
			req := c.load.request(0)
			for i := 0; i < n && err == nil && ctx.Err() == nil; i++ {
				time.Sleep(gap)
				start := time.Now()
				err = wantOK(one, req)
				lat = append(lat, time.Since(start))
			}
			after, cpuErr := c.proc.cpu()
			if err := errors.Join(err, cpuErr, one.Close(), ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if r >= 0 {
				c.got = append(c.got, result{lat: lat, cpu: (after - before) / time.Duration(n)})
			}
		}
	}
	return nil
}

// watch opens n live tails and reads them until close.
func (w *watched) watch(ctx context.Context, addr string, n int) error {
	req := request("GET", "/v1/agents/"+w.id+"/events?types=message", addr, nil, "")
	for range n {
		c, err := dial(ctx, addr)
		if err != nil {
			return err
		}
		h, err := c.send(req)
		if err == nil && h.status != 200 {
			err = fmt.Errorf("a live tail was answered with %d", h.status)
		}
		if err == nil {
			err = c.SetDeadline(time.Time{})
		}
		if err != nil {
			return errors.Join(err, c.Close())
		}
		w.conns = append(w.conns, c)
		w.wg.Go(func() { w.read(c, h) })
	}
	return nil
}

// read counts the messages until the connection is closed.
func (w *watched) read(c *conn, h header) {
	name := []byte("event: message\n")
	var tail []byte // the end of the piece before, in which the name may begin
	err := c.read(h, func(b []byte) {
		tail = append(tail, b...)
		w.received.Add(int64(bytes.Count(tail, name)))
		keep := min(len(tail), len(name)-1)
		tail = append(tail[:0], tail[len(tail)-keep:]...)
	})
	if !errors.Is(err, net.ErrClosed) {
		w.received.Store(-1 << 40) // so that the count is wrong
	}
}

func (w *watched) close() {
	for _, c := range w.conns {
		_ = c.Close() // the readers end
	}
	w.wg.Wait()
}
