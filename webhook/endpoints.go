package webhook

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
)

// Endpoints is where endpoints are kept. webhooktest.Run is its full contract, together with the
// functions CreateEndpoint, PutEndpoint, UpdateEndpoint and FindEndpoint.
type Endpoints interface {
	// Endpoints lists the endpoints of a project, or of every project if project is "", oldest
	// first. With an ID it lists that endpoint, or none.
	Endpoints(ctx context.Context, project, id string) ([]Endpoint, error)
	// ChangeEndpoint stores what decide returns for the endpoint with the ID: a new one, or one in
	// place of old, which is nil if no project has such an endpoint. n is how many endpoints the
	// project has. No other call changes endpoints in between, on any server. decide may run more
	// than once; its error is returned and nothing is stored. Pending deliveries go to the new URL
	// with the new secrets.
	ChangeEndpoint(ctx context.Context, project, id string, decide func(old *Endpoint, n int) (Endpoint, error)) error
	// DeleteEndpoint removes an endpoint, also one that cannot be read. Its pending deliveries
	// become Dead with DeletedReason. It fails with fault.NotFound.
	DeleteEndpoint(ctx context.Context, project, id string) error
}

// ErrNoEndpoint returns the fault.NotFound of an endpoint.
func ErrNoEndpoint(id string) error { return fault.New(fault.NotFound, "there is no endpoint %q", id) }

func errNoID() error { return fault.At(fault.Missing, "id", "an endpoint needs an id") }

// FindEndpoint returns one endpoint of a project, or of any project if project is "". It fails with
// fault.NotFound.
func FindEndpoint(ctx context.Context, s Endpoints, project, id string) (Endpoint, error) {
	if id == "" {
		return Endpoint{}, ErrNoEndpoint(id)
	}
	list, err := s.Endpoints(ctx, project, id)
	switch {
	case err != nil:
		return Endpoint{}, err
	case len(list) == 0:
		return Endpoint{}, ErrNoEndpoint(id)
	}
	return list[0], nil
}

// CreateEndpoint stores a new endpoint. It fails with fault.Conflict if the ID is in use, and with
// fault.Quota if the project already has limit endpoints (0 = no limit).
func CreateEndpoint(ctx context.Context, s Endpoints, e Endpoint, limit int) error {
	if e.ID == "" {
		return errNoID()
	}
	return s.ChangeEndpoint(ctx, e.Project, e.ID, func(old *Endpoint, n int) (Endpoint, error) {
		switch {
		case old != nil:
			return e, fault.New(fault.Conflict, "there is an endpoint %q already", e.ID)
		case limit > 0 && n >= limit:
			return e, fault.New(fault.Quota, "the project has %d endpoints already, which is its limit", limit)
		}
		return e, nil
	})
}

// PutEndpoint stores an endpoint as given and replaces the one with its ID.
func PutEndpoint(ctx context.Context, s Endpoints, e Endpoint) error {
	if e.ID == "" {
		return errNoID()
	}
	return s.ChangeEndpoint(ctx, e.Project, e.ID, func(*Endpoint, int) (Endpoint, error) { return e, nil })
}

// UpdateEndpoint stores what decide returns for an endpoint, passed through revise, and returns the
// result. If rev is not 0 it must be the stored Rev; otherwise the call fails with fault.Conflict.
// An error of decide stores nothing and is returned as it is. decide may run more than once.
func UpdateEndpoint(ctx context.Context, s Endpoints, project, id string, rev int64, decide func(Endpoint) (Endpoint, error)) (Endpoint, error) {
	var out Endpoint
	err := s.ChangeEndpoint(ctx, project, id, func(old *Endpoint, _ int) (Endpoint, error) {
		if old == nil || project != "" && old.Project != project {
			return out, ErrNoEndpoint(id)
		}
		if rev != 0 && rev != old.Rev {
			return out, fault.At(fault.Conflict, "rev", "the endpoint was changed meanwhile: it has revision %d and not %d", old.Rev, rev)
		}
		next, err := decide(old.Clone())
		if err != nil {
			return out, err
		}
		out = revise(*old, next).Clone()
		return out, nil
	})
	if err != nil {
		return Endpoint{}, err
	}
	return out.Clone(), nil
}
