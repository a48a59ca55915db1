package sqlite

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// endpoint is a webhook endpoint with its row number. All endpoints are in memory. Only the
// holder of the writer's turn changes the list.
type endpoint struct {
	*webhook.Endpoint // never changed but replaced, under mu
	no                int64
	// due is at most the earliest due time of its pending deliveries. Waiting asks the database
	// only about endpoints that may have a due one, so a due that is too early is harmless. changes
	// counts the commits that changed it. mu guards both.
	due     int64
	changes int
	// wants holds the types that match its filter. Matching the patterns for each event would cost
	// too much.
	wants []int
}

// takes reports whether the endpoint wants events of the type at that time.
func (e *endpoint) takes(eventType int, atMS int64) bool {
	return e.Keeps(atMS) && slices.Contains(e.wants, eventType)
}

// wantedTypes returns the types that match an endpoint's filter.
func wantedTypes(e *webhook.Endpoint) []int {
	var out []int
	for _, t := range event.Types() {
		if webhook.Matches(e.Events, t.Number) {
			out = append(out, t.Number)
		}
	}
	return out
}

// index finds endpoints by row and by project. There may be thousands.
type index struct {
	byNo      map[int64]*endpoint
	byProject map[string][]*endpoint // oldest first
}

func newIndex(list []*endpoint) index {
	x := index{map[int64]*endpoint{}, map[string][]*endpoint{}}
	for _, e := range list {
		x.byNo[e.no] = e
		x.byProject[e.Project] = append(x.byProject[e.Project], e)
	}
	return x
}

// loadEndpoints reads all endpoints that are not deleted, oldest first.
func loadEndpoints(c *dbfile.Conn, s *encryption.Sealer) ([]*endpoint, error) {
	return dbfile.Collect(c, func(row dbfile.Row) (*endpoint, error) {
		e, err := statements.ReadEndpoint(s, row)
		return &endpoint{Endpoint: &e, no: row.Int(0), wants: wantedTypes(&e)}, err
	}, "SELECT "+statements.EndpointColumns+" FROM endpoint WHERE id IS NOT NULL ORDER BY no")
}

// setEndpoints sets the list of endpoints once the transaction is committed.
func (t *tx) setEndpoints(list []*endpoint) {
	t.After(func() {
		t.s.mu.Lock()
		t.s.endpoints, t.s.index = list, newIndex(list)
		t.s.mu.Unlock()
		t.s.publishEndpoints()
	})
}

// publishEndpoints publishes the list for readers.
func (s *Store) publishEndpoints() {
	out := make([]webhook.Endpoint, len(s.endpoints))
	for i, e := range s.endpoints {
		out[i] = *e.Endpoint
	}
	s.published.Store(&out)
}

// Published returns all endpoints of all projects, for reading only, without the times of their
// health. The pointer stays the same until an endpoint changes.
func (s *Store) Published() *[]webhook.Endpoint { return s.published.Load() }

// ChangeEndpoint stores what decide returns for an endpoint.
func (s *Store) ChangeEndpoint(ctx context.Context, project, id string, decide func(old *webhook.Endpoint, n int) (webhook.Endpoint, error)) error {
	return s.db.WriteAlone(ctx, "store an endpoint", s.in(func(t *tx) error {
		var old *webhook.Endpoint
		n := 0
		for _, e := range s.endpoints {
			if e.ID == id {
				c := e.Clone()
				old = &c
			}
			if e.Project == project {
				n++
			}
		}
		next, err := decide(old, n)
		if err != nil {
			return err
		}
		return t.putEndpoint(next.Clone())
	}))
}

// endpointAt returns the place of an endpoint in the list, -1 if it is missing. An empty project is
// any. The caller has the writer's turn or mu.
func (s *Store) endpointAt(project, id string) int {
	return slices.IndexFunc(s.endpoints, func(e *endpoint) bool { return e.ID == id && (project == "" || e.Project == project) })
}

// putEndpoint writes an endpoint. Its job is alone in its transaction.
func (t *tx) putEndpoint(e webhook.Endpoint) error {
	list := slices.Clone(t.s.endpoints)
	at := t.s.endpointAt("", e.ID)
	if at < 0 {
		no, err := t.insertEndpointRow(&e)
		if err != nil {
			return err
		}
		list = append(list, &endpoint{no: no})
		at = len(list) - 1
	}
	changed := &endpoint{Endpoint: &e, no: list[at].no, wants: wantedTypes(&e)}
	list[at] = changed
	if err := t.writeEndpoint(changed); err != nil {
		return err
	}
	t.setEndpoints(list)
	t.After(t.s.wake) // what waited for a disabled endpoint may be sent now
	return nil
}

// insertEndpointRow stores a row for a new endpoint, which writeEndpoint fills.
func (t *tx) insertEndpointRow(e *webhook.Endpoint) (no int64, err error) {
	return t.Insert("INSERT INTO endpoint (id, project, body, secrets) VALUES (?, ?, '', x'')", e.ID, e.Project)
}

func (t *tx) writeEndpoint(e *endpoint) error {
	body, secrets, err := webhook.EncodeEndpoint(e.Endpoint)
	if err != nil {
		return err
	}
	if e.Disabled { // its tests wait like all other deliveries
		if err := t.ExecEach(e.no, "UPDATE delivery SET urgent = 0 WHERE state = 0 AND urgent = 1 AND endpoint_no = ?"); err != nil {
			return err
		}
	}
	key, err := t.key(encryption.Of{Project: e.Project})
	if err != nil {
		return err
	}
	_, err = t.Exec("UPDATE endpoint SET project = ?, body = ?, secrets = ?, last_success_ms = ?, first_failure_ms = ?, last_failure_ms = ? WHERE no = ?",
		e.Project, body, key.Seal(secrets, statements.EndpointOwner(e.ID)), e.LastSuccessMS, e.FirstFailureMS, e.LastFailureMS, e.no)
	return err
}

// conclude stores what a result means for its endpoint, and the events that it causes. A deleted
// endpoint has no row in memory, and nothing is concluded for it.
func (t *tx) conclude(no int64, d webhook.Delivery, r webhook.Result) error {
	e := t.live(no)
	if e == nil {
		return nil
	}
	now := *e.Endpoint
	if changed, ok := t.changed()[no]; ok {
		now = changed
	}
	c, err := webhook.Conclude(now, d, r)
	if err != nil {
		return err
	}
	if c.Changed {
		if err := t.changeEndpoint(e, c); err != nil {
			return err
		}
	}
	for _, m := range c.Events {
		of := int64(0)
		if m.AgentID != "" {
			if of, err = t.Conn.Number("SELECT e.agent_no FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.id = ?", d.ID); err != nil {
				return err
			}
		}
		key, err := t.key(encryption.Of{Project: m.Project})
		if err != nil {
			return err
		}
		if err := t.insertEvent(of, key, m, func(to *endpoint) bool { return to.no != no && to.takes(m.Type, m.CreatedMS) }); err != nil {
			return err
		}
	}
	return nil
}

// changed returns the endpoints, by row, that results of deliveries have changed in the
// transaction.
func (t *tx) changed() map[int64]webhook.Endpoint {
	list, _ := t.Local.(map[int64]webhook.Endpoint)
	return list
}

// changeEndpoint writes an endpoint's health, or all of it if it was disabled. Memory changes after
// the commit.
func (t *tx) changeEndpoint(e *endpoint, c webhook.Conclusion) error {
	var err error
	if c.Disabled {
		err = t.writeEndpoint(&endpoint{Endpoint: &c.Endpoint, no: e.no})
	} else {
		_, err = t.Exec("UPDATE endpoint SET last_success_ms = ?, first_failure_ms = ?, last_failure_ms = ? WHERE no = ?",
			c.Endpoint.LastSuccessMS, c.Endpoint.FirstFailureMS, c.Endpoint.LastFailureMS, e.no)
	}
	if err != nil {
		return err
	}
	if t.Local == nil {
		t.Local = map[int64]webhook.Endpoint{}
	}
	t.changed()[e.no] = c.Endpoint
	t.After(func() {
		t.s.mu.Lock()
		e.Endpoint = &c.Endpoint // whose filter is the same
		t.s.mu.Unlock()
		if c.Disabled {
			t.s.publishEndpoints()
		}
	})
	return nil
}

// DeleteEndpoint deletes an endpoint and gives up its pending deliveries.
func (s *Store) DeleteEndpoint(ctx context.Context, project, id string) error {
	err := s.db.WriteAlone(ctx, "delete an endpoint", s.in(func(t *tx) error {
		at := s.endpointAt(project, id)
		if at < 0 {
			return webhook.ErrNoEndpoint(id)
		}
		// The secrets are erased at once, the row when no delivery refers to it.
		err := t.ExecEach(s.endpoints[at].no, "UPDATE endpoint SET id = NULL, gone_id = id, body = '', secrets = x'' WHERE no = ?")
		if err != nil {
			return err
		}
		t.setEndpoints(slices.Delete(slices.Clone(s.endpoints), at, at+1))
		return nil
	}))
	if err != nil {
		return err
	}
	return s.closeDeleted(ctx)
}

// closeDeleted ends the pending deliveries of deleted endpoints, in slices.
func (s *Store) closeDeleted(ctx context.Context) error {
	_, err := s.writeSlices(ctx, "give up deliveries", func(t *tx) (_ int, more bool, err error) {
		row, err := t.Conn.First("SELECT no FROM endpoint WHERE id IS NULL AND closed = 0 LIMIT 1")
		if err != nil || row == nil {
			return 0, false, err
		}
		n, err := t.Exec(`UPDATE delivery SET state = 2, reason = ?, done_ms = max(created_ms, CAST(unixepoch('subsec') * 1000 AS INTEGER))
			WHERE id IN (SELECT id FROM delivery WHERE endpoint_no = ? AND state = 0 LIMIT ?)`, webhook.DeletedReason, row[0], int64(sweepRows))
		if err != nil || n >= sweepRows {
			return 0, true, err
		}
		if err := t.ExecEach(row[0], "UPDATE endpoint SET closed = 1 WHERE no = ?"); err != nil {
			return 0, false, err
		}
		return 0, true, t.dropEndpoints()
	})
	return err
}

// dropEndpoints erases deleted endpoints that no delivery refers to.
func (t *tx) dropEndpoints() error {
	_, err := t.Exec(`DELETE FROM endpoint WHERE id IS NULL AND closed = 1
		AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = endpoint.no)`)
	return err
}

// Endpoints lists the endpoints of a project, or all if project is empty.
func (s *Store) Endpoints(_ context.Context, project, id string) ([]webhook.Endpoint, error) {
	if s.db.Closed() {
		return nil, dbfile.ErrClosed()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []webhook.Endpoint
	for _, e := range s.endpoints {
		if (project == "" || e.Project == project) && (id == "" || e.ID == id) {
			out = append(out, e.Clone())
		}
	}
	return out, nil
}
