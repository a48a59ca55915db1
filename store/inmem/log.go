package inmem

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strconv"

	eventtype "github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

func (s *Store) record(d *delivery) webhook.Record {
	r := webhook.Record{
		ID: d.id, EventID: d.event.ID, Type: d.event.Type, Project: d.event.agent.Project, AgentID: d.event.agent.ID, EndpointID: d.endpoint,
		State: d.state, Claimed: d.claimed, Attempt: d.attempt, EventMS: d.event.CreatedMS, CreatedMS: d.created, DueMS: d.due, DoneMS: d.done,
		Reason: d.reason, ReplayOf: d.replayOf, Size: len(d.event.Body),
	}
	if d.state != pending {
		r.DueMS = 0
	}
	if n := len(d.attempts); n > 0 {
		r.LastStatus, r.LastClass = d.attempts[n-1].Status, d.attempts[n-1].ErrorClass
	}
	return r
}

func inSpan(ms, from, to int64) bool { return ms >= from && (to == 0 || ms < to) }

func after(at webhook.Cursor, ms, id int64) bool { return ms < at.MS || ms == at.MS && id < at.ID }

// page cuts a list that is in order, newest first, at limit.
func page[T any](list []T, limit int, place func(T) webhook.Cursor) ([]T, string) {
	limit = min(max(limit, 1), webhook.MaxPage)
	if len(list) <= limit {
		return list, ""
	}
	return list[:limit], place(list[limit-1]).String()
}

// Events lists events of a project, newest first.
func (s *Store) Events(ctx context.Context, q webhook.EventQuery) (out webhook.EventPage, err error) {
	at, err := webhook.ParseCursor(q.Cursor)
	if err != nil {
		return out, err
	}
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.mu.Unlock()
	nos := map[string]int64{}
	var list []webhook.Event
	for id, e := range s.events {
		if e.agent.Project == q.Project && inSpan(e.CreatedMS, q.FromMS, q.ToMS) && after(at, e.CreatedMS, e.no) &&
			(len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) && (q.AgentID == "" || q.AgentID == e.agent.ID) {
			nos[id] = e.no
			list = append(list, webhook.Event{ID: id, Type: e.Type, Project: q.Project, AgentID: e.agent.ID, CreatedMS: e.CreatedMS, Size: len(e.Body)})
		}
	}
	slices.SortFunc(list, func(a, b webhook.Event) int {
		return cmp.Or(cmp.Compare(b.CreatedMS, a.CreatedMS), cmp.Compare(nos[b.ID], nos[a.ID]))
	})
	out.Events, out.Next = page(list, q.Limit, func(e webhook.Event) webhook.Cursor { return webhook.Cursor{MS: e.CreatedMS, ID: nos[e.ID]} })
	return out, nil
}

// Event returns one event with its body.
func (s *Store) Event(ctx context.Context, project, id string) (webhook.Event, error) {
	if err := s.enter(ctx); err != nil {
		return webhook.Event{}, err
	}
	defer s.mu.Unlock()
	e := s.events[id]
	if e == nil || project != "" && e.agent.Project != project {
		return webhook.Event{}, fault.New(fault.NotFound, "there is no event %q", id)
	}
	return webhook.Event{ID: id, Type: e.Type, Project: e.agent.Project, AgentID: e.agent.ID, CreatedMS: e.CreatedMS, Size: len(e.Body), Body: slices.Clone(e.Body)}, nil
}

// AgentEvents implements webhook.Log.
func (s *Store) AgentEvents(ctx context.Context, project, agentID string, each func(webhook.Event) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	var list []*event
	for _, e := range s.events {
		if e.agent == (memory.Ref{Project: project, ID: agentID}) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *event) int { return cmp.Compare(a.no, b.no) })
	for _, e := range list {
		if err := each(webhook.Event{ID: e.ID, Type: e.Type, Project: project, AgentID: agentID, CreatedMS: e.CreatedMS, Size: len(e.Body), Body: slices.Clone(e.Body)}); err != nil {
			return err
		}
	}
	return nil
}

// selected returns the deliveries that a query selects, newest first.
func (s *Store) selected(q webhook.DeliveryQuery, at webhook.Cursor) []*delivery {
	var list []*delivery
	for _, d := range s.deliveries {
		if d != nil && d.event.agent.Project == q.Project && (q.Endpoint == "" || d.endpoint == q.Endpoint) &&
			(len(q.States) == 0 || slices.Contains(q.States, d.state)) && (len(q.Types) == 0 || slices.Contains(q.Types, d.event.Type)) &&
			(q.AgentID == "" || d.event.agent.ID == q.AgentID) && (q.EventID == "" || d.event.ID == q.EventID) &&
			inSpan(d.created, q.FromMS, q.ToMS) && after(at, d.created, d.id) {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b *delivery) int { return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(b.id, a.id)) })
	return list
}

// Deliveries lists deliveries of a project, those made last first.
func (s *Store) Deliveries(ctx context.Context, q webhook.DeliveryQuery) (out webhook.DeliveryPage, err error) {
	at, err := webhook.ParseCursor(q.Cursor)
	if err != nil {
		return out, err
	}
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.mu.Unlock()
	list, next := page(s.selected(q, at), q.Limit, func(d *delivery) webhook.Cursor { return webhook.Cursor{MS: d.created, ID: d.id} })
	out.Next = next
	for _, d := range list {
		out.Deliveries = append(out.Deliveries, s.record(d))
	}
	return out, nil
}

// owned returns a delivery of a project.
func (s *Store) owned(project string, id int64) (*delivery, error) {
	if id >= 1 && id <= int64(len(s.deliveries)) {
		if d := s.deliveries[id-1]; d != nil && d.event.agent.Project == project {
			return d, nil
		}
	}
	return nil, fault.New(fault.NotFound, "there is no delivery %d", id)
}

// Delivery returns one delivery with its attempts.
func (s *Store) Delivery(ctx context.Context, project string, id int64) (webhook.Record, []webhook.Attempt, error) {
	if err := s.enter(ctx); err != nil {
		return webhook.Record{}, nil, err
	}
	defer s.mu.Unlock()
	d, err := s.owned(project, id)
	if err != nil {
		return webhook.Record{}, nil, err
	}
	return s.record(d), slices.Clone(d.attempts), nil
}

// add makes a delivery.
func (s *Store) add(e *event, endpoint string, due, created, replayOf int64) *delivery {
	d := &delivery{id: int64(len(s.deliveries) + 1), event: e, endpoint: endpoint, state: pending, due: due, created: created, first: due, replayOf: replayOf}
	if e.Type == eventtype.Test && replayOf == 0 {
		waiting := 0
		for _, o := range s.deliveries {
			if o != nil && o.urgent && o.endpoint == endpoint && o.state == pending {
				waiting++
			}
		}
		d.urgent = waiting < webhook.MaxUrgent
	}
	s.deliveries = append(s.deliveries, d)
	s.wake()
	return d
}

// Replay makes a delivery again.
func (s *Store) Replay(ctx context.Context, project string, id, nowMS int64, name string) (webhook.Record, error) {
	if err := s.enter(ctx); err != nil {
		return webhook.Record{}, err
	}
	defer s.mu.Unlock()
	made, err := s.named(project, name, strconv.FormatInt(id, 10), nowMS)
	if err != nil {
		return webhook.Record{}, err
	}
	if made.delivery != 0 {
		d, err := s.owned(project, made.delivery)
		if err != nil {
			return webhook.Record{}, err
		}
		return s.record(d), nil
	}
	d, err := s.owned(project, id)
	if err != nil {
		return webhook.Record{}, err
	}
	if !s.lives(d) {
		return webhook.Record{}, fault.New(fault.Conflict, "the endpoint of delivery %d is deleted", id)
	}
	again := s.add(d.event, d.endpoint, nowMS, nowMS, id)
	made.delivery = again.id
	s.keepReplay(project, name, made)
	return s.record(again), nil
}

// replay is what a caller has named.
type replay struct {
	request  string
	nowMS    int64
	delivery int64 // what a replay of one made
	done     *webhook.Replayed
}

// named returns the replay with a name, or a new one. It fails with fault.Conflict if the name was
// used for another request.
func (s *Store) named(project, name, request string, nowMS int64) (replay, error) {
	was, ok := s.replays[[2]string{project, name}]
	if name == "" || !ok {
		return replay{request: request, nowMS: nowMS}, nil
	}
	return was, webhook.SameReplay(was.request, request)
}

func (s *Store) keepReplay(project, name string, r replay) {
	if name != "" {
		s.replays[[2]string{project, name}] = r
	}
}

// lives reports whether a delivery's endpoint still exists, and is not a later one with its ID.
func (s *Store) lives(d *delivery) bool { return !d.orphan && s.endpoint(d.endpoint) >= 0 }

// ReplayAll makes the deliveries again that a filter selects.
func (s *Store) ReplayAll(ctx context.Context, r webhook.Replay) (out webhook.Replayed, err error) {
	if err := s.enter(ctx); err != nil {
		return out, err
	}
	defer s.mu.Unlock()
	made := replay{}
	if !r.DryRun {
		request, err := webhook.EncodeReplay(r)
		if err == nil {
			made, err = s.named(r.Filter.Project, r.Name, request, r.NowMS)
		}
		if err != nil {
			return out, err
		}
		if made.done != nil {
			return *made.done, nil
		}
		defer func() {
			made.done = &out
			s.keepReplay(r.Filter.Project, r.Name, made)
		}()
	}
	type pair struct {
		event    *event
		endpoint string
	}
	seen := map[pair]bool{}
	job := webhook.NewReplayJob(r.NowMS, int64(len(s.deliveries)))
	err = webhook.ReplaySlice(&job, r, s.selected(r.Filter, job.At), true,
		func(d *delivery) webhook.Cursor { return webhook.Cursor{MS: d.created, ID: d.id} },
		func(d *delivery) (bool, error) { return s.lives(d) && !seen[pair{d.event, d.endpoint}], nil },
		func(d *delivery, dueMS int64) error {
			seen[pair{d.event, d.endpoint}] = true
			if !r.DryRun {
				s.add(d.event, d.endpoint, dueMS, r.NowMS, d.id)
			}
			return nil
		})
	out = job.Result()
	return out, err
}

// Cancel ends a pending delivery.
func (s *Store) Cancel(ctx context.Context, project string, id, nowMS int64) (webhook.Record, error) {
	if err := s.enter(ctx); err != nil {
		return webhook.Record{}, err
	}
	defer s.mu.Unlock()
	d, err := s.owned(project, id)
	if err != nil {
		return webhook.Record{}, err
	}
	if d.state != pending {
		return webhook.Record{}, fault.New(fault.Conflict, "delivery %d is %s and not pending", id, d.state)
	}
	d.state, d.claimed, d.due, d.done, d.reason = webhook.Canceled, false, 0, max(nowMS, 1), webhook.CanceledReason
	return s.record(d), nil
}

// Send stores an event for one endpoint.
func (s *Store) Send(ctx context.Context, e webhook.Event, endpointID string) (webhook.Record, error) {
	if err := s.enter(ctx); err != nil {
		return webhook.Record{}, err
	}
	defer s.mu.Unlock()
	i := s.endpoint(endpointID)
	switch {
	case i < 0 || s.endpoints[i].Project != e.Project:
		return webhook.Record{}, webhook.ErrNoEndpoint(endpointID)
	case s.endpoints[i].Disabled:
		return webhook.Record{}, fault.New(fault.Conflict, "the endpoint is disabled: enable it first")
	case s.events[e.ID] != nil:
		return webhook.Record{}, fault.New(fault.Conflict, "there is an event %q already", e.ID)
	}
	return s.record(s.add(s.keep(e), endpointID, e.CreatedMS, e.CreatedMS, 0)), nil
}

// ForgetDone erases deliveries that ended before the time, and events that have none any more.
func (s *Store) ForgetDone(ctx context.Context, beforeMS int64, agentless bool) (n int, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	used := map[*event]bool{}
	for i, d := range s.deliveries {
		switch {
		case d == nil:
		case d.state != pending && d.done < beforeMS && (!agentless || d.event.agent.ID == ""):
			s.deliveries[i] = nil
			n++
		default:
			used[d.event] = true
		}
	}
	for k, r := range s.replays {
		if r.nowMS < beforeMS {
			delete(s.replays, k)
		}
	}
	for id, e := range s.events {
		if !used[e] {
			delete(s.events, id)
		}
	}
	return n, nil
}

// ServerKey returns the store's own key with a name.
func (s *Store) ServerKey(ctx context.Context, name string) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if s.keys[name] == nil {
		s.keys[name] = make([]byte, 32)
		rand.Read(s.keys[name]) // never fails
	}
	return slices.Clone(s.keys[name]), nil
}
