package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// benchHistory is part 1: the history of 32 messages against a bare chi handler that writes the
// same bytes.
func (b *bench) benchHistory(ctx context.Context) error {
	b.sayf("\n1. GET history of 32 messages, 64 clients")
	p, _, err := b.startServer(ctx, b.db("history"), b.level)
	if err != nil {
		return err
	}
	agents, err := populate(ctx, p.addr, "history", 64, messagesBody(32), 32, "")
	if err != nil {
		return err
	}
	peer, err := b.startRole(ctx, "bare", "-dir", b.dir)
	if err != nil {
		return err
	}
	get := func(addr string) func(int) []byte {
		return func(i int) []byte {
			return request("GET", agoraPath+"/agents/"+agents.ids[i]+"/history", addr, nil, "")
		}
	}
	size, err := b.copyAnswer(ctx, p.addr, get(p.addr)(0), peer.addr, "/history")
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
	return b.benchStd(ctx, 1, "history", 0.5, own, other, nil)
}

// benchStd repeats a comparison with net/http's client, which most Go programs use. It costs about
// as much as the servers on the same two cores, and so brings every ratio nearer to one. Compare
// this figure with other reports.
func (b *bench) benchStd(ctx context.Context, part int, what string, limit float64, own, other *contender, body []byte) error {
	std := func(c *contender) *contender {
		l := c.load
		client := &http.Client{Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true}, Timeout: ioTimeout}
		raw := l.request
		l.request = func(i int) []byte { // the loop below needs only the address
			_, rest, _ := bytes.Cut(raw(i), []byte(" "))
			path, _, _ := bytes.Cut(rest, []byte(" "))
			return append([]byte("http://"+l.addr), path...)
		}
		l.total /= 2
		l.read = func(_ *conn, url []byte) error { return stdCall(ctx, client, string(url), body) }
		return &contender{name: c.name, proc: c.proc, load: l}
	}
	a, z := std(own), std(other)
	if err := interleave(ctx, b.rounds, a, z); err != nil {
		return err
	}
	b.atLeast(part, what+", the same with net/http's client", ratio(a.rates(), z.rates()), "x", limit,
		"%.0f/s against %.0f/s", median(a.rates()), median(z.rates()))
	return nil
}

// stdCall makes one request with net/http's client: a POST if there is a body.
func stdCall(ctx context.Context, client *http.Client, url string, body []byte) error {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}

// copyAnswer copies Heardlog's answer to a request, so that the bare handler answers the same.
func (b *bench) copyAnswer(ctx context.Context, from string, req []byte, to, path string) (int, error) {
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
