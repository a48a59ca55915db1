package job

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/heardlog/heardlog/store/record"
)

// Queue has the jobs of a kind. Its methods are safe for concurrent use, and none of them waits for
// a job.
type Queue struct {
	r     *Runner
	kind  Kind
	wake  chan struct{}
	known record.State    // up to which stored jobs were read; of run
	more  bool            // Find may have more; of run
	found map[string]bool // projects of which it has found jobs; of run
	find  time.Time       // when it is called again; of run

	mu      sync.Mutex // guards the rest
	jobs    map[Key]*entry
	heap    entries
	parked  map[string][]*entry // due, waiting for a place of their project, by project
	of      map[string]int      // how many run, by project
	running int
	failed  int  // how many are Failed
	reread  bool // jobs are wanted that are not known here
	wanted  map[Key]bool
}

// entry is a job that this server knows.
type entry struct {
	Key
	body
	at     time.Time // not before; of a failed one when it is forgotten
	place  int       // in the heap; -1 = it is not there
	rev    int64     // of its record; record.Absent for none
	parked bool
	// busy jobs run here; again ones have been added meanwhile, to run after a time.
	busy, again bool
	after       time.Duration
	cancel      context.CancelCauseFunc
	// missed is what another server stored while this one was busy with the job; nil for nothing.
	missed *record.Record
}

// Add adds a job that runs after a time. One that waits already stays as it is; one that runs is
// run again. The kind's jobs must not be Stored.
func (q *Queue) Add(k Key, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(k, after)
}

func (q *Queue) add(k Key, after time.Duration) (added bool) {
	e := q.jobs[k]
	switch {
	case e != nil && e.busy:
		e.again, e.after = true, after
		return false
	case e != nil && e.FailedMS == 0:
		return false
	case e != nil:
		q.remove(e)
	}
	now := q.r.cfg.Now()
	q.enter(&entry{Key: k, body: body{SinceMS: now.UnixMilli()}, at: now.Add(after), place: -1})
	return true
}

// Put stores a job that runs after a time. It is on disk when Put returns. It fails with
// record.ErrStale if the job is there already.
func (q *Queue) Put(ctx context.Context, k Key, after time.Duration) error {
	now := q.r.cfg.Now()
	e := &entry{Key: k, body: body{SinceMS: now.UnixMilli()}, at: now.Add(after), place: -1}
	if after > 0 {
		e.DueMS = e.at.UnixMilli()
	}
	var err error
	if e.rev, err = q.store(ctx, k, e.body, record.Absent); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if old := q.jobs[k]; old == nil || !old.busy && old.rev < e.rev {
		if old != nil {
			q.remove(old)
		}
		q.enter(e)
	}
	return nil
}

// Start has a Stored job that was put here run at once, by the next server if this one ends.
func (q *Queue) Start(ctx context.Context, k Key) error {
	q.mu.Lock()
	e := q.jobs[k]
	if e == nil || e.busy || e.Busy || e.DueMS == 0 {
		q.mu.Unlock()
		return nil // it has begun, or is done
	}
	b, rev := e.body, e.rev
	q.mu.Unlock()
	b.DueMS = 0
	rev, err := q.store(ctx, k, b, rev)
	switch {
	case errors.Is(err, record.ErrStale):
		return nil
	case err != nil:
		return err
	}
	q.mu.Lock()
	if e := q.jobs[k]; e != nil && !e.busy && e.rev < rev {
		e.body, e.rev = b, rev
	}
	q.mu.Unlock()
	q.Now(k)
	return nil
}

// Now has a job that waits for its time run at once, unless it has failed or another server does
// it.
func (q *Queue) Now(k Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.jobs[k]
	switch {
	case e == nil && q.kind.Stored && len(q.wanted) < maxWanted: // another server may have put it
		q.wanted[k], q.reread = true, true
		q.poke()
	case e == nil || e.FailedMS > 0 || e.Tries > 0 || e.Busy:
	case e.busy:
		e.again, e.after = true, 0
	case e.place >= 0:
		e.at = q.r.cfg.Now()
		heap.Fix(&q.heap, e.place)
		q.poke()
	}
}

// maxWanted is how many jobs of other servers can be wanted at once. Others run when their time
// comes.
const maxWanted = 10_000

// errDropped cancels a job that was dropped.
var errDropped = errors.New("the job was dropped")

// Drop forgets a job that is not Stored, and cancels it if it runs.
func (q *Queue) Drop(k Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.jobs[k]; e != nil {
		if e.cancel != nil {
			e.cancel(errDropped)
		}
		q.remove(e)
	}
}

// Forget deletes a Stored job that does not run. One that runs must notice by itself that its
// subject is gone.
func (q *Queue) Forget(ctx context.Context, k Key) error {
	q.mu.Lock()
	e := q.jobs[k]
	known := e != nil && !e.busy
	q.mu.Unlock()
	if !known { // another server's jobs are known within lookEvery
		return nil
	}
	if _, err := q.change(ctx, record.Change{ID: k.recordID(), If: record.Any}); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.jobs[k]; e != nil && !e.busy {
		q.remove(e)
	}
	return nil
}

// progress returns the stored progress of a job.
func (q *Queue) progress(k Key) (p Progress) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.jobs[k]; e != nil {
		p = e.Progress
	}
	return p
}

func (q *Queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// enter lets a job wait; mu is held.
func (q *Queue) enter(e *entry) {
	q.jobs[e.Key] = e
	q.wait(e)
	if e.FailedMS > 0 {
		q.failed++
		q.forgetFailed()
	}
}

// forgetFailed has the job forgotten that was given up first if there are too many; mu is held.
func (q *Queue) forgetFailed() {
	if q.failed <= MaxFailed {
		return
	}
	var first *entry
	for _, e := range q.jobs {
		if e.FailedMS > 0 && e.place >= 0 && !e.at.IsZero() && (first == nil || e.at.Before(first.at)) {
			first = e
		}
	}
	if first != nil {
		first.at = time.Time{}
		heap.Fix(&q.heap, first.place)
		q.poke()
	}
}

// wait puts a job into the heap; mu is held.
func (q *Queue) wait(e *entry) {
	if e.place < 0 && !e.parked {
		heap.Push(&q.heap, e)
		if q.heap[0] == e {
			q.poke()
		}
	}
}

// remove forgets a job; mu is held.
func (q *Queue) remove(e *entry) {
	if e.place >= 0 {
		heap.Remove(&q.heap, e.place)
	}
	if e.FailedMS > 0 {
		q.failed--
	}
	if q.jobs[e.Key] == e {
		delete(q.jobs, e.Key)
	}
	if !e.busy {
		q.unpark(e.Project) // it may have been this one that had the place
	}
}

// unpark lets the next job wait that has been waiting for a place of its project; mu is held. Each
// end of a job calls it, so that those jobs are never searched.
func (q *Queue) unpark(project string) {
	list := q.parked[project]
	for len(list) > 0 {
		e := list[0]
		list[0], list = nil, list[1:]
		e.parked = false
		if q.jobs[e.Key] == e { // it was not dropped meanwhile
			q.wait(e)
			break
		}
	}
	if q.parked[project] = list; len(list) == 0 {
		delete(q.parked, project)
	}
}

// run runs jobs until ctx is done, then waits for those that run, whose contexts have ended.
func (q *Queue) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for next := (time.Time{}); ctx.Err() == nil; {
		now := q.r.cfg.Now()
		if q.kind.Stored && (q.takeReread() || !now.Before(next)) {
			next = now.Add(lookEvery)
			if err := q.refresh(ctx); err != nil && ctx.Err() == nil {
				q.r.problem("the jobs could not be read", q.kind.Name, err)
			}
		}
		wait := q.look(ctx, now)
		wait = min(wait, q.start(ctx, &group))
		if q.kind.Stored {
			wait = min(wait, next.Sub(now))
		}
		alarm := time.NewTimer(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
		case <-alarm.C:
		case <-q.wake:
		}
		alarm.Stop()
	}
}

func (q *Queue) takeReread() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.reread
	q.reread = false
	return was
}

// look calls the kind's Find if it is time to. It returns how long it is until the next time.
func (q *Queue) look(ctx context.Context, now time.Time) time.Duration {
	if q.kind.Find == nil {
		return time.Hour
	}
	q.mu.Lock()
	more := q.more && q.ranDry(now)
	q.mu.Unlock()
	if now.Before(q.find) && !more {
		return q.find.Sub(now)
	}
	q.find = now.Add(q.kind.Every)
	q.found = map[string]bool{}
	q.more = false
	_, err := q.guarded(func() (r Result, err error) {
		more, err = q.kind.Find(ctx, func(k Key) bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			if e := q.jobs[k]; e != nil && e.busy {
				return false
			}
			added := q.add(k, 0)
			if added {
				q.found[k.Project] = true
			}
			return added
		})
		return r, err
	})
	if q.more = more && err == nil; err != nil && ctx.Err() == nil {
		q.r.problem("jobs could not be found", q.kind.Name, err)
	}
	return q.kind.Every
}

// ranDry reports whether a project of which jobs were found has none left that could run now; mu is
// held.
func (q *Queue) ranDry(now time.Time) bool {
	left := map[string]bool{}
	for k, e := range q.jobs {
		if e.busy || e.parked || !e.at.After(now) {
			left[k.Project] = true
		}
	}
	for project := range q.found {
		if !left[project] {
			return true
		}
	}
	return false
}

// start starts what is due and has a place. It returns how long nothing else is due.
func (q *Queue) start(ctx context.Context, group *sync.WaitGroup) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.r.cfg.Now()
	for len(q.heap) > 0 {
		e := q.heap[0]
		if due := e.at.Sub(now); due > 0 {
			return due
		}
		if e.FailedMS > 0 {
			q.remove(e)
			if e.rev != record.Absent {
				group.Go(func() { q.forget(ctx, e) })
			}
			continue
		}
		if q.running == q.kind.Places {
			break // the end of one wakes run
		}
		heap.Pop(&q.heap)
		if q.of[e.Project] >= max(1, q.kind.Places/2) {
			e.parked = true
			q.parked[e.Project] = append(q.parked[e.Project], e)
			continue
		}
		run, cancel := context.WithCancelCause(ctx)
		e.busy, e.again, e.cancel = true, false, cancel
		q.running++
		q.of[e.Project]++
		group.Go(func() {
			q.work(run, e)
			cancel(nil)
		})
	}
	return time.Hour
}

// work runs a job that is due, and stores, counts and logs the result.
func (q *Queue) work(ctx context.Context, e *entry) {
	began := time.Now()
	v := q.try(ctx, e)
	q.r.report(&q.kind, e, &v, time.Since(began))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running--
	if q.of[e.Project]--; q.of[e.Project] == 0 {
		delete(q.of, e.Project)
	}
	defer q.poke() // there is a place
	e.busy, e.cancel = false, nil
	q.unpark(e.Project)
	if q.jobs[e.Key] != e { // it was dropped
		return
	}
	now := q.r.cfg.Now()
	again, missed := e.again, e.missed
	e.again, e.missed = false, nil
	switch {
	case missed != nil && missed.Rev > e.rev:
		q.remove(e)
		q.take(missed)
		return
	case v.failed && (!again || q.kind.Stored):
		e.FailedMS, e.at = now.UnixMilli(), now.Add(KeepFailed)
		q.failed++
		q.wait(e)
		q.forgetFailed()
		return
	case v.Again:
		e.at = now.Add(v.After)
		if again && e.Tries == 0 && !v.elsewhere {
			e.at = now.Add(min(e.after, v.After))
		}
	case again && !q.kind.Stored: // it was added while it ran
		e.body, e.at = body{SinceMS: now.UnixMilli()}, now.Add(e.after)
	default:
		q.remove(e)
		return
	}
	q.wait(e)
}

// entries are jobs, the first due in front.
type entries []*entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h entries) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].place, h[j].place = i, j }

// Push implements heap.Interface.
func (h *entries) Push(x any) {
	e := x.(*entry)
	e.place = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *entries) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	e.place = -1
	return e
}
