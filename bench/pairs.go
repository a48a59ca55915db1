package main

import (
	"context"
	"errors"
	"fmt"
)

// What part 11 appends: pairs to so many agents in turn, each with so many messages before.
const (
	pairAgents = 256
	pairPast   = 40
)

// pairTargets are what is wanted at 8 clients.
const (
	pairCPU = 150 // µs a pair
	pairP99 = 5   // ms
)

// benchPairs is part 11: appends of a user's message and its answer in one request, as SDKs send
// them, to many agents in turn, on SQLite and on PostgreSQL.
func (b *bench) benchPairs(ctx context.Context) (err error) {
	b.sayf("\n11. append of a pair in one request, %d agents in turn, each with %d messages before", pairAgents, pairPast)
	p, _, err := b.startServer(ctx, b.db("pairs"), b.level)
	if err != nil {
		return err
	}
	if err := b.pairsOn(ctx, "SQLite", "", p); err != nil {
		return err
	}
	b.stopAll()
	base, drop, err := b.openSchema(ctx)
	if err != nil {
		b.sayf("  SKIPPED on PostgreSQL: no server answers at -postgres: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, drop()) }()
	defer b.stopAll() // before the schema is dropped
	if p, _, err = b.startOn(ctx, base, b.db("pairs-postgres"), b.level); err != nil {
		return err
	}
	return b.pairsOn(ctx, "PostgreSQL", base, p)
}

// pairsOn measures one store. base is the URL of the database whose CPU is shown too; "" for none.
func (b *bench) pairsOn(ctx context.Context, store, base string, p *process) error {
	body := []byte(`{"messages":[{"role":"user","content":"` + sentence + `"},{"role":"assistant","content":"` + reply(1) + `"}]}`)
	for _, clients := range []int{1, 8, 64} {
		agents, err := populate(ctx, p.addr, fmt.Sprintf("pairs-%d", clients), pairAgents, messagesBody(pairPast), 32, "")
		if err != nil {
			return err
		}
		requests := make([][]byte, pairAgents)
		for i, id := range agents.ids {
			requests[i] = request("POST", "/v1/agents/"+id+"/messages", p.addr, body, "")
		}
		total := b.requests / 5
		if clients == 1 {
			total = b.requests / 15
		}
		own := &contender{name: "heardlog", proc: p, load: load{
			addr: p.addr, clients: clients, total: total,
			each: func(_, n int) []byte { return requests[n%pairAgents] },
		}}
		before := cpuOf(ctx, base, "heardlog")
		if err := interleave(ctx, b.rounds, own); err != nil {
			return err
		}
		database := ""
		if base != "" {
			// Interleave begins with a quarter of a round.
			pairs := total*b.rounds + max(clients, total/4)
			database = fmt.Sprintf(", the database's CPU %.0f µs", micros(cpuOf(ctx, base, "heardlog")-before)/float64(pairs))
		}
		what := fmt.Sprintf("a pair on %s, clients: %d, ", store, clients)
		cpu, p99 := median(own.cpus()), median(own.quantiles(.99))/1000
		note := fmt.Sprintf("%.0f/s%s", median(own.rates()), database)
		latency := fmt.Sprintf("p50 %.2f ms", median(own.quantiles(.5))/1000)
		if clients == 8 {
			b.atMost(11, what+"CPU", cpu, "µs", pairCPU, "%s", note)
			b.atMost(11, what+"p99", p99, "ms", pairP99, "%s", latency)
			continue
		}
		b.show(11, what+"CPU", cpu, "µs", "%s", note)
		b.show(11, what+"p99", p99, "ms", "%s", latency)
	}
	return nil
}
