package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// benchRestart is part 4: many running agents, a kill, and what the next start costs in time,
// memory and latency.
func (b *bench) benchRestart(ctx context.Context) error {
	const messages = 100
	b.sayf("\n4. %d running agents with %d messages each", b.agents, messages)
	p, _, err := b.startServer(ctx, b.db("restart"), b.level)
	if err != nil {
		return err
	}
	start := time.Now()
	agents, err := populate(ctx, p.addr, "restart", b.agents, messagesBody(messages), 32, "")
	if err != nil {
		return err
	}
	b.sayf("  made in %.1f s through the API (join, then one batch)", time.Since(start).Seconds())
	// One hot agent, before the kill.
	hot := func(int) []byte {
		return request("GET", agoraPath+"/agents/"+agents.ids[0]+"/history", p.addr, nil, "")
	}
	before, err := load{addr: p.addr, clients: 16, total: b.requests / 2, request: hot}.run(ctx, p)
	if err != nil {
		return err
	}
	p.stop(true)
	p, took, err := b.startServer(ctx, b.db("restart"), b.level)
	if err != nil {
		return err
	}
	rss, err := p.memory("VmRSS")
	if err != nil {
		return err
	}
	b.atMost(4, "start after kill -9, until ready", took.Seconds(), "s", 5, "%.0f MB resident then", rss)
	random := func(c *conn, _ []byte) error {
		id := agents.ids[rand.IntN(len(agents.ids))]
		return wantOK(c, request("GET", agoraPath+"/agents/"+id+"/history", p.addr, nil, ""))
	}
	after, err := load{addr: p.addr, clients: 16, total: b.requests, request: hot, read: random}.run(ctx, p)
	if err != nil {
		return err
	}
	hotAfter, err := load{addr: p.addr, clients: 16, total: b.requests / 2, request: hot}.run(ctx, p)
	if err != nil {
		return err
	}
	peak, err := p.memory("VmHWM")
	if err != nil {
		return err
	}
	b.atMost(4, "memory, at its peak, after histories of random agents", peak, "MB", 300, "")
	b.atMost(4, "history p99, random agents against one hot agent", micros(after.lat.at(.99))/micros(before.lat.at(.99)), "x", 2,
		"%.1f ms (p50 %.2f) against %.1f ms (p50 %.2f), 16 clients; the hot agent alone afterwards %.1f ms",
		micros(after.lat.at(.99))/1000, micros(after.lat.at(.5))/1000, micros(before.lat.at(.99))/1000, micros(before.lat.at(.5))/1000, micros(hotAfter.lat.at(.99))/1000)
	return nil
}
