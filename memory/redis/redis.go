// Package redis keeps agents and messages in a Redis or Valkey server, or a cluster of them, for as long as they are of use: short-term memory.
//
// A decision runs here, on what is known of the agent, and one script in the agent's own slot writes its change if the agent still is what the decision saw; else it is read and decided
// anew. So several servers may write to one agent, and sequences and turns come out right. What finds agents, by name, key, status or item, stands in other slots; it is claimed before an agent is made and put right where a crash
// has come between: see index.go. There is no outbox, so that webhooks are not possible here: nothing would hold a delivery as safely as it has to be held.
package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/seal"
)

// Options says where the server is and how much may be used for it. Zero values mean the defaults given.
type Options struct {
	// URL is redis://, or rediss:// for TLS, with the parameters ttl (how long an ended agent is kept: 24h; 0 = for ever) and prefix (of all keys: heardlog).
	URL string
	// SealKey encrypts secrets, as in package sqlite; every server on the prefix needs the same.
	SealKey []byte
	// CacheBytes bounds what is kept in memory of agents and messages; 64 MiB.
	CacheBytes int64
	// Timeout bounds a call's work with the server; 10 s.
	Timeout time.Duration
	// Observe is told of every write: it must be quick. May be nil.
	Observe func(Commit)
	// Notice is told, in words for the operator, what may be lost and what was lost. May be nil.
	Notice func(text string)
}

// Commit tells of one write, for metrics.
type Commit struct {
	Took time.Duration
	Err  error
}

func (o Options) withDefaults() Options {
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Observe == nil {
		o.Observe = func(Commit) {}
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	return o
}

// Store is an open connection to a server or cluster.
type Store struct {
	client  rueidis.Client
	prefix  string
	ttl     time.Duration
	life    time.Duration
	sealer  seal.Sealer
	cache   cache
	timeout time.Duration
	observe func(Commit)
	notice  func(string)

	locks    locks
	closing  sync.RWMutex // held for reading by every call, for writing by Close
	closed   atomic.Bool
	projects sync.Map // that are on the list of projects
	settled  string   // the project at which keep's last look has stopped, "" where it came to its end
	owed     sync.Map // by key: agents whose entries could not be brought up to a change
	work     sync.WaitGroup
	stop     context.CancelFunc

	ears    ears
	replica string            // our name among the servers on the prefix
	offset  atomic.Int64      // of the server's clock from ours, ns
	mark    string            // what stands in the server as long as it has lost nothing
	check   []byte            // the check value of the secret key; nil without one. keep alone reads it, and mark and runs, after Open
	runs    map[string]string // of each server's address: its part and which start of it this is
}

var (
	_ memory.Ledger            = (*Store)(nil)
	_ memory.ConversationStore = (*Store)(nil)
	_ memory.ItemStore         = (*Store)(nil)
	_ memory.WorkingStore      = (*Store)(nil)
)

// Open connects. Its errors are for the operator and hold no password.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	p, err := parse(o.URL)
	if err != nil {
		return nil, err
	}
	p.client.ConnWriteTimeout = o.Timeout
	s := &Store{
		prefix: p.prefix, ttl: p.ttl, life: p.life(), cache: newCache(o.CacheBytes), timeout: o.Timeout, observe: o.Observe, notice: o.Notice,
		locks: locks{held: map[key]*lock{}}, replica: token(), stop: func() {}, ears: newEars(),
	}
	if s.client, err = rueidis.NewClient(p.client); err != nil {
		return nil, classify(err, "connect")
	}
	if err := s.open(ctx, o); err != nil {
		s.client.Close()
		return nil, classify(err, "open the store")
	}
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.work.Go(func() { s.keep(behind) })
	s.work.Go(func() { s.listen(behind) })
	return s, nil
}

func (s *Store) open(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.openSealer(ctx, o.SealKey); err != nil {
		return err
	}
	if err := s.syncClock(ctx); err != nil {
		return err
	}
	if _, err := s.checkMark(ctx); err != nil {
		return err
	}
	s.startedAnew(ctx)
	if warning := s.durability(ctx); warning != "" {
		s.notice(warning)
	}
	return nil
}

// openSealer checks the key against what the prefix holds. A prefix that is given a key for the first time gets a check value; what was stored plain before stays so until it is written again.
func (s *Store) openSealer(ctx context.Context, secret []byte) error {
	at := s.rootKey("seal")
	check, err := s.client.Do(ctx, s.client.B().Get().Key(at).Build()).AsBytes()
	switch {
	case rueidis.IsRedisNil(err) && len(secret) == 0:
		return nil
	case rueidis.IsRedisNil(err):
		// The salt is made of the prefix, so that what is sealed can be read again where the server has lost the check value.
		first, value, err := seal.FirstOf(secret, sha256.Sum256([]byte("heardlog redis "+s.prefix)))
		if err != nil {
			return err
		}
		err = s.client.Do(ctx, s.client.B().Set().Key(at).Value(rueidis.BinaryString(value)).Nx().Build()).Error()
		if rueidis.IsRedisNil(err) { // another server was quicker
			return s.openSealer(ctx, secret)
		}
		s.sealer, s.check = first, value
		if err != nil {
			return err
		}
		used, err := s.client.Do(ctx, s.client.B().Exists().Key(s.rootKey("mark")).Build()).AsInt64()
		if used == 1 {
			s.notice("There was no secret key before: what is stored stays in clear until it is written again. An agent is when it changes or ends.")
		}
		return err
	case err != nil:
		return err
	}
	s.check = check
	s.sealer, err = seal.Check(secret, check)
	return err
}

// keepCheck gives the server the key's check value again where it has lost it, so that no other key is taken at the next start.
func (s *Store) keepCheck(ctx context.Context) error {
	if s.check == nil {
		return nil
	}
	err := s.client.Do(ctx, s.client.B().Set().Key(s.rootKey("seal")).Value(rueidis.BinaryString(s.check)).Nx().Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

// token gives a text that nobody else has.
func token() string {
	b := make([]byte, 12)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Close ends what runs behind and closes the connections. Later calls fail with fault.Unavailable.
func (s *Store) Close() error {
	s.closing.Lock()
	was := s.closed.Swap(true)
	s.closing.Unlock()
	if was {
		return nil
	}
	s.stop()
	s.work.Wait()
	s.leave()
	s.client.Close()
	return nil
}

// call runs fn as one call: within the store's time, not after Close, and with an error that has its code.
func (s *Store) call(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed.Load() {
		return errClosed()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fault.New(fault.Unavailable, "the server did not answer in time"))
	defer cancel()
	return s.failed(ctx, fn(ctx), what)
}

// read is call for what only reads: a connection that turns out to be broken is worth one more try.
func (s *Store) read(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	return s.call(ctx, what, func(ctx context.Context) error {
		err := fn(ctx)
		if broken(err) && ctx.Err() == nil {
			err = fn(ctx)
		}
		return err
	})
}

// failed gives an error its code, as classify does; where the call's context is over, that is the reason.
func (s *Store) failed(ctx context.Context, err error, what string) error {
	if broken(err) {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		s.cache.Clear() // what comes back may be another server
	}
	return classify(err, what)
}

// Ping writes something and reads it back.
func (s *Store) Ping(ctx context.Context) error {
	return s.call(ctx, "probe", func(ctx context.Context) error {
		return s.client.Do(ctx, s.client.B().Incr().Key(s.rootKey("ping")).Build()).Error()
	})
}

// locks serialise the decisions of one agent in this process, first come, first served.
type locks struct {
	mu   sync.Mutex
	held map[key]*lock
}

type lock struct{ waiting []chan struct{} }

// take waits for the agent's turn; an error is the context's.
func (l *locks) take(ctx context.Context, k key) error {
	l.mu.Lock()
	e := l.held[k]
	if e == nil {
		l.held[k] = &lock{}
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	e.waiting = append(e.waiting, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	for i, other := range e.waiting {
		if other == turn {
			e.waiting = append(e.waiting[:i:i], e.waiting[i+1:]...)
			l.mu.Unlock()
			return ended(ctx)
		}
	}
	l.mu.Unlock()
	l.give(k) // the turn had come meanwhile
	return ended(ctx)
}

func (l *locks) give(k key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.held[k]
	if len(e.waiting) == 0 {
		delete(l.held, k)
		return
	}
	next := e.waiting[0]
	e.waiting = e.waiting[1:]
	close(next)
}

// UpdateEarly implements memory.Ledger; it is never early.
func (s *Store) UpdateEarly(ctx context.Context, project, id string, decide memory.Decision, _ func(error)) (bool, error) {
	return false, s.Update(ctx, project, id, decide)
}
