package main

import (
	"context"
	"encoding/json"
)

// benchAppend is part 2: durable appends against one transaction an append and against a bare chi handler, and the
// latency that a lone client sees against the disk's own.
func (b *bench) benchAppend(ctx context.Context) error {
	b.sayf("\n2. durable append of one message a request, 64 clients with an agent each")
	p, _, err := b.startServer(ctx, b.db("append"), b.level)
	if err != nil {
		return err
	}
	agents, err := populate(ctx, p.addr, "append", 65, 0, 32, "")
	if err != nil {
		return err
	}
	peer, err := b.startRole(ctx, "bare")
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
	if _, err := b.teach(ctx, p.addr, post(p.addr)(64), peer.addr, "/appended"); err != nil {
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
	for round := range b.rounds { // the store alone takes its turn between the servers
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
	return b.benchLone(ctx, p, peer, post(p.addr))
}

// benchLone measures one client that waits for each answer.
func (b *bench) benchLone(ctx context.Context, p, peer *process, post func(int) []byte) error {
	empty := func(int) []byte { return request("GET", "/empty", peer.addr, nil, "") }
	own := &contender{name: "heardlog", proc: p, load: load{addr: p.addr, clients: 1, total: b.requests / 15, request: post}}
	trip := &contender{name: "empty round trip", proc: peer, load: load{addr: peer.addr, clients: 1, total: b.requests / 15, request: empty}}
	var ratios, disk []float64
	for range b.rounds {
		if err := interleave(ctx, 1, own, trip); err != nil {
			return err
		}
		sync, err := b.fdatasync()
		if err != nil {
			return err
		}
		last := len(own.got) - 1
		disk = append(disk, micros(sync.at(.5)))
		ratios = append(ratios, micros(own.got[last].lat.at(.5))/(disk[last]+micros(trip.got[last].lat.at(.5))))
	}
	b.atMost(2, "append of one client, p50 against fdatasync + empty round trip", median(ratios), "x", 1.5,
		"%.0f µs against %.0f + %.0f µs; p99 %.0f µs", median(own.quantiles(.5)), median(disk), median(trip.quantiles(.5)), median(own.quantiles(.99)))
	return nil
}
