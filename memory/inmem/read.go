package inmem

import (
	"context"
	"slices"
	"sort"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Head gives the agent's head.
func (s *Store) Head(ctx context.Context, project, id string) (memory.Head, error) {
	h, _, err := s.Recent(ctx, project, id, 0, false)
	return h, err
}

// Recent gives the head and the newest n messages.
func (s *Store) Recent(ctx context.Context, project, id string, n int, historyOnly bool) (memory.Head, []memory.Message, error) {
	if err := s.enter(ctx); err != nil {
		return memory.Head{}, nil, err
	}
	defer s.mu.Unlock()
	a, err := s.find(project, id)
	if err != nil {
		return memory.Head{}, nil, err
	}
	list := a.list
	if historyOnly {
		list = slices.DeleteFunc(slices.Clone(list), func(m memory.Message) bool { return !m.InHistory() })
	}
	return a.head, newest(list, n), nil
}

// Messages pages through the ledger.
func (s *Store) Messages(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	a, err := s.find(project, id)
	if err != nil {
		return nil, err
	}
	var out []memory.Message
	for _, m := range a.list {
		if len(out) < max(q.Limit, 1) && m.Seq > q.AfterSeq && m.Rev > q.AfterRev && (!q.HistoryOnly || m.InHistory()) {
			out = append(out, m)
		}
	}
	return out, nil
}

// Agents lists a project's agents, newest id first.
func (s *Store) Agents(ctx context.Context, q memory.AgentQuery) (memory.AgentPage, error) {
	if err := s.enter(ctx); err != nil {
		return memory.AgentPage{}, err
	}
	defer s.mu.Unlock()
	var all []memory.Agent
	for k, a := range s.agents {
		if k.project == q.Project && matches(a.head.Agent, q) {
			all = append(all, a.head.Agent)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].ID > all[j].ID })
	var page memory.AgentPage
	page.Count(len(all))
	for _, a := range all {
		if q.Cursor != "" && a.ID > q.Cursor {
			continue
		}
		if len(page.Agents) == max(q.Limit, 1) {
			page.Next = a.ID
			break
		}
		page.Agents = append(page.Agents, a)
	}
	return page, nil
}

func matches(a memory.Agent, q memory.AgentQuery) bool {
	return (q.Channel == "" || a.Settings.Channel == q.Channel) && (q.Name == "" || a.Name == q.Name) &&
		(q.FromMS == 0 || a.StartMS >= q.FromMS) && (q.ToMS == 0 || a.StartMS <= q.ToMS) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, a.Status))
}

// LastNamed gives the id of the agent of that name which ended last.
func (s *Store) LastNamed(ctx context.Context, project, name string) (string, error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	var last *agent
	for k, a := range s.agents {
		if h := &a.head.Agent; k.project == project && h.Name == name && h.Status.Ended() {
			if last == nil || h.StopMS > last.head.Agent.StopMS || h.StopMS == last.head.Agent.StopMS && a.no > last.no {
				last = a
			}
		}
	}
	if last == nil {
		return "", fault.New(fault.NotFound, "no agent of the name %q has ended", name)
	}
	return last.head.Agent.ID, nil
}

// ByKey gives the id of the agent that a key finds.
func (s *Store) ByKey(ctx context.Context, project, callKey string) (string, error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	var best *agent
	for k, a := range s.agents {
		call := a.head.Agent.Settings.Call
		if k.project != project || !slices.Contains(call.Keys, callKey) && !slices.Contains(call.Shared, callKey) {
			continue
		}
		if best == nil || best.head.Agent.Status.Ended() != a.head.Agent.Status.Ended() && best.head.Agent.Status.Ended() ||
			best.head.Agent.Status.Ended() == a.head.Agent.Status.Ended() && a.no > best.no {
			best = a
		}
	}
	if best == nil {
		return "", fault.New(fault.NotFound, "no agent has the key %q", callKey)
	}
	return best.head.Agent.ID, nil
}

// Live calls each for every live agent.
func (s *Store) Live(ctx context.Context, each func(memory.Head) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	var heads []memory.Head
	for _, a := range s.agents {
		if !a.head.Agent.Status.Ended() {
			heads = append(heads, a.head)
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

// Count gives how many agents have each status.
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

// Sweep erases agents that ended before the time.
func (s *Store) Sweep(ctx context.Context, beforeMS int64, limit int) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	busy := map[key]bool{}
	for _, d := range s.deliveries {
		if d != nil && d.state == pending {
			busy[d.event.agent] = true
		}
	}
	erased := map[key]bool{}
	for k, a := range s.agents {
		if len(erased) < limit && a.head.Agent.Status.Ended() && a.head.Agent.StopMS < beforeMS && !busy[k] {
			erased[k] = true
			delete(s.agents, k)
			delete(s.joins, key{k.project, a.head.Agent.JoinKey})
		}
	}
	s.eraseEvents(func(k key) bool { return erased[k] })
	return len(erased), nil
}

// eraseEvents erases what agents were to send or have sent.
func (s *Store) eraseEvents(of func(key) bool) {
	for i, d := range s.deliveries {
		if d != nil && of(d.event.agent) {
			delete(s.events, d.event.ID)
			s.deliveries[i] = nil
		}
	}
}

// Erase takes an agent away with all that belongs to it.
func (s *Store) Erase(ctx context.Context, project, id string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	a, err := s.find(project, id)
	if err != nil {
		return err
	}
	k := key{project, id}
	delete(s.agents, k)
	delete(s.joins, key{project, a.head.Agent.JoinKey})
	s.eraseEvents(func(of key) bool { return of == k })
	return nil
}

// Ping tells whether the store is open.
func (s *Store) Ping(ctx context.Context) error {
	err := s.enter(ctx)
	if err == nil {
		s.mu.Unlock()
	}
	return err
}

// Close ends the store; later calls fail with fault.Unavailable.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
