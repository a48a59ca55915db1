package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// The committer: whoever holds Store.writing owns the write connection and runs writes. Under load that is one goroutine, and what
// waits in its queue when it turns to it shares one transaction and so one fdatasync; every caller is answered after that.
// See gather for how long it waits for more. A caller who finds nobody else writing commits by himself: handing his call
// to another goroutine and waiting to be woken would cost him a tenth of the commit.

// Commit tells of one transaction, for metrics.
type Commit struct {
	Items    int           // calls that shared it
	Messages int           // messages appended or replaced
	Took     time.Duration // from its first statement to the disk's answer
	Err      error         // why it failed; its calls were tried again one by one where that could help
}

// item is one call in the queue.
type item struct {
	run   func(*group) error // reads and writes inside the transaction; may be run again after a rollback
	alone bool               // must not share its transaction
	later bool               // a delivery's: it gets a share of a commit and no more, see share
	early *early             // its caller does not wait for the disk; nil: he does
	state atomic.Int32
	err   error
	done  chan struct{}
}

const (
	itemQueued int32 = iota
	itemTaken
	itemLeft // its caller went away before it was taken
	itemAnswered
)

// do runs fn in the committer and waits for its commit. A caller whose context ends before its turn is not served; one whose
// turn has come waits for the outcome, which is a matter of one commit, so that fn never runs behind its caller's back.
func (s *Store) do(ctx context.Context, fn func(*group) error) error {
	return s.submit(ctx, &item{run: fn, done: make(chan struct{})})
}

// doAlone is do for what changes the endpoints that later items of the same group would have to see.
func (s *Store) doAlone(ctx context.Context, fn func(*group) error) error {
	return s.submit(ctx, &item{run: fn, alone: true, done: make(chan struct{})})
}

// doLater is do for what deliveries are about: nobody waits for it but the worker.
func (s *Store) doLater(ctx context.Context, fn func(*group) error) error {
	return s.submit(ctx, &item{run: fn, later: true, done: make(chan struct{})})
}

// submit returns when the item is answered, or, of an early one, when it is told.
func (s *Store) submit(ctx context.Context, it *item) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	s.closing.RLock()
	if s.isClosed() {
		s.closing.RUnlock()
		return errClosed()
	}
	if !it.later {
		if s.waiting.Load() == 0 && s.writing.TryLock() {
			if lone := s.expect < 1.5; lone {
				return s.serveAlone(it)
			}
			s.writing.Unlock() // others are about to come back: better one commit for all
		}
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
	}
	select {
	case s.queue <- it:
		s.closing.RUnlock()
	default:
		s.closing.RUnlock()
		return fault.New(fault.Unavailable, "too many writes are waiting; try again")
	}
	var written chan struct{}
	if it.early != nil {
		written = it.early.written
	}
	select {
	case <-written:
		return nil
	case <-it.done:
	case <-ctx.Done():
		if it.state.CompareAndSwap(itemQueued, itemLeft) {
			return ended(ctx)
		}
		select {
		case <-written:
			return nil
		case <-it.done:
		}
	}
	return it.outcome()
}

// serveAlone commits the caller's item in his own goroutine; he holds writing, and closing for reading. An early one is committed beside him.
func (s *Store) serveAlone(it *item) error {
	beside, normal := false, false
	defer func() {
		if beside {
			return
		}
		if !normal { // see abandon
			s.abandon(nil)
		}
		s.writing.Unlock()
		s.closing.RUnlock()
	}()
	items := []*item{it}
	it.state.Store(itemTaken)
	if g := s.written(items); g != nil {
		if it.early != nil && it.early.told {
			beside = true
			s.tellers.Go(func() { s.commitBeside(g, items) })
			return nil
		}
		s.commit(g, items)
	}
	s.expected(1)
	s.checkpointNow()
	normal = true
	return it.outcome()
}

// commitBeside ends what serveAlone began for an early item.
func (s *Store) commitBeside(g *group, items []*item) {
	s.commit(g, items)
	s.expected(1)
	s.checkpointNow()
	s.writing.Unlock()
	s.closing.RUnlock()
}

// commitLoop serves the queue until it is closed and empty.
func (s *Store) commitLoop() {
	var batch []*item
	normal := false
	defer func() {
		if normal {
			close(s.ended)
			return
		}
		s.abandon(batch)
		s.writing.Unlock()
		go s.commitLoop()
	}()
	for {
		batch = append(batch[:0], s.held...)
		if len(batch) == 0 {
			it, ok := <-s.queue
			if !ok {
				break
			}
			batch = append(batch, it)
		}
		batch = s.company(batch)
		s.writing.Lock()
		batch = s.share(s.gather(batch))
		for rest := batch; len(rest) > 0; {
			n := 1
			for !rest[0].alone && n < len(rest) && !rest[n].alone {
				n++
			}
			s.serve(rest[:n])
			rest = rest[n:]
		}
		clear(batch)
		s.checkpointNow()
		s.writing.Unlock()
	}
	normal = true
}

// abandon puts things right after a decision that called runtime.Goexit, as testing's Fatal does: no recover stops that, and
// the store must not stand still for it. Its group fails.
func (s *Store) abandon(batch []*item) {
	_, _ = s.writer.run("ROLLBACK")
	var left []*item
	for _, it := range batch {
		if it != nil && it.state.Load() != itemAnswered {
			it.err = fault.New(fault.Internal, "the store failed")
			left = append(left, it)
		}
	}
	s.answer(left)
}

// answer ends items.
func (s *Store) answer(items []*item) {
	var told []*item
	for _, it := range items {
		it.state.Store(itemAnswered)
		close(it.done)
		if it.early != nil && it.early.told {
			s.pending.remove(it)
			told = append(told, it)
		}
	}
	if told != nil { // not by the committer, for whom others wait
		s.tellers.Go(func() { tellKept(told) })
	}
}

// outcome gives what the caller of an item is told that has been answered.
func (it *item) outcome() error {
	if it.early != nil && it.early.told {
		return nil // he learns the rest later
	}
	return it.err
}

// companyFor is how long what deliveries are about waits for more of its kind: a commit for ten costs little more than one for one, and the worker goes on meanwhile.
const companyFor = time.Millisecond

// company waits for more where all that there is can wait; nobody is kept from writing meanwhile.
func (s *Store) company(batch []*item) []*item {
	for _, it := range batch {
		if !it.later {
			return batch
		}
	}
	enough := time.NewTimer(companyFor)
	defer enough.Stop()
	for len(batch) < mostShare {
		select {
		case it, ok := <-s.queue:
			if !ok {
				return batch
			}
			if batch = append(batch, it); !it.later {
				return batch
			}
		case <-enough.C:
			return batch
		}
	}
	return batch
}

// gather takes what waits and, when the last groups were shared, lets the other goroutines run for a moment, since callers that
// were just answered are about to come back. A lone caller never waits: the expected size is then one.
func (s *Store) gather(batch []*item) []*item {
	take := func() {
		for len(batch) < s.most {
			select {
			case it, ok := <-s.queue:
				if !ok {
					return
				}
				batch = append(batch, it)
			default:
				return
			}
		}
	}
	take()
	// Workers who deliver come back when their receivers have answered, so nobody waits for those.
	soon := func() int {
		n := 0
		for _, it := range batch {
			if !it.later {
				n++
			}
		}
		return n
	}
	if want := int(s.expect * 0.9); soon() < want && s.window > 0 {
		start := time.Now()
		for still := 0; still < 8; {
			before := len(batch)
			runtime.Gosched()
			take()
			if soon() >= want || len(batch) == s.most || time.Since(start) >= s.window {
				break
			}
			if len(batch) == before {
				still++
			} else {
				still = 0
			}
		}
	}
	s.expected(soon())
	return batch
}

// What deliveries may take of a commit: as long as the disk takes for one, and at least this; see share.
const (
	leastShare = 500 * time.Microsecond
	mostShare  = 64 // calls
)

// share puts what deliveries are about behind the rest of a batch, and keeps what is beyond its share for the next one. Thirty-two attempts that end together are
// thirty-two writes: in one commit they would hold up an append by as much as the disk does, and in several they hold up nobody but themselves.
func (s *Store) share(batch []*item) []*item {
	s.held = s.held[:0]
	least := max(leastShare, s.diskTook)
	room := mostShare
	if s.laterTook > 0 {
		room = min(max(int(least/s.laterTook), 1), mostShare)
	}
	out := make([]*item, 0, len(batch))
	var later []*item
	for _, it := range batch {
		if it.later {
			later = append(later, it)
		} else {
			out = append(out, it)
		}
	}
	room = min(room, len(later))
	s.held = append(s.held, later[room:]...)
	return append(out, later[:room]...)
}

// average follows a duration by an eighth.
func average(was *time.Duration, now time.Duration) {
	if *was == 0 {
		*was = now
	}
	*was += (now - *was) / 8
}

// expected notes the size of a group. The expectation follows at once upwards and by an eighth downwards.
func (s *Store) expected(n int) {
	s.expect = max(float64(n), s.expect-(s.expect-float64(n))/8)
}

// serve runs a group and answers its callers.
func (s *Store) serve(items []*item) {
	taken := make([]*item, 0, len(items))
	var left []*item
	for _, it := range items {
		if it.state.CompareAndSwap(itemQueued, itemTaken) {
			taken = append(taken, it)
		} else {
			left = append(left, it)
		}
	}
	s.answer(left)
	s.transact(taken)
}

// transact runs items in one transaction. Where one fails after it has written, those before it, itself and those after it are
// tried as groups of their own; where the commit fails, each alone.
func (s *Store) transact(items []*item) {
	if len(items) == 0 {
		return
	}
	if g := s.written(items); g != nil {
		s.commit(g, items)
	}
}

// written runs items in a transaction that is still to be committed; nil where they had to be tried apart, and are answered.
func (s *Store) written(items []*item) *group {
	g := s.newGroup()
	for i, it := range items {
		before := g.writes
		it.err = g.run(it)
		if it.err == nil || g.writes == before {
			continue
		}
		g.rollback()
		if len(items) == 1 {
			s.observe(Commit{Items: 1, Messages: g.messages, Took: g.took(), Err: it.err})
			s.answer(items)
			return nil
		}
		s.transact(items[:i])
		s.transact(items[i : i+1])
		s.transact(items[i+1:])
		return nil
	}
	if g.writes > 0 {
		s.tellEarly(items)
	}
	return g
}

// commit ends a transaction and answers the callers of its items. Where it fails, those items are tried again whose callers still wait.
func (s *Store) commit(g *group, items []*item) {
	if err := g.commit(); err != nil {
		s.observe(Commit{Items: len(items), Messages: g.messages, Took: g.took(), Err: err})
		for i, it := range items {
			if len(items) > 1 && (it.early == nil || !it.early.told) {
				s.transact(items[i : i+1])
				continue
			}
			it.err = err
			s.answer(items[i : i+1])
		}
		return
	}
	if g.writes > 0 {
		s.observe(Commit{Items: len(items), Messages: g.messages, Took: g.took()})
	}
	s.answer(items)
}

// group is one transaction. It begins with the first write; what it reads before that is current too, since nobody else writes.
type group struct {
	s        *Store
	w        *conn
	open     bool
	began    time.Time
	writes   int // statements that wrote
	messages int
	pages    int // estimate of pages written
	works    map[key]*view
	touched  map[key]bool // agents whose view changed
	erased   []key
	changed  map[int64]webhook.Endpoint // by row, what results have made of endpoints; nil = nothing
	after    []func()                   // after the commit, before callers are answered
	dues     map[int64]int64            // by endpoint's row, the earliest time that something became due at
	tests    bool                       // there are tests among that
	wake     bool
}

func (s *Store) newGroup() *group {
	return &group{s: s, w: s.writer, works: map[key]*view{}, touched: map[key]bool{}}
}

func (g *group) took() time.Duration {
	if g.began.IsZero() {
		return 0
	}
	return time.Since(g.began)
}

// run runs one item; a panic in it is its caller's error alone.
func (g *group) run(it *item) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, fmt.Errorf("panic in a decision: %v\n%s", p, debug.Stack()), "the store failed")
		}
	}()
	if it.later {
		began := time.Now()
		defer func() { average(&g.s.laterTook, time.Since(began)) }()
	}
	return it.run(g)
}

// exec writes. The transaction begins here if it has not.
func (g *group) exec(what, sql string, args ...driver.Value) (changed, id int64, err error) {
	if !g.open {
		if err := g.begin(); err != nil {
			return 0, 0, classify(err, "begin")
		}
	}
	g.writes++
	r, err := g.w.run(sql, args...)
	if err != nil {
		return 0, 0, classify(err, what)
	}
	if changed, err = r.RowsAffected(); err == nil {
		id, err = r.LastInsertId()
	}
	return changed, id, err
}

func (g *group) begin() error {
	g.began = time.Now()
	_, err := g.w.run("BEGIN IMMEDIATE")
	if err != nil {
		// An earlier rollback may have failed; a second one puts that right.
		if _, again := g.w.run("ROLLBACK"); again == nil {
			_, err = g.w.run("BEGIN IMMEDIATE")
		}
	}
	g.open = err == nil
	return err
}

func (g *group) rollback() {
	if g.open {
		// SQLite has rolled back by itself after some errors, a full disk among them; then there is nothing to roll back.
		_, _ = g.w.run("ROLLBACK")
		g.open = false
	}
}

// commit makes the group durable and then visible.
func (g *group) commit() error {
	g.s.showing.Lock()
	defer g.s.showing.Unlock()
	if g.open {
		began := time.Now()
		if _, err := g.w.run("COMMIT"); err != nil {
			g.rollback()
			return classify(err, "commit")
		}
		average(&g.s.diskTook, time.Since(began))
		g.open = false
		g.s.walPages += g.pages + 2
		g.s.commits.Add(1)
	}
	for k := range g.touched {
		g.s.cache.install(k, g.works[k])
	}
	for _, k := range g.erased {
		g.s.cache.remove(k)
	}
	for _, fn := range g.after {
		fn()
	}
	g.s.note(g.dues, g.tests)
	if g.wake {
		g.s.wake()
	}
	return nil
}

// view gives an agent as this group sees it: with what earlier items wrote.
func (g *group) view(k key) (*view, error) {
	if v := g.works[k]; v != nil {
		return v, nil
	}
	v := g.s.cache.get(k)
	if slices.Contains(g.erased, k) { // what is kept of it goes with the commit
		return loadHead(g.w, &g.s.sealer, k, nil)
	}
	if v == nil {
		e, old := g.s.cache.hold(k)
		var err error
		v, err = loadHead(g.w, &g.s.sealer, k, nil)
		if err != nil {
			if fault.Is(err, fault.NotFound) {
				g.s.cache.forget(e)
			}
			return nil, err
		}
		// Only what is committed may be filled in; an agent created in this group is in works.
		g.s.cache.fill(e, old, v)
	}
	g.works[k] = v
	return v, nil
}

// set makes v the agent's state for the rest of the group.
func (g *group) set(k key, v *view) {
	g.works[k] = v
	g.touched[k] = true
}

var errNoRow = errors.New("no such row")
