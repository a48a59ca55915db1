package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// interruptsOf measures how long a stream through one server goes on after it is interrupted
// through another: from the request to interrupt until the reader sees the stream's end.
func (b *bench) interruptsOf(ctx context.Context, part int, base string, p *process) error {
	const workers = 4
	other, _, err := b.startOn(ctx, base, b.db(fmt.Sprintf("other-%d", part)), b.level)
	if err != nil {
		return err
	}
	up, err := b.startRole(ctx, "upstream")
	if err != nil {
		return err
	}
	agents, err := populate(ctx, p.addr, "cut", workers, nil, 32, "http://"+up.addr+"/v1/chat/completions?chunks=2000&gap_us=5000")
	if err != nil {
		return err
	}
	// The servers need a moment to find each other.
	if err := b.waitForPeers(ctx, p, other, agents.ids[0]); err != nil {
		return err
	}
	var p50, p90, p99, longest []float64
	for range b.rounds {
		got, err := interruptRound(ctx, p.addr, other.addr, agents.ids, max(b.cancels/workers, 1))
		if err != nil {
			return err
		}
		for at, to := range map[float64]*[]float64{.5: &p50, .9: &p90, .99: &p99, 1: &longest} {
			*to = append(*to, micros(got.at(at))/1000)
		}
	}
	b.atMost(part, "interrupt of a stream through another server, p99", median(p99), "ms", 100, "p50 %.1f, p90 %.1f, longest of all %.1f ms; %d rounds of %d cuts, %d at a time",
		median(p50), median(p90), slices.Max(longest), b.rounds, b.cancels, workers)
	return nil
}

// interruptRound makes and cuts streams, one of each agent at a time.
func interruptRound(ctx context.Context, at, other string, agents []string, each int) (all samples, err error) {
	out := make([]samples, len(agents))
	errs := make([]error, len(agents))
	var wg sync.WaitGroup
	for w, id := range agents {
		wg.Go(func() {
			for n := 0; n < each && errs[w] == nil; n++ {
				var d time.Duration
				d, errs[w] = interruptOne(ctx, at, other, id)
				out[w] = append(out[w], d)
			}
		})
	}
	wg.Wait()
	return slices.Concat(out...), errors.Join(errs...)
}

// waitForPeers interrupts streams until that works across servers.
func (b *bench) waitForPeers(ctx context.Context, p, other *process, id string) error {
	for range 20 {
		d, err := interruptOne(ctx, p.addr, other.addr, id)
		if err == nil && d < time.Second {
			return nil
		}
		if err != nil && !errors.Is(err, errUncut) {
			return err
		}
	}
	return errors.New("a stream through one server is not interrupted through the other")
}

// errUncut is a stream that went on although it was interrupted.
var errUncut = errors.New("the stream was not cut")

// interruptOne starts a stream at one server, interrupts it at the other, and returns how long its
// end took.
func interruptOne(ctx context.Context, at, other, id string) (time.Duration, error) {
	stream, err := dial(ctx, at)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	h, err := stream.send(request("POST", "/v1/agents/"+id+"/chat/completions", at, chatBody(true), ""))
	if err != nil {
		return 0, err
	}
	for range 3 {
		if n, err := stream.chunk(func([]byte) {}); err != nil || n == 0 || h.status != 200 {
			return 0, fmt.Errorf("status %d, a chunk of %d bytes: %w", h.status, n, err)
		}
	}
	c, err := dial(ctx, other)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- wantOK(c, request("POST", "/v1/agents/"+id+"/interrupt", other, []byte("{}"), "")) }()
	took := time.Duration(0)
	for took == 0 {
		n, err := stream.chunk(func([]byte) {})
		switch {
		case n == 0 || err != nil: // the end, well formed or not
			took = time.Since(start)
		case time.Since(start) > 5*time.Second:
			return 0, errors.Join(errUncut, stream.Close(), <-done)
		}
	}
	return took, <-done
}
