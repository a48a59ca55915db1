package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// endpoints is what is kept in memory of them: all, in order of their making, as of one number of the counter 'endpoints'. Every transaction that
// writes events looks at that number after it has its locks, so that an endpoint counts, for every replica, from the moment its making is answered.
type endpoints struct {
	n    int64
	list []webhook.Endpoint
	nos  []int64 // of their rows
	// unreadable are rows of which something cannot be read: nothing is sent to them. What is made for those of which only the secrets cannot be read waits.
	unreadable map[int64]bool
}

// Published gives all endpoints of all projects, for reading only: the pointer is the same until one of them changes. Their times are those of then.
func (s *Store) Published() *[]webhook.Endpoint { return &s.published.Load().list }

// wanting gives the rows of a project's endpoints that want the type, but for one.
func (s *Store) wanting(project string, eventType int, atMS, not int64) (nos []int64) {
	e := s.published.Load()
	for i := range e.list {
		if e.list[i].Project == project && e.nos[i] != not && e.list[i].Wants(eventType) && e.list[i].Keeps(atMS) {
			nos = append(nos, e.nos[i])
		}
	}
	return nos
}

// freshEndpoints reads the endpoints anew if they have changed since they were read.
func (s *Store) freshEndpoints(ctx context.Context, q querier, n int64) error {
	if s.published.Load().n >= n {
		return nil
	}
	return s.loadEndpoints(ctx, q)
}

const endpointColumns = "no, id, project, body, secrets, last_success_ms, first_failure_ms, last_failure_ms"

func (s *Store) scanEndpoint(row pgx.CollectableRow, no *int64, e *webhook.Endpoint) error {
	var id, project, body string
	var sealed []byte
	var success, first, last int64
	if err := row.Scan(no, &id, &project, &body, &sealed, &success, &first, &last); err != nil {
		return err
	}
	plain, bad := s.sealer.Open(sealed, endpointOwner(shown(id)))
	if bad != nil {
		plain = []byte("{}") // what it wants to be told of is in the body
	}
	var err error
	if *e, err = webhook.DecodeEndpoint(shown(id), shown(project), body, plain); err != nil {
		return errors.Join(err, errBadRow)
	}
	if bad != nil {
		return bad
	}
	e.LastSuccessMS, e.FirstFailureMS, e.LastFailureMS = success, first, last
	return nil
}

// loadEndpoints reads all endpoints that are not deleted. The number is read first: what comes in between is read once more later.
func (s *Store) loadEndpoints(ctx context.Context, q querier) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	fresh := &endpoints{}
	rows, err := q.Query(ctx, "SELECT n FROM counter WHERE key = 'endpoints'")
	if err == nil {
		fresh.n, err = pgx.CollectOneRow(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return err
	}
	if old := s.published.Load(); old != nil && old.n >= fresh.n {
		return nil
	}
	if rows, err = q.Query(ctx, "SELECT "+endpointColumns+" FROM endpoint WHERE id IS NOT NULL ORDER BY no"); err != nil {
		return err
	}
	var bad []error
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (none struct{}, err error) {
		var no int64
		var e webhook.Endpoint
		err = s.scanEndpoint(row, &no, &e)
		if unreadable(err) {
			if fresh.unreadable == nil {
				fresh.unreadable = map[int64]bool{}
			}
			fresh.unreadable[no] = true
			bad = append(bad, fmt.Errorf("endpoint in row %d: %w", no, err))
			err = nil
			if e.ID == "" {
				return none, nil
			}
		}
		fresh.nos, fresh.list = append(fresh.nos, no), append(fresh.list, e)
		return none, err
	})
	if err != nil {
		return err
	}
	s.published.Store(fresh)
	for _, err := range bad {
		s.report("an endpoint cannot be read: nothing is sent to it until it is mended or deleted", err)
	}
	return nil
}

func (s *Store) someEndpoints(ctx context.Context, q querier, where string, args ...any) (nos []int64, list []webhook.Endpoint, err error) {
	rows, err := q.Query(ctx, "SELECT "+endpointColumns+" FROM endpoint "+where+" ORDER BY no", args...)
	if err != nil {
		return nil, nil, err
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e webhook.Endpoint, err error) {
		var no int64
		err = s.scanEndpoint(row, &no, &e)
		nos = append(nos, no)
		return e, err
	})
	return nos, list, err
}

// changeEndpoints runs a transaction that changes endpoints, one at a time over all replicas, and reads them anew after it.
func (s *Store) changeEndpoints(ctx context.Context, what string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	err := s.transact(ctx, what, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE key = 'endpoints'"); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
	if err != nil {
		return err
	}
	s.wake() // what waited for a disabled endpoint may go now
	if err := s.loadEndpoints(ctx, s.pool); err != nil && ctx.Err() == nil {
		return s.failed(ctx, err, "read endpoints")
	}
	return nil
}

func noEndpoint(id string) error { return fault.New(fault.NotFound, "there is no endpoint %q", id) }

// lockEndpoint reads an endpoint for a change; project "" is any. no is 0 where there is none.
func (s *Store) lockEndpoint(ctx context.Context, tx pgx.Tx, project, id string) (no int64, e webhook.Endpoint, err error) {
	nos, list, err := s.someEndpoints(ctx, lockRows{tx}, "WHERE id = $1 AND ($2 = '' OR project = $2)", stored(id), stored(project))
	if err != nil || len(list) == 0 {
		return 0, e, err
	}
	return nos[0], list[0], nil
}

// lockRows is a transaction whose queries lock what they find.
type lockRows struct{ tx pgx.Tx }

// Query implements querier.
func (l lockRows) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return l.tx.Query(ctx, sql+" FOR UPDATE", args...)
}

// writeEndpoint writes an endpoint; no = 0 makes a row.
func (s *Store) writeEndpoint(ctx context.Context, tx pgx.Tx, no int64, e webhook.Endpoint) error {
	body, secrets, err := webhook.EncodeEndpoint(&e)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	if no == 0 {
		err := tx.QueryRow(ctx, "INSERT INTO endpoint (id, project, body, secrets) VALUES ($1, $2, '', '') RETURNING no", stored(e.ID), stored(e.Project)).Scan(&no)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO endpoint_gate (endpoint_no) VALUES ($1)", no); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `UPDATE endpoint SET project = $2, body = $3, secrets = $4, disabled = $5, last_success_ms = $6, first_failure_ms = $7, last_failure_ms = $8
		WHERE no = $1`, no, stored(e.Project), body, s.sealer.Seal(secrets, endpointOwner(e.ID)), e.Disabled, e.LastSuccessMS, e.FirstFailureMS, e.LastFailureMS)
	return err
}

// PutEndpoint stores an endpoint or replaces the one with its id.
func (s *Store) PutEndpoint(ctx context.Context, e webhook.Endpoint) error {
	if e.ID == "" {
		return fault.At(fault.Missing, "id", "an endpoint needs an id")
	}
	return s.changeEndpoints(ctx, "store endpoint", func(ctx context.Context, tx pgx.Tx) error {
		no, _, err := s.lockEndpoint(ctx, tx, "", e.ID)
		if err != nil {
			return err
		}
		return s.writeEndpoint(ctx, tx, no, e)
	})
}

// CreateEndpoint stores a new endpoint.
func (s *Store) CreateEndpoint(ctx context.Context, e webhook.Endpoint, limit int) error {
	if e.ID == "" {
		return fault.At(fault.Missing, "id", "an endpoint needs an id")
	}
	return s.changeEndpoints(ctx, "create endpoint", func(ctx context.Context, tx pgx.Tx) error {
		no, _, err := s.lockEndpoint(ctx, tx, "", e.ID)
		if err != nil {
			return err
		}
		if no != 0 {
			return fault.New(fault.Conflict, "there is an endpoint %q already", e.ID)
		}
		if limit > 0 {
			n := 0
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM endpoint WHERE project = $1 AND id IS NOT NULL", stored(e.Project)).Scan(&n); err != nil {
				return err
			}
			if n >= limit {
				return fault.New(fault.Quota, "the project has %d endpoints already, which is its limit", limit)
			}
		}
		return s.writeEndpoint(ctx, tx, 0, e)
	})
}

// UpdateEndpoint stores what decide makes of an endpoint.
func (s *Store) UpdateEndpoint(ctx context.Context, project, id string, rev int64, decide func(webhook.Endpoint) (webhook.Endpoint, error)) (out webhook.Endpoint, err error) {
	err = s.changeEndpoints(ctx, "change endpoint", func(ctx context.Context, tx pgx.Tx) error {
		no, old, err := s.lockEndpoint(ctx, tx, project, id)
		if err != nil {
			return err
		}
		if no == 0 {
			return noEndpoint(id)
		}
		if rev != 0 && rev != old.Rev {
			return fault.At(fault.Conflict, "rev", "the endpoint was changed meanwhile: it has revision %d and not %d", old.Rev, rev)
		}
		next, err := decide(old.Clone())
		if err != nil {
			return err
		}
		out = webhook.Revise(old, next).Clone()
		return s.writeEndpoint(ctx, tx, no, out)
	})
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return out, nil
}

// Endpoints lists the endpoints of a project, or all.
func (s *Store) Endpoints(ctx context.Context, project string) (list []webhook.Endpoint, err error) {
	err = s.read(ctx, "list endpoints", func(ctx context.Context) (err error) {
		_, list, err = s.someEndpoints(ctx, s.pool, "WHERE id IS NOT NULL AND ($1 = '' OR project = $1)", stored(project))
		return err
	})
	if len(list) == 0 {
		list = nil
	}
	return list, err
}

// Endpoint gives one endpoint.
func (s *Store) Endpoint(ctx context.Context, project, id string) (e webhook.Endpoint, err error) {
	err = s.read(ctx, "read endpoint", func(ctx context.Context) error {
		_, list, err := s.someEndpoints(ctx, s.pool, "WHERE id = $1 AND ($2 = '' OR project = $2)", stored(id), stored(project))
		if err == nil && len(list) == 0 {
			err = noEndpoint(id)
		}
		if err == nil {
			e = list[0]
		}
		return err
	})
	return e, err
}

// DeletedReason is the reason of deliveries whose endpoint was deleted.
const DeletedReason = "endpoint deleted"

// DeleteEndpoint removes an endpoint and gives its pending deliveries up.
func (s *Store) DeleteEndpoint(ctx context.Context, project, id string) error {
	err := s.changeEndpoints(ctx, "delete endpoint", func(ctx context.Context, tx pgx.Tx) error {
		var no int64
		// Not by lockEndpoint: one that cannot be read can be deleted all the same.
		err := tx.QueryRow(ctx, "SELECT no FROM endpoint WHERE id = $1 AND ($2 = '' OR project = $2) FOR UPDATE", stored(id), stored(project)).Scan(&no)
		if noRows(err) {
			return noEndpoint(id)
		}
		if err != nil {
			return err
		}
		// Its secrets go at once, the row when no delivery needs it any more.
		_, err = tx.Exec(ctx, "UPDATE endpoint SET id = NULL, gone_id = id, body = '', secrets = '' WHERE no = $1", no)
		return err
	})
	if err != nil {
		return err
	}
	return s.closeDeleted(ctx)
}

// sliceRows is how many rows a transaction erases or changes that goes through many.
const sliceRows = 512

// closeDeleted gives up what is pending for deleted endpoints, in slices.
func (s *Store) closeDeleted(ctx context.Context) error {
	for more := true; more; {
		err := s.transact(ctx, "give up deliveries", func(ctx context.Context, tx pgx.Tx) error {
			more = false
			var no int64
			err := tx.QueryRow(ctx, "SELECT no FROM endpoint WHERE id IS NULL AND NOT closed ORDER BY no LIMIT 1 FOR UPDATE SKIP LOCKED").Scan(&no)
			if noRows(err) {
				return nil
			}
			if err != nil {
				return err
			}
			more = true
			done, err := tx.Exec(ctx, `UPDATE delivery SET state = 2, claimed = false, reason = $2, done_ms = greatest(created_ms, $3)
				WHERE id IN (SELECT id FROM delivery WHERE endpoint_no = $1 AND state = 0 LIMIT $4 FOR UPDATE)`, no, DeletedReason, s.Now().UnixMilli(), sliceRows)
			if err != nil || done.RowsAffected() >= sliceRows {
				return err
			}
			if _, err = tx.Exec(ctx, "UPDATE endpoint SET closed = true WHERE no = $1", no); err != nil {
				return err
			}
			return dropEndpoints(ctx, tx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// closeLost gives up deliveries whose endpoint is deleted and closed: another replica made them while it was, and committed after that. Where there are none it looks
// at one delivery for each endpoint.
func (s *Store) closeLost(ctx context.Context) error {
	for more := true; more; {
		err := s.transact(ctx, "give up deliveries", func(ctx context.Context, tx pgx.Tx) error {
			done, err := tx.Exec(ctx, `WITH RECURSIVE waits AS (
					(SELECT endpoint_no FROM delivery WHERE state = 0 ORDER BY endpoint_no LIMIT 1)
					UNION ALL SELECT (SELECT d.endpoint_no FROM delivery d WHERE d.state = 0 AND d.endpoint_no > w.endpoint_no ORDER BY d.endpoint_no LIMIT 1)
					FROM waits w WHERE w.endpoint_no IS NOT NULL),
				lost AS (SELECT w.endpoint_no FROM waits w WHERE w.endpoint_no IS NOT NULL
					AND NOT EXISTS (SELECT 1 FROM endpoint e WHERE e.no = w.endpoint_no AND (e.id IS NOT NULL OR NOT e.closed)))
				UPDATE delivery SET state = 2, claimed = false, reason = $1, done_ms = greatest(created_ms, $2)
				WHERE id IN (SELECT d.id FROM delivery d WHERE d.state = 0 AND d.endpoint_no IN (SELECT endpoint_no FROM lost) LIMIT $3 FOR UPDATE SKIP LOCKED)`,
				DeletedReason, s.Now().UnixMilli(), sliceRows)
			more = err == nil && done.RowsAffected() >= sliceRows
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dropEndpoints erases deleted endpoints that no delivery refers to.
func dropEndpoints(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `DELETE FROM endpoint_gate g USING endpoint e WHERE e.no = g.endpoint_no AND e.id IS NULL AND e.closed
		AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = e.no)`)
	if err == nil {
		_, err = tx.Exec(ctx, "DELETE FROM endpoint WHERE id IS NULL AND closed AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = endpoint.no)")
	}
	return err
}

// ServerKey gives the store's own key of the name; of several replicas that ask first, one makes it.
func (s *Store) ServerKey(ctx context.Context, name string) (out []byte, err error) {
	err = s.transact(ctx, "read key", func(ctx context.Context, tx pgx.Tx) error {
		fresh := newKey()
		_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", keyOwner(name), s.sealer.Seal(fresh, keyOwner(name)))
		if err != nil {
			return err
		}
		var sealed []byte
		if err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", keyOwner(name)).Scan(&sealed); err != nil {
			return err
		}
		out, err = s.sealer.Open(sealed, keyOwner(name))
		return err
	})
	return out, err
}

// conclude stores what a result means for its endpoint and puts the events that it makes in the outbox. Most results mean nothing for it, and then
// its row is only read. A deleted endpoint concludes nothing.
func (s *Store) conclude(ctx context.Context, tx pgx.Tx, no, agentNo int64, d webhook.Delivery, r webhook.Result) (disabled bool, err error) {
	_, list, err := s.someEndpoints(ctx, tx, "WHERE no = $1 AND id IS NOT NULL", no)
	if err != nil || len(list) == 0 {
		return false, err
	}
	c, err := webhook.Conclude(list[0], d, r)
	if err != nil {
		return false, err
	}
	if c.Changed {
		if c.Disabled || c.Endpoint.Rev != list[0].Rev { // first the counter, as everybody who changes endpoints
			if _, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE key = 'endpoints'"); err != nil {
				return false, err
			}
		}
		if _, list, err = s.someEndpoints(ctx, lockRows{tx}, "WHERE no = $1 AND id IS NOT NULL", no); err != nil || len(list) == 0 {
			return false, err
		}
		if c, err = webhook.Conclude(list[0], d, r); err != nil {
			return false, err
		}
		if c.Disabled {
			err = s.writeEndpoint(ctx, tx, no, c.Endpoint)
		} else if c.Changed {
			_, err = tx.Exec(ctx, "UPDATE endpoint SET last_success_ms = $2, first_failure_ms = $3, last_failure_ms = $4 WHERE no = $1",
				no, c.Endpoint.LastSuccessMS, c.Endpoint.FirstFailureMS, c.Endpoint.LastFailureMS)
		}
		if err != nil {
			return false, err
		}
	}
	var o outbox
	for _, m := range c.Events {
		of := int64(0)
		if m.AgentID != "" {
			of = agentNo
		}
		o.event(of, m, s.wanting(m.Project, m.Type, m.CreatedMS, no))
	}
	if o.empty() {
		return c.Disabled, nil
	}
	b := &pgx.Batch{}
	o.queue(b)
	return c.Disabled, tx.SendBatch(ctx, b).Close()
}
