package main

import (
	"context"
	"slices"
)

// benchHistory is part 1: the history of 32 messages against a bare chi handler that writes the same bytes.
func (b *bench) benchHistory(ctx context.Context) error {
	b.sayf("\n1. GET history of 32 messages, 64 clients")
	p, _, err := b.startServer(ctx, b.db("history"), b.level)
	if err != nil {
		return err
	}
	agents, err := populate(ctx, p.addr, "history", 64, 32, 32, "")
	if err != nil {
		return err
	}
	peer, err := b.startRole(ctx, "bare")
	if err != nil {
		return err
	}
	get := func(addr string) func(int) []byte {
		return func(i int) []byte {
			return request("GET", agoraPath+"/agents/"+agents.ids[i]+"/history", addr, nil, "")
		}
	}
	size, err := b.teach(ctx, p.addr, get(p.addr)(0), peer.addr, "/history")
	if err != nil {
		return err
	}
	own := &contender{name: "heardlog", proc: p, load: load{addr: p.addr, clients: 64, total: b.requests, request: get(p.addr)}}
	other := &contender{name: "bare chi", proc: peer, load: load{addr: peer.addr, clients: 64, total: b.requests, request: get(peer.addr)}}
	if err := interleave(ctx, b.rounds, own, other); err != nil {
		return err
	}
	b.atLeast(1, "history, requests/s against bare chi", ratio(own.rates(), other.rates()), "x", 0.5,
		"%.0f/s against %.0f/s, %d bytes; CPU %.0f against %.0f µs", median(own.rates()), median(other.rates()), size,
		median(own.cpus()), median(other.cpus()))
	return nil
}

// teach takes Heardlog's answer to a request and lets the bare handler answer the same.
func (b *bench) teach(ctx context.Context, from string, req []byte, to, path string) (int, error) {
	c, err := dial(ctx, from)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := wantOK(c, req); err != nil {
		return 0, err
	}
	body := slices.Clone(c.body)
	peer, err := dial(ctx, to)
	if err != nil {
		return 0, err
	}
	defer peer.Close()
	return len(body), wantOK(peer, request("PUT", path, to, body, ""))
}
