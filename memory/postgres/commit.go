package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Group commit: an agent's calls go through one of a few queues, in order. What waits in a queue when its committer turns to it shares a
// transaction of one round trip, where all its agents are in memory (known.go), or else of two: one locks the agents' rows, one writes everything and commits. Where the database refuses something, the
// transaction is rolled back and each call gets one of its own, so that the one at fault fails alone.

// Commit tells of one shared transaction, for metrics.
type Commit struct {
	Items    int           // calls that shared it
	Messages int           // messages appended or replaced
	Took     time.Duration // from its first statement to the database's answer
	Err      error         // why it failed; its calls were tried again one by one where that could help
}

// item is one Update in a queue.
type item struct {
	k      key
	no     int64
	decide memory.Decision
	since  time.Time // when it was queued
	state  atomic.Int32
	err    error
	done   chan struct{}
}

const (
	itemQueued int32 = iota
	itemTaken
	itemLeft // its caller went away before it was taken
	itemAnswered
)

func (it *item) answer(err error) {
	if it.state.Swap(itemAnswered) != itemAnswered {
		it.err = err
		close(it.done)
	}
}

// errGone is the end of an item whose agent's row is not there under the number that we knew.
var errGone = errors.New("the agent's row is gone")

// Update runs a decision and writes what it says. A caller whose context ends before its turn is not served; one whose turn has come waits
// for the outcome, so that the decision never runs behind its caller's back.
func (s *Store) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	k := key{project, id}
	for try := 0; ; try++ {
		no, err := s.number(ctx, k)
		if err != nil {
			return err
		}
		it := &item{k: k, no: no, decide: decide, since: time.Now(), done: make(chan struct{})}
		if err := s.submit(ctx, it); !errors.Is(err, errGone) {
			return err
		}
		if try == 2 {
			return noAgent(id)
		}
		s.cache.Drop(k) // erased, or made anew
	}
}

// number gives the number of an agent's rows.
func (s *Store) number(ctx context.Context, k key) (int64, error) {
	if v := s.cache.get(k); v != nil && ctx.Err() == nil && !s.closed.Load() {
		return v.no, nil
	}
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	v, err := s.load(ctx, k)
	if err != nil {
		return 0, s.failed(ctx, err, "look for the agent")
	}
	return v.no, nil
}

// submit queues an item and waits for its end.
func (s *Store) submit(ctx context.Context, it *item) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	s.closing.RLock()
	if s.closed.Load() {
		s.closing.RUnlock()
		return errClosed()
	}
	select {
	case s.shards[uint64(it.no)%uint64(len(s.shards))] <- it:
		s.closing.RUnlock()
	default:
		s.closing.RUnlock()
		return fault.New(fault.Unavailable, "too many writes are waiting; try again")
	}
	select {
	case <-it.done:
	case <-ctx.Done():
		if it.state.CompareAndSwap(itemQueued, itemLeft) {
			return ended(ctx)
		}
		<-it.done
	}
	return it.err
}

// commitLoop serves a queue until it is closed and empty.
func (s *Store) commitLoop(queue chan *item) {
	for s.serveQueue(queue) {
	}
}

// serveQueue serves a queue until it is closed, or a decision ended its goroutine, as testing's Fatal does: then it runs on in another one.
func (s *Store) serveQueue(queue chan *item) (again bool) {
	ended := make(chan bool)
	go func() {
		normal := false
		var batch []*item
		defer func() {
			for _, it := range batch {
				if it.state.Load() == itemTaken {
					it.answer(fault.New(fault.Internal, "the store failed"))
				}
			}
			ended <- !normal
		}()
		expect := 1.0 // size of the next group, as the last ones were
		for it := range queue {
			batch = s.gather(queue, s.take(queue, it, s.most), expect)
			expect = max(float64(len(batch)), expect-(expect-float64(len(batch)))/8)
			s.serve(batch)
			batch = nil
		}
		normal = true
	}()
	return <-ended
}

// gatherFor is how long a group may wait for callers that were just answered and are about to come back; a lone caller never waits.
const gatherFor = 300 * time.Microsecond

// gather lets the other goroutines run for a moment while the group is smaller than the last ones were: better one commit for all.
func (s *Store) gather(queue chan *item, batch []*item, expect float64) []*item {
	want := min(int(expect*0.9), s.most)
	for began, still := time.Now(), 0; len(batch) < want && still < 8 && time.Since(began) < gatherFor; still++ {
		runtime.Gosched()
		select {
		case it, open := <-queue:
			if !open {
				return batch
			}
			batch, still = append(batch, s.take(queue, it, s.most-len(batch))...), -1
		default:
		}
	}
	return batch
}

// take gives the item and what waits behind it, at most so many.
func (s *Store) take(queue chan *item, first *item, most int) []*item {
	var batch []*item
	for it := first; ; {
		if it.state.CompareAndSwap(itemQueued, itemTaken) {
			batch = append(batch, it)
		}
		if len(batch) >= most {
			return batch
		}
		var open bool
		select {
		case it, open = <-queue:
			if !open {
				return batch
			}
		default:
			return batch
		}
	}
}

// serve runs a group and answers its callers. Agents whose rows somebody holds keep nobody else waiting: see held.go.
func (s *Store) serve(batch []*item) {
	batch = s.inTime(batch)
	if len(batch) == 0 {
		return
	}
	batch, apart := s.apart(batch)
	s.serveTogether(batch)
	for _, items := range apart {
		s.serveHeld(items)
	}
}

// inTime answers those that have waited for so long that there is hardly time left for them.
func (s *Store) inTime(batch []*item) []*item {
	return slices.DeleteFunc(batch, func(it *item) bool {
		late := time.Since(it.since) > s.timeout/2
		if late {
			it.answer(fault.New(fault.Unavailable, "the store is too slow just now; nothing was written; try again"))
		}
		return late
	})
}

func (s *Store) serveTogether(batch []*item) {
	if len(batch) == 0 {
		return
	}
	err := s.shared(batch, 0)
	if err == nil {
		return
	}
	if lockedOut(err) && s.hold(batch) {
		batch, apart := s.apart(batch)
		s.serveTogether(batch)
		for _, items := range apart {
			s.serveHeld(items)
		}
		return
	}
	if len(batch) == 1 || broken(err) || !retriable(err) {
		for _, it := range batch {
			it.answer(err)
		}
		return
	}
	for _, it := range batch {
		if it.state.Load() != itemAnswered {
			if err := s.shared([]*item{it}, 0); err != nil {
				it.answer(err)
			}
		}
	}
}

// retriable tells whether what failed for many may do for each alone: everything but a database that is not there.
func retriable(err error) bool { return !fault.Is(err, fault.Unavailable) }

// shared runs a group in one transaction, again where that can help, and answers its callers; an error means that nothing of it was stored, or
// that this is not known. wait bounds the wait for a lock; 0 is the connection's own bound.
func (s *Store) shared(batch []*item, wait time.Duration) error {
	ctx, cancel := context.WithDeadline(context.Background(), batch[0].since.Add(s.timeout)) // that of the one who waits longest
	defer cancel()
	began := time.Now()
	var g *group
	err := errUnknown // as long as a try with locks first is wanted
	if shy := s.shy(batch); *shy > 0 || wait > 0 {
		*shy = max(*shy-1, 0)
	} else if g, err = s.known(ctx, batch); g.stale {
		*shy = shyFor
	}
	for try := 1; errors.Is(err, errUnknown); try++ {
		g = &group{s: s, ctx: ctx, wait: wait}
		err = g.run(batch)
		// A connection that broke before the commit was sent was idle for too long, most likely: the next one is fresh.
		if try < maxTries && ctx.Err() == nil && (transient(err) || broken(err) && !g.sent && try == 1) {
			err = errUnknown
		}
	}
	s.observe(Commit{Items: len(batch), Messages: g.messages, Took: time.Since(began), Err: err})
	if err != nil {
		if broken(err) {
			for _, it := range batch {
				s.cache.Drop(it.k)
			}
		}
		return s.failed(ctx, err, "commit")
	}
	s.answered.Store(time.Now().UnixNano())
	for k, w := range g.works {
		s.cache.put(k, w.view)
		if w.changed {
			s.tellChange(k)
		}
	}
	if g.wake {
		s.wake()
	}
	for i, it := range batch {
		it.answer(g.errs[i])
	}
	return nil
}

// group is one transaction under way.
type group struct {
	s        *Store
	ctx      context.Context
	conn     *pgxpool.Conn
	errs     []error
	works    map[key]*work
	writes   writes
	messages int
	wake     bool
	blind    *blind        // nothing is locked yet: see known.go
	stale    bool          // what is in memory did not hold
	told     bool          // something was decided that is to be told of: endpoints matter
	wait     time.Duration // for a lock, where it is not the connection's own bound
	sent     bool          // the commit is on its way: nobody knows what becomes of a transaction whose connection breaks now
}

// work is an agent in a group: as the group has made it so far.
type work struct {
	view    *view
	changed bool
}

// run locks, decides, writes and commits.
func (g *group) run(batch []*item) (err error) {
	g.errs = make([]error, len(batch))
	g.works = map[key]*work{}
	if g.conn, err = g.s.pool.Acquire(g.ctx); err != nil {
		return err
	}
	defer g.conn.Release()
	done := false
	defer func() {
		if !done {
			g.rollback()
		}
	}()
	if err := g.lock(batch); err != nil {
		return err
	}
	for i, it := range batch {
		g.errs[i] = g.decide(it)
		if e := g.errs[i]; e != nil && errors.Is(e, errQuery) {
			return e // the transaction is over
		}
		if err := g.unload(); err != nil {
			return err
		}
	}
	if err := g.commit(&pgx.Batch{}); err != nil {
		return err
	}
	done = true
	return nil
}

// lock begins the transaction, locks the agents' rows in order of their numbers and makes sure that what is in memory of them holds.
func (g *group) lock(batch []*item) error {
	nos := make([]int64, 0, len(batch))
	for _, it := range batch {
		nos = append(nos, it.no)
	}
	slices.Sort(nos)
	nos = slices.Compact(nos)
	vers := make(map[int64]int64, len(nos))
	var endpoints int64
	b := &pgx.Batch{}
	g.open(b)
	b.Queue("SELECT agent_no, ver FROM agent_head WHERE agent_no = ANY($1) ORDER BY agent_no FOR UPDATE", nos).Query(func(rows pgx.Rows) error {
		var no, ver int64
		_, err := pgx.ForEachRow(rows, []any{&no, &ver}, func() error { vers[no] = ver; return nil })
		return err
	})
	b.Queue("SELECT n FROM counter WHERE key = 'endpoints'").QueryRow(func(row pgx.Row) error { return row.Scan(&endpoints) })
	if err := g.conn.SendBatch(g.ctx, b).Close(); err != nil {
		return err
	}
	if err := g.s.freshEndpoints(g.ctx, g.conn, endpoints); err != nil {
		return err
	}
	var stale []int64
	for _, it := range batch {
		ver, there := vers[it.no]
		if !there || g.works[it.k] != nil {
			continue
		}
		v := g.s.cache.get(it.k)
		if v != nil && v.no == it.no && v.ver == ver {
			g.works[it.k] = &work{view: v}
		} else if !slices.Contains(stale, it.no) {
			stale = append(stale, it.no)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	views, err := g.s.loadViews(g.ctx, g.conn, stale)
	if err != nil {
		return err
	}
	for _, v := range views {
		g.works[key{v.head.Agent.Project, v.head.Agent.ID}] = &work{view: v}
	}
	return nil
}

// open begins the transaction.
func (g *group) open(b *pgx.Batch) {
	b.Queue("BEGIN")
	if g.wait > 0 {
		b.Queue(fmt.Sprintf("SET LOCAL lock_timeout = %d", max(g.wait.Milliseconds(), 1)))
	}
}

// decide runs one item's decision and takes up what it wants written.
func (g *group) decide(it *item) error {
	w := g.works[it.k]
	if w == nil {
		return errGone
	}
	t := &tx{g: g, w: w}
	c, err := runDecision(it.decide, t)
	if t.err != nil {
		return t.err
	}
	if err != nil || c.Empty() {
		return err
	}
	return g.add(it.k, w, c)
}

// runDecision turns a panic of the decision into its caller's error.
func runDecision(decide memory.Decision, t *tx) (c memory.Change, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, fmt.Errorf("panic in a decision: %v\n%s", p, debug.Stack()), "the store failed")
		}
	}()
	return decide(t)
}

// commit writes what is still to be written and ends the transaction, in one round trip with what the batch holds.
func (g *group) commit(b *pgx.Batch) error {
	for _, w := range g.works {
		if w.changed {
			g.writes.head(w.view)
		}
	}
	g.writes.queue(b)
	b.Queue("COMMIT")
	g.sent = true
	return g.conn.SendBatch(g.ctx, b).Close()
}

// maxBytes is how much text is gathered before it is written: the database takes no more than a gigabyte at a time.
const maxBytes = 16 << 20

// unload writes what has been decided so far where that is much.
func (g *group) unload() error {
	if g.writes.bytes < maxBytes {
		return nil
	}
	return g.flush()
}

// flush writes what has been decided so far, so that a query sees it. Heads are written with the commit.
func (g *group) flush() error {
	b := &pgx.Batch{}
	if err := g.begin(b); err != nil {
		return err
	}
	g.writes.queue(b)
	if b.Len() == 0 {
		return nil
	}
	g.writes = writes{}
	return g.conn.SendBatch(g.ctx, b).Close()
}
