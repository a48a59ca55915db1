package inmem

import (
	"context"
	"maps"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
)

// Load implements memory.Store.
func (s *Store) Load(ctx context.Context, project, id string, n int, known memory.Version) (memory.Stored, error) {
	if err := s.enter(ctx); err != nil {
		return memory.Stored{}, err
	}
	defer s.mu.Unlock()
	a, err := s.find(project, id)
	if err != nil {
		return memory.Stored{}, err
	}
	if known == (memory.Version{No: int64(a.no), Rev: a.head.Rev, Ver: a.ver}) {
		return memory.Stored{}, memory.ErrUnchanged
	}
	return memory.Stored{No: int64(a.no), Ver: a.ver, Head: a.head, Tail: newest(a.list, n)}, nil
}

// Page implements memory.Store.
func (s *Store) Page(ctx context.Context, no int64, q memory.MessageQuery) ([]memory.Message, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []memory.Message
	for _, a := range s.agents {
		if int64(a.no) != no {
			continue
		}
		for i := range a.list {
			if m := &a.list[i]; len(out) < max(q.Limit, 1) && selects(&q, m) {
				out = append(out, *m)
			}
		}
	}
	return out, nil
}

func selects(q *memory.MessageQuery, m *memory.Message) bool {
	return m.Seq > q.AfterSeq && m.Rev > q.AfterRev && (!q.HistoryOnly || m.InHistory()) &&
		(len(q.IDs) == 0 || m.ID != "" && slices.Contains(q.IDs, m.ID)) && (q.Turn == nil || *q.Turn == m.TurnID)
}

// List implements memory.Store.
func (s *Store) List(ctx context.Context, q memory.AgentQuery) (memory.AgentPage, error) {
	if err := s.enter(ctx); err != nil {
		return memory.AgentPage{}, err
	}
	defer s.mu.Unlock()
	var all []*agent
	for k, a := range s.agents {
		if k.Project == q.Project && matches(&a.head, &q) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *agent) int { return a.place().Compare(b.place(), q.OldestFirst) })
	var page memory.AgentPage
	if !q.NoTotal {
		page.Count(len(all))
	}
	for _, a := range all {
		if q.After != (memory.AgentPlace{}) && a.place().Compare(q.After, q.OldestFirst) <= 0 {
			continue
		}
		if n := len(page.Heads); n == max(q.Limit, 1) {
			page.Next = page.Places[n-1]
			break
		}
		h := a.head
		h.Last = memory.Message{}
		page.Heads, page.Places = append(page.Heads, h), append(page.Places, a.place())
	}
	return page, nil
}

// Tallies implements memory.Store.
func (s *Store) Tallies(ctx context.Context, project string, fromMS, toMS int64, each func(int64, []byte) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for k, a := range s.agents {
		if at := a.head.Agent.StartMS; k.Project == project && at >= fromMS && at <= toMS {
			if err := each(at, a.head.Tally.Encode()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *agent) place() memory.AgentPlace {
	return memory.AgentPlace{StartMS: a.head.Agent.StartMS, No: int64(a.no)}
}

func matches(h *memory.Head, q *memory.AgentQuery) bool {
	a := h.Agent
	for _, want := range q.Tags() {
		if !slices.ContainsFunc(h.Tags(), func(t memory.Tag) bool { return t.Name == want.Name && slices.Contains(want.Values, t.Value) }) {
			return false
		}
	}
	return (q.Channel == "" || a.Settings.Channel == q.Channel) && (q.Name == "" || a.Name == q.Name) &&
		(q.FromMS == 0 || a.StartMS >= q.FromMS) && (q.ToMS == 0 || a.StartMS <= q.ToMS) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, a.Status))
}

// Find implements memory.Store.
func (s *Store) Find(ctx context.Context, project string, by memory.Lookup) (string, error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	var best *agent
	for k, a := range s.agents {
		if k.Project == project && found(by, a.head.Agent) && (best == nil || before(by, a, best)) {
			best = a
		}
	}
	switch {
	case best != nil:
		return best.head.Agent.ID, nil
	case by.Key != "":
		return "", fault.New(fault.NotFound, "no agent has the key %q", by.Key)
	}
	return "", fault.New(fault.NotFound, "no agent of the name %q has ended", by.Ended)
}

func found(by memory.Lookup, a *memory.Agent) bool {
	if by.Key != "" {
		return slices.Contains(a.Settings.Call.Keys, by.Key) || slices.Contains(a.Settings.Call.Shared, by.Key)
	}
	return a.Name == by.Ended && a.Status.Ended()
}

// before reports whether a is found rather than b.
func before(by memory.Lookup, a, b *agent) bool {
	x, y := a.head.Agent, b.head.Agent
	switch {
	case by.Key != "" && x.Status.Ended() != y.Status.Ended():
		return y.Status.Ended()
	case by.Key == "" && x.StopMS != y.StopMS:
		return x.StopMS > y.StopMS
	}
	return a.no > b.no
}

// Scan implements memory.Store.
func (s *Store) Scan(ctx context.Context, each func(memory.Head) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	var heads []memory.Head
	for _, a := range s.agents {
		if !a.head.Agent.Status.Ended() {
			h := a.head
			h.Last = memory.Message{}
			heads = append(heads, h)
		}
	}
	s.mu.Unlock()
	for _, h := range heads {
		if err := each(h); err != nil {
			return err
		}
	}
	return nil
}

// Usage returns what each project has stored.
func (s *Store) Usage(ctx context.Context) (list []memory.Usage, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	by := map[string]memory.Usage{}
	for k, a := range s.agents {
		u := by[k.Project]
		u.Project = k.Project
		u.Messages += a.head.NextSeq - 1
		u.Bytes += a.written
		if !a.head.Agent.Status.Ended() {
			u.Agents++
		}
		by[k.Project] = u
	}
	for at, space := range s.records.spaces {
		u := by[at.Project]
		u.Project = at.Project
		u.Bytes += space.state.Bytes
		by[at.Project] = u
	}
	for space, list := range s.spaces {
		if space.Name == "" {
			continue
		}
		u := by[space.Project]
		u.Project = space.Project
		for _, e := range list {
			u.Bytes += e.Size()
		}
		by[space.Project] = u
	}
	return slices.Collect(maps.Values(by)), nil
}

// Count implements memory.Store.
func (s *Store) Count(ctx context.Context) (out [memory.Statuses]int, err error) {
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.mu.Unlock()
	for _, a := range s.agents {
		if st := a.head.Agent.Status; st >= 0 && int(st) < len(out) {
			out[st]++
		}
	}
	return out, nil
}

// Erase implements memory.Store.
func (s *Store) Erase(ctx context.Context, e memory.Erasure) ([]memory.Ref, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var gone []memory.Ref
	if e.Ref != (memory.Ref{}) {
		if _, err := s.find(e.Project, e.ID); err != nil {
			return nil, err
		}
		gone = append(gone, e.Ref)
	} else {
		gone = s.over(e.BeforeMS, e.Limit)
	}
	erased := map[memory.Ref]bool{}
	for _, k := range gone {
		erased[k] = true
		delete(s.joins, [2]string{k.Project, s.agents[k].head.Agent.JoinKey})
		delete(s.agents, k)
		delete(s.spaces, kv.Space{Project: k.Project, Agent: k.ID})
	}
	for i, d := range s.deliveries {
		if d != nil && erased[d.event.agent] {
			delete(s.events, d.event.ID)
			s.deliveries[i] = nil
		}
	}
	return gone, nil
}

// over returns at most limit agents that ended before the time and have no pending deliveries.
func (s *Store) over(beforeMS int64, limit int) (list []memory.Ref) {
	busy := map[memory.Ref]bool{}
	for _, d := range s.deliveries {
		if d != nil && d.state == pending {
			busy[d.event.agent] = true
		}
	}
	for k, a := range s.agents {
		if h := a.head.Agent; len(list) < limit && h.Status.Ended() && h.StopMS < beforeMS && !busy[k] {
			list = append(list, k)
		}
	}
	return list
}

// Ping implements memory.Store. It fails only if the store is closed.
func (s *Store) Ping(ctx context.Context) error {
	err := s.enter(ctx)
	if err == nil {
		s.mu.Unlock()
	}
	return err
}

// Close implements memory.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
