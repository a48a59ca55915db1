package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// coldMessages is the number of messages of each agent of part 16.
const coldMessages = 20

// benchCold is part 16: what an append costs to an agent that is not in the server's memory, among
// many, against another append to the same agents, on each store.
func (b *bench) benchCold(ctx context.Context) error {
	b.sayf("\n16. append to an agent that is not in memory, %d running agents with %d messages each", b.crowd, coldMessages)
	path := b.db("cold")
	err := b.coldOn(ctx, "SQLite", "sqlite:"+path, path, func(p *process) (cpu time.Duration, written float64, err error) {
		if cpu, err = p.cpu(); err == nil {
			written, err = p.written()
		}
		return cpu, written, err
	})
	if err != nil {
		return err
	}
	b.stopAll()
	return b.coldPostgres(ctx)
}

func (b *bench) coldPostgres(ctx context.Context) (err error) {
	base, drop, err := b.openSchema(ctx)
	if err != nil {
		b.sayf("  SKIPPED, nothing was measured: no PostgreSQL server answers at -postgres: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, drop()) }()
	defer b.stopAll()
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return b.coldOn(ctx, "PostgreSQL", base, b.db("cold-pg"), func(p *process) (cpu time.Duration, written float64, err error) {
		time.Sleep(1500 * time.Millisecond) // sessions report what they did within a second
		if cpu, err = p.cpu(); err == nil {
			err = conn.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8").Scan(&written)
		}
		return cpu + cpuOf(ctx, base, "heardlog"), written, err
	})
}

// coldOn measures one store. A restart empties the server's memory.
func (b *bench) coldOn(ctx context.Context, name, store, db string, used func(*process) (time.Duration, float64, error)) error {
	p, _, err := b.startOn(ctx, store, db, b.level)
	if err != nil {
		return err
	}
	start := time.Now()
	agents, err := populate(ctx, p.addr, "cold", b.crowd, messagesBody(coldMessages), 32, "")
	if err != nil {
		return err
	}
	b.sayf("  %s: made in %.0f s", name, time.Since(start).Seconds())
	p.stop(true)
	p, ready, err := b.startOn(ctx, store, db, b.level)
	if err != nil {
		return err
	}
	body := messagesBody(1)
	appends := min(2000, b.crowd/2)
	step := b.crowd / appends
	round := func(first int) (cpu, written float64, lat samples, err error) {
		c, err := dial(ctx, p.addr)
		if err != nil {
			return 0, 0, nil, err
		}
		defer c.Close()
		cpu0, written0, err := used(p)
		if err != nil {
			return 0, 0, nil, err
		}
		for i := range appends {
			began := time.Now()
			// The stride is prime, so neighbours are on other pages.
			id := agents.ids[(first+i*7919%appends*step)%b.crowd]
			if err := wantOK(c, request("POST", "/v1/agents/"+id+"/messages", p.addr, body, "")); err != nil {
				return 0, 0, nil, err
			}
			lat = append(lat, time.Since(began))
		}
		cpu1, written1, err := used(p)
		return micros(cpu1-cpu0) / float64(appends), (written1 - written0) / 1000 / float64(appends), lat, err
	}
	if _, _, _, err = round(step / 2); err != nil { // what only first requests cost
		return err
	}
	cold, coldWritten, coldLat, err := round(0)
	if err != nil {
		return err
	}
	hot, hotWritten, hotLat, err := round(0)
	if err != nil {
		return err
	}
	b.atMost(16, name+", CPU of an append to a cold agent against a hot one", cold/hot, "x", 2,
		"%.0f against %.0f µs; p50 %.2f against %.2f ms, p99 %.1f against %.1f ms", cold, hot,
		micros(coldLat.at(.5))/1000, micros(hotLat.at(.5))/1000, micros(coldLat.at(.99))/1000, micros(hotLat.at(.99))/1000)
	b.atMost(16, name+", written by an append to a cold agent", coldWritten, "kB", 6, "%.1f kB by one to a hot agent; one client", hotWritten)
	b.atMost(16, name+", start with "+strconv.Itoa(b.crowd)+" running agents", ready.Seconds(), "s", 5, "")
	return nil
}
