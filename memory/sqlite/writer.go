package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// Limits of the queue in front of the writer.
const (
	maxWaiting = 16384 // jobs that may wait; more fail with fault.Unavailable
	maxLater   = 64    // jobs about deliveries in one transaction: they must not delay others much
)

// Commit describes one transaction, for metrics.
type Commit struct {
	Items int           // jobs that shared it
	Took  time.Duration // from its first statement to the disk's answer
	Err   error         // why it failed; its jobs were then tried one by one if there were several
}

// writer serializes writes to the one connection that writes. A caller puts its jobs into the
// queue. If no commit is in progress, it takes the turn and commits everything that waits, its own
// jobs and those of others, in one transaction. Otherwise it waits for its jobs or for the turn. So
// a lone call commits without another goroutine, and concurrent calls share the wait for the disk.
type writer struct {
	*conn               // used only by the holder of the turn
	turn  chan struct{} // holds a value during a commit

	mu      sync.Mutex // guards the queue
	waiting []*job
	later   []*job // about deliveries: see maxLater
	closed  atomic.Bool
}

// job is one change to the database.
type job struct {
	run   func(*tx) error // may run again after a rollback
	alone bool            // must not share its transaction
	later bool            // is about deliveries
	err   error           // the outcome, once done is closed
	ended bool            // err is final; guarded by the turn
	done  chan struct{}   // closed when the job has ended; nil for all but the last job of a call
}

// write runs fn in a transaction and returns when it is on disk. fn may run again after a rollback.
// If ctx ends before fn has its turn, fn does not run.
func (s *Store) write(ctx context.Context, fn func(*tx) error) error {
	return s.submitOne(ctx, &job{run: fn})
}

// writeAlone is write in a transaction of its own, for changes of endpoints: other jobs of the same
// transaction would not see them.
func (s *Store) writeAlone(ctx context.Context, fn func(*tx) error) error {
	return s.submitOne(ctx, &job{run: fn, alone: true})
}

// writeLater is write for changes of deliveries, which only the webhook worker waits for.
func (s *Store) writeLater(ctx context.Context, fn func(*tx) error) error {
	return s.submitOne(ctx, &job{run: fn, later: true})
}

func (s *Store) submitOne(ctx context.Context, j *job) error {
	if err := s.submit(ctx, j); err != nil {
		return err
	}
	return j.err
}

// submit queues jobs, which run in their order, and returns nil when all of them have ended.
// Otherwise none has run.
func (s *Store) submit(ctx context.Context, jobs ...*job) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	last := jobs[len(jobs)-1]
	last.done = make(chan struct{})
	if err := s.writer.enqueue(jobs); err != nil {
		return err
	}
	gone := ctx.Done()
	for {
		select {
		case <-last.done:
			return nil
		case s.writer.turn <- struct{}{}:
			for !last.ended {
				s.transact(s.writer.next())
			}
			<-s.writer.turn
			return nil
		case <-gone:
			if s.writer.withdraw(jobs) {
				return ended(ctx)
			}
			gone = nil // they are being committed
		}
	}
}

func (w *writer) enqueue(jobs []*job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Load() {
		return errClosed()
	}
	if len(w.waiting)+len(w.later)+len(jobs) > maxWaiting {
		return fault.New(fault.Unavailable, "too many writes are waiting; try again")
	}
	for _, j := range jobs {
		if j.later {
			w.later = append(w.later, j)
		} else {
			w.waiting = append(w.waiting, j)
		}
	}
	return nil
}

// withdraw removes jobs from the queue. It reports false, and removes none, if the first of them
// has left it.
func (w *writer) withdraw(jobs []*job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := &w.waiting
	if jobs[0].later {
		from = &w.later
	}
	at := slices.Index(*from, jobs[0])
	if at < 0 {
		return false
	}
	*from = slices.Delete(*from, at, at+len(jobs))
	return true
}

// next takes the jobs of the next transaction from the queue: all that wait, and some of those
// about deliveries.
func (w *writer) next() []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.waiting)
	if at := slices.IndexFunc(w.waiting, func(j *job) bool { return j.alone }); at >= 0 {
		n = max(at, 1)
	}
	batch := slices.Clone(w.waiting[:n])
	w.waiting = slices.Delete(w.waiting, 0, n)
	if n == 1 && batch[0].alone {
		return batch
	}
	n = min(len(w.later), maxLater)
	batch = append(batch, w.later[:n]...)
	w.later = slices.Delete(w.later, 0, n)
	return batch
}

// closeWriter closes the queue and commits what is in it.
func (s *Store) closeWriter() {
	w := &s.writer
	w.mu.Lock()
	w.closed.Store(true)
	w.mu.Unlock()
	w.turn <- struct{}{}
	for jobs := w.next(); len(jobs) > 0; jobs = w.next() {
		s.transact(jobs)
	}
	<-w.turn
}

// transact runs jobs in one transaction; its caller has the turn. If a job fails after it wrote, or
// the commit fails, the transaction is rolled back and each job runs in one of its own.
func (s *Store) transact(jobs []*job) {
	t := &tx{s: s, w: s.writer.conn}
	err := t.runAll(jobs)
	if err == nil {
		err = t.commit()
	}
	if t.wrote || err != nil {
		s.observe(Commit{Items: len(jobs), Took: t.took(), Err: err})
	}
	if err != nil {
		t.rollback()
		if len(jobs) > 1 {
			for i := range jobs {
				s.transact(jobs[i : i+1])
			}
			return
		}
		jobs[0].err = err
	}
	for _, j := range jobs {
		j.ended = true
		if j.done != nil {
			close(j.done)
		}
	}
}

// tx is one transaction. It begins with its first write. What is read before that is current too,
// because there is no other writer.
type tx struct {
	s     *Store
	w     *conn
	open  bool
	wrote bool
	began time.Time
	pages int      // estimate of the pages written
	after []func() // run after the commit, before callers return

	changed map[int64]webhook.Endpoint // endpoints, by row, that results of deliveries have changed
	dues    map[int64]int64            // by endpoint's row, the earliest new due time
	tests   bool                       // there are tests among that
	wake    bool                       // the webhook worker has something to look for
}

// runAll runs jobs. It returns an error if one of them failed after it wrote; a job that failed
// without writing has its error and affects no other.
func (t *tx) runAll(jobs []*job) error {
	for _, j := range jobs {
		before := t.pages
		if j.err = t.runOne(j); j.err != nil && t.pages > before {
			return j.err
		}
	}
	return nil
}

// runOne runs one job. A panic in it fails that job only.
func (t *tx) runOne(j *job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack()), "the store failed")
		}
	}()
	return j.run(t)
}

// exec executes a statement that writes, and begins the transaction if it has not begun.
func (t *tx) exec(what, sql string, args ...driver.Value) (changed, id int64, err error) {
	if !t.open {
		if err := t.begin(); err != nil {
			return 0, 0, classify(err, "begin")
		}
	}
	r, err := t.w.run(sql, args...)
	if err != nil {
		t.pages++ // the statement may have ended the transaction
		return 0, 0, classify(err, what)
	}
	if changed, err = r.RowsAffected(); err == nil {
		id, err = r.LastInsertId()
	}
	if changed > 0 {
		t.wrote = true
		t.pages += int(changed)
		for _, a := range args {
			switch v := a.(type) {
			case string:
				t.pages += len(v) / pageSize
			case []byte:
				t.pages += len(v) / pageSize
			}
		}
	}
	return changed, id, err
}

func (t *tx) begin() error {
	t.began = time.Now()
	_, err := t.w.run("BEGIN IMMEDIATE")
	if err != nil {
		// An earlier rollback may have failed: then a second one helps.
		if _, again := t.w.run("ROLLBACK"); again == nil {
			_, err = t.w.run("BEGIN IMMEDIATE")
		}
	}
	t.open = err == nil
	return err
}

func (t *tx) rollback() {
	if t.open {
		// It fails if SQLite has rolled back by itself, as it does on a full disk. Then there is
		// nothing to roll back.
		_, _ = t.w.run("ROLLBACK")
		t.open = false
	}
}

// commit makes the transaction durable and then visible.
func (t *tx) commit() error {
	if t.open {
		if _, err := t.w.run("COMMIT"); err != nil {
			return classify(err, "commit")
		}
		t.open = false
		t.s.logGrew(t.pages)
	}
	for _, fn := range t.after {
		fn()
	}
	t.s.noteDue(t.dues, t.tests)
	if t.wake {
		t.s.wake()
	}
	return nil
}

// errNoRow is an error about a row that must be there.
var errNoRow = errors.New("no such row")

func (t *tx) took() time.Duration {
	if t.began.IsZero() {
		return 0
	}
	return time.Since(t.began)
}
