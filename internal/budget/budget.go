// Package budget limits how much memory the requests that read much may use at a time: all of them
// together, and those of one project.
package budget

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/heardlog/heardlog/internal/fault"
)

// wait limits how long a read waits for its turn.
const wait = 30 * time.Second

// Budget is a number of bytes that reads take from. It is safe for concurrent use.
type Budget struct {
	bytes int64
	all   *semaphore.Weighted

	mu        sync.Mutex
	byProject map[string]*share
}

// share is what one project may take: half, so that something is left for others.
type share struct {
	bytes *semaphore.Weighted
	users int // reads that hold or await some
}

// New returns a Budget of so many bytes, at least 2.
func New(bytes int64) *Budget {
	return &Budget{bytes: bytes, all: semaphore.NewWeighted(bytes), byProject: map[string]*share{}}
}

type heldKey struct{}

// held is what one request has taken.
type held struct {
	mu    sync.Mutex
	done  bool
	bytes int64
	back  func() // gives it back; nil for nothing
}

func (h *held) release() {
	if h.back != nil {
		h.back()
	}
	h.bytes, h.back = 0, nil
}

// Hold returns a context whose takings are given back by done, once what was read is needed no
// more.
func Hold(ctx context.Context) (holding context.Context, done func()) {
	h := &held{}
	return context.WithValue(ctx, heldKey{}, h), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.release()
		h.done = true
	}
}

// Take waits until so many bytes are free, and keeps them until done of the context's Hold. At most
// half of the budget is taken at once: what needs more runs when no other large read of its project
// does. If the request has taken before, it then has the larger of both. A context without Hold, or
// whose Hold is done, takes nothing. Take fails with fault.Unavailable after 30 seconds, or as
// fault.Ended if the context ends.
func (b *Budget) Take(ctx context.Context, project string, bytes int64) error {
	h, ok := ctx.Value(heldKey{}).(*held)
	if !ok || b == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes = min(bytes, b.bytes/2); bytes <= h.bytes || h.done {
		return nil
	}
	h.release() // two that hold some and wait for more may wait for each other
	late, stop := context.WithTimeout(ctx, wait)
	defer stop()
	p := b.enter(project)
	err := p.bytes.Acquire(late, bytes)
	if err == nil {
		if err = b.all.Acquire(late, bytes); err != nil {
			p.bytes.Release(bytes)
		}
	}
	if err != nil {
		b.leave(project, p)
		if ctx.Err() != nil {
			return fault.Ended(ctx)
		}
		return fault.New(fault.Unavailable, "too many reads of long calls are under way; try again")
	}
	h.bytes, h.back = bytes, func() {
		b.all.Release(bytes)
		p.bytes.Release(bytes)
		b.leave(project, p)
	}
	return nil
}

func (b *Budget) enter(project string) *share {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.byProject[project]
	if p == nil {
		p = &share{bytes: semaphore.NewWeighted(b.bytes / 2)}
		b.byProject[project] = p
	}
	p.users++
	return p
}

func (b *Budget) leave(project string, p *share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(b.byProject, project)
	}
}
