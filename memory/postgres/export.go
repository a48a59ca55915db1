package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/webhook"
)

var (
	_ export.Source = (*Store)(nil)
	_ export.Prober = (*Store)(nil)
)

// How many rows are read at a time. Bodies may be long.
const (
	exportRows   = 1000
	exportBodies = 100
)

// moment runs fn in one transaction that only reads, as of one moment, for as long as fn takes.
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
		// The receiver of the records may be slow.
		if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
			return err
		}
		// Every query is read to its end, and its plan should suit the values. A database without
		// such a setting works too.
		for _, set := range []string{"SET LOCAL plan_cache_mode = force_custom_plan", "SET LOCAL cursor_tuple_fraction = 1"} {
			// The savepoint keeps the transaction usable if the setting is unknown.
			err := pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error { _, err := part.Exec(ctx, set); return err })
			if broken(err) {
				return err
			}
		}
		return fn(tx)
	})
	return s.failed(ctx, err, what)
}

// exporter is one export under way.
type exporter struct {
	ctx   context.Context
	s     *Store
	tx    pgx.Tx
	scope export.Scope
	each  func(export.Record) error
	agent int64 // row of the scope's agent
	// cursors numbers the cursors.
	cursors int
}

// Export implements export.Source.
func (s *Store) Export(ctx context.Context, sc export.Scope, each func(export.Record) error) error {
	return s.moment(ctx, "export", func(tx pgx.Tx) error {
		x := &exporter{ctx: ctx, s: s, tx: tx, scope: sc, each: each}
		for _, part := range []func() error{x.start, x.keys, x.endpoints, x.agents, x.items, x.working, x.conversations, x.values, x.events, x.deliveries} {
			if err := part(); err != nil {
				return err
			}
		}
		return nil
	})
}

// agentScope returns the condition on agents, named a.
func (x *exporter) agentScope() (string, []any) {
	p := x.scope.Projects()
	switch {
	case x.scope.Project == "":
		return "true", nil
	case x.scope.Agent != "":
		return "a.no = $1", []any{x.agent}
	}
	return "a.project IN ($1, $2)", []any{stored(p[0]), stored(p[1])}
}

// inProject returns the condition that a column holds the scope's project.
func (x *exporter) inProject(column string) (string, []any) {
	if x.scope.Project == "" {
		return "true", nil
	}
	return column + " = $1", []any{stored(x.scope.Project)}
}

// outbox returns the condition on events, named e. An erased agent has no events.
func (x *exporter) outbox() (from, where string, args []any) {
	if x.scope.Agent != "" {
		return "event e", "e.agent_no = $1", []any{x.agent}
	}
	where, args = x.inProject("e.project")
	return "event e LEFT JOIN agent a ON a.no = e.agent_no", "(e.agent_no = 0 OR a.no IS NOT NULL) AND " + where, args
}

func (x *exporter) start() error {
	if x.scope.Agent != "" {
		err := x.tx.QueryRow(x.ctx, "SELECT no FROM agent WHERE project = $1 AND id = $2", stored(x.scope.Project), stored(x.scope.Agent)).Scan(&x.agent)
		if noRows(err) {
			x.agent = -1
		} else if err != nil {
			return err
		}
	}
	from, where, args := x.outbox()
	var at export.Start
	if err := x.tx.QueryRow(x.ctx, "SELECT coalesce(max(d.id), 0) FROM "+from+" JOIN delivery d ON d.event_no = e.no WHERE "+where, args...).Scan(&at.LastDelivery); err != nil {
		return err
	}
	return x.each(export.Record{Start: &at})
}

// all runs a query to its end through a cursor, n rows at a time: it is planned and sorted once,
// and other queries may run between two pages. If a row cannot be read, scan notes it in its
// record.
func all[T any](x *exporter, n int, sql string, args []any, scan func(pgx.CollectableRow, *T) error, use func(page []T) error) error {
	x.cursors++
	name := fmt.Sprint("export_", x.cursors)
	if _, err := x.tx.Exec(x.ctx, "DECLARE "+name+" NO SCROLL CURSOR FOR "+sql, args...); err != nil {
		return err
	}
	for {
		page, err := collect(x.ctx, x.tx, func(row pgx.CollectableRow) (out T, err error) { err = scan(row, &out); return out, err }, fmt.Sprint("FETCH ", n, " FROM ", name), pgx.QueryExecModeExec)
		if err != nil {
			return err
		}
		if err := use(page); err != nil {
			return err
		}
		if x.ctx.Err() != nil {
			return ended(x.ctx)
		}
		if len(page) < n {
			_, err := x.tx.Exec(x.ctx, "CLOSE "+name, pgx.QueryExecModeExec)
			return err
		}
	}
}

// one calls a function for each member of a page.
func one[T any](fn func(*T) error) func([]T) error {
	return func(page []T) error {
		for i := range page {
			if err := fn(&page[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func (x *exporter) keys() error {
	if x.scope.Project != "" {
		return nil
	}
	return all(x, exportRows, `SELECT key, value FROM meta WHERE key LIKE 'key %' ORDER BY key COLLATE "C"`, nil,
		func(row pgx.CollectableRow, k *export.Key) error { return row.Scan(&k.Name, &k.Value) },
		one(func(k *export.Key) error {
			plain, err := x.s.sealer.Open(k.Value, k.Name)
			if err != nil {
				return x.scope.Fail(k.Name, err)
			}
			return x.each(export.Record{Key: &export.Key{Name: strings.TrimPrefix(k.Name, keyOwner("")), Value: plain}})
		}))
}

// row is what a row holds, or why it cannot be read.
type row[T any] struct {
	v   T
	no  int64
	bad error
}

func (x *exporter) endpoints() error {
	where, args := x.inProject("project")
	if x.scope.Agent != "" {
		where, args = where+" AND EXISTS (SELECT 1 FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.agent_no = $2 AND d.endpoint_no = endpoint.no)", append(args, x.agent)
	}
	return all(x, exportRows, "SELECT "+endpointColumns+" FROM endpoint WHERE id IS NOT NULL AND "+where+" ORDER BY no", args, func(r pgx.CollectableRow, out *row[webhook.Endpoint]) error {
		if out.bad = x.s.scanEndpoint(r, &out.no, &out.v); out.no == 0 {
			return out.bad
		}
		return nil
	}, one(func(r *row[webhook.Endpoint]) error {
		if r.bad != nil {
			return x.scope.Fail(fmt.Sprintf("endpoint %s in row %d", r.v.ID, r.no), r.bad)
		}
		return x.each(export.Record{Endpoint: &r.v})
	}))
}

func (x *exporter) agents() error {
	where, args := x.agentScope()
	return all(x, exportBodies, "SELECT "+agentColumns+", h.rev, h.next_seq, h.last_turn FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE "+where+" ORDER BY a.no", args,
		func(r pgx.CollectableRow, out *row[export.Agent]) error {
			if out.bad = x.s.scanAgent(r, &out.v.Agent, &out.no, &out.v.HeadRev, &out.v.NextSeq, &out.v.LastTurn); out.no == 0 {
				return out.bad
			}
			return nil
		}, one(func(r *row[export.Agent]) error {
			at := fmt.Sprintf("agent %s of project %s", r.v.ID, r.v.Project)
			if r.bad != nil {
				return x.scope.Fail(at, r.bad)
			}
			if err := x.each(export.Record{Agent: &r.v}); err != nil {
				return err
			}
			return x.messages(r.no, at, &r.v)
		}))
}

// messages reads page by page and without a cursor: most agents have one page.
func (x *exporter) messages(no int64, at string, a *export.Agent) error {
	for after := int64(-1 << 62); ; {
		list, err := collect(x.ctx, x.tx, func(r pgx.CollectableRow) (out row[export.Message], err error) {
			out.v.Project, out.v.AgentID = a.Project, a.ID
			var shown bool
			if out.v.Message, out.bad = scanMessage(r, &shown); out.v.Seq == 0 {
				return out, out.bad
			}
			out.v.Unlike = shown != out.v.InHistory()
			after = out.v.Seq
			return out, nil
		}, "SELECT m.shown, "+messageColumns+" FROM message m WHERE m.agent_no = $1 AND m.seq > $2 ORDER BY m.seq LIMIT $3", no, after, exportRows)
		if err != nil {
			return err
		}
		for i := range list {
			if r := &list[i]; r.bad != nil {
				err = x.scope.Fail(fmt.Sprintf("message %d of %s", r.v.Seq, at), r.bad)
			} else {
				err = x.each(export.Record{Message: &r.v})
			}
			if err != nil {
				return err
			}
		}
		if len(list) < exportRows {
			return nil
		}
	}
}

func (x *exporter) items() error {
	where, args := x.agentScope()
	return all(x, exportRows, `SELECT a.project, a.id, i.seq, i.project, i.id, i.user_id, i.session_id, i.task_id, i.agent_id FROM item i JOIN agent a ON a.no = i.agent_no
		WHERE `+where+" ORDER BY i.no", args, func(row pgx.CollectableRow, it *export.Item) error {
		r := &it.Row
		err := row.Scan(&it.Project, &it.AgentID, &it.Seq, &r.Project, &r.ID, &r.UserID, &r.SessionID, &r.TaskID, &r.AgentID)
		show(&it.Project, &it.AgentID, &r.Project, &r.ID, &r.UserID, &r.SessionID, &r.TaskID, &r.AgentID)
		return err
	}, one(func(it *export.Item) error { return x.each(export.Record{Item: it}) }))
}

func (x *exporter) working() error {
	where, args := x.agentScope()
	return all(x, exportBodies, "SELECT a.project, a.id, w.key, w.body, w.updated_ms, w.expires_ms, w.size FROM kv w JOIN agent a ON a.no = w.agent_no WHERE "+where+" ORDER BY w.agent_no, w.key", args,
		func(row pgx.CollectableRow, w *export.Working) error {
			err := row.Scan(&w.Project, &w.AgentID, &w.Key, (*[]byte)(&w.Value), &w.UpdatedMS, &w.ExpiresMS, &w.Noted)
			show(&w.Project, &w.AgentID, &w.Key)
			return err
		}, one(func(w *export.Working) (err error) {
			if w.Value, err = x.s.sealer.Open(w.Value, kvOwner(kv.Space{Project: w.Project, Agent: w.AgentID}, w.Key)); err != nil {
				return x.scope.Fail(fmt.Sprintf("key %s of agent %s of project %s", w.Key, w.AgentID, w.Project), err)
			}
			return x.each(export.Record{Working: w})
		}))
}

// lasting is kv.Never. Entries of projects with another end are marks that a copy does not need.
const lasting = "9223372036854775807"

func (x *exporter) conversations() error {
	if x.scope.Agent != "" {
		return nil
	}
	where, args := x.inProject("project")
	return all(x, exportBodies, "SELECT project, key, body FROM kv WHERE agent_no = 0 AND expires_ms = "+lasting+" AND "+where+` ORDER BY project COLLATE "C", key`, args, func(row pgx.CollectableRow, c *export.Conversation) error {
		err := row.Scan(&c.Project, &c.ID, (*[]byte)(&c.Body))
		show(&c.Project, &c.ID)
		return err
	}, one(func(c *export.Conversation) (err error) {
		if c.Body, err = x.s.sealer.Open(c.Body, kvOwner(kv.Space{Project: c.Project}, c.ID)); err != nil {
			return x.scope.Fail(fmt.Sprintf("conversation %s of project %s", c.ID, c.Project), err)
		}
		return x.each(export.Record{Conversation: c})
	}))
}

func (x *exporter) values() error {
	if x.scope.Agent != "" {
		return nil
	}
	where, args := x.inProject("s.project")
	return all(x, exportBodies, `SELECT s.project, s.name, s.user_id, s.rev, r.id, r.rev, r.updated_ms, r.body, r.size FROM record_space s JOIN record r ON r.space_no = s.no
		WHERE r.body IS NOT NULL AND `+where+` ORDER BY s.project COLLATE "C", s.name, s.user_id, r.id`, args, func(row pgx.CollectableRow, v *export.Value) error {
		var user, id string
		err := row.Scan(&v.Project, &v.Name, &user, &v.SpaceRev, &id, &v.Rev, &v.UpdatedMS, (*[]byte)(&v.Body), &v.Noted)
		show(&v.Project, &user, &id)
		v.User, v.ID = export.Text(user), export.Text(id)
		return err
	}, one(func(v *export.Value) (err error) {
		if v.Body, err = x.s.sealer.Open(v.Body, recordOwner(v.Space(), string(v.ID))); err != nil {
			return x.scope.Fail(fmt.Sprintf("record %s of %s of project %s", v.ID, v.Name, v.Project), err)
		}
		return x.each(export.Record{Value: v})
	}))
}

func (x *exporter) events() error {
	from, where, args := x.outbox()
	return all(x, exportBodies, "SELECT e.id, e.project, e.agent_id, e.type, e.created_ms, e.body FROM "+from+" WHERE "+where+" ORDER BY e.no", args, func(row pgx.CollectableRow, e *export.Event) error {
		err := row.Scan(&e.ID, &e.Project, &e.AgentID, &e.Type, &e.CreatedMS, (*[]byte)(&e.Body))
		show(&e.ID, &e.Project, &e.AgentID)
		return err
	}, one(func(e *export.Event) error { return x.each(export.Record{Event: e}) }))
}

func (x *exporter) deliveries() error {
	from, where, args := x.outbox()
	return all(x, exportBodies, `SELECT d.id, e.id, e.project, p.id, coalesce(p.gone_id, ''), d.state, d.attempt, d.due_ms, d.fence, d.claimed, d.reason, d.created_ms, d.done_ms, d.first_ms,
			d.urgent, d.replay_of, e.created_ms FROM `+from+" JOIN delivery d ON d.event_no = e.no JOIN endpoint p ON p.no = d.endpoint_no WHERE "+where+" ORDER BY d.id", args,
		func(row pgx.CollectableRow, d *export.Delivery) error {
			var endpoint *string
			var gone, reason string
			var state int16
			var claimed bool
			var eventMS int64
			err := row.Scan(&d.ID, &d.Event, &d.Project, &endpoint, &gone, &state, &d.Attempt, &d.DueMS, &d.Fence, &claimed, &reason, &d.Created, &d.DoneMS, &d.FirstMS, &d.Urgent, &d.ReplayOf, &eventMS)
			if d.Gone = endpoint == nil; d.Gone {
				endpoint = &gone
			}
			d.Event, d.Project, d.Endpoint, d.Reason, d.State = shown(d.Event), shown(d.Project), shown(*endpoint), export.Text(shown(reason)), stateName(state)
			if d.FirstMS == d.Created {
				d.FirstMS = 0
			}
			d.Free(claimed, eventMS)
			return err
		}, func(page []export.Delivery) error {
			if len(page) == 0 {
				return nil
			}
			if err := x.attempts(page); err != nil {
				return err
			}
			return one(func(d *export.Delivery) error { return x.each(export.Record{Delivery: d}) })(page)
		})
}

// attempts adds the attempts.
func (x *exporter) attempts(list []export.Delivery) error {
	ids, at := make([]int64, len(list)), map[int64]int{}
	for i := range list {
		ids[i], at[list[i].ID] = list[i].ID, i
	}
	return attempts(x.ctx, x.tx, ids, func(id int64, a webhook.Attempt, err error) error {
		d := &list[at[id]]
		d.Attempts = append(d.Attempts, a)
		return x.scope.Fail(fmt.Sprintf("an attempt of delivery %d", id), err)
	})
}

// probes count rows that should not exist. Agents in table erased are gone, and their rows are
// still being deleted.
var probes = []struct{ what, sql string }{
	{"%d messages belong to no agent", "SELECT count(*) FROM message m WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = m.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = m.agent_no)"},
	{"%d agents have no head", "SELECT count(*) FROM agent a WHERE NOT EXISTS (SELECT 1 FROM agent_head h WHERE h.agent_no = a.no)"},
	{"%d heads belong to no agent", "SELECT count(*) FROM agent_head h WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = h.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = h.agent_no)"},
	{"%d keys belong to no agent", "SELECT count(*) FROM agent_key k WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = k.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = k.agent_no)"},
	{"%d tags belong to no agent", "SELECT count(*) FROM agent_tag g WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = g.agent_no)"},
	{"%d items belong to no message", "SELECT count(*) FROM item i WHERE NOT EXISTS (SELECT 1 FROM message m WHERE m.agent_no = i.agent_no AND m.seq = i.seq) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = i.agent_no)"},
	{"%d events tell of an agent that is not there", "SELECT count(*) FROM event e WHERE e.agent_no <> 0 AND NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = e.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = e.agent_no)"},
	{"%d deliveries have no event", "SELECT count(*) FROM delivery d WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.no = d.event_no)"},
	{"%d deliveries have no endpoint", "SELECT count(*) FROM delivery d WHERE NOT EXISTS (SELECT 1 FROM endpoint e WHERE e.no = d.endpoint_no)"},
	{"%d attempts belong to no delivery", "SELECT count(*) FROM attempt t WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.id = t.delivery_id)"},
	{"%d projects have another number of conversations than is noted", `SELECT count(*) FROM (SELECT project FROM
		(SELECT project, count(*) AS n FROM kv WHERE agent_no = 0 GROUP BY project UNION ALL SELECT project, -n FROM kv_count) c GROUP BY project HAVING sum(n) <> 0) p`},
	{"%d working memories belong to no agent", "SELECT count(DISTINCT w.agent_no) FROM kv w WHERE w.agent_no <> 0 AND NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = w.agent_no) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = w.agent_no)"},
	{"%d records belong to no space", "SELECT count(*) FROM record r WHERE NOT EXISTS (SELECT 1 FROM record_space s WHERE s.no = r.space_no)"},
	{"%d spaces of records have another size than is noted", `SELECT count(*) FROM (SELECT space_no FROM
		(SELECT space_no, count(body) AS n, sum(size) AS bytes FROM record GROUP BY space_no UNION ALL SELECT no, -n, -bytes FROM record_space) c GROUP BY space_no HAVING sum(n) <> 0 OR sum(bytes) <> 0) s`},
	{"%d records are newer than their space", "SELECT count(*) FROM record r JOIN record_space s ON s.no = r.space_no WHERE r.rev > s.rev"},
	{"%d keys do not go with the status of their agent", "SELECT count(*) FROM agent_key k JOIN agent a ON a.no = k.agent_no WHERE k.live <> (a.status NOT IN (4, 6))"},
	{"%d events tell of another agent than they belong to", "SELECT count(*) FROM event e JOIN agent a ON a.no = e.agent_no WHERE a.id <> e.agent_id OR a.project <> e.project"},
	{"%d deliveries are for an endpoint of another project", "SELECT count(*) FROM delivery d JOIN event e ON e.no = d.event_no JOIN endpoint p ON p.no = d.endpoint_no WHERE p.project <> e.project"},
	{"%d deliveries are kept with another project than their event", "SELECT count(*) FROM delivery d JOIN event e ON e.no = d.event_no WHERE d.project <> e.project"},
	{"%d deliveries have a state that there is none of", "SELECT count(*) FROM delivery WHERE state NOT IN (0, 1, 2, 3)"},
	{"%d deliveries do not tell a first try from others", "SELECT count(*) FROM delivery WHERE state = 0 AND retry <> (attempt > 0)"},
	{"%d endpoints have no id", "SELECT count(*) FROM endpoint WHERE id IS NULL AND gone_id IS NULL"},
	{"%d endpoints are noted as disabled and are not, or the other way", "SELECT count(*) FROM endpoint WHERE id IS NOT NULL AND disabled <> (position('\"disabled\":true' IN body) > 0)"},
	{"%d counters are missing", "SELECT 2 - count(*) FROM counter WHERE key IN ('endpoints', 'ping')"},
	{"%d import was not finished: run it again", "SELECT count(*) FROM meta WHERE key = '" + importMark + "'"},
}

// importMark is the key in table meta of an unfinished import.
const importMark = "import"

// Probe implements export.Prober.
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
