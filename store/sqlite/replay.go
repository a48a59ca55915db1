package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/webhook"
)

// live returns an endpoint by its row; nil if it is deleted.
func (t *tx) live(no int64) *endpoint {
	return t.s.index.byNo[no]
}

// writeDelivery is write for a change of a delivery, whose ID fn returns. It returns the delivery
// as it is then.
func (s *Store) writeDelivery(ctx context.Context, what, project string, fn func(*tx) (id int64, err error)) (webhook.Record, error) {
	var out deliveryRow
	err := s.write(ctx, what, func(t *tx) error {
		id, err := fn(t)
		if err != nil {
			return err
		}
		out, err = s.record(t.Conn, project, id)
		return err
	})
	return out.Record, err
}

// Replay implements webhook.Log.
func (s *Store) Replay(ctx context.Context, project string, id, nowMS int64, name string) (webhook.Record, error) {
	return s.writeDelivery(ctx, "replay delivery", project, func(t *tx) (int64, error) {
		job := replayJob{id: replayID(project, name), request: fmt.Sprintf(`{"delivery":%d}`, id), ReplayJob: webhook.NewReplayJob(nowMS, 0)}
		job.Done = true
		if name != "" {
			was, err := t.replayJob(job.id)
			if err != nil {
				return 0, err
			}
			if was != nil {
				return was.delivery, webhook.SameReplay(was.request, job.request)
			}
		}
		old, err := s.record(t.Conn, project, id)
		if err != nil {
			return 0, err
		}
		e := t.live(old.endpoint)
		if e == nil {
			return 0, fault.New(fault.Conflict, "the endpoint of delivery %d is deleted", id)
		}
		kept, err := t.kept(old.event)
		if err == nil && !kept {
			err = fault.New(fault.NotFound, "there is no delivery %d", id)
		}
		if err != nil {
			return 0, err
		}
		job.delivery, err = t.insertDelivery(old.event, e, fresh{dueMS: nowMS, createdMS: nowMS, replayOf: id})
		if err != nil || name == "" {
			return job.delivery, err
		}
		return job.delivery, t.insertReplay(&job, project)
	})
}

// kept reports whether an event exists and is not being erased with its agent.
func (t *tx) kept(event int64) (bool, error) {
	row, err := t.Conn.First("SELECT 1 FROM event WHERE no = ? AND NOT EXISTS (SELECT 1 FROM erased WHERE erased.agent_no = event.agent_no)", event)
	return row != nil, err
}

// ReplayAll implements webhook.Log.
func (s *Store) ReplayAll(ctx context.Context, r webhook.Replay) (webhook.Replayed, error) {
	if r.DryRun {
		return s.countReplay(ctx, r)
	}
	id := replayID(r.Filter.Project, r.Name)
	job, err := s.beginReplay(ctx, id, r)
	if err != nil || job.Done {
		return job.Result(), err
	}
	err = s.replay(ctx, &job, r)
	if err != nil && !job.named() {
		// Its caller gets the error and may call again. It must not continue after a restart.
		_ = s.write(context.WithoutCancel(ctx), "end replay", func(t *tx) error { return t.ExecEach(job.id, "DELETE FROM replay WHERE id = ?") })
	}
	return job.Result(), err
}

// replay makes the rest of a job, each slice in one transaction with the job's progress. Calls of
// the same name take turns.
func (s *Store) replay(ctx context.Context, job *replayJob, r webhook.Replay) error {
	for !job.Done {
		rows, last, err := s.replayPage(ctx, r.Filter, &job.ReplayJob)
		if err != nil {
			return err
		}
		var next replayJob
		err = s.write(ctx, "replay deliveries", func(t *tx) error {
			was, err := t.replayJob(job.id)
			if err != nil {
				return err
			}
			if was == nil {
				return fault.New(fault.NotFound, "the replay is gone")
			}
			if was.Done || was.Made != job.Made {
				next = *was // another call made the slice
				return nil
			}
			next = *job
			err = webhook.ReplaySlice(&next.ReplayJob, r, rows, last, deliveryRow.place,
				func(old deliveryRow) (bool, error) { return t.mayRepeat(&next, old) },
				func(old deliveryRow, dueMS int64) error {
					_, err := t.insertDelivery(old.event, t.live(old.endpoint), fresh{dueMS: dueMS, createdMS: next.NowMS, replayOf: old.ID, replayNo: next.no})
					return err
				})
			if err != nil || !next.Done && next.Made == job.Made {
				return err
			}
			return t.noteReplay(next)
		})
		if err != nil {
			return err
		}
		*job = next
	}
	return nil
}

// mayRepeat reports whether a delivery's event and endpoint still exist, and the job has not made a
// delivery of them.
func (t *tx) mayRepeat(job *replayJob, old deliveryRow) (bool, error) {
	if t.live(old.endpoint) == nil {
		return false, nil
	}
	// A delivery without an event would break the foreign key and the slice with it.
	if kept, err := t.kept(old.event); err != nil || !kept {
		return false, err
	}
	row, err := t.Conn.First("SELECT 1 FROM delivery WHERE event_no = ? AND endpoint_no = ? AND replay_no = ?", old.event, old.endpoint, job.no)
	return row == nil, err
}

// countReplay counts the deliveries that a replay would make.
func (s *Store) countReplay(ctx context.Context, r webhook.Replay) (webhook.Replayed, error) {
	s.mu.Lock()
	live := s.index.byNo
	s.mu.Unlock()
	type pair struct{ event, endpoint int64 }
	return webhook.CountReplay(r,
		func(j *webhook.ReplayJob) ([]deliveryRow, bool, error) { return s.replayPage(ctx, r.Filter, j) },
		deliveryRow.place,
		func(old deliveryRow) bool { return live[old.endpoint] != nil },
		func(old deliveryRow) pair { return pair{old.event, old.endpoint} })
}

// replayPage reads the next deliveries of a job, newest first, and reports whether they are the
// last. It reads outside the writer, a transaction for each page: a single one would keep the log
// from being checkpointed.
func (s *Store) replayPage(ctx context.Context, q webhook.DeliveryQuery, job *webhook.ReplayJob) (rows []deliveryRow, last bool, err error) {
	err = s.db.Read(ctx, "list deliveries", func(c *dbfile.Conn) error {
		m, err := newMerge(c, q, job.At)
		if err != nil {
			return err
		}
		if rows, err = m.next(sweepRows); err != nil {
			return err
		}
		last = len(rows) < sweepRows
		keep := wanted(q)
		rows = slices.DeleteFunc(rows, func(r deliveryRow) bool { return r.ID > job.Upto || !keep(r) })
		return nil
	})
	return rows, last, err
}

// Cancel implements webhook.Log.
func (s *Store) Cancel(ctx context.Context, project string, id, nowMS int64) (webhook.Record, error) {
	return s.writeDelivery(ctx, "cancel delivery", project, func(t *tx) (int64, error) {
		old, err := s.record(t.Conn, project, id)
		if err == nil && old.State != webhook.Pending {
			err = fault.New(fault.Conflict, "delivery %d is %s and not pending", id, old.State)
		}
		if err != nil {
			return 0, err
		}
		_, err = t.Exec("UPDATE delivery SET state = 3, due_ms = 0, reason = ?, done_ms = ? WHERE id = ?", webhook.CanceledReason, max(nowMS, 1), id)
		t.After(func() { s.dropClaim(id) })
		return id, err
	})
}

// Send implements webhook.Log.
func (s *Store) Send(ctx context.Context, m webhook.Event, endpointID string) (webhook.Record, error) {
	return s.writeDelivery(ctx, "send an event", m.Project, func(t *tx) (int64, error) {
		at := s.endpointAt(m.Project, endpointID)
		if at < 0 {
			return 0, webhook.ErrNoEndpoint(endpointID)
		}
		e := s.endpoints[at]
		if e.Disabled {
			return 0, fault.New(fault.Conflict, "the endpoint is disabled: enable it first")
		}
		row, err := t.Conn.First("SELECT 1 FROM event WHERE id = ?", m.ID)
		if err == nil && row != nil {
			err = fault.New(fault.Conflict, "there is an event %q already", m.ID)
		}
		if err != nil {
			return 0, err
		}
		key, err := t.key(encryption.Of{Project: m.Project})
		if err != nil {
			return 0, err
		}
		if err := t.insertEvent(0, key, m, func(to *endpoint) bool { return to == e }); err != nil {
			return 0, err
		}
		return t.Conn.Number("SELECT d.id FROM delivery d JOIN event e ON e.no = d.event_no WHERE e.id = ?", m.ID)
	})
}
