package inmem

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

type event struct {
	memory.Event
	agent memory.Ref
	no    int64
}

type delivery struct {
	id       int64
	event    *event
	endpoint string
	state    webhook.DeliveryState
	attempt  int
	due      int64
	fence    int64
	claimed  bool
	reason   string
	created  int64
	done     int64
	replayOf int64
	first    int64 // when its first try was due; 0 = created
	urgent   bool  // a test that is not claimed yet
	orphan   bool  // its endpoint was deleted; one of the same id may have come since
	attempts []webhook.Attempt
}

const pending = webhook.Pending

// enqueue puts events in the outbox; it writes nothing if one of them is there already.
func (s *Store) enqueue(k memory.Ref, events []memory.Event) error {
	for i, ev := range events {
		twice := slices.ContainsFunc(events[:i], func(e memory.Event) bool { return e.ID == ev.ID })
		if s.events[ev.ID] != nil || twice {
			return fault.New(fault.Conflict, "there is an event %q already", ev.ID)
		}
	}
	for _, ev := range events {
		s.emit(webhook.Event{ID: ev.ID, Type: ev.Type, Project: k.Project, AgentID: k.ID, CreatedMS: ev.CreatedMS, Body: ev.Body}, "")
	}
	return nil
}

// rewrite replaces the bodies of stored events of an agent.
func (s *Store) rewrite(k memory.Ref, events []memory.Event) {
	for _, ev := range events {
		e := s.events[ev.ID]
		if e == nil || e.agent != k {
			continue
		}
		e.Body = slices.Clone(ev.Body)
		for _, d := range s.deliveries {
			if d != nil && d.event == e {
				for i := range d.attempts {
					d.attempts[i].Response = nil
				}
			}
		}
	}
}

// emit adds an event to the outbox for the endpoints of its project that want it, except one.
func (s *Store) emit(ev webhook.Event, not string) {
	for i := range s.endpoints {
		e := &s.endpoints[i]
		if e.Project != ev.Project || e.ID == not || !e.Wants(ev.Type) || !e.Keeps(ev.CreatedMS) {
			continue
		}
		s.add(s.keep(ev), e.ID, ev.CreatedMS, ev.CreatedMS, 0)
	}
}

// keep returns the stored event, and stores it if it is new.
func (s *Store) keep(ev webhook.Event) *event {
	if s.events[ev.ID] == nil {
		s.made++
		s.events[ev.ID] = &event{
			Event: memory.Event{ID: ev.ID, Type: ev.Type, CreatedMS: ev.CreatedMS, Body: slices.Clone(ev.Body)},
			agent: memory.Ref{Project: ev.Project, ID: ev.AgentID}, no: int64(s.made),
		}
	}
	return s.events[ev.ID]
}

func (s *Store) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Waiting implements webhook.Queue.
func (s *Store) Waiting(ctx context.Context, l webhook.Look) (out []webhook.Waiting, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(s.deliveries), func(d *delivery) bool { return d == nil || d.state != pending })
	slices.SortStableFunc(list, func(a, b *delivery) int {
		return cmp.Or(min(a.attempt, 1)-min(b.attempt, 1), cmp.Compare(a.due, b.due))
	})
	for i := range s.endpoints {
		e := s.endpoints[i].Clone()
		n, any := l.Reads(&e)
		if !any {
			continue
		}
		w := webhook.Waiting{Endpoint: &e}
		for _, d := range list {
			one := webhook.Due{ID: d.id, DueMS: d.due, Retry: d.attempt > 0}
			switch {
			case d.endpoint != e.ID:
			case d.due > l.NowMS && d.claimed:
				w.Claimed++
			case d.due <= l.NowMS:
				if d.urgent && l.Tests {
					w.Tests = append(w.Tests, one)
				}
				if len(w.Due) < n {
					w.Due = append(w.Due, one)
				}
			}
		}
		if len(w.Due)+len(w.Tests) > 0 {
			out = append(out, w)
		}
	}
	return out, nil
}

// Claim implements webhook.Queue.
func (s *Store) Claim(ctx context.Context, t webhook.Taking) (out []webhook.Delivery, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	bytes := int64(0)
	for _, one := range t.List {
		d := s.deliveries[one.ID-1]
		if d == nil || d.state != pending || d.due > t.NowMS {
			continue
		}
		i, flying := s.endpoint(d.endpoint), 0
		for _, o := range s.deliveries {
			if o != nil && o.state == pending && o.claimed && o.due > t.NowMS && o.endpoint == d.endpoint {
				flying++
			}
		}
		if i < 0 || s.endpoints[i].Disabled || one.Most > 0 && flying >= one.Most {
			continue
		}
		if bytes += int64(len(d.event.Body)); t.Bytes > 0 && bytes > t.Bytes && len(out) > 0 {
			break
		}
		d.urgent = false
		d.due, d.claimed = t.NowMS+max(int64(t.Lease/time.Millisecond), 1), true
		d.attempt++
		d.fence++
		out = append(out, webhook.Delivery{
			ID: d.id, EventID: d.event.ID, Type: d.event.Type, Project: d.event.agent.Project, AgentID: d.event.agent.ID, Body: d.event.Body,
			CreatedMS: d.event.CreatedMS, FirstDueMS: cmp.Or(d.first, d.created), Endpoint: s.endpoints[i].Clone(), Attempt: d.attempt, Fence: d.fence, Urgent: one.Urgent,
		})
	}
	return out, nil
}

// claimed returns the delivery if d is its running claim.
func (s *Store) claimed(d webhook.Delivery) (*delivery, error) {
	if d.ID >= 1 && d.ID <= int64(len(s.deliveries)) {
		if own := s.deliveries[d.ID-1]; own != nil && own.claimed && own.fence == d.Fence && own.state == pending {
			return own, nil
		}
	}
	return nil, fault.New(fault.Conflict, "delivery %d was claimed again or closed since claim %d", d.ID, d.Fence)
}

// Finish ends a claim with what came of it.
func (s *Store) Finish(ctx context.Context, d webhook.Delivery, r webhook.Result) error {
	switch r.State {
	case webhook.Pending, webhook.Delivered, webhook.Dead:
	default:
		return fault.New(fault.Internal, "unknown delivery state %q", string(r.State))
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	own, err := s.claimed(d)
	if err != nil {
		return err
	}
	own.state, own.due, own.reason, own.claimed = r.State, r.DueMS, r.Reason, false
	if r.State != pending {
		own.done = max(r.AtMS, 1)
	}
	if len(r.Try.Response) > webhook.MaxResponse {
		r.Try.Response, r.Try.Truncated = r.Try.Response[:webhook.MaxResponse], true
	}
	r.Try.Response = slices.Clone(r.Try.Response)
	if r.Untried {
		own.attempt--
		s.wake()
	} else {
		own.attempts = append(own.attempts, r.Try)
	}
	i := s.endpoint(own.endpoint)
	if i < 0 || own.orphan {
		return nil
	}
	c, err := webhook.Conclude(s.endpoints[i], d, r)
	if err != nil {
		return err
	}
	s.published = nil
	s.endpoints[i] = c.Endpoint
	for _, ev := range c.Events {
		s.emit(ev, own.endpoint)
	}
	return nil
}

// Backlog counts what waits.
func (s *Store) Backlog(ctx context.Context) (b webhook.Backlog, err error) {
	if err := s.enter(ctx); err != nil {
		return b, err
	}
	defer s.mu.Unlock()
	for _, d := range s.deliveries {
		switch {
		case d == nil:
		case d.state == webhook.Dead:
			b.Dead++
		case d.state == pending:
			b.Pending++
			if b.OldestDue == 0 || d.due < b.OldestDue {
				b.OldestDue = d.due
			}
			if first := cmp.Or(d.first, d.created); b.OldestPending == 0 || first < b.OldestPending {
				b.OldestPending = first
			}
		}
	}
	return b, nil
}

// Woken receives when deliveries were committed.
func (s *Store) Woken() <-chan struct{} { return s.woken }
