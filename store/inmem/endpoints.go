package inmem

import (
	"context"
	"slices"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

func (s *Store) endpoint(id string) int {
	return slices.IndexFunc(s.endpoints, func(e webhook.Endpoint) bool { return e.ID == id })
}

// ChangeEndpoint stores what decide returns for an endpoint.
func (s *Store) ChangeEndpoint(ctx context.Context, project, id string, decide func(old *webhook.Endpoint, n int) (webhook.Endpoint, error)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.endpoints {
		if e.Project == project {
			n++
		}
	}
	i := s.endpoint(id)
	var old *webhook.Endpoint
	if i >= 0 {
		e := s.endpoints[i].Clone()
		old = &e
	}
	next, err := decide(old, n)
	if err != nil {
		return err
	}
	s.published = nil
	if old == nil {
		s.endpoints = append(s.endpoints, next.Clone())
	} else {
		s.endpoints[i] = next.Clone()
	}
	s.wake()
	return nil
}

// DeleteEndpoint removes an endpoint and cancels its pending deliveries.
func (s *Store) DeleteEndpoint(ctx context.Context, project, id string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	i := s.endpoint(id)
	if i < 0 || project != "" && s.endpoints[i].Project != project {
		return webhook.ErrNoEndpoint(id)
	}
	s.published = nil
	s.endpoints = slices.Delete(s.endpoints, i, i+1)
	for _, d := range s.deliveries {
		if d == nil || d.endpoint != id {
			continue
		}
		d.orphan = true
		if d.state == pending {
			d.state, d.claimed, d.reason, d.done = webhook.Dead, false, webhook.DeletedReason, max(d.created, time.Now().UnixMilli())
		}
	}
	return nil
}

// Endpoints lists the endpoints of a project, or all.
func (s *Store) Endpoints(ctx context.Context, project, id string) ([]webhook.Endpoint, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []webhook.Endpoint
	for _, e := range s.endpoints {
		if (project == "" || e.Project == project) && (id == "" || e.ID == id) {
			out = append(out, e.Clone())
		}
	}
	return out, nil
}

// Published returns all endpoints, for reading only. The pointer stays the same until an endpoint
// changes.
func (s *Store) Published() *[]webhook.Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published == nil {
		list := slices.Clone(s.endpoints)
		s.published = &list
	}
	return s.published
}
