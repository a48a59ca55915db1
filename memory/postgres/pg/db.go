// Package pg is a PostgreSQL database as package postgres uses it. A DB has the connections, runs
// transactions again that conflicted with others, and reads the database's clock. Classify turns
// errors into those of package fault. Statements are a tables.Reader and a tables.Writer, Gather
// lets reads share a query, and Migrate brings a schema up to date.
package pg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/heardlog/heardlog/internal/fault"
)

// DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	Pool *pgxpool.Pool
	// Timeout bounds a transaction, and the wait for a connection.
	Timeout time.Duration

	report   func(what string, err error)
	reported sync.Map // problems already reported
	closed   atomic.Bool
	answered atomic.Int64 // when the database answered last, Unix ns
	clock    atomic.Pointer[clock]
}

// Open opens the connections. report, if not nil, is called once for each problem that an operator
// should look after. The errors hold no password.
func Open(ctx context.Context, c *pgxpool.Config, timeout time.Duration, report func(what string, err error)) (*DB, error) {
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, Classify(err, "connect")
	}
	return &DB{Pool: pool, Timeout: timeout, report: report}, nil
}

// Shut makes later calls fail with fault.Unavailable. It reports false if they do already.
func (d *DB) Shut() bool { return !d.closed.Swap(true) }

// Closed reports whether Shut was called.
func (d *DB) Closed() bool { return d.closed.Load() }

// Config reads a connection string. timeout bounds a transaction.
func Config(raw string, timeout time.Duration) (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(raw)
	if err != nil {
		// The driver's text may quote the URL with its password.
		return nil, fault.New(fault.Invalid, "the store's URL cannot be read: it is postgres://user:password@host:port/database?options")
	}
	if !strings.Contains(raw, "pool_max_conns") {
		c.MaxConns = int32(max(10, 4*runtime.GOMAXPROCS(0)))
	}
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	// A pooler may have given one of our sessions, which listens, to others. Without this,
	// notifications would pile up.
	c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	params := c.ConnConfig.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = "heardlog"
	}
	c.PingTimeout = pong
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return prepareSession(ctx, conn, timeout) }
	return c, nil
}

// prepareSession makes a new connection keep the store's promises: an acknowledged write is on
// disk, and the locks of a server that died inside a transaction are released soon.
func prepareSession(ctx context.Context, conn *pgx.Conn, timeout time.Duration) error {
	var durable string
	if err := conn.QueryRow(ctx, "SHOW synchronous_commit", pgx.QueryExecModeSimpleProtocol).Scan(&durable); err != nil {
		return err
	}
	set := fmt.Sprintf("SET idle_in_transaction_session_timeout = %d; SET lock_timeout = %d", (timeout / 2).Milliseconds(), lockWait(timeout).Milliseconds())
	if durable == "off" {
		set += "; SET synchronous_commit = on"
	}
	if _, err := conn.Exec(ctx, set, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	// Statements look rows up by key and need the same plan whatever the arrays hold; planning each
	// time costs more than running. Joins follow the arrays row by row, in their order. Otherwise
	// the planner would read all of a small agent_head for each batch. Databases without these
	// settings go on without them.
	_, err := conn.Exec(ctx, "SET plan_cache_mode = force_generic_plan; SET enable_hashjoin = off; SET enable_mergejoin = off", pgx.QueryExecModeSimpleProtocol)
	if Broken(err) {
		return err
	}
	return nil
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

// Enter begins a call and bounds it in time; leave ends it.
func (d *DB) Enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if ctx.Err() != nil {
		return nil, nil, fault.Ended(ctx)
	}
	if d.closed.Load() {
		return nil, nil, ErrClosed()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, fault.New(fault.Unavailable, "the database did not answer in time"))
	return ctx, cancel, nil
}

// Answered notes that the database has answered.
func (d *DB) Answered() { d.answered.Store(time.Now().UnixNano()) }

// Failed adds a code to an error, as Classify does. If the call's context is over, that is the
// reason. A nil error stays nil.
func (d *DB) Failed(ctx context.Context, err error, what string) error {
	if err == nil {
		d.Answered()
		return nil
	}
	if Broken(err) {
		if d.closed.Load() {
			return ErrClosed()
		}
		if ctx.Err() != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(time.Unix(0, d.answered.Load())) > silence {
				// The network may have forgotten its connections; the next ones are new.
				d.Pool.Reset()
			}
			return fault.Ended(ctx)
		}
		d.Pool.Reset() // the other connections are likely to be broken, too
	}
	return Classify(err, what)
}

// After silence without any answer, a call that runs out of time drops all connections. pong is how
// long an idle connection may take to answer a check.
const silence, pong = 2 * time.Second, 2 * time.Second

// MaxTries bounds how often a transaction is run that conflicts with others.
const MaxTries = 5

// Transact runs fn in a transaction, and again if the database asks for it. An error of fn is
// returned as it is.
func (d *DB) Transact(ctx context.Context, what string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, leave, err := d.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for try := 1; ; try++ {
		err := pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error { return fn(ctx, tx) })
		if ctx.Err() == nil && (try < MaxTries && Transient(err) || LockedOut(err)) {
			continue
		}
		return d.Failed(ctx, err, what)
	}
}

// Read runs fn, which only reads. If the connection is broken, it runs fn again on a new one.
func (d *DB) Read(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	ctx, leave, err := d.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err = fn(ctx); Broken(err) && ctx.Err() == nil {
		d.Pool.Reset()
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
