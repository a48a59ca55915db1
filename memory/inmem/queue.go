package inmem

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

type event struct {
	memory.Event
	agent key
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
	attempts []webhook.Attempt
}

const pending = webhook.Pending

// enqueue puts events in the outbox; it writes nothing if one of them is there already.
func (s *Store) enqueue(k key, events []memory.Event) error {
	for i, ev := range events {
		twice := slices.ContainsFunc(events[:i], func(e memory.Event) bool { return e.ID == ev.ID })
		if s.events[ev.ID] != nil || twice {
			return fault.New(fault.Conflict, "there is an event %q already", ev.ID)
		}
	}
	for _, ev := range events {
		for _, e := range s.endpoints {
			if e.Project != k.project || !e.Wants(ev.Type) {
				continue
			}
			if s.events[ev.ID] == nil {
				ev.Body = slices.Clone(ev.Body)
				s.events[ev.ID] = &event{Event: ev, agent: k}
			}
			s.deliveries = append(s.deliveries, &delivery{
				id: int64(len(s.deliveries) + 1), event: s.events[ev.ID], endpoint: e.ID, state: pending, due: ev.CreatedMS,
			})
			s.wake()
		}
	}
	return nil
}

func (s *Store) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *Store) endpoint(id string) int {
	return slices.IndexFunc(s.endpoints, func(e webhook.Endpoint) bool { return e.ID == id })
}

// PutEndpoint stores an endpoint or replaces the one with its id.
func (s *Store) PutEndpoint(ctx context.Context, e webhook.Endpoint) error {
	if e.ID == "" {
		return fault.At(fault.Missing, "id", "an endpoint needs an id")
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if i := s.endpoint(e.ID); i >= 0 {
		s.endpoints[i] = e
	} else {
		s.endpoints = append(s.endpoints, e)
	}
	s.wake()
	return nil
}

// DeletedReason is the reason of deliveries whose endpoint was deleted.
const DeletedReason = "endpoint deleted"

// DeleteEndpoint removes an endpoint and gives its pending deliveries up.
func (s *Store) DeleteEndpoint(ctx context.Context, id string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	i := s.endpoint(id)
	if i < 0 {
		return fault.New(fault.NotFound, "there is no endpoint %q", id)
	}
	s.endpoints = slices.Delete(s.endpoints, i, i+1)
	for _, d := range s.deliveries {
		if d != nil && d.endpoint == id && d.state == pending {
			d.state, d.claimed, d.reason = webhook.Dead, false, DeletedReason
		}
	}
	return nil
}

// Endpoints lists the endpoints of a project, or all.
func (s *Store) Endpoints(ctx context.Context, project string) ([]webhook.Endpoint, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []webhook.Endpoint
	for _, e := range s.endpoints {
		if project == "" || e.Project == project {
			out = append(out, e)
		}
	}
	return out, nil
}

// Claim takes due deliveries.
func (s *Store) Claim(ctx context.Context, c webhook.Claim) ([]webhook.Delivery, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	flying := map[string]int{}
	var list []*delivery
	for _, d := range s.deliveries {
		switch {
		case d == nil || d.state != pending:
		case d.due <= c.NowMS:
			list = append(list, d)
		case d.claimed:
			flying[d.endpoint]++
		}
	}
	sort.SliceStable(list, func(i, j int) bool {
		a, b := list[i], list[j]
		if (a.attempt > 0) != (b.attempt > 0) {
			return a.attempt == 0
		}
		return a.due < b.due
	})
	var out []webhook.Delivery
	for _, d := range list {
		i := s.endpoint(d.endpoint)
		if len(out) >= c.Limit || i < 0 || s.endpoints[i].Disabled || c.PerEndpoint > 0 && flying[d.endpoint] >= c.PerEndpoint {
			continue
		}
		flying[d.endpoint]++
		d.due, d.claimed = c.NowMS+max(int64(c.Lease/time.Millisecond), 1), true
		d.attempt++
		d.fence++
		out = append(out, webhook.Delivery{
			ID: d.id, EventID: d.event.ID, Type: d.event.Type, Project: d.event.agent.project, AgentID: d.event.agent.id, Body: d.event.Body,
			CreatedMS: d.event.CreatedMS, Endpoint: s.endpoints[i], Attempt: d.attempt, Fence: d.fence,
		})
	}
	return out, nil
}

// claimed gives the delivery if d is its running claim.
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
	if len(r.Try.Response) > webhook.MaxResponse {
		r.Try.Response, r.Try.Truncated = r.Try.Response[:webhook.MaxResponse], true
	}
	r.Try.Response = slices.Clone(r.Try.Response)
	own.attempts = append(own.attempts, r.Try)
	if i := s.endpoint(own.endpoint); r.DisableEndpoint != "" && i >= 0 && !s.endpoints[i].Disabled {
		s.endpoints[i].Disabled, s.endpoints[i].DisabledWhy = true, r.DisableEndpoint
	}
	return nil
}

// Release gives a claim back unused.
func (s *Store) Release(ctx context.Context, d webhook.Delivery) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	own, err := s.claimed(d)
	if err != nil {
		return err
	}
	own.attempt--
	own.due, own.claimed = own.event.CreatedMS, false
	s.wake()
	return nil
}

// Attempts lists the attempts of an event's deliveries.
func (s *Store) Attempts(ctx context.Context, eventID string) ([]webhook.Attempt, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []webhook.Attempt
	for _, d := range s.deliveries {
		if d != nil && d.event.ID == eventID {
			out = append(out, d.attempts...)
		}
	}
	return out, nil
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
		}
	}
	return b, nil
}

// Woken receives when deliveries were committed.
func (s *Store) Woken() <-chan struct{} { return s.woken }
