package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/heardlog/heardlog/internal/fault"
)

// A database that is away shows in one of two ways: connections break, or calls wait in silence.
// The watch then looks at every host of the connection string, on connections of its own, and
// settles the state: which host is the primary, and whether calls and writes can go on. While they
// cannot, it looks again every second, and calls fail after a short wait instead of each waiting
// for its own time to end.

const (
	// silence is how long calls may wait, without any answer to one of them, before the watch
	// looks.
	silence = 2 * time.Second
	// pong is how long an idle connection may take to answer a check.
	pong = 2 * time.Second
	// lookEvery is the pause between two looks while something is wrong, and between two checks for
	// silence.
	lookEvery = 500 * time.Millisecond
	// lookTime bounds a look. Once a host takes writes, others have grace to answer.
	lookTime, grace = 2 * time.Second, 300 * time.Millisecond
	// compareEvery is the pause between looks while all is well and there are several hosts: after
	// a failover another server's calls may have missed, an old primary may still take writes.
	compareEvery = 30 * time.Second
	// parked is how long calls wait for a database that has just gone away. Later ones fail at
	// once.
	parked = 2 * time.Second
	// The pauses between two resets of the pool: after calls that waited in vain, and after broken
	// connections.
	resetSilent, resetBroken = 10 * time.Second, time.Second
)

// state is what the watch knows of the database.
type state struct {
	// away and waits say why calls, and why writes, cannot go on; "" if they can.
	away, waits string
	since       time.Time
	changed     chan struct{} // closed when another state follows
}

func (s *state) well() bool { return s.away == "" && s.waits == "" }

// err returns the error of calls, or of writes, that cannot go on; nil if they can.
func (s *state) err(writes bool) error {
	switch {
	case s.away != "":
		return &fault.Error{Code: fault.Unavailable, Msg: "the database is away; nothing was written; try again", Reported: true}
	case s.waits != "" && writes:
		return &fault.Error{Code: fault.Unavailable, Msg: "the database is waiting for a synchronous standby; nothing was written; try again", Reported: true}
	}
	return nil
}

// pulse counts calls that wait for an answer.
type pulse struct {
	n, since, answered atomic.Int64 // since and answered are Unix ns
}

func (p *pulse) begin() {
	if p.n.Add(1) == 1 {
		p.since.Store(time.Now().UnixNano())
	}
}

func (p *pulse) end() { p.n.Add(-1) }

func (p *pulse) beat() { p.answered.Store(time.Now().UnixNano()) }

// silent returns how long calls have waited without any answer.
func (p *pulse) silent() time.Duration {
	if p.n.Load() == 0 {
		return 0
	}
	return time.Since(time.Unix(0, max(p.since.Load(), p.answered.Load())))
}

// ready waits until calls, or writes, can go on. It returns the reason if that takes too long.
func (d *DB) ready(ctx context.Context, writes bool) error {
	s := d.state.Load()
	if s.err(writes) == nil {
		return nil
	}
	late := time.NewTimer(parked - time.Since(s.since))
	defer late.Stop()
	for {
		select {
		case <-s.changed:
		case <-late.C:
			return s.err(writes)
		case <-ctx.Done():
			return s.err(writes)
		}
		if s = d.state.Load(); s.err(writes) == nil {
			return nil
		}
	}
}

// Wrong returns why the database cannot be written to, as far as is known without asking it.
func (d *DB) Wrong() error {
	if d.closed.Load() {
		return ErrClosed()
	}
	return d.state.Load().err(true)
}

// suspect makes the watch look soon.
func (d *DB) suspect() {
	select {
	case d.suspected <- struct{}{}:
	default:
	}
}

// Watch follows the database until ctx is done.
func (d *DB) Watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	looked := time.Now()
	for asked := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-d.suspected:
			asked = true
		case <-tick.C:
		}
		pause := lookEvery
		silent := d.calls.silent() > silence || d.writes.silent() > silence
		if !asked && !silent && d.state.Load().well() {
			if pause = compareEvery; len(d.hosts.list) == 1 {
				continue
			}
		}
		if time.Since(looked) < pause && !(asked && d.state.Load().well() && time.Since(looked) > lookEvery/2) {
			continue
		}
		d.look(ctx, silent)
		looked, asked = time.Now(), false
	}
}

// sight is what a look sees of a host.
type sight struct {
	host
	err      error
	readOnly bool // a standby, or a database whose transactions only read
	timeline int64
	standbys bool  // commits wait for synchronous standbys
	waiting  int64 // of this user's commits, those that have waited long
	busy     int64 // sessions of Heardlog with a statement under way
}

// alive reports whether the host answered, if only with a refusal that says nothing of its state.
func (s *sight) alive() bool {
	e, ok := errors.AsType[*pgconn.PgError](s.err)
	return s.err == nil || ok && !strings.HasPrefix(e.Code, "57P")
}

func (s *sight) String() string {
	switch {
	case s.err != nil:
		why, _ := Plain(s.err)
		return s.host.String() + ": " + why
	case s.readOnly:
		return s.host.String() + ": a standby, or read-only"
	}
	return s.host.String() + " takes writes"
}

// look looks at all hosts and settles the state. silent says that calls wait in vain.
func (d *DB) look(ctx context.Context, silent bool) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	seen := make(chan sight, len(d.hosts.list))
	for _, h := range d.hosts.list {
		go func() { seen <- d.lookAt(ctx, h) }()
	}
	var list []sight
	for len(list) < len(d.hosts.list) {
		s := <-seen
		if list = append(list, s); s.err == nil && !s.readOnly {
			time.AfterFunc(grace, cancel)
		}
	}
	best, alive, why := (*sight)(nil), false, make([]string, len(list))
	first := d.hosts.primary.Load()
	for i := range list {
		s := &list[i]
		why[i] = s.String()
		alive = alive || s.alive() && !s.readOnly
		if s.err == nil && !s.readOnly && (best == nil || s.timeline > best.timeline || s.timeline == best.timeline && first != nil && s.host == *first) {
			best = s
		}
	}
	switch {
	case best != nil:
		d.standbys.Store(best.standbys)
		if first == nil || best.host != *first {
			d.hosts.moveTo(best.host)
			d.reset(0)
			if first != nil {
				d.log(fmt.Sprintf("the primary is now %s, and was %s", best.host, first), nil)
			}
		} else if silent && best.waiting == 0 {
			if best.busy == 0 { // nobody works for the calls that wait: their connections lead nowhere
				d.hosts.drop(func(*link) bool { return true })
			}
			d.reset(resetSilent)
		}
		waits := ""
		if best.waiting > 0 {
			waits = fmt.Sprintf("%s: commits wait for a synchronous standby", best.host)
		}
		d.become("", waits, best.host)
	case !alive && d.calls.answered.Load() < began.UnixNano():
		d.become(strings.Join(why, "; "), "", host{})
	}
}

// become settles the state and reports a change of it.
func (d *DB) become(away, waits string, now host) {
	was := d.state.Load()
	is := &state{away: away, waits: waits, since: time.Now(), changed: make(chan struct{})}
	if (was.away == "") == (away == "") && (was.waits == "") == (waits == "") {
		return
	}
	d.state.Store(is)
	close(was.changed)
	switch {
	case away != "":
		d.log("the database is away", errors.New(away))
	case waits != "":
		d.log("the database cannot take writes", errors.New(waits))
	default:
		d.log(fmt.Sprintf("the database takes writes again, at %s, after %s", now, time.Since(was.since).Round(100*time.Millisecond)), nil)
	}
}

// lookAt looks at a host.
func (d *DB) lookAt(ctx context.Context, h host) sight {
	s := sight{host: h}
	c := d.Pool.Config().ConnConfig
	h.only(c)
	c.ValidateConnect = nil
	name := c.RuntimeParams["application_name"]
	c.RuntimeParams["application_name"] = name + " watch"
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		s.err = err
		return s
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	const basic = "SELECT current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery(), current_setting('synchronous_standby_names') <> ''"
	err = conn.QueryRow(ctx, basic+`, CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END,
		(SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND state = 'active' AND clock_timestamp() - query_start > $1 * interval '1 millisecond'),
		(SELECT count(*) FROM pg_stat_activity WHERE application_name = $2 AND state <> 'idle')`,
		pgx.QueryExecModeSimpleProtocol, (silence/2).Milliseconds(), name).Scan(&s.readOnly, &s.standbys, &s.timeline, &s.waiting, &s.busy)
	if Refused(err) { // a database without these functions, or without the right to use them
		err = conn.QueryRow(ctx, basic, pgx.QueryExecModeSimpleProtocol).Scan(&s.readOnly, &s.standbys)
		s.busy = 1 // it is not known
	}
	s.err = err
	return s
}

// reset makes the pool's connections end when they are free, unless that was done a moment ago.
func (d *DB) reset(pause time.Duration) {
	now := time.Now().UnixNano()
	if last := d.lastReset.Load(); now-last >= int64(pause) && d.lastReset.CompareAndSwap(last, now) {
		d.Pool.Reset()
	}
}
