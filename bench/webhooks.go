package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/heardlog/heardlog/memory"
)

// The targets of part 7. Those of the rates are this project's own: each delivery needs two durable writes, its claim and its result, so
// that without group commit half the disk's rate would be the most there is.
const (
	webhookRate      = .5
	webhookRateLarge = .1
	webhookWakeMS    = 5
	webhookWrites    = 2
	webhookOthers    = 1.2
)

// benchWebhooks is part 7: how fast deliveries are made, how soon a new one goes out, and what they cost others. Store, worker and receiver
// are in this process.
func (b *bench) benchWebhooks(ctx context.Context) error {
	b.sayf("\n7. webhooks: %d deliveries to eight endpoints of a receiver in this process", b.events)
	if err := b.webhookRates(ctx); err != nil {
		return err
	}
	if err := b.webhookWake(ctx); err != nil {
		return err
	}
	if err := b.webhookWrites(ctx); err != nil {
		return err
	}
	for _, way := range []struct{ what, path string }{{"silent", "/silent"}, {"refusing", ""}} {
		if err := b.webhookDead(ctx, way.what, way.path); err != nil {
			return fmt.Errorf("endpoint A %s: %w", way.what, err)
		}
	}
	return nil
}

// outbox makes one that done removes.
func (b *bench) outbox(ctx context.Context, name string, projects int) (*outbox, error) {
	return openOutbox(ctx, filepath.Join(b.dir, name), projects)
}

const webhookProjects = 8

// webhookRates compares deliveries a second with how often the disk can be synced.
func (b *bench) webhookRates(ctx context.Context) (err error) {
	for _, size := range []struct {
		name  string
		bytes int
		n     int
		limit float64
	}{{"1 KB", 1 << 10, b.events, webhookRate}, {"200 KB", 200 << 10, max(webhookProjects, b.events/10), webhookRateLarge}} {
		var ratios, rates, disk []float64
		for round := range b.rounds {
			rate, err := b.drainRate(ctx, fmt.Sprintf("rate-%d-%d", size.bytes, round), size.n/webhookProjects, size.bytes)
			if err != nil {
				return err
			}
			sync, err := b.fdatasync()
			if err != nil {
				return err
			}
			rates, disk = append(rates, rate), append(disk, 1/sync.at(.5).Seconds())
			ratios = append(ratios, rate/disk[round])
		}
		b.atLeast(7, "deliveries of "+size.name+" a second against fdatasync", median(ratios), "x", size.limit,
			"%.0f/s against %.0f/s", median(rates), median(disk))
	}
	return nil
}

// drainRate stores each events for every project, starts a worker and gives the deliveries a second until the last result is stored.
func (b *bench) drainRate(ctx context.Context, name string, each, size int) (rate float64, err error) {
	o, err := b.outbox(ctx, name, webhookProjects)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	body := eventBody(size)
	for n := range webhookProjects {
		if err := o.endpoint(ctx, project(n), "http://"+o.addr+"/"+project(n)); err != nil {
			return 0, err
		}
		if err := o.emit(ctx, project(n), name, each, body); err != nil {
			return 0, err
		}
	}
	took, err := o.drain(ctx, each*webhookProjects)
	return float64(each*webhookProjects) / took.Seconds(), err
}

// webhookWake measures from the call that commits an event to the receiver, with nothing else to do.
func (b *bench) webhookWake(ctx context.Context) (err error) {
	o, err := b.outbox(ctx, "wake", 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if err := o.endpoint(ctx, project(0), "http://"+o.addr+"/"); err != nil {
		return err
	}
	stop, err := o.work(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	got, err := o.arrive(ctx, project(0), "wake", 50, b.wakes)
	if err != nil {
		return err
	}
	b.atMost(7, "event to receiver, commit included, p50", micros(got.at(.5))/1000, "ms", webhookWakeMS,
		"p99 %.2f ms", micros(got.at(.99))/1000)
	return nil
}

// webhookWrites compares appends of another project while deliveries drain with the same when nothing drains.
func (b *bench) webhookWrites(ctx context.Context) error {
	const perSecond = 500
	var ratios, idles, busies []float64
	for round := range b.rounds {
		idle, busy, err := b.writesRound(ctx, fmt.Sprintf("writes-%d", round), perSecond)
		if err != nil {
			return err
		}
		i, d := micros(idle.at(.99))/1000, micros(busy.at(.99))/1000
		ratios, idles, busies = append(ratios, d/i), append(idles, i), append(busies, d)
	}
	b.atMost(7, fmt.Sprintf("appends while %d deliveries drain, p99 against idle", b.events), median(ratios), "x", webhookWrites,
		"%.2f against %.2f ms, %d appends/s", median(busies), median(idles), perSecond)
	return nil
}

func (b *bench) writesRound(ctx context.Context, name string, perSecond int) (idle, busy samples, err error) {
	const most = 1 << 16
	o, err := b.outbox(ctx, name, webhookProjects+1)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	write := func(int) error {
		return o.commit(ctx, project(webhookProjects), memory.Change{Append: []memory.Message{{Role: memory.User, Content: sentence, Source: memory.SourceASR}}})
	}
	if _, err = paced(ctx, perSecond, b.wakes, always, write); err != nil { // warm
		return nil, nil, err
	}
	each := b.events / webhookProjects
	for n := range webhookProjects {
		if err := o.endpoint(ctx, project(n), "http://"+o.addr+"/"+project(n)); err != nil {
			return nil, nil, err
		}
		if err := o.emit(ctx, project(n), name, each, eventBody(1<<10)); err != nil {
			return nil, nil, err
		}
	}
	var wg sync.WaitGroup
	var drainErr error
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		_, drainErr = o.drain(ctx, each*webhookProjects)
	})
	busy, err = paced(ctx, perSecond, most, func() bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}, write)
	wg.Wait()
	if err = errors.Join(err, drainErr); err != nil {
		return nil, nil, err
	}
	idle, err = paced(ctx, perSecond, max(len(busy), b.wakes), always, write)
	return idle, busy, err
}

// webhookDead compares how soon B's events arrive alone and with endpoint A dead in one of two ways: at path it takes requests and never
// answers; with none it has no listener.
func (b *bench) webhookDead(ctx context.Context, what, path string) error {
	var ratios, alones, besides []float64
	for round := range b.rounds {
		alone, beside, err := b.deadRound(ctx, fmt.Sprintf("dead-%s-%d", what, round), path)
		if err != nil {
			return err
		}
		a, d := micros(alone.at(.99))/1000, micros(beside.at(.99))/1000
		ratios, alones, besides = append(ratios, d/a), append(alones, a), append(besides, d)
	}
	b.atMost(7, fmt.Sprintf("endpoint B, A %s with %d waiting, p99 against alone", what, b.events), median(ratios), "x", webhookOthers,
		"%.2f against %.2f ms", median(besides), median(alones))
	return nil
}

// deadSlices is into how many turns a round is cut: a disk or a host that stalls for a second then stalls both.
const deadSlices = 4

// deadRound measures both by turns: one store where B is alone, and one where A is dead and has everything waiting. Only the worker of the one that is measured runs, and A's
// begins anew each time, with its breaker closed.
func (b *bench) deadRound(ctx context.Context, name, path string) (alone, beside samples, err error) {
	const perSecond = 200
	sides := []*struct {
		name string
		o    *outbox
		got  samples
	}{{name: "alone"}, {name: "beside"}}
	for _, side := range sides {
		if side.o, err = b.outbox(ctx, name+"-"+side.name, 2); err != nil {
			return nil, nil, err
		}
		defer func() { err = errors.Join(err, side.o.Close()) }()
		if err := side.o.endpoint(ctx, project(1), "http://"+side.o.addr+"/"); err != nil {
			return nil, nil, err
		}
	}
	busy := sides[1].o
	dead := "http://" + busy.addr + path
	if path == "" {
		addr, err := freePort(ctx)
		if err != nil {
			return nil, nil, err
		}
		dead = "http://" + addr
	}
	err = errors.Join(busy.endpoint(ctx, project(0), dead), busy.emit(ctx, project(0), name, b.events, eventBody(1<<10)))
	if err != nil {
		return nil, nil, err
	}
	for i := range deadSlices {
		for _, side := range sides {
			stop, err := side.o.work(ctx)
			if err != nil {
				return nil, nil, err
			}
			what := fmt.Sprintf("%s-%s-%d", name, side.name, i)
			_, err = side.o.arrive(ctx, project(1), what+"-warm", perSecond, b.wakes/16+1)
			if err == nil {
				var got samples
				got, err = side.o.arrive(ctx, project(1), what, perSecond, max(b.wakes/deadSlices, 1))
				side.got = append(side.got, got...)
			}
			if err = errors.Join(err, stop()); err != nil {
				return nil, nil, err
			}
		}
	}
	return sides[0].got, sides[1].got, nil
}
