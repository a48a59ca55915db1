package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// endpoints caches all endpoints in order of creation, as of one value of the counter "endpoints".
// Every transaction that writes events compares that value after it has taken its locks. So a new
// endpoint is in effect on every replica as soon as the call that creates it returns.
type endpoints struct {
	n    int64
	list []webhook.Endpoint
	nos  []int64 // the row of each endpoint
	// unreadable holds the rows that cannot be decoded or decrypted. Nothing is sent to them. If
	// only the secrets cannot be decrypted, deliveries for the endpoint are still created and wait.
	unreadable map[int64]bool
}

// Published returns all endpoints of all projects. The caller must not change them. The pointer
// stays the same until an endpoint changes. The times of their health are as of the last load.
func (s *Store) Published() *[]webhook.Endpoint { return &s.published.Load().list }

// wanting returns the rows of a project's endpoints that want the event type, without the row not.
func (s *Store) wanting(project string, eventType int, atMS, not int64) (nos []int64) {
	e := s.published.Load()
	for i := range e.list {
		if e.list[i].Project == project && e.nos[i] != not && e.list[i].Wants(eventType) && e.list[i].Keeps(atMS) {
			nos = append(nos, e.nos[i])
		}
	}
	return nos
}

// freshEndpoints reloads the endpoints if they have changed since they were loaded.
func (s *Store) freshEndpoints(ctx context.Context, q pg.Querier, n int64) error {
	if s.published.Load().n >= n {
		return nil
	}
	return s.loadEndpoints(ctx, q)
}

func (s *Store) scanEndpoint(row pgx.CollectableRow, no *int64, e *webhook.Endpoint) error {
	var id, project, body string
	var sealed []byte
	var success, first, last int64
	if err := row.Scan(no, &id, &project, &body, &sealed, &success, &first, &last); err != nil {
		return err
	}
	plain, bad := s.sealer.Open(sealed, statements.EndpointOwner(pg.Shown(id)))
	if bad != nil {
		plain = []byte("{}") // the event types that it wants are in the body
	}
	var err error
	if *e, err = webhook.DecodeEndpoint(pg.Shown(id), pg.Shown(project), body, plain); err != nil {
		return errors.Join(err, codec.ErrUnreadable)
	}
	if bad != nil {
		return bad
	}
	e.LastSuccessMS, e.FirstFailureMS, e.LastFailureMS = success, first, last
	return nil
}

// loadEndpoints loads all endpoints that are not deleted. It reads the counter first, so that a
// change that commits in between is loaded again later.
func (s *Store) loadEndpoints(ctx context.Context, q pg.Querier) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	fresh := &endpoints{}
	err := pg.Each(ctx, q, []any{&fresh.n}, func() error { return nil }, "SELECT n FROM counter WHERE key = 'endpoints'")
	if err != nil {
		return err
	}
	if old := s.published.Load(); old != nil && old.n >= fresh.n {
		return nil
	}
	var bad []error
	_, err = pg.Collect(ctx, q, func(row pgx.CollectableRow) (none struct{}, err error) {
		var no int64
		var e webhook.Endpoint
		err = s.scanEndpoint(row, &no, &e)
		if pg.Unreadable(err) {
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
	}, "SELECT "+statements.EndpointColumns+" FROM endpoint WHERE id IS NOT NULL ORDER BY no")
	if err != nil {
		return err
	}
	s.published.Store(fresh)
	for _, err := range bad {
		s.db.Report("an endpoint cannot be read: nothing is sent to it until it is mended or deleted", err)
	}
	return nil
}

func (s *Store) someEndpoints(ctx context.Context, q pg.Querier, where string, args ...any) (nos []int64, list []webhook.Endpoint, err error) {
	list, err = pg.Collect(ctx, q, func(row pgx.CollectableRow) (e webhook.Endpoint, err error) {
		var no int64
		err = s.scanEndpoint(row, &no, &e)
		nos = append(nos, no)
		return e, err
	}, "SELECT "+statements.EndpointColumns+" FROM endpoint "+where, args...)
	return nos, list, err
}

// changeEndpoints runs a transaction that changes endpoints and then reloads them. The lock of the
// counter serializes such transactions across replicas.
func (s *Store) changeEndpoints(ctx context.Context, what string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	err := s.db.Transact(ctx, what, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE key = 'endpoints'"); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
	if err != nil {
		return err
	}
	s.wake() // an endpoint may be enabled again, and have deliveries that are due
	if err := s.loadEndpoints(ctx, s.db.Pool); err != nil && ctx.Err() == nil {
		return s.db.Failed(ctx, err, "read endpoints")
	}
	return nil
}

// lockEndpoint reads an endpoint and locks its row. An empty project stands for any. no is 0 if
// there is no such endpoint.
func (s *Store) lockEndpoint(ctx context.Context, tx pgx.Tx, project, id string) (no int64, e webhook.Endpoint, err error) {
	nos, list, err := s.someEndpoints(ctx, tx, "WHERE id = $1 AND ($2 = '' OR project = $2) FOR UPDATE", pg.Stored(id), pg.Stored(project))
	if err != nil || len(list) == 0 {
		return 0, e, err
	}
	return nos[0], list[0], nil
}

// writeEndpoint writes an endpoint to the row no, or to a new row if no is 0.
func (s *Store) writeEndpoint(ctx context.Context, tx pgx.Tx, no int64, e webhook.Endpoint) error {
	body, secrets, err := webhook.EncodeEndpoint(&e)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the store failed")
	}
	key, err := s.key(ctx, tx, encryption.Of{Project: e.Project})
	if err != nil {
		return err
	}
	if no == 0 {
		err := tx.QueryRow(ctx, "INSERT INTO endpoint (id, project, body, secrets) VALUES ($1, $2, '', '') RETURNING no", pg.Stored(e.ID), pg.Stored(e.Project)).Scan(&no)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO endpoint_gate (endpoint_no) VALUES ($1)", no); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `UPDATE endpoint SET project = $2, body = $3, secrets = $4, disabled = $5, last_success_ms = $6, first_failure_ms = $7, last_failure_ms = $8
		WHERE no = $1`, no, pg.Stored(e.Project), body, key.Seal(secrets, statements.EndpointOwner(e.ID)), e.Disabled, e.LastSuccessMS, e.FirstFailureMS, e.LastFailureMS)
	return err
}

// ChangeEndpoint stores what decide returns for an endpoint.
func (s *Store) ChangeEndpoint(ctx context.Context, project, id string, decide func(old *webhook.Endpoint, n int) (webhook.Endpoint, error)) error {
	return s.changeEndpoints(ctx, "store endpoint", func(ctx context.Context, tx pgx.Tx) error {
		no, e, err := s.lockEndpoint(ctx, tx, "", id)
		if err != nil {
			return err
		}
		var old *webhook.Endpoint
		if no != 0 {
			old = &e
		}
		n := 0
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM endpoint WHERE project = $1 AND id IS NOT NULL", pg.Stored(project)).Scan(&n); err != nil {
			return err
		}
		next, err := decide(old, n)
		if err != nil {
			return err
		}
		return s.writeEndpoint(ctx, tx, no, next)
	})
}

// Endpoints lists the endpoints of a project, or all if project is empty.
func (s *Store) Endpoints(ctx context.Context, project, id string) (list []webhook.Endpoint, err error) {
	err = s.db.Read(ctx, "list endpoints", func(ctx context.Context) (err error) {
		_, list, err = s.someEndpoints(ctx, s.db.Pool, "WHERE id IS NOT NULL AND ($1 = '' OR project = $1) AND ($2 = '' OR id = $2) ORDER BY no", pg.Stored(project), pg.Stored(id))
		return err
	})
	if len(list) == 0 {
		list = nil
	}
	return list, err
}

// DeleteEndpoint deletes an endpoint and gives up its pending deliveries.
func (s *Store) DeleteEndpoint(ctx context.Context, project, id string) error {
	err := s.changeEndpoints(ctx, "delete endpoint", func(ctx context.Context, tx pgx.Tx) error {
		var no int64
		// Without lockEndpoint, so that an endpoint that cannot be read can be deleted.
		err := tx.QueryRow(ctx, "SELECT no FROM endpoint WHERE id = $1 AND ($2 = '' OR project = $2) FOR UPDATE", pg.Stored(id), pg.Stored(project)).Scan(&no)
		if pg.NoRows(err) {
			return webhook.ErrNoEndpoint(id)
		}
		if err != nil {
			return err
		}
		// The secrets are erased now, and the row when no delivery refers to it.
		_, err = tx.Exec(ctx, "UPDATE endpoint SET id = NULL, gone_id = id, body = '', secrets = '' WHERE no = $1", no)
		return err
	})
	if err != nil {
		return err
	}
	return s.closeDeleted(ctx)
}

// sliceRows is how many rows each transaction of a long operation deletes or changes.
const sliceRows = 512

// closeDeleted ends the pending deliveries of deleted endpoints, sliceRows at a time. Another
// replica may have created some during the deletion and committed them after it. If there are none,
// closeDeleted reads one delivery for each endpoint.
func (s *Store) closeDeleted(ctx context.Context) error {
	for more := true; more; {
		err := s.db.Transact(ctx, "give up deliveries", func(ctx context.Context, tx pgx.Tx) error {
			done, err := tx.Exec(ctx, pendingEndpoints+`, lost AS (SELECT w.endpoint_no FROM waits w WHERE w.endpoint_no IS NOT NULL
					AND NOT EXISTS (SELECT 1 FROM endpoint e WHERE e.no = w.endpoint_no AND e.id IS NOT NULL))
				UPDATE delivery SET state = 2, claimed = false, reason = $1, done_ms = greatest(created_ms, $2)
				WHERE id = ANY(ARRAY(SELECT d.id FROM delivery d WHERE d.state = 0 AND d.endpoint_no IN (SELECT endpoint_no FROM lost) LIMIT $3 FOR UPDATE))`,
				webhook.DeletedReason, s.Now().UnixMilli(), sliceRows)
			more = err == nil && done.RowsAffected() >= sliceRows
			if err != nil || more {
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

// dropEndpoints erases deleted endpoints that no delivery refers to.
func dropEndpoints(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `WITH gone AS (DELETE FROM endpoint e WHERE id IS NULL AND NOT EXISTS (SELECT 1 FROM delivery d WHERE d.endpoint_no = e.no) RETURNING no)
		DELETE FROM endpoint_gate WHERE endpoint_no IN (SELECT no FROM gone)`)
	return err
}

// conclude stores the effect of a delivery's result on its endpoint, and adds the resulting events
// to the outbox. Most results have no effect, and then the endpoint's row is only read. A result
// for a deleted endpoint has none.
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
		// Lock the counter first, as every change of endpoints does.
		if c.Disabled || c.Endpoint.Rev != list[0].Rev {
			if _, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE key = 'endpoints'"); err != nil {
				return false, err
			}
		}
		if _, list, err = s.someEndpoints(ctx, tx, "WHERE no = $1 AND id IS NOT NULL FOR UPDATE", no); err != nil || len(list) == 0 {
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
		key, err := s.key(ctx, tx, encryption.Of{Project: m.Project})
		if err != nil {
			return false, err
		}
		o.event(of, key, m, s.wanting(m.Project, m.Type, m.CreatedMS, no))
	}
	if o.empty() {
		return c.Disabled, nil
	}
	b := &pgx.Batch{}
	o.queue(b)
	return c.Disabled, tx.SendBatch(ctx, b).Close()
}
