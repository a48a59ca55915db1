package dbfile

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// Limits of the queue in front of the writer. Jobs of WriteLater must not delay others.
const (
	maxWaiting = 16384                // jobs that may wait; more fail with fault.Unavailable
	maxLater   = 256                  // jobs of WriteLater in one transaction
	maxRiders  = 8                    // of them, if others wait for the transaction
	laterWait  = 2 * time.Millisecond // a job of WriteLater waits for others to share its commit
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
	*Conn               // used only by the holder of the turn
	turn  chan struct{} // holds a value during a commit

	mu      sync.Mutex // guards the queue
	waiting []*Job
	later   []*Job // of WriteLater
	closed  atomic.Bool
}

// Job is one change to the database.
type Job struct {
	Run func(*Tx) error // may run again after a rollback
	Err error           // the outcome, for jobs behind it and when it has ended

	what  string        // names it in errors
	alone bool          // must not share its transaction
	later bool          // is of WriteLater
	ended bool          // Err is final; guarded by the turn
	done  chan struct{} // closed when the job has ended; nil for all but the last job of a call
}

// Write runs fn in a transaction and returns when it is on disk. fn may run again after a rollback.
// If ctx ends before fn has its turn, fn does not run. what names the action in errors.
func (d *DB) Write(ctx context.Context, what string, fn func(*Tx) error) error {
	return d.submitOne(ctx, &Job{what: what, Run: fn})
}

// WriteAlone is Write in a transaction of its own, for changes that other jobs of the same
// transaction would not see.
func (d *DB) WriteAlone(ctx context.Context, what string, fn func(*Tx) error) error {
	return d.submitOne(ctx, &Job{what: what, Run: fn, alone: true})
}

// WriteLater is Write for changes that must not delay those of Write. They wait for each other to
// share a transaction.
func (d *DB) WriteLater(ctx context.Context, what string, fn func(*Tx) error) error {
	return d.submitOne(ctx, &Job{what: what, Run: fn, later: true})
}

// WriteAll is Write for several jobs at once, which run in their order. It returns nil when all of
// them have ended, whatever their errors. Otherwise none has run.
func (d *DB) WriteAll(ctx context.Context, what string, jobs []*Job) error {
	if len(jobs) == 0 {
		return nil
	}
	for _, j := range jobs {
		j.what = what
	}
	return d.submit(ctx, jobs...)
}

func (d *DB) submitOne(ctx context.Context, j *Job) error {
	if err := d.submit(ctx, j); err != nil {
		return err
	}
	return j.Err
}

// submit queues jobs, which run in their order, and returns nil when all of them have ended.
// Otherwise none has run.
func (d *DB) submit(ctx context.Context, jobs ...*Job) error {
	if ctx.Err() != nil {
		return fault.Ended(ctx)
	}
	last := jobs[len(jobs)-1]
	last.done = make(chan struct{})
	if err := d.writer.enqueue(jobs); err != nil {
		return err
	}
	gone, turn := ctx.Done(), d.writer.turn
	var others <-chan time.Time
	if last.later {
		wait := time.NewTimer(laterWait)
		defer wait.Stop()
		turn, others = nil, wait.C
	}
	for {
		select {
		case <-last.done:
			return nil
		case <-others:
			turn = d.writer.turn
		case turn <- struct{}{}:
			for !last.ended {
				d.commitTransaction()
			}
			<-turn
			return nil
		case <-gone:
			if d.writer.withdraw(jobs) {
				return fault.Ended(ctx)
			}
			gone = nil // they are being committed
		}
	}
}

func (w *writer) enqueue(jobs []*Job) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed.Load() {
		return ErrClosed()
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
func (w *writer) withdraw(jobs []*Job) bool {
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

// next takes the jobs that wait, for one transaction, without those of WriteLater.
func (w *writer) next() []*Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.take()
}

func (w *writer) take() []*Job {
	n := len(w.waiting)
	if at := slices.IndexFunc(w.waiting, func(j *Job) bool { return j.alone }); at >= 0 {
		n = max(at, 1)
	}
	batch := slices.Clone(w.waiting[:n])
	w.waiting = slices.Delete(w.waiting, 0, n)
	return batch
}

// more takes further jobs for a transaction that has run others: one of WriteLater at a time.
// Jobs that come to wait meanwhile join the transaction and are its last. later is how many of its
// jobs are of WriteLater.
func (w *writer) more(t *Tx, ran []*Job, later int) []*Job {
	if t.last || len(ran) > 0 && ran[0].alone {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	most := maxLater
	if len(w.waiting) > 0 || later < len(ran) {
		most = maxRiders
	}
	if later < most && len(w.later) > 0 {
		batch := []*Job{w.later[0]}
		w.later = slices.Delete(w.later, 0, 1)
		return batch
	}
	if t.last = true; len(w.waiting) == 0 || w.waiting[0].alone || t.Local != nil {
		return nil
	}
	return w.take()
}

// closeWriter closes the queue and commits what is in it.
func (d *DB) closeWriter() {
	w := &d.writer
	w.mu.Lock()
	w.closed.Store(true)
	w.mu.Unlock()
	w.turn <- struct{}{}
	for d.commitTransaction() > 0 {
	}
	<-w.turn
}

// commitTransaction commits a transaction with jobs from the queue, and returns how many; its
// caller has the turn.
func (d *DB) commitTransaction() int {
	t := &Tx{d: d, Conn: d.writer.Conn}
	jobs, later := d.writer.next(), 0
	err := t.runAll(jobs)
	for err == nil {
		more := d.writer.more(t, jobs, later)
		if len(more) == 0 {
			break
		}
		if more[0].later {
			later++
		}
		err = t.runAll(more)
		jobs = append(jobs, more...)
	}
	d.transact(t, jobs, err)
	return len(jobs)
}

// transact ends the transaction of jobs, of which one has failed if err is not nil. If one failed
// after it wrote, or the commit fails, the transaction is rolled back and each job runs in one of
// its own.
func (d *DB) transact(t *Tx, jobs []*Job, err error) {
	if err == nil {
		err = t.commit()
	}
	if t.wrote || err != nil {
		d.o.Observe(Commit{Items: len(jobs), Took: t.took(), Err: err})
	}
	if err != nil {
		t.rollback()
		if len(jobs) > 1 {
			for i := range jobs {
				one := &Tx{d: d, Conn: d.writer.Conn}
				d.transact(one, jobs[i:i+1], one.runAll(jobs[i:i+1]))
			}
			return
		}
		jobs[0].Err = err
	}
	for _, j := range jobs {
		j.ended = true
		if j.done != nil {
			close(j.done)
		}
	}
}

// Tx is one transaction. It begins with its first write. What is read before that is current too,
// because there is no other writer.
type Tx struct {
	Conn *Conn // for reading only
	// Local is what the functions of a transaction share. Once it is set, no functions of Write
	// join the transaction, because they would not see it.
	Local any

	d     *DB
	open  bool
	wrote bool
	began time.Time
	steps int      // rows changed and statements that failed
	after []func() // run after the commit, before callers return
	last  bool     // it takes no further jobs
}

// OpenTx returns a transaction that Conn.Transaction has begun on the connection that writes, and
// ends.
func (d *DB) OpenTx() *Tx { return &Tx{d: d, Conn: d.writer.Conn, open: true} }

// After adds a function that runs after the commit, before callers return.
func (t *Tx) After(fn func()) { t.after = append(t.after, fn) }

// runAll runs jobs. It returns an error if one of them failed after it wrote; a job that failed
// without writing has its error and affects no other.
func (t *Tx) runAll(jobs []*Job) error {
	for _, j := range jobs {
		before := t.steps
		if j.Err = t.runOne(j); j.Err != nil && t.steps > before {
			return j.Err
		}
	}
	return nil
}

// runOne runs one job. A panic in it fails that job only.
func (t *Tx) runOne(j *Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack()), "the store failed")
		}
	}()
	return Classify(j.Run(t), j.what)
}

// Exec executes a statement that writes, and begins the transaction if it has not begun. It returns
// how many rows have changed.
func (t *Tx) Exec(sql string, args ...any) (changed int64, err error) {
	changed, _, err = t.run(sql, args)
	return changed, err
}

// ExecEach executes statements that have one argument.
func (t *Tx) ExecEach(arg any, statements ...string) error {
	for _, sql := range statements {
		if _, err := t.Exec(sql, arg); err != nil {
			return err
		}
	}
	return nil
}

// Insert is Exec for a new row, and returns its number.
func (t *Tx) Insert(sql string, args ...any) (id int64, err error) {
	_, id, err = t.run(sql, args)
	return id, err
}

func (t *Tx) run(sql string, args []any) (changed, id int64, err error) {
	if !t.open {
		if err := t.begin(); err != nil {
			t.steps++ // counts as a failed commit
			return 0, 0, err
		}
	}
	r, err := t.Conn.Run(sql, args...)
	if err != nil {
		t.steps++ // the statement may have ended the transaction
		return 0, 0, err
	}
	if changed, err = r.RowsAffected(); err == nil {
		id, err = r.LastInsertId()
	}
	if changed > 0 {
		t.wrote = true
		t.steps += int(changed)
	}
	return changed, id, err
}

func (t *Tx) begin() error {
	if err := t.d.watch.check(); err != nil {
		return err
	}
	t.began = time.Now()
	_, err := t.Conn.Run("BEGIN IMMEDIATE")
	if err != nil {
		// An earlier rollback may have failed: then a second one helps.
		if _, again := t.Conn.Run("ROLLBACK"); again == nil {
			_, err = t.Conn.Run("BEGIN IMMEDIATE")
		}
	}
	t.open = err == nil
	return err
}

func (t *Tx) rollback() {
	if t.open {
		// It fails if SQLite has rolled back by itself, as it does on a full disk. Then there is
		// nothing to roll back.
		_, _ = t.Conn.Run("ROLLBACK")
		t.open = false
	}
}

// commit makes the transaction durable and then visible.
func (t *Tx) commit() error {
	if t.open {
		if _, err := t.Conn.Run("COMMIT"); err != nil {
			return Classify(err, "commit")
		}
		t.open = false
		t.d.checkLog(t.steps)
	}
	for _, fn := range t.after {
		fn()
	}
	return nil
}

func (t *Tx) took() time.Duration {
	if t.began.IsZero() {
		return 0
	}
	return time.Since(t.began)
}
