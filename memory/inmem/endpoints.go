package inmem

import (
	"context"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

func noEndpoint(id string) error { return fault.New(fault.NotFound, "there is no endpoint %q", id) }

func (s *Store) endpoint(id string) int {
	return slices.IndexFunc(s.endpoints, func(e webhook.Endpoint) bool { return e.ID == id })
}

// ownEndpoint returns the place of an endpoint of a project. An empty project is any.
func (s *Store) ownEndpoint(project, id string) (int, error) {
	if i := s.endpoint(id); i >= 0 && (project == "" || s.endpoints[i].Project == project) {
		return i, nil
	}
	return 0, noEndpoint(id)
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
	s.published = nil
	if i := s.endpoint(e.ID); i >= 0 {
		s.endpoints[i] = e.Clone()
	} else {
		s.endpoints = append(s.endpoints, e.Clone())
	}
	s.wake()
	return nil
}

// CreateEndpoint stores a new endpoint.
func (s *Store) CreateEndpoint(ctx context.Context, e webhook.Endpoint, limit int) error {
	if e.ID == "" {
		return fault.At(fault.Missing, "id", "an endpoint needs an id")
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	n := 0
	for _, old := range s.endpoints {
		if old.ID == e.ID {
			return fault.New(fault.Conflict, "there is an endpoint %q already", e.ID)
		}
		if old.Project == e.Project {
			n++
		}
	}
	if limit > 0 && n >= limit {
		return fault.New(fault.Quota, "the project has %d endpoints already, which is its limit", limit)
	}
	s.published = nil
	s.endpoints = append(s.endpoints, e.Clone())
	return nil
}

// UpdateEndpoint stores what decide makes of an endpoint.
func (s *Store) UpdateEndpoint(ctx context.Context, project, id string, rev int64, decide func(webhook.Endpoint) (webhook.Endpoint, error)) (webhook.Endpoint, error) {
	if err := s.enter(ctx); err != nil {
		return webhook.Endpoint{}, err
	}
	defer s.mu.Unlock()
	i, err := s.ownEndpoint(project, id)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	old := s.endpoints[i]
	if rev != 0 && rev != old.Rev {
		return webhook.Endpoint{}, fault.At(fault.Conflict, "rev", "the endpoint was changed meanwhile: it has revision %d and not %d", old.Rev, rev)
	}
	next, err := decide(old.Clone())
	if err != nil {
		return webhook.Endpoint{}, err
	}
	s.published = nil
	s.endpoints[i] = webhook.Revise(old, next).Clone()
	s.wake()
	return s.endpoints[i].Clone(), nil
}

// DeletedReason is the reason of deliveries whose endpoint was deleted.
const DeletedReason = "endpoint deleted"

// DeleteEndpoint removes an endpoint and cancels its pending deliveries.
func (s *Store) DeleteEndpoint(ctx context.Context, project, id string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	i, err := s.ownEndpoint(project, id)
	if err != nil {
		return err
	}
	s.published = nil
	s.endpoints = slices.Delete(s.endpoints, i, i+1)
	for _, d := range s.deliveries {
		if d == nil || d.endpoint != id {
			continue
		}
		d.orphan = true
		if d.state == pending {
			d.state, d.claimed, d.reason, d.done = webhook.Dead, false, DeletedReason, max(d.created, time.Now().UnixMilli())
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
			out = append(out, e.Clone())
		}
	}
	return out, nil
}

// Endpoint returns one endpoint.
func (s *Store) Endpoint(ctx context.Context, project, id string) (webhook.Endpoint, error) {
	if err := s.enter(ctx); err != nil {
		return webhook.Endpoint{}, err
	}
	defer s.mu.Unlock()
	i, err := s.ownEndpoint(project, id)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return s.endpoints[i].Clone(), nil
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
