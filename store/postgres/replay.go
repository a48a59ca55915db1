package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/webhook"
)

// job is a row of table replay.
type job struct {
	webhook.ReplayJob
	no       int64
	request  string
	delivery int64 // of a replay of one delivery: the delivery that it made
}

const jobColumns = "no, request, now_ms, upto, at_ms, at_id, made, delivery_id, more, to_ms, done"

func scanJob(row pgx.CollectableRow) (j job, err error) {
	err = row.Scan(&j.no, &j.request, &j.NowMS, &j.Upto, &j.At.MS, &j.At.ID, &j.Made, &j.delivery, &j.More, &j.ToMS, &j.Done)
	return j, err
}

// readJob reads one job.
func readJob(ctx context.Context, tx pgx.Tx, where string, args ...any) (job, error) {
	rows, err := tx.Query(ctx, "SELECT "+jobColumns+" FROM replay WHERE "+where, args...)
	if err != nil {
		return job{}, err
	}
	return pgx.CollectExactlyOneRow(rows, scanJob)
}

// beginJob creates a job, or finds the one of that name. A created job is locked until the
// transaction ends.
func (s *Store) beginJob(ctx context.Context, tx pgx.Tx, project, name, request string, nowMS int64) (j job, made bool, err error) {
	at := webhook.NewReplayJob(nowMS, 0).At
	list, err := pg.Collect(ctx, tx, scanJob, `INSERT INTO replay (project, name, request, now_ms, upto, at_ms, at_id, made, delivery_id, more, to_ms, done)
		VALUES ($1, $2, $3, $4, coalesce((SELECT max(id) FROM delivery), 0), $5, $6, 0, 0, false, 0, false)
		ON CONFLICT (project, name) WHERE name IS NOT NULL DO NOTHING RETURNING `+jobColumns, pg.Stored(project), clientID(name), request, nowMS, at.MS, at.ID)
	if err != nil || len(list) == 1 {
		if err == nil {
			j = list[0]
		}
		return j, true, err
	}
	if j, err = readJob(ctx, tx, "project = $1 AND name = $2", pg.Stored(project), pg.Stored(name)); err != nil {
		return j, false, err
	}
	return j, false, webhook.SameReplay(j.request, request)
}

// Replay implements webhook.Log.
func (s *Store) Replay(ctx context.Context, project string, id, nowMS int64, name string) (out webhook.Record, err error) {
	err = s.db.Transact(ctx, "replay delivery", func(ctx context.Context, tx pgx.Tx) error {
		if name == "" {
			out, err = s.replayOne(ctx, tx, project, id, nowMS)
			return err
		}
		j, made, err := s.beginJob(ctx, tx, project, name, fmt.Sprintf(`{"delivery":%d}`, id), nowMS)
		if err != nil {
			return err
		}
		if !made {
			r, err := readDelivery(ctx, tx, project, j.delivery)
			out = r.Record
			return err
		}
		if out, err = s.replayOne(ctx, tx, project, id, nowMS); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE replay SET made = 1, delivery_id = $2, done = true WHERE no = $1", j.no, out.ID)
		return err
	})
	if err == nil {
		s.wake()
	}
	return out, err
}

func (s *Store) replayOne(ctx context.Context, tx pgx.Tx, project string, id, nowMS int64) (webhook.Record, error) {
	old, err := readDelivery(ctx, tx, project, id)
	if err != nil {
		return webhook.Record{}, err
	}
	if !old.live {
		return webhook.Record{}, fault.New(fault.Conflict, "the endpoint of delivery %d is deleted", id)
	}
	if kept, err := keptEvents(ctx, tx, []string{pg.Stored(old.EventID)}); err != nil || !kept[old.EventID] {
		if err == nil {
			err = fault.New(fault.NotFound, "there is no delivery %d", id)
		}
		return webhook.Record{}, err
	}
	var o outbox
	o.deliveries = append(o.deliveries, outboxDelivery{event: old.EventID, project: old.Project, endpoint: old.endpoint, due: nowMS, made: nowMS, replayOf: old.ID})
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
	kept := map[string]bool{}
	var id string
	err := pg.Each(ctx, tx, []any{&id}, func() error { kept[pg.Shown(id)] = true; return nil }, `SELECT e.id FROM event e WHERE e.id = ANY($1) AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = e.agent_no)
			AND (e.agent_no = 0 OR EXISTS (SELECT 1 FROM agent a WHERE a.no = e.agent_no))
		ORDER BY e.no FOR KEY SHARE OF e`, ids)
	return kept, err
}

// sent writes an outbox of one delivery and returns the delivery.
func sent(ctx context.Context, tx pgx.Tx, o *outbox) (webhook.Record, error) {
	b := &pgx.Batch{}
	o.queue(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return webhook.Record{}, err
	}
	d := &o.deliveries[0]
	list, err := records(ctx, tx, "WHERE d.event_no = (SELECT no FROM event WHERE id = $1) AND d.endpoint_no = $2 ORDER BY d.id DESC LIMIT 1", pg.Stored(d.event), d.endpoint)
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
	if _, err := statesOf(r.Filter); err != nil {
		return webhook.Replayed{}, err
	}
	if r.DryRun {
		return s.countReplay(ctx, r)
	}
	text, err := webhook.EncodeReplay(r)
	if err != nil {
		return webhook.Replayed{}, fault.Wrap(fault.Internal, err, "the store failed")
	}
	var j job
	err = s.db.Transact(ctx, "begin replay", func(ctx context.Context, tx pgx.Tx) (err error) {
		j, _, err = s.beginJob(ctx, tx, r.Filter.Project, r.Name, pg.Stored(text), r.NowMS)
		return err
	})
	for err == nil && !j.Done {
		j, err = s.replaySlice(ctx, j.no)
	}
	return j.Result(), err
}

// replayPage reads the next deliveries of a job, newest first, and reports whether they are the
// last.
func replayPage(ctx context.Context, q pg.Querier, f webhook.DeliveryQuery, j *webhook.ReplayJob) (list []deliveryRow, last bool, err error) {
	list, err = newest(ctx, q, f, j.At, j.Upto, sliceRows)
	return list, len(list) < sliceRows, err
}

type pair struct {
	event    string
	endpoint int64
}

func (r deliveryRow) pair() pair { return pair{r.EventID, r.endpoint} }

// countReplay counts the deliveries that a replay would make.
func (s *Store) countReplay(ctx context.Context, r webhook.Replay) (webhook.Replayed, error) {
	page := func(j *webhook.ReplayJob) (list []deliveryRow, last bool, err error) {
		err = s.db.Read(ctx, "list deliveries", func(ctx context.Context) (err error) {
			list, last, err = replayPage(ctx, s.db.Pool, r.Filter, j)
			return err
		})
		return list, last, err
	}
	return webhook.CountReplay(r, page, deliveryRow.place, func(old deliveryRow) bool { return old.live }, deliveryRow.pair)
}

// replaySlice makes the next slice of a job.
func (s *Store) replaySlice(ctx context.Context, no int64) (j job, err error) {
	err = s.db.Transact(ctx, "replay deliveries", func(ctx context.Context, tx pgx.Tx) error {
		if j, err = readJob(ctx, tx, "no = $1 FOR UPDATE", no); err != nil || j.Done {
			return err
		}
		r, err := webhook.DecodeReplay(pg.Shown(j.request))
		if err != nil {
			return fmt.Errorf("replay %d: %w: %w", no, err, codec.ErrUnreadable)
		}
		list, last, err := replayPage(ctx, tx, r.Filter, &j.ReplayJob)
		if err != nil {
			return err
		}
		ids := pg.Column(list, func(old *deliveryRow) string { return pg.Stored(old.EventID) })
		kept, err := keptEvents(ctx, tx, ids)
		if err != nil {
			return err
		}
		seen, err := replayed(ctx, tx, no, ids)
		if err != nil {
			return err
		}
		var o outbox
		err = webhook.ReplaySlice(&j.ReplayJob, r, list, last, deliveryRow.place,
			func(old deliveryRow) (bool, error) { return old.live && kept[old.EventID] && !seen[old.pair()], nil },
			func(old deliveryRow, dueMS int64) error {
				seen[old.pair()] = true
				o.deliveries = append(o.deliveries, outboxDelivery{old.EventID, r.Filter.Project, old.endpoint, dueMS, j.NowMS, old.ID, no})
				return nil
			})
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		o.queue(b)
		b.Queue("UPDATE replay SET at_ms = $2, at_id = $3, made = $4, more = $5, to_ms = $6, done = $7 WHERE no = $1", no, j.At.MS, j.At.ID, j.Made, j.More, j.ToMS, j.Done)
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
	var k pair
	err := pg.Each(ctx, tx, []any{&k.event, &k.endpoint}, func() error { seen[pair{pg.Shown(k.event), k.endpoint}] = true; return nil }, "SELECT e.id, d.endpoint_no FROM event e JOIN delivery d ON d.event_no = e.no WHERE e.id = ANY($2) AND d.replay_no = $1", no, ids)
	return seen, err
}

// finishReplays continues replays that have a name and that no server works on. Each slice locks
// the row, so that two servers only take turns. A replay that fails does not stop the others. A
// replay without a name ends with its call: its caller gets the error and may call again.
func (s *Store) finishReplays(ctx context.Context) {
	nos, err := pg.ReadAll(ctx, s.db, "look for replays", pgx.RowTo[int64], "SELECT no FROM replay WHERE NOT done AND name IS NOT NULL ORDER BY no LIMIT 1000")
	if err != nil {
		return
	}
	for _, no := range nos {
		for done := false; !done && ctx.Err() == nil; {
			j, err := s.replaySlice(ctx, no)
			if fault.Is(err, fault.Unavailable) {
				return
			}
			if done = j.Done || err != nil; pg.Unreadable(err) {
				s.db.Report("a replay cannot be finished", err)
			}
		}
	}
}
