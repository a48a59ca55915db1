package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// write is a decided change on its way to the disk.
type write struct {
	memory.Write
	agent      *agent
	after      *snapshot // the agent after it
	fails      int       // agent.fails when it was decided
	began      time.Time // when its call began
	whenStored func(error)
	left       atomic.Int32 // see writeQueued
	err        error        // set before done is closed
	done       chan struct{}

	// Of the queue.
	next  *write // the agent's next
	cost  int    // bytes
	large bool   // it has a commit for itself
}

// What write.left holds. A caller whose context ends takes its write back if no committer has taken
// it before.
const (
	writeQueued int32 = iota
	writeTaken
	writeLeft
)

func (w *write) bytes() (n int) {
	for _, b := range w.Bodies {
		n += len(b)
	}
	return n + len(w.Private)
}

// committer commits one group after the other. It has a goroutine only while there is something to
// do. A caller that finds it idle commits by itself: waking a goroutine would cost a tenth of a
// commit.
type committer struct {
	e       *Engine
	busy    bool       // a goroutine or a caller commits; guarded by the queue
	serving sync.Mutex // held while a commit is under way, until memory shows it
	// How many callers waited for the last group; 0 after a pause. Only who is busy uses it.
	back int
}

// queue puts a write into the queue and makes it the agent's tip. The caller holds the agent's
// turn. If commit is not nil, a committer was idle, and the caller must run commit.
func (e *Engine) queue(w *write) (commit func(), err error) {
	a := w.agent
	q := e.waiting
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.mayAdd(w.Project); err != nil {
		return nil, err
	}
	a.stripe.mu.Lock()
	defer a.stripe.mu.Unlock()
	if a.fails != w.fails {
		return nil, memory.ErrStale
	}
	a.users++
	a.tip, a.last = w.after, w
	if w.whenStored != nil {
		a.early = w
	}
	q.add(w)
	if a.by != nil { // its committer goes on with it
		return nil, nil
	}
	for _, c := range e.committers {
		if !c.busy {
			c.busy = true
			return c.lead, nil
		}
	}
	return nil, nil
}

// await waits for the outcome of a write, unless its caller goes on early. commit is what queue
// returned.
func (e *Engine) await(ctx context.Context, w *write, commit func()) (early bool, err error) {
	switch {
	case w.whenStored != nil:
		if commit != nil {
			e.work.Go(commit)
		}
		return true, nil
	case commit != nil:
		commit()
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if w.left.CompareAndSwap(writeQueued, writeLeft) {
			return false, fault.Ended(ctx)
		}
		<-w.done
	}
	if w.err == nil {
		memory.Committed(ctx)
	}
	return false, w.err
}

// lead commits one group, and leaves the others to a goroutine.
func (c *committer) lead() {
	if !c.commitGroup() {
		return
	}
	q := c.e.waiting
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.busy = q.waiting > 0; c.busy {
		c.e.work.Go(func() {
			for c.commitGroup() {
			}
		})
		return
	}
	c.back = 0
}

// gatherFor bounds how long a group waits for callers that were just answered and are about to come
// back.
const gatherFor = time.Millisecond

// gather waits until the callers that waited for the last group have come back, so that they share
// the next commit with those that came meanwhile: one commit for all takes less than two. A lone
// caller never waits.
func (c *committer) gather() {
	full := c.e.waiting.expect(c.back)
	if full == nil {
		return
	}
	late := time.NewTimer(gatherFor)
	defer late.Stop()
	select {
	case <-full:
	case <-late.C:
	}
}

// commitGroup commits the next group and answers its callers. It reports false, and the committer
// is idle, if there was none.
func (c *committer) commitGroup() bool {
	c.gather()
	c.serving.Lock()
	defer c.serving.Unlock()
	taken := c.e.waiting.take(c)
	if len(taken) == 0 {
		return false
	}
	defer c.e.waiting.stored(c, taken)
	group, batch := make([]*write, 0, len(taken)), make([]memory.Write, 0, len(taken))
	messages, left := 0, c.e.o.Timeout
	for _, w := range taken {
		if err := w.refused(c.e.o.Timeout); err != nil {
			c.e.fail(w, err)
			continue
		}
		group, batch = append(group, w), append(batch, w.Write)
		messages += len(w.Change.Append) + len(w.Change.Replace)
		left = min(left, c.e.o.Timeout-time.Since(w.began)) // at least half of it
	}
	if len(group) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), left, fault.New(fault.Unavailable, "the store did not answer in time"))
	defer cancel()
	began := time.Now()
	errs, err := c.e.store.Apply(ctx, batch)
	c.e.o.Observe(Commit{Items: len(group), Messages: messages, Took: time.Since(began), Err: err})
	c.e.failed(err)
	for i, w := range group {
		switch {
		case err != nil:
			c.e.fail(w, err)
		case errs[i] != nil:
			c.e.fail(w, errs[i])
		default:
			c.e.stored(w)
		}
	}
	return true
}

// refused takes the write for a commit, or returns why it is not to be stored.
func (w *write) refused(timeout time.Duration) error {
	if !w.left.CompareAndSwap(writeQueued, writeTaken) {
		return fault.New(fault.Canceled, "the call was given up")
	}
	w.agent.stripe.mu.Lock()
	defer w.agent.stripe.mu.Unlock()
	if w.agent.fails != w.fails {
		return memory.ErrStale
	}
	if time.Since(w.began) > timeout/2 {
		return errSlow
	}
	return nil
}

// stored shows a write that is on disk and answers its caller.
func (e *Engine) stored(w *write) {
	a := w.agent
	a.stripe.mu.Lock()
	a.stripe.changes++
	e.put(w.Ref, w.after)
	if a.last == w {
		a.tip, a.last = nil, nil
	}
	e.answer(w, nil)
}

// fail answers a write that is not stored, or whose outcome is unknown. What was decided on it is
// stale from now on, and the next decision builds on what the store holds.
func (e *Engine) fail(w *write, err error) {
	a := w.agent
	a.stripe.mu.Lock()
	if a.fails == w.fails {
		a.stripe.changes++
		e.lose(w.Ref)
		e.cache.Remove(w.Ref)
		a.fails++
		a.failure, a.tip, a.last = err, nil, nil
	}
	if w.whenStored != nil && errors.Is(err, memory.ErrStale) { // it is not decided again
		err = fault.Wrap(fault.Unavailable, a.failure, "an earlier change of the agent was not stored")
	}
	e.answer(w, err)
}

// answer ends a write. The caller holds the agent's stripe; answer releases it.
func (e *Engine) answer(w *write, err error) {
	a := w.agent
	if a.early == w {
		a.early = nil
	}
	a.release()
	w.err = err
	close(w.done)
	a.stripe.mu.Unlock()
	if w.whenStored != nil {
		e.work.Go(func() { w.whenStored(err) })
	}
}
