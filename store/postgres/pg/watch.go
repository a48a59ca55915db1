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
	// lookGap is the shortest pause between two looks, and checkTime how long a call waits for one.
	lookGap, checkTime = 100 * time.Millisecond, 250 * time.Millisecond
	// lookTime bounds a look. Once a host takes writes, others have grace to answer.
	lookTime, grace = 2 * time.Second, 300 * time.Millisecond
	// compareEvery is the pause between looks while all is well and there are several hosts: after
	// a failover another server's calls may have missed, an old primary may still take writes.
	compareEvery = 30 * time.Second
	// learnEvery is how often the watch reads whether commits wait for standbys.
	learnEvery = 5 * time.Second
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
		return &fault.Error{Code: fault.Unavailable, Msg: "the database is away; try again", Reported: true}
	case s.waits != "" && writes:
		return &fault.Error{Code: fault.Unavailable, Msg: "the database is waiting for a synchronous standby; try again", Reported: true}
	}
	return nil
}

// pulse counts calls that wait for an answer.
type pulse struct {
	n, since, answered atomic.Int64 // since and answered are Unix ns
}

func (p *pulse) begin() {
	if p.n.Load() == 0 {
		p.since.Store(time.Now().UnixNano())
	}
	p.n.Add(1)
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
	if err := d.check(ctx, writes); err == nil {
		return nil
	}
	s := d.state.Load()
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

// check returns why calls, or writes, cannot go on. If they could not, it has the watch look again,
// so that a database that is back is found at once, and does not wait for long.
func (d *DB) check(ctx context.Context, writes bool) error {
	if d.state.Load().err(writes) == nil {
		return nil
	}
	looked := *d.looked.Load()
	d.suspect()
	late := time.NewTimer(checkTime)
	defer late.Stop()
	select {
	case <-looked:
	case <-late.C:
	case <-ctx.Done():
	}
	return d.state.Load().err(writes)
}

// Check returns why the database cannot be written to.
func (d *DB) Check(ctx context.Context) error {
	if d.closed.Load() {
		return ErrClosed()
	}
	return d.check(ctx, true)
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
	looked, learned := time.Now(), time.Now()
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
			if time.Since(learned) > learnEvery {
				d.learnStandbys(ctx)
				learned = time.Now()
			}
			if pause = compareEvery; len(d.hosts.list) == 1 {
				continue
			}
		}
		if asked {
			pause = lookGap
		}
		if since := time.Since(looked); since < pause {
			if asked {
				time.AfterFunc(lookGap-since, d.suspect)
			}
			continue
		}
		d.look(ctx, silent)
		looked, asked = time.Now(), false
		next := make(chan struct{})
		close(*d.looked.Swap(&next))
	}
}

// sight is what a look sees of a host.
type sight struct {
	host
	err      error
	timeline int64 // 0: not known
	standbys bool  // commits wait for synchronous standbys
	waiting  int64 // of this user's commits, those that have waited long
	busy     int64 // sessions of servers on this machine with a statement under way
}

// errReadOnly is the end of a look at a host that takes no writes.
var errReadOnly = errors.New("it takes no writes: a standby, or read-only")

// alive reports whether the host answered, if only with a refusal that says nothing of its state.
func (s *sight) alive() bool {
	e, ok := errors.AsType[*pgconn.PgError](s.err)
	return s.err == nil || ok && !strings.HasPrefix(e.Code, "57P")
}

func (s *sight) String() string {
	switch {
	case errors.Is(s.err, errReadOnly):
		return s.host.String() + ": " + errReadOnly.Error()
	case s.err != nil:
		why, _ := Plain(s.err)
		return s.host.String() + ": " + why
	}
	return s.host.String() + ": an old primary"
}

// look looks at all hosts and settles the state. silent says that calls wait in vain.
func (d *DB) look(ctx context.Context, silent bool) {
	began := time.Now().UnixNano()
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	seen := make(chan sight, len(d.hosts.list))
	for _, h := range d.hosts.list {
		go func() { seen <- d.lookAt(ctx, h) }()
	}
	var best *sight
	alive, why := false, make([]string, 0, len(d.hosts.list))
	first := d.hosts.primary.Load()
	for range d.hosts.list {
		s := <-seen
		why = append(why, s.String())
		alive = alive || s.alive()
		if s.err != nil || s.timeline != 0 && s.timeline < d.timeline { // after a failover, a host of before it
			continue
		}
		time.AfterFunc(grace, cancel)
		if best == nil || s.timeline > best.timeline || s.timeline == best.timeline && first != nil && s.host == *first {
			best = &s
		}
	}
	switch {
	case best != nil:
		d.found(best, first, silent && d.calls.silent() > silence)
	case alive: // it does not let the watch in, for lack of places or rights; calls may go on
		d.become("", "", host{})
	case d.calls.answered.Load() < began:
		d.become(strings.Join(why, "; "), "", host{})
	}
}

// found settles the state by a host that takes writes.
func (d *DB) found(s *sight, first *host, silent bool) {
	d.standbys.Store(s.standbys)
	moved := first == nil || s.host != *first
	if moved {
		d.hosts.primary.Store(&s.host)
	}
	if moved || s.timeline > d.timeline && d.timeline != 0 {
		d.lost()
	}
	d.timeline = max(d.timeline, s.timeline)
	d.hosts.drop(func(l *link) bool { return l.to == nil || *l.to != s.host })
	switch {
	case moved && first != nil:
		d.reset(0)
		d.log(fmt.Sprintf("the primary is now %s, and was %s", s.host, first), nil)
	case silent && s.waiting == 0:
		if s.busy == 0 { // no session works for the calls that wait: their connections lead nowhere
			d.hosts.drop(func(*link) bool { return true })
		}
		d.reset(resetSilent)
	}
	waits := ""
	if s.waiting > 0 {
		waits = fmt.Sprintf("%s: commits wait for a synchronous standby", s.host)
	}
	d.become("", waits, s.host)
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
	c := d.config.Copy()
	h.only(c)
	c.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error { // of each address of the host
		r := conn.ExecParams(ctx, "SELECT current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery()", nil, nil, nil, nil).Read()
		if r.Err == nil && string(r.Rows[0][0]) == "t" {
			return errReadOnly
		}
		return r.Err
	}
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
	err = conn.QueryRow(ctx, "SELECT "+hasStandbys+`, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint,
		(SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND state = 'active' AND clock_timestamp() - query_start > $1 * interval '1 millisecond'),
		(SELECT count(*) FROM pg_stat_activity WHERE application_name = $2 AND state <> 'idle' AND client_addr IS NOT DISTINCT FROM inet_client_addr())`,
		pgx.QueryExecModeSimpleProtocol, (silence/2).Milliseconds(), name).Scan(&s.standbys, &s.timeline, &s.waiting, &s.busy)
	if Refused(err) { // another database, or one that keeps this from the user
		s.busy, err = 1, nil
	}
	s.err = err
	return s
}

// hasStandbys is an SQL expression. It is true if commits wait for a synchronous standby.
const hasStandbys = "coalesce(current_setting('synchronous_standby_names', true), '') <> ''"

// learnStandbys reads whether commits wait for synchronous standbys, which may change at any time.
func (d *DB) learnStandbys(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var there bool
	if err := d.Pool.QueryRow(ctx, "SELECT "+hasStandbys).Scan(&there); err == nil {
		d.standbys.Store(there)
	}
}

// reset makes the pool's connections end when they are free, unless that was done a moment ago.
func (d *DB) reset(pause time.Duration) {
	now := time.Now().UnixNano()
	if last := d.lastReset.Load(); now-last >= int64(pause) && d.lastReset.CompareAndSwap(last, now) {
		d.Pool.Reset()
	}
}
