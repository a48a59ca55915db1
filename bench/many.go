package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// manyChunks is the number of chunks of each stream of part 6.
const manyChunks = 8

// benchMany is part 6: many live streams at once. It counts the streams that were lost and watches
// the memory. The servers are new.
func (b *bench) benchMany(ctx context.Context) error {
	b.sayf("\n6. %d streams at once with %d messages put in front", b.live, memoryLen)
	x, err := b.startProxies(ctx)
	if err != nil {
		return err
	}
	c, err := x.callers(ctx, "many", b.live, fmt.Sprintf("chunks=%d&gap_us=%d", manyChunks, b.gapUS), true)
	if err != nil {
		return err
	}
	own, err := many(ctx, x.own, b.live, b.streams, b.gapUS, func(i int) []byte { return c.of(x, x.own, i, "") })
	if err != nil {
		return err
	}
	peer, err := many(ctx, x.reverse, b.live, b.live*2, b.gapUS, func(i int) []byte { return c.of(x, x.reverse, i, "") })
	if err != nil {
		return err
	}
	b.atMost(6, fmt.Sprintf("streams lost of %d, %d at once", b.streams, b.live), float64(own.lost), "", 0,
		"%.0f s; first token p50 %.1f, p99 %.0f ms; %.0f µs CPU a chunk", own.took.Seconds(), micros(own.first.at(.5))/1000, micros(own.first.at(.99))/1000,
		micros(own.cpu)/float64(b.streams*manyChunks))
	b.atMost(6, fmt.Sprintf("RSS with %d streams", b.live), own.rss, "MB", 85, "ReverseProxy %.0f MB, first token p50 %.1f, p99 %.0f ms, %.0f µs CPU a chunk",
		peer.rss, micros(peer.first.at(.5))/1000, micros(peer.first.at(.99))/1000, micros(peer.cpu)/float64(b.live*2*manyChunks))
	return nil
}

// manyResult is the result of many.
type manyResult struct {
	lost  int64
	first samples
	rss   float64 // MB, the highest seen
	took  time.Duration
	cpu   time.Duration
}

func many(ctx context.Context, p *process, live, total, gapUS int, req func(int) []byte) (manyResult, error) {
	var left, lost atomic.Int64
	left.Store(int64(total))
	firsts := make([]samples, live)
	errs := make([]error, live)
	before, err := p.cpu()
	if err != nil {
		return manyResult{}, err
	}
	start := time.Now()
	var wg sync.WaitGroup
	for i := range live {
		wg.Go(func() {
			// They start spread over the length of one stream, as calls do.
			time.Sleep(time.Duration(i*manyChunks*gapUS/live) * time.Microsecond)
			r := req(i)
			var c *conn
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				if c == nil {
					if c, errs[i] = dial(ctx, p.addr); errs[i] != nil {
						return
					}
				}
				t := time.Now()
				first, err := wantStream(c, r, manyChunks)
				switch {
				case errors.Is(err, errLost):
					lost.Add(1)
					_ = c.Close()
					c = nil
					continue
				case err != nil:
					errs[i] = err
					return
				}
				firsts[i] = append(firsts[i], first.Sub(t))
			}
			if c != nil {
				_ = c.Close()
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	out := manyResult{}
	out.rss, err = peak(p, done)
	<-done
	out.took, out.lost = time.Since(start), lost.Load()
	after, cpuErr := p.cpu()
	out.cpu = after - before
	for _, f := range firsts {
		out.first = append(out.first, f...)
	}
	return out, errors.Join(append(errs, err, cpuErr, ctx.Err())...)
}

// peak returns the highest resident memory until done, in MB.
func peak(p *process, done <-chan struct{}) (float64, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	highest := 0.0
	for {
		now, err := p.memory("VmRSS")
		if err != nil {
			return 0, err
		}
		highest = max(highest, now)
		select {
		case <-done:
			return highest, nil
		case <-tick.C:
		}
	}
}

// benchCancel measures how long the upstream takes to notice that the client of a call went away.
func (b *bench) benchCancel(ctx context.Context, x proxies) error {
	const workers = 4
	for _, kind := range []struct {
		name, query string
		stream      bool
		chunks      int // read before leaving
	}{
		{"before the first token", "chunks=5&first_us=3000000", true, 0},
		{"mid-stream", "chunks=1000&gap_us=5000", true, 3},
		{"unary", "first_us=3000000", false, 0},
		{"within an unary answer", "gap_us=3000000", false, 0},
	} {
		c, err := x.callers(ctx, "cancel "+strings.ReplaceAll(kind.name, " ", "-"), workers, kind.query, kind.stream)
		if err != nil {
			return err
		}
		var figures [2]samples
		for i, p := range []*process{x.own, x.reverse} {
			if figures[i], err = cancels(ctx, x.upstream.addr, p.addr, workers, b.cancels/workers, kind.chunks, func(w, n int) (string, []byte) {
				id := fmt.Sprintf("cancel-%s-%s-%d-%d", p.name, strings.ReplaceAll(kind.name, " ", "-"), w, n)
				return id, c.of(x, p, w, "X-Request-Id: "+id+"\r\n")
			}); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		b.atMost(3, "cancel seen upstream, "+kind.name+", p99", micros(figures[0].at(.99))/1000, "ms", 5,
			"p50 %.2f ms; ReverseProxy p50 %.2f, p99 %.2f ms", micros(figures[0].at(.5))/1000, micros(figures[1].at(.5))/1000, micros(figures[1].at(.99))/1000)
	}
	return nil
}

func cancels(ctx context.Context, upstream, addr string, workers, each, chunks int, req func(w, n int) (string, []byte)) (samples, error) {
	out := make([]samples, workers)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			ask, err := dial(ctx, upstream)
			if err != nil {
				errs[w] = err
				return
			}
			defer ask.Close()
			for n := range each {
				id, r := req(w, n)
				d, err := cancelOne(ctx, ask, upstream, addr, id, r, chunks)
				if err != nil {
					errs[w] = err
					return
				}
				out[w] = append(out[w], d)
			}
		})
	}
	wg.Wait()
	var all samples
	for _, s := range out {
		all = append(all, s...)
	}
	return all, errors.Join(errs...)
}

// cancelOne makes a call, leaves it, and asks the upstream when it noticed. Both clocks are this
// machine's.
func cancelOne(ctx context.Context, ask *conn, upstream, addr, id string, req []byte, chunks int) (time.Duration, error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	seen := request("GET", "/seen?id="+id, upstream, nil, "")
	if chunks == 0 {
		if _, err := c.Write(req); err != nil {
			return 0, err
		}
		// The upstream must have the call before the client leaves.
		if err := poll(ctx, ask, seen, http.StatusNoContent); err != nil {
			return 0, fmt.Errorf("the upstream never saw %s: %w", id, err)
		}
		time.Sleep(5 * time.Millisecond)
	} else {
		if _, err := c.send(req); err != nil {
			return 0, err
		}
		for range chunks {
			if _, err := c.chunk(func([]byte) {}); err != nil {
				return 0, err
			}
		}
	}
	left := time.Now()
	if err := c.Close(); err != nil {
		return 0, err
	}
	if err := poll(ctx, ask, seen, http.StatusOK); err != nil {
		return 0, fmt.Errorf("the upstream never saw the end of %s: %w", id, err)
	}
	var ns int64
	_, err = fmt.Sscan(string(ask.body), &ns)
	return time.Unix(0, ns).Sub(left), err
}

// poll asks until the status is the wanted one, for at most two and a half seconds.
func poll(ctx context.Context, c *conn, req []byte, want int) error {
	for range 500 {
		status, err := c.do(req)
		if err != nil || status == want {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return errors.New("not within 2.5 s")
}
