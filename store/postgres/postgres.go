// Package postgres stores agents, messages and the webhook outbox in a PostgreSQL database that any
// number of servers share. Store is a memory.Store and a webhook.Store.
//
// A batch of writes is one statement. It moves the heads of its agents on from the versions that
// the writes were decided on. The row in agent_head is an agent's lock. Loads that come together
// share round trips. Nothing here needs LISTEN, sessions or triggers; package peers describes
// what LISTEN makes quicker.
package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/peers"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// Options sets where the database is and how it is used. Zero values mean the defaults.
type Options struct {
	// URL is the connection string, postgres://… or key=value, with the driver's pool_… parameters;
	// search_path chooses the schema.
	URL string
	// SealKey encrypts secrets at rest, as in package sqlite; every replica needs the same.
	SealKey []byte
	// DataKey wraps the data keys that encrypt everything else too, as in package sqlite; every
	// replica needs the same.
	DataKey []byte
	// Terms, if not nil, returns the words by which FindRecords finds a record.
	Terms record.Terms
	// Timeout bounds a transaction, and the wait for a connection; 10 s.
	Timeout time.Duration
	// Report, if not nil, is called for each problem that an operator should look after, with a nil
	// error when it is over.
	Report func(what string, err error)
	// OnLoss, if not nil, is called when another server may answer from then on, which may lack
	// what was read before. It must be quick.
	OnLoss func()
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	return o
}

// Store is an open database. It is a memory.Store and a webhook.Store. An agent's change and the
// deliveries of its events commit together.
type Store struct {
	*peers.Peers
	db       *pg.DB
	sealer   encryption.Sealer
	dataMark []byte        // the check value of the data key
	beside   *pgxpool.Pool // for loadKey; nil without a data key
	words    statements.Words
	holding  sync.Mutex
	held     map[int64]time.Time // until when agents count as held, under holding: see held.go
	versions pg.Gather[version]
	loads    pg.Gather[load]
	work     sync.WaitGroup // keepTime and the watch
	stop     context.CancelFunc

	published atomic.Pointer[endpoints]
	loading   sync.Mutex // of endpoints
	woken     chan struct{}
}

var (
	_ memory.Store  = (*Store)(nil)
	_ webhook.Store = (*Store)(nil)
	_ memory.Peers  = (*Store)(nil)
)

// Open connects and makes or migrates the schema. Its errors are for the operator and hold no
// password.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	c, err := pg.Config(o.URL, o.Timeout)
	if err != nil {
		return nil, err
	}
	s := &Store{
		woken: make(chan struct{}, 1), stop: func() {}, held: map[int64]time.Time{}, words: statements.Words{Terms: o.Terms},
	}
	s.versions.Ask, s.loads.Ask = s.askVersions, s.askLoads
	if s.db, err = pg.Open(ctx, c, pg.Options{Timeout: o.Timeout, Report: o.Report, OnLoss: func() {
		s.lost()
		if o.OnLoss != nil {
			o.OnLoss()
		}
	}}); err != nil {
		return nil, err
	}
	if err := s.open(ctx, o); err != nil {
		s.closePools()
		return nil, pg.Classify(err, "open the database")
	}
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.work.Go(func() { s.keepTime(behind) })
	s.work.Go(func() { s.db.Watch(behind) })
	return s, nil
}

// open settles the schema and reads what every replica keeps in memory.
func (s *Store) open(ctx context.Context, o Options) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	// A migration may take longer than the wait for the connection.
	wait, cancel := context.WithTimeout(ctx, max(s.db.Timeout, time.Minute))
	defer cancel()
	conn, err := s.db.Pool.Acquire(wait)
	if err != nil {
		return err
	}
	defer conn.Release()
	for try := 0; ; try++ {
		if err = s.migrate(ctx, conn.Conn(), steps, o); err == nil {
			break
		}
		// Where there is no advisory lock, another replica may have been quicker.
		if try == 3 || !pg.Transient(err) && pg.Violated(err) == "" {
			return err
		}
	}
	if s.sealer.HasKeys() {
		if s.beside, err = s.db.OpenBeside(ctx, besideConns); err != nil {
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
	s.Peers = peers.New(s.db, schema)
	ctx, done := context.WithTimeout(ctx, max(o.Timeout, time.Minute))
	defer done()
	if err := s.db.SyncClock(ctx); err != nil {
		return err
	}
	return s.loadEndpoints(ctx, conn)
}

// Close implements memory.Store. Later calls fail with fault.Unavailable.
func (s *Store) Close() error {
	if !s.db.Shut() {
		return nil
	}
	s.stop()
	s.work.Wait()
	s.Peers.Stop()
	s.closePools()
	return nil
}

func (s *Store) closePools() {
	if s.beside != nil {
		s.beside.Close()
	}
	s.db.Pool.Close()
}

// NewLive implements memory.Peers.
func (s *Store) NewLive(ctx context.Context, after int64, each func(memory.Head) error) (int64, error) {
	return s.liveSince(ctx, after, each)
}

// Durable begins a call that may acknowledge what it only reads. The function that it returns then
// proves that this is safe; see pg.DB.Durable.
func (s *Store) Durable(ctx context.Context) (prove func() error) {
	since := s.db.Losses()
	return func() error { return s.db.Durable(ctx, since) }
}

// lost makes the endpoints be read again: another server may answer from now on, which counts its
// own changes of them.
func (s *Store) lost() {
	if was := s.published.Load(); was != nil {
		again := *was
		again.n = -1
		s.published.CompareAndSwap(was, &again)
	}
}

// Ping writes something and reads it back. It also makes a file grow, as a turn may have to.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.db.Check(ctx); err != nil {
		return err
	}
	if err := s.db.Space(ctx); err != nil {
		return err
	}
	return s.db.Transact(ctx, "probe", func(ctx context.Context, tx pgx.Tx) error {
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
			_ = s.db.SyncClock(ctx) // if it fails, the last reading stays in use
		}
	}
}

// Now returns the database's time. It is the same for all servers, however their own clocks differ
// or are set.
func (s *Store) Now() time.Time { return s.db.Now() }

// Alone runs f unless another process of this database is running it; see pg.DB.Alone.
func (s *Store) Alone(ctx context.Context, f func() error) error { return s.db.Alone(ctx, f) }

// Redact returns a connection string for logs: without user, password and parameters.
func Redact(raw string) string { return pg.Redact(raw) }

func noAgent(id string) error { return fault.New(fault.NotFound, "there is no agent %q", id) }

func (s *Store) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Epoch returns the number of changes of endpoints that this process knows of. An engine takes it
// before each decision.
func (s *Store) Epoch() int64 { return s.published.Load().n }

// ServerKey returns the store's key with the given name. The first call creates it. If several
// replicas make the first call together, all of them get the same key.
func (s *Store) ServerKey(ctx context.Context, name string) (out []byte, err error) {
	err = s.db.Transact(ctx, "read key", func(ctx context.Context, tx pgx.Tx) (err error) {
		key, err := s.key(ctx, tx, encryption.Of{})
		if err == nil {
			out, err = statements.ServerKey(pg.NewStatements(ctx, tx), s.sealer, key, name)
		}
		return err
	})
	return out, err
}
