package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"fmt"
	"math"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// live returns an endpoint by its row; nil if it is deleted.
func (t *tx) live(no int64) *endpoint {
	return t.s.index.byNo[no]
}

// Replay implements webhook.Log.
func (s *Store) Replay(ctx context.Context, project string, id, nowMS int64, name string) (webhook.Record, error) {
	var out webhook.Record
	err := s.write(ctx, func(t *tx) error {
		job := replayJob{id: replayID(project, name), project: project, request: fmt.Sprintf(`{"delivery":%d}`, id), nowMS: nowMS, done: true}
		if name != "" {
			if was, err := t.replayJob(job.id); err != nil || was != nil {
				if err == nil {
					err = webhook.SameReplay(was.request, job.request)
				}
				if err != nil {
					return err
				}
				r, err := s.record(t.w, project, was.delivery)
				out = r.Record
				return err
			}
		}
		old, err := s.record(t.w, project, id)
		if err != nil {
			return err
		}
		e := t.live(old.endpoint)
		if e == nil {
			return fault.New(fault.Conflict, "the endpoint of delivery %d is deleted", id)
		}
		if kept, err := t.kept(old.event); err != nil || !kept {
			if err == nil {
				err = fault.New(fault.NotFound, "there is no delivery %d", id)
			}
			return err
		}
		if job.delivery, err = t.insertDelivery(old.event, e, fresh{dueMS: nowMS, createdMS: nowMS, replayOf: id}); err != nil {
			return err
		}
		if name != "" {
			if err := t.insertReplay(job); err != nil {
				return err
			}
		}
		r, err := s.record(t.w, project, job.delivery)
		out = r.Record
		return err
	})
	return out, err
}

// kept reports whether an event exists and is not being erased with its agent.
func (t *tx) kept(event int64) (bool, error) {
	row, err := t.w.first("SELECT 1 FROM event WHERE no = ? AND NOT EXISTS (SELECT 1 FROM erased WHERE erased.agent_no = event.agent_no)", event)
	return row != nil, classify(err, "read event")
}

// again is a delivery that a replay repeats.
type again struct{ event, endpoint, of int64 }

// ReplayAll implements webhook.Log.
func (s *Store) ReplayAll(ctx context.Context, r webhook.Replay) (webhook.Replayed, error) {
	if r.DryRun {
		var out webhook.Replayed
		_, err := s.selected(ctx, r.Filter, math.MaxInt64, &out)
		return out, err
	}
	id := replayID(r.Filter.Project, r.Name)
	// A second call of the name waits for the result of the first.
	leave, err := s.replaying.enter(ctx, id)
	if err != nil {
		return webhook.Replayed{}, err
	}
	defer leave()
	job, err := s.beginReplay(ctx, id, r)
	if err != nil || job.done {
		return job.result(), err
	}
	out, err := s.replay(ctx, job, r)
	if err != nil && !job.named() {
		// Its caller gets the error and may call again. It must not continue after a restart.
		_ = s.write(context.WithoutCancel(ctx), func(t *tx) error {
			_, _, err := t.exec("end replay", "DELETE FROM replay WHERE id = ?", job.id)
			return err
		})
	}
	return out, err
}

// replay makes the rest of a job. Each slice commits together with the progress of the job, so that
// no delivery is made twice.
func (s *Store) replay(ctx context.Context, job replayJob, r webhook.Replay) (webhook.Replayed, error) {
	var out webhook.Replayed
	list, err := s.selected(ctx, r.Filter, job.upto, &out)
	if err != nil {
		return job.result(), err
	}
	job.more, job.toMS = out.More, out.ToMS
	for at := 0; !job.done; {
		slice := list[at:min(len(list), at+sweepRows)]
		next := job
		err := s.write(ctx, func(t *tx) error {
			next = job
			next.done = at+len(slice) == len(list)
			for _, a := range slice {
				if err := t.replayOne(&next, a, r); err != nil {
					return err
				}
			}
			return t.noteReplay(next)
		})
		if err != nil {
			return job.result(), err
		}
		job = next
		at += len(slice)
	}
	return job.result(), nil
}

// replayOne makes one delivery of a job, unless it cannot be made any more or was made before a
// crash.
func (t *tx) replayOne(job *replayJob, a again, r webhook.Replay) error {
	e := t.live(a.endpoint)
	if e == nil { // deleted meanwhile
		return nil
	}
	// The event may have been erased: one without a row would break the foreign key and the slice
	// with it, and one whose agent is gone is about to be erased.
	if kept, err := t.kept(a.event); err != nil || !kept {
		return err
	}
	if job.resumed {
		row, err := t.w.first("SELECT 1 FROM delivery WHERE event_no = ? AND id > ? AND replay_of <> 0 AND created_ms = ? AND endpoint_no = ?", a.event, job.upto, job.nowMS, a.endpoint)
		if err != nil || row != nil {
			return classify(err, "read delivery")
		}
	}
	if _, err := t.insertDelivery(a.event, e, fresh{dueMS: r.DueMS(job.nowMS, job.made), createdMS: job.nowMS, replayOf: a.of}); err != nil {
		return err
	}
	job.made++
	return nil
}

// replayRows is how many rows a replay selects in one transaction.
const replayRows = 4096

// liveEndpoints returns the rows of a project's endpoints that are not deleted.
func liveEndpoints(c *conn, project string) (map[int64]bool, error) {
	out := map[int64]bool{}
	err := c.each("SELECT no FROM endpoint WHERE project = ? AND id IS NOT NULL", []driver.Value{project}, func(row []driver.Value) error {
		out[integer(row[0])] = true
		return nil
	})
	return out, err
}

// selected returns what a replay repeats, newest first, once for each event and endpoint, of
// deliveries up to an ID.
func (s *Store) selected(ctx context.Context, q webhook.DeliveryQuery, upto int64, out *webhook.Replayed) ([]again, error) {
	type pair struct{ event, endpoint int64 }
	seen := map[pair]bool{}
	var list []again
	at, err := webhook.ParseCursor("")
	if err != nil {
		return nil, err
	}
	// One transaction for each slice: a single one would keep the log from being checkpointed.
	for more := true; more; {
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		err := s.readers.do(ctx, func(c *conn) error {
			names, err := endpointNames(c, q.Project)
			if err != nil {
				return err
			}
			live, err := liveEndpoints(c, q.Project)
			if err != nil {
				return err
			}
			m, err := newMerge(c, q, names, at)
			if err != nil {
				return err
			}
			rows, err := m.next(replayRows)
			if err != nil {
				return err
			}
			keep := wanted(q, names)
			for _, row := range rows {
				at = row.place()
				key := pair{row.event, row.endpoint}
				if row.ID > upto || !keep(row) || !live[row.endpoint] || seen[key] {
					continue
				}
				if len(list) == webhook.MaxReplay {
					out.More, out.ToMS, more = true, row.CreatedMS+1, false
					return nil
				}
				seen[key] = true
				list = append(list, again{row.event, row.endpoint, row.ID})
				out.Count++
			}
			more = len(rows) == replayRows
			return nil
		})
		if err != nil {
			return nil, classify(err, "list deliveries")
		}
	}
	return list, nil
}

// Cancel implements webhook.Log.
func (s *Store) Cancel(ctx context.Context, project string, id, nowMS int64) (webhook.Record, error) {
	var out webhook.Record
	err := s.write(ctx, func(t *tx) error {
		old, err := s.record(t.w, project, id)
		if err != nil {
			return err
		}
		if old.State != webhook.Pending {
			return fault.New(fault.Conflict, "delivery %d is %s and not pending", id, old.State)
		}
		_, _, err = t.exec("cancel delivery", "UPDATE delivery SET state = 3, due_ms = 0, reason = ?, done_ms = ? WHERE id = ?", webhook.CanceledReason, max(nowMS, 1), id)
		if err != nil {
			return err
		}
		t.after = append(t.after, func() { s.dropClaim(id) })
		r, err := s.record(t.w, project, id)
		out = r.Record
		return err
	})
	return out, err
}

// Send implements webhook.Log.
func (s *Store) Send(ctx context.Context, m webhook.Event, endpointID string) (webhook.Record, error) {
	var out webhook.Record
	err := s.write(ctx, func(t *tx) error {
		at := s.endpointAt(m.Project, endpointID)
		if at < 0 {
			return noEndpoint(endpointID)
		}
		e := s.endpoints[at]
		if e.Disabled {
			return fault.New(fault.Conflict, "the endpoint is disabled: enable it first")
		}
		if row, err := t.w.first("SELECT 1 FROM event WHERE id = ?", m.ID); err != nil || row != nil {
			if err == nil {
				err = fault.New(fault.Conflict, "there is an event %q already", m.ID)
			}
			return classify(err, "read event")
		}
		if err := t.insertEvent(0, m, func(to *endpoint) bool { return to == e }); err != nil {
			return err
		}
		id, err := t.w.number("SELECT d.id FROM delivery d JOIN event e ON e.no = d.event_no WHERE e.id = ?", m.ID)
		if err != nil {
			return classify(err, "read delivery")
		}
		r, err := s.record(t.w, m.Project, id)
		out = r.Record
		return err
	})
	return out, err
}

// ForgetDone implements webhook.Log.
func (s *Store) ForgetDone(ctx context.Context, beforeMS int64, agentless bool) (int, error) {
	erased := 0
	for more := true; more; {
		n := int64(0)
		err := s.write(ctx, func(t *tx) (err error) {
			n, err = t.forgetDone(beforeMS, agentless)
			return err
		})
		if err != nil {
			return erased, err
		}
		erased += int(n)
		more = n == forgetRows
	}
	return erased, s.write(ctx, func(t *tx) error {
		if _, _, err := t.exec("forget replays", "DELETE FROM replay WHERE done = 1 AND now_ms < ?", beforeMS); err != nil {
			return err
		}
		return t.dropEndpoints()
	})
}

// forgetRows is smaller than sweepRows because a delivery goes with its event and its attempts,
// which have up to 16 KiB each.
const forgetRows = 64

func (t *tx) forgetDone(beforeMS int64, agentless bool) (int64, error) {
	type row struct{ id, event int64 }
	var list []row
	err := t.w.each(`SELECT id, event_no FROM delivery WHERE state <> 0 AND done_ms < ?
		AND (? = 0 OR (SELECT agent_no FROM event WHERE no = event_no) = 0) ORDER BY done_ms LIMIT ?+0`, []driver.Value{beforeMS, boolean(agentless), int64(forgetRows)}, func(r []driver.Value) error {
		list = append(list, row{integer(r[0]), integer(r[1])})
		return nil
	})
	if err != nil {
		return 0, classify(err, "look for old deliveries")
	}
	for _, r := range list {
		for _, sql := range []string{"DELETE FROM attempt WHERE delivery_id = ?", "DELETE FROM delivery WHERE id = ?"} {
			if _, _, err := t.exec("erase delivery", sql, r.id); err != nil {
				return 0, err
			}
		}
		_, _, err := t.exec("erase event", "DELETE FROM event WHERE no = ? AND NOT EXISTS (SELECT 1 FROM delivery WHERE event_no = event.no)", r.event)
		if err != nil {
			return 0, err
		}
	}
	return int64(len(list)), nil
}

// ServerKey implements webhook.Log.
func (s *Store) ServerKey(ctx context.Context, name string) ([]byte, error) {
	var out []byte
	err := s.write(ctx, func(t *tx) error {
		row, err := t.w.first("SELECT value FROM meta WHERE key = ?", keyOwner(name))
		if err != nil {
			return classify(err, "read key")
		}
		if row != nil {
			out, err = t.s.sealer.Open(blob(row[0]), keyOwner(name))
			return classify(err, "read key")
		}
		out = make([]byte, 32)
		rand.Read(out)
		_, _, err = t.exec("insert key", "INSERT INTO meta (key, value) VALUES (?, ?)", keyOwner(name), t.s.sealer.Seal(out, keyOwner(name)))
		return err
	})
	return out, err
}
