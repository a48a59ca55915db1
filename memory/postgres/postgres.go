// Package postgres stores agents, messages and the webhook outbox in a PostgreSQL database that any
// number of servers share. Store is a memory.Store and a webhook.Store.
//
// A batch of writes is one statement. It moves the heads of its agents on from the versions that
// the writes were decided on. The row in agent_head is an agent's lock. Loads that come together
// share round trips. Nothing here needs LISTEN, sessions or triggers; listen.go describes what
// LISTEN makes quicker.
package postgres

import (
	"context"
	"crypto/rand"
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
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/record"
	"github.com/heardlog/heardlog/memory/seal"
	"github.com/heardlog/heardlog/memory/tables"
	"github.com/heardlog/heardlog/webhook"
)

// Options sets where the database is and how it is used. Zero values mean the defaults.
type Options struct {
	// URL is the connection string, postgres://… or key=value, with the driver's pool_… parameters;
	// search_path chooses the schema.
	URL string
	// SealKey encrypts secrets at rest, as in package sqlite; every replica needs the same.
	SealKey []byte
	// Terms, if not nil, returns the words by which FindRecords finds a record.
	Terms record.Terms
	// Timeout bounds a transaction, and the wait for a connection; 10 s.
	Timeout time.Duration
	// Report, if not nil, is called once for each problem that an operator should look after
	// although the store goes on.
	Report func(what string, err error)
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Report == nil {
		o.Report = func(string, error) {}
	}
	return o
}

// Store is an open database. It is a memory.Store and a webhook.Store. An agent's change and the
// deliveries of its events commit together.
type Store struct {
	pool     *pgxpool.Pool
	sealer   seal.Sealer
	words    tables.Words
	timeout  time.Duration
	reported sync.Map // problems already reported

	reportTo func(what string, err error)
	closed   atomic.Bool
	holding  sync.Mutex
	held     map[int64]time.Time // until when agents count as held, under holding: see held.go
	versions gather[version]
	loads    gather[load]
	work     sync.WaitGroup // background goroutines
	stop     context.CancelFunc

	published atomic.Pointer[endpoints]
	loading   sync.Mutex // of endpoints
	woken     chan struct{}
	replica   string       // the name of this process among the replicas
	beats     atomic.Int64 // the number of beats
	answered  atomic.Int64 // when the database answered last, Unix ns
	clock     atomic.Pointer[clock]
	notices   notices
	follows   follows
	behind    context.Context // of the background goroutines
}

var (
	_ memory.Store  = (*Store)(nil)
	_ webhook.Store = (*Store)(nil)
)

// Open connects and makes or migrates the schema. Its errors are for the operator and hold no
// password.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	c, err := poolConfig(o)
	if err != nil {
		return nil, err
	}
	s := &Store{
		timeout: o.Timeout, reportTo: o.Report, woken: make(chan struct{}, 1), stop: func() {}, replica: rand.Text(),
		held: map[int64]time.Time{}, words: tables.Words{Terms: o.Terms},
		notices: notices{questions: make(chan memory.Question, maxQuestions), waiting: map[int64]chan struct{}{}},
		follows: follows{changed: make(chan struct{}, 1), theirs: map[string]following{}, pending: map[uint32]bool{}},
	}
	s.versions.ask, s.loads.ask = s.askVersions, s.askLoads
	if s.pool, err = pgxpool.NewWithConfig(ctx, c); err != nil {
		return nil, classify(err, "connect")
	}
	if err := s.open(ctx, o); err != nil {
		s.pool.Close()
		return nil, classify(err, "open the database")
	}
	s.behind, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.work.Go(func() { s.keepTime(s.behind) })
	return s, nil
}

// open settles the schema and reads what every replica keeps in memory.
func (s *Store) open(ctx context.Context, o Options) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	// A migration may take longer than the wait for the connection.
	wait, cancel := context.WithTimeout(ctx, max(s.timeout, time.Minute))
	defer cancel()
	conn, err := s.pool.Acquire(wait)
	if err != nil {
		return err
	}
	defer conn.Release()
	for try := 0; ; try++ {
		if err = s.migrate(ctx, conn.Conn(), steps, o.SealKey); err == nil {
			break
		}
		// Where there is no advisory lock, another replica may have been quicker.
		if try == 3 || !transient(err) && violated(err) == "" {
			return err
		}
	}
	if err := s.sealRest(ctx, conn.Conn()); err != nil {
		return err
	}
	var schema string
	if err := conn.QueryRow(ctx, "SELECT current_schema()").Scan(&schema); err != nil {
		return err
	}
	s.notices.channel = channelOf(schema)
	ctx, done := context.WithTimeout(ctx, max(o.Timeout, time.Minute))
	defer done()
	if err := s.syncClock(ctx); err != nil {
		return err
	}
	return s.loadEndpoints(ctx, conn)
}

// poolConfig reads the connection string.
func poolConfig(o Options) (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		// The driver's text may quote the URL with its password.
		return nil, fault.New(fault.Invalid, "the store's URL cannot be read: it is postgres://user:password@host:port/database?options")
	}
	if !strings.Contains(o.URL, "pool_max_conns") {
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
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return prepareSession(ctx, conn, o.Timeout) }
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
	if broken(err) {
		return err
	}
	return nil
}

// report reports a problem once.
func (s *Store) report(what string, err error) {
	if _, again := s.reported.LoadOrStore(what+err.Error(), true); !again {
		s.reportTo(what, err)
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

// Close implements memory.Store. Later calls fail with fault.Unavailable.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stop()
	s.work.Wait()
	s.pool.Close()
	return nil
}

// enter begins a call: leave ends it, and cancel bounds it in time.
func (s *Store) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if ctx.Err() != nil {
		return nil, nil, fault.Ended(ctx)
	}
	if s.closed.Load() {
		return nil, nil, errClosed()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fault.New(fault.Unavailable, "the database did not answer in time"))
	return ctx, cancel, nil
}

// failed adds a code to an error, as classify does. If the call's context is over, that is the
// reason.
func (s *Store) failed(ctx context.Context, err error, what string) error {
	if err == nil {
		s.answered.Store(time.Now().UnixNano())
		return nil
	}
	if broken(err) {
		if s.closed.Load() {
			return errClosed()
		}
		if ctx.Err() != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(time.Unix(0, s.answered.Load())) > silence {
				// The network may have forgotten its connections; the next ones are new.
				s.pool.Reset()
			}
			return fault.Ended(ctx)
		}
		s.pool.Reset() // the other connections are likely to be broken, too
	}
	return classify(err, what)
}

// After silence without any answer, a call that runs out of time drops all connections. pong is how
// long an idle connection may take to answer a check.
const silence, pong = 2 * time.Second, 2 * time.Second

// maxTries bounds how often a transaction is run that conflicts with others.
const maxTries = 5

// transact runs fn in a transaction, and again if the database asks for it. An error of fn is
// returned as it is.
func (s *Store) transact(ctx context.Context, what string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for try := 1; ; try++ {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return fn(ctx, tx) })
		if ctx.Err() == nil && (try < maxTries && transient(err) || lockedOut(err)) {
			continue
		}
		return s.failed(ctx, err, what)
	}
}

// read runs fn, which only reads. If the connection is broken, it runs fn again on a new one.
func (s *Store) read(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err = fn(ctx); broken(err) && ctx.Err() == nil {
		s.pool.Reset()
		err = fn(ctx)
	}
	return s.failed(ctx, err, what)
}

// Ping writes something and reads it back.
func (s *Store) Ping(ctx context.Context) error {
	return s.transact(ctx, "probe", func(ctx context.Context, tx pgx.Tx) error {
		var n int64
		return tx.QueryRow(ctx, "UPDATE counter SET n = n + 1 WHERE key = 'ping' RETURNING n").Scan(&n)
	})
}

// clockEvery is how often the database's clock is read.
const clockEvery = 30 * time.Second

// keepTime follows the database's clock until ctx is done. It also finishes replays and deletions
// of endpoints that a crash has cut short.
func (s *Store) keepTime(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		_ = s.closeDeleted(ctx)
		s.finishReplays(ctx) // tried again at the next tick
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = s.syncClock(ctx) // if it fails, the last reading stays in use
		}
	}
}

// syncClock reads the database's clock. The error is at most half of the quickest of a few round
// trips.
func (s *Store) syncClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	best := time.Duration(1 << 62)
	for range 3 {
		began := time.Now()
		var db float64
		if err := s.pool.QueryRow(ctx, "SELECT extract(epoch FROM clock_timestamp())::float8").Scan(&db); err != nil {
			return err
		}
		if took := time.Since(began); took < best {
			best = took
			s.clock.Store(&clock{at: began.Add(took / 2), db: time.Unix(0, int64(db*1e9))})
		}
	}
	return nil
}

// clock pairs a time of the local clock with the database's time at that moment.
type clock struct{ at, db time.Time }

// Now returns the database's time. It is the same for all servers, however their own clocks differ
// or are set.
func (s *Store) Now() time.Time {
	c := s.clock.Load()
	return c.db.Add(time.Since(c.at)) // by the monotonic clock
}

// noRows reports whether a query found nothing.
func noRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

func (s *Store) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Epoch returns the number of changes of endpoints that this process knows of. An engine takes it
// before each decision.
func (s *Store) Epoch() int64 { return s.published.Load().n }
