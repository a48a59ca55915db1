package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// samples are latencies.
type samples []time.Duration

// at returns a quantile, by nearest rank; 0 for no samples.
func (s samples) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// result is what one round of load measured.
type result struct {
	rate float64 // requests a second
	lat  samples
	cpu  time.Duration // of the process under load, for each request
}

// load is a closed loop: each client sends its next request when it has the answer to the last.
type load struct {
	addr    string
	clients int
	total   int
	// request returns what a client sends, again and again. If each is not nil, it is called for
	// every request instead; n counts the requests of all clients.
	request func(client int) []byte
	each    func(client, n int) []byte
	// read sends a request and checks the answer; nil wants status 200 and drops the body.
	read func(c *conn, req []byte) error
}

func (l load) run(ctx context.Context, p *process) (result, error) {
	conns := make([]*conn, l.clients)
	for i := range conns {
		c, err := dial(ctx, l.addr)
		if err != nil {
			return result{}, err
		}
		defer c.Close()
		conns[i] = c
	}
	if l.read == nil {
		l.read = wantOK
	}
	var left atomic.Int64
	left.Store(int64(l.total))
	lats := make([]samples, l.clients)
	errs := make([]error, l.clients)
	before, err := p.cpu()
	if err != nil {
		return result{}, err
	}
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			var req []byte
			if l.each == nil {
				req = l.request(i)
			}
			lat := make(samples, 0, l.total/l.clients+16)
			for ctx.Err() == nil {
				n := int(left.Add(-1))
				if n < 0 {
					break
				}
				if l.each != nil {
					req = l.each(i, l.total-1-n)
				}
				t := time.Now()
				if errs[i] = l.read(c, req); errs[i] != nil {
					break
				}
				lat = append(lat, time.Since(t))
			}
			lats[i] = lat
		})
	}
	wg.Wait()
	took := time.Since(start)
	after, err := p.cpu()
	if err != nil {
		return result{}, err
	}
	for i, err := range errs {
		if err != nil {
			return result{}, fmt.Errorf("client %d: %w", i, err)
		}
	}
	return result{
		rate: float64(l.total) / took.Seconds(), lat: slices.Concat(lats...), cpu: (after - before) / time.Duration(l.total),
	}, ctx.Err()
}

func wantOK(c *conn, req []byte) error {
	status, err := c.do(req)
	if err == nil && status != 200 {
		err = fmt.Errorf("status %d: %.300s", status, c.body)
	}
	return err
}

// contender is one side of a comparison.
type contender struct {
	name string
	load load
	proc *process
	got  []result
}

// interleave runs the contenders in turn, A B A B, so that other work of the machine slows all of
// them. Each first runs for a quarter of a round, to be warm.
func interleave(ctx context.Context, rounds int, list ...*contender) error {
	for r := -1; r < rounds; r++ {
		for _, c := range list {
			l := c.load
			if r < 0 {
				l.total = max(l.clients, l.total/4)
			}
			got, err := l.run(ctx, c.proc)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if r >= 0 {
				c.got = append(c.got, got)
			}
		}
	}
	return nil
}

func (c *contender) rates() []float64 {
	var out []float64
	for _, r := range c.got {
		out = append(out, r.rate)
	}
	return out
}

func (c *contender) cpus() []float64 {
	var out []float64
	for _, r := range c.got {
		out = append(out, micros(r.cpu))
	}
	return out
}

func (c *contender) quantiles(q float64) []float64 {
	var out []float64
	for _, r := range c.got {
		out = append(out, micros(r.lat.at(q)))
	}
	return out
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// ratio returns the median of the rounds' ratios: the two figures of a round were measured within
// the same seconds.
func ratio(a, b []float64) float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return median(out)
}
