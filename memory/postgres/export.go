package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/webhook"
)

var (
	_ export.Source = (*Store)(nil)
	_ export.Prober = (*Store)(nil)
)

// How many rows are read at a time. Bodies of events may be long.
const (
	exportAgents = 200
	exportRows   = 1000
	exportBodies = 50
)

// moment runs fn in one transaction that only reads, as of one moment, for as long as it takes.
func (s *Store) moment(ctx context.Context, what string, fn func(tx pgx.Tx) error) error {
	if s.closed.Load() {
		return errClosed()
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.failed(ctx, err, what)
	}
	defer conn.Release()
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		// Whoever takes the records may be slow.
		if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
			return err
		}
		return fn(tx)
	})
	return s.failed(ctx, err, what)
}

// eventScope gives the condition on events, named e; $1 is the project and $2 the agent, empty for any.
const eventScope = `($1::text = '' OR e.project = $1) AND ($2::text = '' OR e.agent_id = $2) AND (e.agent_no = 0 OR EXISTS (SELECT 1 FROM agent a WHERE a.no = e.agent_no))`

// agentScope gives the condition on agents, named a; $1 is the project, $2 its other one, $3 the agent.
const agentScope = `($1::text = '' OR a.project = $1 AND ($3::text = '' OR a.id = $3) OR $3::text = '' AND a.project = $2)`

// Export gives what the database holds.
func (s *Store) Export(ctx context.Context, sc export.Scope, each func(export.Record) error) error {
	return s.moment(ctx, "export", func(tx pgx.Tx) error {
		x := &exporter{ctx: ctx, s: s, tx: tx, scope: sc, each: each, project: stored(sc.Project), other: stored(sc.Projects()[1]), agent: stored(sc.Agent)}
		for _, part := range []func() error{x.keys, x.endpoints, x.agents, x.items, x.working, x.conversations, x.events, x.deliveries} {
			if err := part(); err != nil {
				return err
			}
		}
		return nil
	})
}

// LastDelivery gives the highest id of a delivery.
func (s *Store) LastDelivery(ctx context.Context, sc export.Scope) (n int64, err error) {
	err = s.moment(ctx, "read deliveries", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT coalesce(max(d.id), 0) FROM delivery d JOIN event e ON e.no = d.event_no WHERE "+eventScope, stored(sc.Project), stored(sc.Agent)).Scan(&n)
	})
	return n, err
}

// exporter is one export under way.
type exporter struct {
	ctx                   context.Context
	s                     *Store
	tx                    pgx.Tx
	scope                 export.Scope
	each                  func(export.Record) error
	project, other, agent string
}

// pages reads pages until one is empty; read gives a page of the rows behind a number, and the number of its last.
func pages[T any](x *exporter, read func(at int64) ([]T, int64, error), use func(*T) error) error {
	for at := int64(-1 << 62); ; {
		list, last, err := read(at)
		if err != nil || len(list) == 0 {
			return err
		}
		for i := range list {
			if err := use(&list[i]); err != nil {
				return err
			}
		}
		if x.ctx.Err() != nil {
			return ended(x.ctx)
		}
		at = last
	}
}

// collect runs a query of which the first column is the number.
func collect[T any](x *exporter, sql string, args []any, scan func(row pgx.CollectableRow, no *int64, out *T) error) (list []T, last int64, err error) {
	rows, err := x.tx.Query(x.ctx, sql, args...)
	if err != nil {
		return nil, 0, err
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (out T, err error) {
		err = scan(row, &last, &out)
		return out, err
	})
	return list, last, err
}

func (x *exporter) keys() error {
	if x.scope.Project != "" {
		return nil
	}
	rows, err := x.tx.Query(x.ctx, `SELECT key, value FROM meta WHERE key LIKE 'key %' ORDER BY key COLLATE "C"`)
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k export.Key, err error) { return k, row.Scan(&k.Name, &k.Value) })
	if err != nil {
		return err
	}
	for _, k := range list {
		if k.Value, err = x.s.sealer.Open(k.Value, k.Name); err == nil {
			k.Name = strings.TrimPrefix(k.Name, keyOwner(""))
			err = x.each(export.Record{Key: &k})
		} else {
			err = x.scope.Fail(k.Name, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) endpoints() error {
	_, list, err := x.s.someEndpoints(x.ctx, x.tx, `WHERE id IS NOT NULL AND ($1::text = '' OR project = $1) AND ($2::text = '' OR EXISTS
		(SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.project = endpoint.project AND e.agent_id = $2 AND d.endpoint_no = endpoint.no))`, x.project, x.agent)
	if err != nil {
		return x.scope.Fail("an endpoint", err)
	}
	for i := range list {
		if err := x.each(export.Record{Endpoint: &list[i]}); err != nil {
			return err
		}
	}
	return nil
}

// found is an agent, or why it cannot be read.
type found struct {
	export.Agent
	no  int64
	bad error
}

func (x *exporter) agents() error {
	return pages(x, func(at int64) ([]found, int64, error) {
		return collect(x, "SELECT "+agentColumns+", h.rev, h.next_seq, h.last_turn FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE a.no > $4 AND "+agentScope+" ORDER BY a.no LIMIT $5",
			[]any{x.project, x.other, x.agent, at, exportAgents}, func(row pgx.CollectableRow, no *int64, out *found) error {
				out.bad = x.s.scanAgent(row, &out.Agent.Agent, no, &out.HeadRev, &out.NextSeq, &out.LastTurn)
				out.no = *no
				if out.no == 0 {
					return out.bad
				}
				return nil
			})
	}, func(f *found) error {
		at := fmt.Sprintf("agent %s of project %s", f.ID, f.Project)
		if f.bad != nil {
			return x.scope.Fail(at, f.bad)
		}
		if err := x.each(export.Record{Agent: &f.Agent}); err != nil {
			return err
		}
		return pages(x, func(after int64) ([]export.Message, int64, error) {
			return collect(x, "SELECT "+messageColumns+" FROM message m WHERE m.agent_no = $1 AND m.seq > $2 ORDER BY m.seq LIMIT $3", []any{f.no, after, exportRows},
				func(row pgx.CollectableRow, seq *int64, out *export.Message) (err error) {
					out.Project, out.AgentID = f.Project, f.ID
					out.Message, err = scanMessage(row)
					*seq = out.Seq
					if err != nil && out.Seq != 0 {
						err = x.scope.Fail(fmt.Sprintf("message %d of %s", out.Seq, at), err)
						out.Role = "" // noted already
					}
					return err
				})
		}, func(m *export.Message) error {
			if m.Role == "" {
				return nil
			}
			return x.each(export.Record{Message: m})
		})
	})
}

func (x *exporter) items() error {
	return pages(x, func(at int64) ([]export.Item, int64, error) {
		return collect(x, `SELECT i.no, a.project, a.id, i.seq, i.project, i.id, i.user_id, i.session_id, i.task_id, i.agent_id FROM item i JOIN agent a ON a.no = i.agent_no
			WHERE i.no > $4 AND `+agentScope+" ORDER BY i.no LIMIT $5", []any{x.project, x.other, x.agent, at, exportRows}, func(row pgx.CollectableRow, no *int64, it *export.Item) error {
			r := &it.Row
			err := row.Scan(no, &it.Project, &it.AgentID, &it.Seq, &r.Project, &r.ID, &r.UserID, &r.SessionID, &r.TaskID, &r.AgentID)
			for _, text := range []*string{&it.Project, &it.AgentID, &r.Project, &r.ID, &r.UserID, &r.SessionID, &r.TaskID, &r.AgentID} {
				*text = shown(*text)
			}
			return err
		})
	}, func(it *export.Item) error { return x.each(export.Record{Item: it}) })
}

func (x *exporter) working() error {
	for no, key := int64(-1<<62), ""; ; {
		rows, err := x.tx.Query(x.ctx, "SELECT a.no, a.project, a.id, w.key, w.body, w.updated_ms, w.expires_ms FROM working w JOIN agent a ON a.no = w.agent_no WHERE (w.agent_no, w.key) > ($4, $5) AND "+
			agentScope+" ORDER BY w.agent_no, w.key LIMIT $6", x.project, x.other, x.agent, no, key, exportBodies)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w export.Working, err error) {
			return w, row.Scan(&no, &w.Project, &w.AgentID, &w.Key, (*[]byte)(&w.Value), &w.UpdatedMS, &w.ExpiresMS)
		})
		if err != nil || len(list) == 0 {
			return err
		}
		key = list[len(list)-1].Key
		for _, w := range list {
			w.Project, w.AgentID, w.Key = shown(w.Project), shown(w.AgentID), shown(w.Key)
			plain, err := x.s.sealer.Open(w.Value, workingOwner(w.Project, w.AgentID, w.Key))
			if err != nil {
				err = x.scope.Fail(fmt.Sprintf("key %s of agent %s of project %s", w.Key, w.AgentID, w.Project), err)
			} else {
				w.Value = plain
				err = x.each(export.Record{Working: &w})
			}
			if err != nil {
				return err
			}
		}
	}
}

func (x *exporter) conversations() error {
	if x.scope.Agent != "" {
		return nil
	}
	for project, id := "", ""; ; {
		rows, err := x.tx.Query(x.ctx, `SELECT project, id, body FROM conversation WHERE ($1::text = '' OR project = $1) AND (project COLLATE "C", id) > ($2, $3)
			ORDER BY project COLLATE "C", id LIMIT $4`, x.project, project, id, exportBodies)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c export.Conversation, err error) {
			return c, row.Scan(&c.Project, &c.ID, (*[]byte)(&c.Body))
		})
		if err != nil || len(list) == 0 {
			return err
		}
		project, id = list[len(list)-1].Project, list[len(list)-1].ID
		for _, c := range list {
			c.Project, c.ID = shown(c.Project), shown(c.ID)
			plain, err := x.s.sealer.Open(c.Body, conversationOwner(c.Project, c.ID))
			if err != nil {
				err = x.scope.Fail(fmt.Sprintf("conversation %s of project %s", c.ID, c.Project), err)
			} else {
				c.Body = plain
				err = x.each(export.Record{Conversation: &c})
			}
			if err != nil {
				return err
			}
		}
	}
}

func (x *exporter) events() error {
	return pages(x, func(at int64) ([]export.Event, int64, error) {
		return collect(x, "SELECT e.no, e.id, e.project, e.agent_id, e.type, e.created_ms, e.body FROM event e WHERE e.no > $3 AND "+eventScope+" ORDER BY e.no LIMIT $4",
			[]any{x.project, x.agent, at, exportBodies}, func(row pgx.CollectableRow, no *int64, e *export.Event) error {
				err := row.Scan(no, &e.ID, &e.Project, &e.AgentID, &e.Type, &e.CreatedMS, (*[]byte)(&e.Body))
				e.ID, e.Project, e.AgentID = shown(e.ID), shown(e.Project), shown(e.AgentID)
				return err
			})
	}, func(e *export.Event) error { return x.each(export.Record{Event: e}) })
}

func (x *exporter) deliveries() error {
	return pages(x, func(at int64) ([]export.Delivery, int64, error) {
		list, last, err := collect(x, `SELECT d.id, e.id, e.project, p.id, coalesce(p.gone_id, ''), d.state, d.attempt, d.due_ms, d.fence, d.claimed, d.reason, d.created_ms, d.done_ms, d.first_ms,
				d.urgent, d.replay_of, e.created_ms FROM delivery d JOIN event e ON e.no = d.event_no JOIN endpoint p ON p.no = d.endpoint_no
				WHERE d.id > $3 AND `+eventScope+" ORDER BY d.id LIMIT $4", []any{x.project, x.agent, at, exportAgents},
			func(row pgx.CollectableRow, no *int64, d *export.Delivery) error {
				var endpoint *string
				var gone, reason string
				var state int16
				var claimed bool
				var eventMS int64
				err := row.Scan(no, &d.Event, &d.Project, &endpoint, &gone, &state, &d.Attempt, &d.DueMS, &d.Fence, &claimed, &reason, &d.Created, &d.DoneMS, &d.FirstMS, &d.Urgent, &d.ReplayOf, &eventMS)
				if d.Gone = endpoint == nil; d.Gone {
					endpoint = &gone
				}
				d.ID, d.Event, d.Project, d.Endpoint, d.Reason, d.State = *no, shown(d.Event), shown(d.Project), shown(*endpoint), export.Text(shown(reason)), stateName(state)
				if d.FirstMS == d.Created {
					d.FirstMS = 0
				}
				d.Free(claimed, eventMS)
				return err
			})
		if err != nil || len(list) == 0 {
			return list, last, err
		}
		return list, last, x.attempts(list)
	}, func(d *export.Delivery) error { return x.each(export.Record{Delivery: d}) })
}

// attempts adds what was tried.
func (x *exporter) attempts(list []export.Delivery) error {
	ids, at := make([]int64, len(list)), map[int64]int{}
	for i := range list {
		ids[i], at[list[i].ID] = list[i].ID, i
	}
	rows, err := x.tx.Query(x.ctx, `SELECT delivery_id, n, started_ms, duration_ms, status, error_class, error, response, truncated, detail FROM attempt
		WHERE delivery_id = ANY($1) ORDER BY delivery_id, n, fence`, ids)
	if err != nil {
		return err
	}
	var id int64
	var a webhook.Attempt
	var detail string
	_, err = pgx.ForEachRow(rows, []any{&id, &a.N, &a.StartedMS, &a.DurationMS, &a.Status, &a.ErrorClass, &a.Error, &a.Response, &a.Truncated, &detail}, func() (err error) {
		try := a
		try.ErrorClass, try.Error = shown(a.ErrorClass), shown(a.Error)
		try.Response = append([]byte(nil), a.Response...)
		try.Detail, err = decodeDetail(shown(detail))
		list[at[id]].Attempts = append(list[at[id]].Attempts, try)
		return x.scope.Fail(fmt.Sprintf("an attempt of delivery %d", id), err)
	})
	return err
}

// probes count rows that should not be. Agents in table erased are gone, and their rows are still being erased.
var probes = []struct{ what, sql string }{
	{"%d messages belong to no agent", "SELECT count(*) FROM message m WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = m.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = m.agent_no)"},
	{"%d agents have no head", "SELECT count(*) FROM agent a WHERE NOT EXISTS (SELECT 1 FROM agent_head h WHERE h.agent_no = a.no)"},
	{"%d heads belong to no agent", "SELECT count(*) FROM agent_head h WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = h.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = h.agent_no)"},
	{"%d keys belong to no agent", "SELECT count(*) FROM agent_key k WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = k.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = k.agent_no)"},
	{"%d items belong to no message", "SELECT count(*) FROM item i WHERE NOT EXISTS (SELECT 1 FROM message m WHERE m.agent_no = i.agent_no AND m.seq = i.seq) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = i.agent_no)"},
	{"%d events tell of an agent that is not there", "SELECT count(*) FROM event e WHERE e.agent_no <> 0 AND NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = e.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = e.agent_no)"},
	{"%d deliveries have no event", "SELECT count(*) FROM delivery d WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.no = d.event_no)"},
	{"%d deliveries have no endpoint", "SELECT count(*) FROM delivery d WHERE NOT EXISTS (SELECT 1 FROM endpoint e WHERE e.no = d.endpoint_no)"},
	{"%d attempts belong to no delivery", "SELECT count(*) FROM attempt t WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.id = t.delivery_id)"},
	{"%d projects have another number of conversations than is noted", `SELECT count(*) FROM (SELECT project FROM
		(SELECT project, count(*) AS n FROM conversation GROUP BY project UNION ALL SELECT project, -n FROM conversation_count) c GROUP BY project HAVING sum(n) <> 0) p`},
	{"%d working memories belong to no agent", "SELECT count(DISTINCT w.agent_no) FROM working w WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = w.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = w.agent_no)"},
	{"%d import was not finished: run it again", "SELECT count(*) FROM meta WHERE key = '" + importMark + "'"},
}

// importMark is the key in table meta of an import that was not finished.
const importMark = "import"

// Probe looks at the tables.
func (s *Store) Probe(ctx context.Context, each func(export.Finding) error) error {
	return s.moment(ctx, "look for what is wrong", func(tx pgx.Tx) error {
		for _, p := range probes {
			var n int64
			if err := tx.QueryRow(ctx, p.sql).Scan(&n); err != nil {
				return err
			}
			if n > 0 {
				if err := each(export.Finding{What: fmt.Sprintf(p.what, n)}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
