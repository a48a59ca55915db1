// Package pg is a PostgreSQL database as package postgres uses it. A DB has the connections, runs
// transactions again that conflicted with others, and reads the database's clock. Classify turns
// errors into those of package fault. Statements are a statements.Reader and a statements.Writer,
// Gather lets reads share a query, and Migrate brings a schema up to date.
package pg

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	Pool *pgxpool.Pool
	// Timeout bounds a transaction, and the wait for a connection.
	Timeout time.Duration

	report   func(what string, err error)
	readOnly bool
	reported sync.Map // problems already reported
	closed   atomic.Bool
	clock    atomic.Pointer[clock]

	config    *pgx.ConnConfig
	hosts     *hosts
	timeline  int64        // of the newest primary so far; of the watch alone
	losses    atomic.Int64 // see Losses
	onLoss    func()
	shared    atomic.Bool  // see Shared
	standbys  atomic.Bool  // commits wait for synchronous standbys
	unsynced  atomic.Int64 // commits that did not, since the database gave the wait up
	proofs    Gather[struct{}]
	calls     pulse // all calls
	writes    pulse // those that write
	state     atomic.Pointer[state]
	suspected chan struct{}
	looked    atomic.Pointer[chan struct{}] // closed at the end of the next look
	grew      atomic.Int64                  // when a table was last seen to grow, Unix ns; see Space
	lastReset atomic.Int64                  // Unix ns
}

// Options sets how a database is used.
type Options struct {
	Timeout time.Duration // bounds a transaction, and the wait for a connection
	// Report, if not nil, is called for each problem that an operator should look after, with a nil
	// error when it is over.
	Report func(what string, err error)
	// ReadOnly makes sessions that only read.
	ReadOnly bool
	// OnLoss, if not nil, is called when another server may answer from then on, which may lack
	// what was read before. It must be quick.
	OnLoss func()
}

// Open opens the connections. Its errors hold no password.
func Open(ctx context.Context, c *pgxpool.Config, o Options) (*DB, error) {
	d := &DB{Timeout: o.Timeout, report: o.Report, readOnly: o.ReadOnly, onLoss: o.OnLoss, hosts: newHosts(c.ConnConfig), suspected: make(chan struct{}, 1)}
	d.state.Store(&state{changed: make(chan struct{})})
	next := make(chan struct{})
	d.looked.Store(&next)
	d.proofs.Ask = d.prove
	named := strings.Contains(c.ConnConfig.ConnString(), "default_query_exec_mode")
	c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == "SyncRepWaitForLSN" { // the wait was given up, and the commit stands here alone
			d.unsynced.Add(1)
			d.suspect()
		}
	}
	d.config = c.ConnConfig
	if len(d.hosts.list) == 1 {
		d.hosts.primary.Store(&d.hosts.list[0])
	} else if !o.ReadOnly {
		d.look(ctx, false)
	}
	if err := d.findPooler(ctx, c, named); err != nil {
		return nil, Classify(err, "connect")
	}
	c.BeforeConnect = func(_ context.Context, one *pgx.ConnConfig) error {
		d.Prepare(one)
		return nil
	}
	c.AfterConnect = d.prepareSession
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, Classify(err, "connect")
	}
	d.Pool = pool
	return d, nil
}

// OpenBeside opens a pool of its own for reads in the middle of others, which would wait for each
// other in the pool that they share. It connects when it is first used.
func (d *DB) OpenBeside(ctx context.Context, conns int32) (*pgxpool.Pool, error) {
	c := d.Pool.Config()
	c.MinConns, c.MinIdleConns, c.MaxConns = 0, 0, conns
	return pgxpool.NewWithConfig(ctx, c)
}

// Prepare prepares the configuration of a new connection.
func (d *DB) Prepare(c *pgx.ConnConfig) {
	if !d.shared.Load() {
		own(c)
	}
	d.hosts.prepare(c)
}

// Shut makes later calls fail with fault.Unavailable. It reports false if they do already.
func (d *DB) Shut() bool { return !d.closed.Swap(true) }

// Closed reports whether Shut was called.
func (d *DB) Closed() bool { return d.closed.Load() }

// log reports something that happened.
func (d *DB) log(what string, err error) {
	if d.report != nil {
		d.report(what, err)
	}
}

// Report reports a problem once.
func (d *DB) Report(what string, err error) {
	if _, again := d.reported.LoadOrStore(what+err.Error(), true); !again && d.report != nil {
		d.report(what, err)
	}
}

// Redact returns a connection string for logs: without user, password and parameters.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "a PostgreSQL database"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Enter begins a call and bounds it in time; leave ends it. writes says that the call writes.
func (d *DB) Enter(ctx context.Context, writes bool) (_ context.Context, leave func(), err error) {
	if ctx.Err() != nil {
		return nil, nil, fault.Ended(ctx)
	}
	if d.closed.Load() {
		return nil, nil, ErrClosed()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, fault.New(fault.Unavailable, "the database did not answer in time"))
	if err := d.ready(ctx, writes); err != nil {
		cancel()
		return nil, nil, err
	}
	d.calls.begin()
	if writes {
		d.writes.begin()
	}
	return ctx, func() {
		d.calls.end()
		if writes {
			d.writes.end()
		}
		cancel()
	}, nil
}

// Failed adds a code to an error, as Classify does. If the call's context is over, that is the
// reason. A nil error stays nil.
func (d *DB) Failed(ctx context.Context, err error, what string) error {
	if movedAway(err) && !d.readOnly {
		d.Lost()
	}
	if !Broken(err) {
		d.calls.beat()
		if outOfResources(err) {
			d.grew.Store(0)
		}
		return Classify(err, what)
	}
	switch {
	case d.closed.Load():
		return ErrClosed()
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && !d.state.Load().well():
		return &fault.Error{Code: fault.Unavailable, Msg: "the database did not answer in time", Reported: true}
	case ctx.Err() != nil:
		return fault.Ended(ctx)
	}
	d.Lost()
	return Classify(err, what)
}

// Lost notes that a connection broke: the others are likely to be broken, too.
func (d *DB) Lost() {
	d.lost()
	d.reset(resetBroken)
	d.suspect()
}

// lost notes that another server may answer from now on, which may lack what was read before.
func (d *DB) lost() {
	d.losses.Add(1)
	if d.onLoss != nil {
		d.onLoss()
	}
}

// Unsynced returns how many commits have ended without the synchronous standby that they waited
// for. A call during which this grows does not know that what it wrote is safe.
func (d *DB) Unsynced() int64 { return d.unsynced.Load() }

// Wrote notes that a call's write was answered. before is what Unsynced returned at its beginning.
func (d *DB) Wrote(before int64) error {
	d.calls.beat()
	d.writes.beat()
	if d.unsynced.Load() != before {
		return fault.New(fault.Unavailable, "the database gave up waiting for a synchronous standby: the change may be lost in a failover; try again")
	}
	return nil
}

// MaxTries bounds how often a transaction is run that conflicts with others.
const MaxTries = 5

// Transact runs fn in a transaction, and again if the database asks for it. An error of fn is
// returned as it is.
func (d *DB) Transact(ctx context.Context, what string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, leave, err := d.Enter(ctx, true)
	if err != nil {
		return err
	}
	defer leave()
	before, wrote := d.unsynced.Load(), false
	for try := 1; ; try++ {
		err := d.Begin(ctx, func(tx pgx.Tx) error {
			if err := fn(ctx, tx); err != nil {
				return err
			}
			return d.hasWritten(ctx, tx, &wrote)
		})
		if ctx.Err() == nil && (try < MaxTries && Transient(err) || LockedOut(err)) {
			continue
		}
		if err != nil {
			return d.Failed(ctx, err, what)
		}
		if err := d.Wrote(before); err != nil {
			return err
		}
		if wrote {
			memory.Committed(ctx)
		}
		return nil
	}
}

// Read runs fn, which only reads. If the connection is broken, it runs fn again on a new one.
func (d *DB) Read(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	ctx, leave, err := d.Enter(ctx, false)
	if err != nil {
		return err
	}
	defer leave()
	if err = fn(ctx); Broken(err) && ctx.Err() == nil {
		d.Lost()
		err = fn(ctx)
	}
	return d.Failed(ctx, err, what)
}

// SyncClock reads the database's clock. The error is at most half of the quickest of a few round
// trips.
func (d *DB) SyncClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	best := time.Duration(1 << 62)
	for range 3 {
		began := time.Now()
		var db float64
		if err := d.Pool.QueryRow(ctx, "SELECT extract(epoch FROM clock_timestamp())::float8").Scan(&db); err != nil {
			return err
		}
		if took := time.Since(began); took < best {
			best = took
			d.clock.Store(&clock{at: began.Add(took / 2), db: time.Unix(0, int64(db*1e9))})
		}
	}
	return nil
}

// lockWait bounds the wait for a lock.
func lockWait(timeout time.Duration) time.Duration { return min(MaxLockWait, timeout/4) }

// MaxLockWait is the most that a statement waits for a lock.
const MaxLockWait = 2 * time.Second

// clock pairs a time of the local clock with the database's time at that moment.
type clock struct{ at, db time.Time }

// Now returns the database's time. It is the same for all servers, however their own clocks differ
// or are set.
func (d *DB) Now() time.Time {
	c := d.clock.Load()
	return c.db.Add(time.Since(c.at)) // by the monotonic clock
}
