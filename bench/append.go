package main

import (
	"context"
	"encoding/json"
)

// benchAppend is part 2: durable appends, against one transaction an append and against a bare chi
// handler; and the latency of a single client, against the disk's.
func (b *bench) benchAppend(ctx context.Context) error {
	b.sayf("\n2. durable append of one message a request, 64 clients with an agent each")
	p, _, err := b.startServer(ctx, b.db("append"), b.level)
	if err != nil {
		return err
	}
	agents, err := populate(ctx, p.addr, "append", 65, nil, 32, "")
	if err != nil {
		return err
	}
	peer, err := b.startRole(ctx, "bare", "-dir", b.dir)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"role": "user", "content": sentence, "source": "asr", "timestamp": 1780000000000, "metadata": map[string]string{"publisher": "1001"},
	})
	if err != nil {
		return err
	}
	post := func(addr string) func(int) []byte {
		return func(i int) []byte {
			return request("POST", agoraPath+"/agents/"+agents.ids[i]+"/messages", addr, body, "")
		}
	}
	if _, err := b.copyAnswer(ctx, p.addr, post(p.addr)(64), peer.addr, "/appended"); err != nil {
		return err
	}
	own := &contender{name: "heardlog", proc: p, load: load{addr: p.addr, clients: 64, total: b.requests, request: post(p.addr)}}
	other := &contender{name: "bare chi", proc: peer, load: load{addr: peer.addr, clients: 64, total: b.requests, request: post(peer.addr)}}
	one, err := openSingle(ctx, b.db("single"))
	if err != nil {
		return err
	}
	defer one.db.Close()
	var singles []float64
	for round := range b.rounds { // the store alone has its turn between the servers
		if err := interleave(ctx, 1, own, other); err != nil {
			return err
		}
		rate, err := one.run(ctx, round, 64, b.requests/8, string(body))
		if err != nil {
			return err
		}
		singles = append(singles, rate)
	}
	b.atLeast(2, "append, rate against one transaction each", ratio(own.rates(), singles), "x", 6,
		"%.0f/s (p50 %.0f, p99 %.0f µs) against %.0f/s", median(own.rates()), median(own.quantiles(.5)), median(own.quantiles(.99)), median(singles))
	b.atLeast(2, "append, requests/s against bare chi", ratio(own.rates(), other.rates()), "x", 0.6,
		"%.0f/s against %.0f/s; CPU %.0f against %.0f µs", median(own.rates()), median(other.rates()), median(own.cpus()), median(other.cpus()))
	if err := b.benchStd(ctx, 2, "append", 0.6, own, other, body); err != nil {
		return err
	}
	return b.benchLone(ctx, p, peer, post(p.addr))
}

// benchLone measures one client that waits for each answer. It is compared with the disk and the
// round trip measured apart, and with both in one request: waking up after the disk costs time that
// the sum of the two does not include.
func (b *bench) benchLone(ctx context.Context, p, peer *process, post func(int) []byte) error {
	get := func(path string) func(int) []byte {
		return func(int) []byte { return request("GET", path, peer.addr, nil, "") }
	}
	one := func(name string, p *process, req func(int) []byte) *contender {
		return &contender{name: name, proc: p, load: load{addr: p.addr, clients: 1, total: b.requests / 15, request: req}}
	}
	own, trip, both := one("heardlog", p, post), one("empty round trip", peer, get("/empty")), one("synced round trip", peer, get("/synced"))
	var apart, disk []float64
	for range b.rounds {
		if err := interleave(ctx, 1, own, trip, both); err != nil {
			return err
		}
		sync, err := b.fdatasync()
		if err != nil {
			return err
		}
		last := len(own.got) - 1
		disk = append(disk, micros(sync.at(.5)))
		apart = append(apart, micros(own.got[last].lat.at(.5))/(disk[last]+micros(trip.got[last].lat.at(.5))))
	}
	p50 := own.quantiles(.5)
	b.atMost(2, "append of one client, p50 against fdatasync + empty round trip", median(apart), "x", 1.5,
		"%.0f µs against %.0f + %.0f µs; p99 %.0f µs", median(p50), median(disk), median(trip.quantiles(.5)), median(own.quantiles(.99)))
	b.atMost(2, "the same, the two measured in one call", ratio(p50, both.quantiles(.5)), "x", 1.5,
		"%.0f against %.0f µs", median(p50), median(both.quantiles(.5)))
	return nil
}
