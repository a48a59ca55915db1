package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"math"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// endpoint is a webhook endpoint with its row number. All of them are in memory; the committer alone changes the list.
type endpoint struct {
	webhook.Endpoint
	no int64
	// due is at most the earliest due time of its pending deliveries, so that a claim asks the database only for endpoints
	// that may have one. Too early is harmless.
	due int64
}

func (e *endpoint) dueAt(ms int64) { e.due = min(e.due, ms) }

const nothingDue = math.MaxInt64

// storedEndpoint is the column endpoint.body.
type storedEndpoint struct {
	URL         string `json:"url"`
	Types       []int  `json:"types,omitempty"`
	Agora       bool   `json:"agora,omitempty"`
	Disabled    bool   `json:"disabled,omitempty"`
	DisabledWhy string `json:"disabled_why,omitempty"`
}

// storedSecret is one of the sealed secrets.
type storedSecret struct {
	Value    string     `json:"value"`
	NotAfter *time.Time `json:"not_after,omitempty"`
}

func encodeEndpoint(e webhook.Endpoint) (body string, secrets []byte, err error) {
	b, err := json.Marshal(storedEndpoint{URL: e.URL, Types: e.Types, Agora: e.Agora, Disabled: e.Disabled, DisabledWhy: e.DisabledWhy})
	if err != nil {
		return "", nil, err
	}
	list := make([]storedSecret, len(e.Secrets))
	for i, s := range e.Secrets {
		list[i].Value = s.Value.Reveal()
		if !s.NotAfter.IsZero() {
			list[i].NotAfter = &s.NotAfter
		}
	}
	secrets, err = json.Marshal(list)
	return string(b), secrets, err
}

func decodeEndpoint(id, project, body string, secrets []byte) (webhook.Endpoint, error) {
	var in storedEndpoint
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		return webhook.Endpoint{}, err
	}
	var list []storedSecret
	if err := json.Unmarshal(secrets, &list); err != nil {
		return webhook.Endpoint{}, err
	}
	e := webhook.Endpoint{
		ID: id, Project: project, URL: in.URL, Types: in.Types, Agora: in.Agora, Disabled: in.Disabled, DisabledWhy: in.DisabledWhy,
	}
	for _, s := range list {
		secret := webhook.SigningSecret{Value: webhook.Secret(s.Value)}
		if s.NotAfter != nil {
			secret.NotAfter = *s.NotAfter
		}
		e.Secrets = append(e.Secrets, secret)
	}
	return e, nil
}

// loadEndpoints reads all endpoints that are not deleted, in order of their making.
func loadEndpoints(c *conn, s *sealer) ([]*endpoint, error) {
	var out []*endpoint
	err := c.each("SELECT no, id, project, body, secrets FROM endpoint WHERE id IS NOT NULL ORDER BY no", nil, func(row []driver.Value) error {
		no := integer(row[0])
		plain, err := s.open(blob(row[4]), endpointOwner(no))
		if err != nil {
			return err
		}
		e, err := decodeEndpoint(text(row[1]), text(row[2]), text(row[3]), plain)
		out = append(out, &endpoint{Endpoint: e, no: no})
		return err
	})
	return out, err
}

// setEndpoints makes list the endpoints once the group is committed.
func (g *group) setEndpoints(list []*endpoint) {
	g.after = append(g.after, func() {
		g.s.endpoints = list
		g.s.publishEndpoints()
	})
}

// publishEndpoints makes the list readable outside the committer.
func (s *Store) publishEndpoints() {
	out := make([]webhook.Endpoint, len(s.endpoints))
	for i, e := range s.endpoints {
		out[i] = e.Endpoint
	}
	s.published.Store(&out)
}

// PutEndpoint stores an endpoint or replaces the one with its id.
func (s *Store) PutEndpoint(ctx context.Context, e webhook.Endpoint) error {
	if e.ID == "" {
		return fault.At(fault.Missing, "id", "an endpoint needs an id")
	}
	return s.doAlone(ctx, func(g *group) error {
		list := append([]*endpoint(nil), s.endpoints...)
		at := -1
		for i, old := range list {
			if old.ID == e.ID {
				at = i
			}
		}
		if at < 0 {
			_, no, err := g.exec("insert endpoint", "INSERT INTO endpoint (id, project, body, secrets) VALUES (?, ?, '', x'')", e.ID, e.Project)
			if err != nil {
				return err
			}
			list = append(list, &endpoint{no: no, due: nothingDue})
			at = len(list) - 1
		}
		changed := &endpoint{Endpoint: e, no: list[at].no, due: list[at].due}
		list[at] = changed
		if err := g.writeEndpoint(changed); err != nil {
			return err
		}
		g.wake = true // what waited for a disabled endpoint may go now
		g.setEndpoints(list)
		return nil
	})
}

func (g *group) writeEndpoint(e *endpoint) error {
	body, secrets, err := encodeEndpoint(e.Endpoint)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	_, _, err = g.exec("update endpoint", "UPDATE endpoint SET project = ?, body = ?, secrets = ? WHERE no = ?",
		e.Project, body, g.s.sealer.seal(secrets, endpointOwner(e.no)), e.no)
	return err
}

// DeletedReason is the reason of deliveries whose endpoint was deleted.
const DeletedReason = "endpoint deleted"

// DeleteEndpoint removes an endpoint and gives its pending deliveries up.
func (s *Store) DeleteEndpoint(ctx context.Context, id string) error {
	err := s.doAlone(ctx, func(g *group) error {
		var list []*endpoint
		var gone *endpoint
		for _, e := range s.endpoints {
			if e.ID == id {
				gone = e
			} else {
				list = append(list, e)
			}
		}
		if gone == nil {
			return fault.New(fault.NotFound, "there is no endpoint %q", id)
		}
		// Its secrets go at once, the row when no delivery needs it any more.
		if _, _, err := g.exec("delete endpoint", "UPDATE endpoint SET id = NULL, secrets = x'' WHERE no = ?", gone.no); err != nil {
			return err
		}
		g.setEndpoints(list)
		return nil
	})
	if err != nil {
		return err
	}
	return s.closeDeleted(ctx)
}

// closeDeleted gives up what is pending for deleted endpoints, in slices.
func (s *Store) closeDeleted(ctx context.Context) error {
	for more := true; more; {
		err := s.do(ctx, func(g *group) error {
			more = false
			row, err := g.w.first("SELECT no FROM endpoint WHERE id IS NULL LIMIT 1")
			if err != nil || row == nil {
				return classify(err, "look for deleted endpoints")
			}
			more = true
			n, _, err := g.exec("give up deliveries", `UPDATE delivery SET state = 2, claimed = 0, reason = ? WHERE id IN
				(SELECT id FROM delivery WHERE endpoint_no = ? AND state = 0 LIMIT ?)`, DeletedReason, integer(row[0]), int64(sweepRows))
			g.pages += int(n) * 3
			if err != nil || n >= sweepRows {
				return err
			}
			_, _, err = g.exec("delete endpoint", "DELETE FROM endpoint WHERE no = ?", integer(row[0]))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Endpoints lists the endpoints of a project, or all.
func (s *Store) Endpoints(_ context.Context, project string) ([]webhook.Endpoint, error) {
	if s.isClosed() {
		return nil, errClosed()
	}
	var out []webhook.Endpoint
	for _, e := range *s.published.Load() {
		if project == "" || e.Project == project {
			out = append(out, e)
		}
	}
	return out, nil
}
