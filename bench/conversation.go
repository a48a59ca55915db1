package main

import (
	"context"
	"fmt"
	"strconv"
)

// conversationTarget is how much CPU a proxied call may take, as a multiple of the ReverseProxy's.
const conversationTarget = 1.6

// benchConversation is part 12: answers in one piece to clients with one conversation each.
// Heardlog is sent the new question and puts the messages before it in front; the ReverseProxy,
// which remembers nothing, is sent the whole list.
func (b *bench) benchConversation(ctx context.Context) error {
	const clients = 8
	b.sayf("\n12. proxied answer in one piece, %d clients with a conversation each, %d messages before the question", clients, memoryLen)
	x, err := b.startProxies(ctx)
	if err != nil {
		return err
	}
	const path = "/v1/chat/completions"
	agents, err := populate(ctx, x.own.addr, "conversation", clients, messagesBody(memoryLen), memoryLen+1, "http://"+x.upstream.addr+path)
	if err != nil {
		return err
	}
	way := func(name string, p *process, each func(client, n int) []byte) *contender {
		return &contender{name: name, proc: p, load: load{addr: p.addr, clients: clients, total: b.calls, each: each}}
	}
	whole := func(p *process) func(int, int) []byte {
		return func(_, n int) []byte { return request("POST", path, p.addr, askBody(memoryLen, n), "") }
	}
	direct := way("direct", x.upstream, whole(x.upstream))
	reverse := way("ReverseProxy", x.reverse, whole(x.reverse))
	own := way("heardlog", x.own, func(client, n int) []byte {
		return request("POST", "/v1/agents/"+agents.ids[client]+"/chat/completions", x.own.addr, askBody(0, n), "")
	})
	if err := interleave(ctx, b.rounds, direct, reverse, own); err != nil {
		return err
	}
	b.sayf("  direct: %.0f/s, p50 %.2f ms", median(direct.rates()), median(direct.quantiles(.5))/1000)
	b.atMost(12, "CPU a call against ReverseProxy with the whole list", ratio(own.cpus(), reverse.cpus()), "x", conversationTarget,
		"%.0f against %.0f µs", median(own.cpus()), median(reverse.cpus()))
	b.show(12, "CPU a call", median(own.cpus()), "µs", "%.0f/s; ReverseProxy %.0f/s", median(own.rates()), median(reverse.rates()))
	b.show(12, "p99 of a call", median(own.quantiles(.99))/1000, "ms", "p50 %.2f ms; ReverseProxy p50 %.2f, p99 %.2f ms",
		median(own.quantiles(.5))/1000, median(reverse.quantiles(.5))/1000, median(reverse.quantiles(.99))/1000)
	return nil
}

// askBody returns a call that asks question n, after so many earlier messages.
func askBody(before, n int) []byte {
	body := []byte(`{"model":"bench-1","messages":[{"role":"system","content":"You are the receptionist of a small practice."}`)
	for i := range before {
		role, text := "user", sentence
		if i%2 == 1 {
			role = "assistant"
		}
		body = fmt.Appendf(body, `,{"role":%q,"content":%q}`, role, text)
	}
	return append(body, `,{"role":"user","content":"Question `+strconv.Itoa(n)+`. `+sentence+`"}]}`...)
}
