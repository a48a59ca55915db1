package sqlite

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/heardlog/heardlog/memory"
)

// A change that is told of early: its caller goes on when it is written, and is told when it is on disk. What he may do meanwhile is nothing that anybody
// could take for the store's word. Who reads the agent meanwhile waits for the disk, so that nobody sees a ledger without what was begun on it.

var _ memory.Ledger = (*Store)(nil)

// early is what an item has whose caller does not wait for the disk.
type early struct {
	key     key
	written chan struct{} // closed when the item is written, or has failed; it is not run again then
	told    bool          // it was closed for the first reason
	kept    func(error)
}

// pendings knows the agents of which something is written and not on disk yet.
type pendings struct {
	n  atomic.Int64
	mu sync.Mutex
	by map[key]*item // the newest of each
}

// add notes that an item is written. Within a group it is called before the commit.
func (p *pendings) add(it *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[key]*item{}
	}
	p.by[it.early.key] = it
	p.n.Store(int64(len(p.by)))
}

// remove notes what became of it.
func (p *pendings) remove(it *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by[it.early.key] == it {
		delete(p.by, it.early.key)
		p.n.Store(int64(len(p.by)))
	}
}

// wait waits until what is written of an agent is on disk, or has failed. That is a matter of one commit.
func (p *pendings) wait(k key) {
	if p.n.Load() == 0 {
		return
	}
	p.mu.Lock()
	it := p.by[k]
	p.mu.Unlock()
	if it != nil {
		<-it.done
	}
}

// UpdateEarly implements memory.Ledger.
func (s *Store) UpdateEarly(ctx context.Context, project, id string, decide memory.Decision, kept func(error)) (bool, error) {
	k := key{project, id}
	if err := s.known(ctx, k); err != nil {
		return false, err
	}
	it := &item{run: updating(k, decide), done: make(chan struct{}), early: &early{key: k, written: make(chan struct{}), kept: kept}}
	if err := s.submit(ctx, it); err != nil {
		return false, err
	}
	return it.early.told, nil
}

// tellEarly lets the callers go on whose items are written and wait for nothing but the commit.
func (s *Store) tellEarly(items []*item) {
	for _, it := range items {
		if e := it.early; e != nil && it.err == nil && !e.told {
			e.told = true
			s.pending.add(it)
			close(e.written)
		}
	}
}

// tellKept tells those who went on how it ended.
func tellKept(items []*item) {
	for _, it := range items {
		it.early.kept(it.err)
	}
}
