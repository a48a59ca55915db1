package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// job is a row of table replay.
type job struct {
	no, nowMS, upto, made, delivery, toMS int64
	at                                    webhook.Cursor
	request                               string
	more, done                            bool
}

const jobColumns = "no, request, now_ms, upto, at_ms, at_id, made, delivery_id, more, to_ms, done"

func scanJob(row pgx.CollectableRow) (j job, err error) {
	err = row.Scan(&j.no, &j.request, &j.nowMS, &j.upto, &j.at.MS, &j.at.ID, &j.made, &j.delivery, &j.more, &j.toMS, &j.done)
	return j, err
}

func (j job) result() webhook.Replayed {
	return webhook.Replayed{Count: int(j.made), More: j.more, ToMS: j.toMS}
}

// beginJob creates a job, or finds the one of that name. A created job is locked until the
// transaction ends.
func (s *Store) beginJob(ctx context.Context, tx pgx.Tx, project, name, request string, nowMS int64) (j job, made bool, err error) {
	at, err := webhook.ParseCursor("")
	if err != nil {
		return j, false, err
	}
	rows, err := tx.Query(ctx, `INSERT INTO replay (project, name, request, now_ms, upto, at_ms, at_id, made, delivery_id, more, to_ms, done)
		VALUES ($1, $2, $3, $4, coalesce((SELECT max(id) FROM delivery), 0), $5, $6, 0, 0, false, 0, false)
		ON CONFLICT (project, name) WHERE name IS NOT NULL DO NOTHING RETURNING `+jobColumns, stored(project), clientID(name), request, nowMS, at.MS, at.ID)
	if err != nil {
		return j, false, err
	}
	list, err := pgx.CollectRows(rows, scanJob)
	if err != nil || len(list) == 1 {
		if err == nil {
			j = list[0]
		}
		return j, true, err
	}
	rows, err = tx.Query(ctx, "SELECT "+jobColumns+" FROM replay WHERE project = $1 AND name = $2", stored(project), stored(name))
	if err != nil {
		return j, false, err
	}
	if j, err = pgx.CollectExactlyOneRow(rows, scanJob); err != nil {
		return j, false, err
	}
	return j, false, webhook.SameReplay(j.request, request)
}

// Replay implements webhook.Log.
func (s *Store) Replay(ctx context.Context, project string, id, nowMS int64, name string) (out webhook.Record, err error) {
	err = s.transact(ctx, "replay delivery", func(ctx context.Context, tx pgx.Tx) error {
		if name != "" {
			j, made, err := s.beginJob(ctx, tx, project, name, fmt.Sprintf(`{"delivery":%d}`, id), nowMS)
			if err != nil {
				return err
			}
			if !made {
				r, err := record(ctx, tx, project, j.delivery)
				out = r.Record
				return err
			}
			if out, err = s.replayOne(ctx, tx, project, id, nowMS); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "UPDATE replay SET made = 1, delivery_id = $2, done = true WHERE no = $1", j.no, out.ID)
			return err
		}
		out, err = s.replayOne(ctx, tx, project, id, nowMS)
		return err
	})
	if err == nil {
		s.wake()
	}
	return out, err
}

func (s *Store) replayOne(ctx context.Context, tx pgx.Tx, project string, id, nowMS int64) (webhook.Record, error) {
	old, err := record(ctx, tx, project, id)
	if err != nil {
		return webhook.Record{}, err
	}
	if !old.live {
		return webhook.Record{}, fault.New(fault.Conflict, "the endpoint of delivery %d is deleted", id)
	}
	if kept, err := keptEvents(ctx, tx, []string{stored(old.EventID)}); err != nil || !kept[old.EventID] {
		if err == nil {
			err = fault.New(fault.NotFound, "there is no delivery %d", id)
		}
		return webhook.Record{}, err
	}
	var o outbox
	o.delivery(old.EventID, old.Project, old.endpoint, nowMS, nowMS, old.ID, 0)
	return sent(ctx, tx, &o)
}

// keptEvents returns which events exist and are not about to be erased with their agent, and locks
// them until the transaction ends: a delivery of an erased event could never be sent.
func keptEvents(ctx context.Context, tx pgx.Tx, ids []string) (map[string]bool, error) {
	// Lock their agents first: an erasure locks the agent and then checks whether any of its
	// events has a pending delivery.
	if _, err := tx.Exec(ctx, "SELECT 1 FROM agent WHERE no IN (SELECT agent_no FROM event WHERE id = ANY($1)) ORDER BY no FOR KEY SHARE", ids); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `SELECT e.id FROM event e WHERE e.id = ANY($1) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = e.agent_no)
			AND (e.agent_no = 0 OR EXISTS (SELECT 1 FROM agent a WHERE a.no = e.agent_no))
		ORDER BY e.no FOR KEY SHARE OF e`, ids)
	if err != nil {
		return nil, err
	}
	kept := map[string]bool{}
	var id string
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error { kept[shown(id)] = true; return nil })
	return kept, err
}

// sent writes an outbox of one delivery and returns the delivery.
func sent(ctx context.Context, tx pgx.Tx, o *outbox) (webhook.Record, error) {
	b := &pgx.Batch{}
	o.queue(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return webhook.Record{}, err
	}
	d := &o.deliveries
	list, err := records(ctx, tx, "WHERE d.event_no = (SELECT no FROM event WHERE id = $1) AND d.endpoint_no = $2 ORDER BY d.id DESC LIMIT 1", d.events[0], d.endpoints[0])
	if err == nil && len(list) == 0 {
		err = fault.New(fault.NotFound, "the event is erased")
	}
	if err != nil {
		return webhook.Record{}, err
	}
	return list[0].Record, nil
}

// ReplayAll implements webhook.Log. Each slice commits together with the progress of the job, so
// that no delivery is made twice. If a server crashes, another replica continues.
func (s *Store) ReplayAll(ctx context.Context, r webhook.Replay) (webhook.Replayed, error) {
	if _, _, err := selection(r.Filter); err != nil {
		return webhook.Replayed{}, err
	}
	if r.DryRun {
		return s.countReplay(ctx, r.Filter)
	}
	text, err := webhook.EncodeReplay(r)
	if err != nil {
		return webhook.Replayed{}, fault.Wrap(fault.Internal, err, "the store failed")
	}
	var j job
	err = s.transact(ctx, "begin replay", func(ctx context.Context, tx pgx.Tx) (err error) {
		j, _, err = s.beginJob(ctx, tx, r.Filter.Project, r.Name, stored(text), r.NowMS)
		return err
	})
	for err == nil && !j.done {
		j, err = s.replaySlice(ctx, j.no)
	}
	return j.result(), err
}

// replayPage reads the next deliveries of a job, newest first.
func replayPage(ctx context.Context, q querier, f webhook.DeliveryQuery, upto int64, at webhook.Cursor) ([]deliveryRow, error) {
	where, args, err := selection(f)
	if err != nil {
		return nil, err
	}
	n := len(args)
	return records(ctx, q, fmt.Sprintf("%s AND d.id <= $%d AND (d.created_ms, d.id) < ($%d, $%d) ORDER BY d.created_ms DESC, d.id DESC LIMIT %d",
		where, n+1, n+2, n+3, sliceRows), append(slices.Clone(args), upto, at.MS, at.ID)...)
}

type pair struct {
	event    string
	endpoint int64
}

// countReplay counts the deliveries that a replay would make.
func (s *Store) countReplay(ctx context.Context, f webhook.DeliveryQuery) (out webhook.Replayed, err error) {
	at, err := webhook.ParseCursor("")
	seen := map[pair]bool{}
	for err == nil {
		var list []deliveryRow
		err = s.read(ctx, "list deliveries", func(ctx context.Context) (err error) {
			list, err = replayPage(ctx, s.pool, f, 1<<62, at)
			return err
		})
		for _, old := range list {
			at = old.place()
			if k := (pair{old.EventID, old.endpoint}); old.live && !seen[k] {
				if out.Count == webhook.MaxReplay {
					out.More, out.ToMS = true, old.CreatedMS+1
					return out, nil
				}
				seen[k] = true
				out.Count++
			}
		}
		if len(list) < sliceRows {
			break
		}
	}
	return out, err
}

// replaySlice makes the next slice of a job.
func (s *Store) replaySlice(ctx context.Context, no int64) (j job, err error) {
	err = s.transact(ctx, "replay deliveries", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT "+jobColumns+" FROM replay WHERE no = $1 FOR UPDATE", no)
		if err != nil {
			return err
		}
		if j, err = pgx.CollectExactlyOneRow(rows, scanJob); err != nil || j.done {
			return err
		}
		r, err := webhook.DecodeReplay(shown(j.request))
		if err != nil {
			return fmt.Errorf("replay %d: %w: %w", no, err, errBadRow)
		}
		list, err := replayPage(ctx, tx, r.Filter, j.upto, j.at)
		if err != nil {
			return err
		}
		ids := make([]string, len(list))
		for i, old := range list {
			ids[i] = stored(old.EventID)
		}
		kept, err := keptEvents(ctx, tx, ids)
		if err != nil {
			return err
		}
		seen, err := replayed(ctx, tx, no, ids)
		if err != nil {
			return err
		}
		var o outbox
		for _, old := range list {
			k := pair{old.EventID, old.endpoint}
			if !old.live || !kept[old.EventID] || seen[k] {
				j.at = old.place()
				continue
			}
			if j.made == webhook.MaxReplay {
				j.more, j.toMS, j.done = true, old.CreatedMS+1, true
				break
			}
			j.at = old.place()
			seen[k] = true
			o.delivery(old.EventID, r.Filter.Project, old.endpoint, r.DueMS(j.nowMS, j.made), j.nowMS, old.ID, no)
			j.made++
		}
		j.done = j.done || len(list) < sliceRows
		b := &pgx.Batch{}
		o.queue(b)
		b.Queue("UPDATE replay SET at_ms = $2, at_id = $3, made = $4, more = $5, to_ms = $6, done = $7 WHERE no = $1", no, j.at.MS, j.at.ID, j.made, j.more, j.toMS, j.done)
		return tx.SendBatch(ctx, b).Close()
	})
	if err == nil {
		s.wake()
	}
	return j, err
}

// replayed returns which of these events the job has repeated for which endpoint: one event may
// have several old deliveries.
func replayed(ctx context.Context, tx pgx.Tx, no int64, ids []string) (map[pair]bool, error) {
	seen := map[pair]bool{}
	rows, err := tx.Query(ctx, "SELECT e.id, d.endpoint_no FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.id = ANY($2) AND d.replay_no = $1", no, ids)
	if err != nil {
		return nil, err
	}
	var k pair
	_, err = pgx.ForEachRow(rows, []any{&k.event, &k.endpoint}, func() error { seen[pair{shown(k.event), k.endpoint}] = true; return nil })
	return seen, err
}

// finishReplays continues replays that have a name and that no server works on. Each slice locks
// the row, so that two servers only take turns. A replay that fails does not stop the others. A
// replay without a name ends with its call: its caller gets the error and may call again.
func (s *Store) finishReplays(ctx context.Context) {
	var nos []int64
	err := s.read(ctx, "look for replays", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, "SELECT no FROM replay WHERE NOT done AND name IS NOT NULL ORDER BY no LIMIT 1000")
		if err == nil {
			nos, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	})
	if err != nil {
		return
	}
	for _, no := range nos {
		for done := false; !done && ctx.Err() == nil; {
			j, err := s.replaySlice(ctx, no)
			if fault.Is(err, fault.Unavailable) {
				return
			}
			if done = j.done || err != nil; unreadable(err) {
				s.report("a replay cannot be finished", err)
			}
		}
	}
}
