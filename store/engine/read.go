package engine

import (
	"context"
	"errors"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// current returns an agent as of a moment after the call began, with at least its newest n messages
// if it is not in memory yet. It waits for the outcome of an early change, which its caller may
// already build on.
func (e *Engine) current(ctx context.Context, ref memory.Ref, n int) (*snapshot, error) {
	if w := e.agents.early(ref); w != nil {
		select {
		case <-w.done:
		case <-ctx.Done():
			return nil, fault.Ended(ctx)
		}
	}
	s, kept := e.cache.Get(ref)
	if kept && !e.o.Shared {
		return s, nil
	}
	var known memory.Version
	if kept {
		known = s.version()
	}
	now, err := e.load(ctx, ref, n, known)
	if errors.Is(err, memory.ErrUnchanged) {
		return s, nil
	}
	return now, err
}

// load reads an agent with its newest n messages from the store, keeps in memory what belongs there
// and returns all.
func (e *Engine) load(ctx context.Context, ref memory.Ref, n int, known memory.Version) (*snapshot, error) {
	seen := e.agents.seen(ref)
	st, err := e.store.Load(ctx, ref.Project, ref.ID, n, known)
	e.failed(err)
	if err != nil {
		if known.No != 0 && fault.Is(err, fault.NotFound) {
			e.forget(ref)
		}
		return nil, err
	}
	s := newSnapshot(st, n)
	e.keep(ref, s.trimmed(), seen)
	return s, nil
}

// failed empties the memory after a shared store was away: what comes back may be another server,
// which lacks the last commits and counts its own under the same versions.
func (e *Engine) failed(err error) {
	if e.o.Shared && fault.Is(err, fault.Unavailable) && !errors.Is(err, memory.ErrArchive) {
		e.Forget()
	}
}

// Forget empties the memory. It is for a shared store that another server may answer for from now
// on, which may lack the last commits and counts its own under the same versions.
func (e *Engine) Forget() {
	if e.lost != nil {
		for _, ref := range e.cache.Keys() {
			e.lose(ref)
		}
	}
	e.cache.Clear()
}

// lose keeps for Known what memory has of an agent and may be out of date from now on.
func (e *Engine) lose(ref memory.Ref) {
	if e.lost == nil {
		return
	}
	if s, ok := e.cache.Get(ref); ok {
		e.lost.Set(ref, s)
	}
}

// Known returns what memory last had of an agent, perhaps from before the store failed, with its
// newest messages. It does not ask the store.
func (e *Engine) Known(project, id string) (memory.Head, []memory.Message, bool) {
	ref := memory.Ref{Project: project, ID: id}
	s, ok := e.cache.Get(ref)
	if !ok && e.lost != nil {
		s, ok = e.lost.Get(ref)
	}
	if !ok {
		return memory.Head{}, nil, false
	}
	return s.head, s.tail[:len(s.tail):len(s.tail)], true
}

// keep puts into memory what was read or created, unless the agent was written or erased since
// seen.
func (e *Engine) keep(ref memory.Ref, s *snapshot, seen uint64) {
	st := e.agents.stripe(ref)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.changes == seen {
		e.put(ref, s)
	}
}

// put puts a snapshot into memory. The caller holds the agent's stripe.
func (e *Engine) put(ref memory.Ref, s *snapshot) {
	e.cache.Set(ref, s)
	if e.lost != nil {
		e.lost.Remove(ref)
	}
}

// forget removes from memory an agent that was erased.
func (e *Engine) forget(ref memory.Ref) {
	st := e.agents.stripe(ref)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.changes++
	e.cache.Remove(ref)
	if e.lost != nil {
		e.lost.Remove(ref)
	}
}

// Head implements memory.Ledger.
func (e *Engine) Head(ctx context.Context, project, id string) (memory.Head, error) {
	if err := e.begin(ctx); err != nil {
		return memory.Head{}, err
	}
	defer e.calls.RUnlock()
	s, err := e.current(ctx, memory.Ref{Project: project, ID: id}, 0)
	if errors.Is(err, memory.ErrArchive) {
		st, err := e.store.Load(ctx, project, id, -1, memory.Version{})
		return st.Head, err
	}
	if err != nil {
		return memory.Head{}, err
	}
	return s.head, nil
}

// Recent implements memory.Ledger.
func (e *Engine) Recent(ctx context.Context, project, id string, n int, historyOnly bool) (memory.Head, []memory.Message, error) {
	if err := e.begin(ctx); err != nil {
		return memory.Head{}, nil, err
	}
	defer e.calls.RUnlock()
	ref := memory.Ref{Project: project, ID: id}
	want := 0
	if n > 0 {
		want = max(n, minTail)
	}
	s, err := e.current(ctx, ref, want)
	for err == nil {
		if list, ok := s.newest(n, historyOnly); ok {
			return s.head, list, nil
		}
		// More than is kept in memory, or many of the newest are not for history.
		s, err = e.load(ctx, ref, want, memory.Version{})
		want *= 2
	}
	return memory.Head{}, nil, err
}

// Messages implements memory.Ledger.
func (e *Engine) Messages(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	defer e.calls.RUnlock()
	s, err := e.current(ctx, memory.Ref{Project: project, ID: id}, 0)
	if err != nil {
		return nil, err
	}
	q.Limit = max(q.Limit, 1)
	if list, ok := s.page(q); ok {
		return list, nil
	}
	q.Agent = s.head.Agent
	return e.store.Page(ctx, s.no, q)
}

// ByKey implements memory.Ledger.
func (e *Engine) ByKey(ctx context.Context, project, key string) (string, error) {
	return e.find(ctx, project, memory.Lookup{Key: key})
}

// LastNamed implements memory.Ledger.
func (e *Engine) LastNamed(ctx context.Context, project, name string) (string, error) {
	return e.find(ctx, project, memory.Lookup{Ended: name})
}

func (e *Engine) find(ctx context.Context, project string, by memory.Lookup) (string, error) {
	if err := e.begin(ctx); err != nil {
		return "", err
	}
	defer e.calls.RUnlock()
	id, err := e.store.Find(ctx, project, by)
	e.catchUp()
	return id, err
}

// Agents implements memory.Ledger.
func (e *Engine) Agents(ctx context.Context, q memory.AgentQuery) (memory.AgentPage, error) {
	if err := e.begin(ctx); err != nil {
		return memory.AgentPage{}, err
	}
	defer e.calls.RUnlock()
	q.Known = e.known
	page, err := e.store.List(ctx, q)
	e.catchUp()
	return page, err
}

// known sets the head of an agent without its last message, if memory has that version of it.
func (e *Engine) known(ref memory.Ref, v memory.Version, h *memory.Head) bool {
	s, ok := e.cache.Get(ref)
	if !ok || s.version() != v {
		return false
	}
	*h = s.head
	h.Last = memory.Message{}
	return true
}

// Tallies implements memory.Ledger.
func (e *Engine) Tallies(ctx context.Context, project string, fromMS, toMS int64, each func(int64, []byte) error) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.calls.RUnlock()
	return e.store.Tallies(ctx, project, fromMS, toMS, each)
}

// Live implements memory.Ledger.
func (e *Engine) Live(ctx context.Context, each func(memory.Head) error) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.calls.RUnlock()
	return e.store.Scan(ctx, each)
}

// Count implements memory.Ledger.
func (e *Engine) Count(ctx context.Context) ([memory.Statuses]int, error) {
	if err := e.begin(ctx); err != nil {
		return [memory.Statuses]int{}, err
	}
	defer e.calls.RUnlock()
	return e.store.Count(ctx)
}

// catchUp waits until every commit that the store may have shown is in memory too, so that a read
// after a list is not older than the list.
func (e *Engine) catchUp() {
	for _, c := range e.committers {
		c.serving.Lock()
		//lint:ignore SA2001 only the wait is wanted
		c.serving.Unlock()
	}
}
