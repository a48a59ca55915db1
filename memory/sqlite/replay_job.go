package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"errors"
	"strconv"
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

// replayJob is a row of table replay: a replay under way, or one whose name is kept so that it can
// be repeated.
type replayJob struct {
	id, project, request string
	nowMS, upto          int64
	made                 int64
	delivery             int64 // of a replay of one delivery: the delivery that it made
	more                 bool
	toMS                 int64
	done                 bool
	resumed              bool // some of it may have been made; not stored
}

func (j replayJob) result() webhook.Replayed {
	out := webhook.Replayed{Count: int(j.made), More: j.more}
	if j.more {
		out.ToMS = j.toMS
	}
	return out
}

// replaying holds the replays under way in this process, by ID.
type replaying struct {
	mu sync.Mutex
	at map[string]chan struct{} // closed when the replay ends
}

// enter waits until no other call works on the replay.
func (r *replaying) enter(ctx context.Context, id string) (leave func(), err error) {
	for {
		r.mu.Lock()
		other := r.at[id]
		if other == nil {
			if r.at == nil {
				r.at = map[string]chan struct{}{}
			}
			own := make(chan struct{})
			r.at[id] = own
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.at, id)
				close(own)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ended(ctx)
		}
	}
}

// named reports whether the replay has a name.
func (j replayJob) named() bool { return j.id[0] == 'n' }

// replayID returns the ID of a name in a project. A replay without a name gets a random one.
func replayID(project, name string) string {
	if name == "" {
		return "r:" + rand.Text()
	}
	return "n:" + strconv.Quote(project) + ":" + name
}

const replayColumns = "SELECT id, project, request, now_ms, upto, made, delivery_id, more, to_ms, done FROM replay "

func readReplay(row []driver.Value) replayJob {
	return replayJob{
		id: text(row[0]), project: text(row[1]), request: text(row[2]), nowMS: integer(row[3]), upto: integer(row[4]), made: integer(row[5]), delivery: integer(row[6]),
		more: integer(row[7]) != 0, toMS: integer(row[8]), done: integer(row[9]) != 0, resumed: true,
	}
}

// replayJob returns the replay of an ID, nil if there is none.
func (t *tx) replayJob(id string) (*replayJob, error) {
	row, err := t.w.first(replayColumns+"WHERE id = ?", id)
	if err != nil || row == nil {
		return nil, classify(err, "read replay")
	}
	j := readReplay(row)
	return &j, nil
}

func (t *tx) insertReplay(j replayJob) error {
	_, _, err := t.exec("insert replay", "INSERT INTO replay (id, project, request, now_ms, upto, made, delivery_id, more, to_ms, done) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		j.id, j.project, j.request, j.nowMS, j.upto, j.made, j.delivery, boolean(j.more), j.toMS, boolean(j.done))
	return err
}

// noteReplay stores the progress of a replay. A finished one is kept only if it has a name.
func (t *tx) noteReplay(j replayJob) error {
	var err error
	if j.done && !j.named() {
		_, _, err = t.exec("end replay", "DELETE FROM replay WHERE id = ?", j.id)
	} else {
		_, _, err = t.exec("note replay", "UPDATE replay SET made = ?, more = ?, to_ms = ?, done = ? WHERE id = ?", j.made, boolean(j.more), j.toMS, boolean(j.done), j.id)
	}
	return err
}

// beginReplay stores a new replay, or returns the one of that name.
func (s *Store) beginReplay(ctx context.Context, id string, r webhook.Replay) (job replayJob, err error) {
	request, err := webhook.EncodeReplay(r)
	if err != nil {
		return job, fault.Wrap(fault.Internal, err, "the store failed")
	}
	err = s.write(ctx, func(t *tx) error {
		job = replayJob{id: id, project: r.Filter.Project, request: request, nowMS: r.NowMS}
		was, err := t.replayJob(id)
		if err != nil {
			return err
		}
		if was != nil {
			err := webhook.SameReplay(was.request, request)
			job = *was
			return err
		}
		if job.upto, err = t.w.number("SELECT coalesce(max(id), 0) FROM delivery"); err != nil {
			return classify(err, "read deliveries")
		}
		return t.insertReplay(job)
	})
	if err != nil {
		return replayJob{id: id}, err
	}
	return job, nil
}

// resumeReplays finishes the replays that a crash has interrupted.
func (s *Store) resumeReplays(ctx context.Context) error {
	var jobs []replayJob
	err := s.readers.do(ctx, func(c *conn) error {
		jobs = nil
		return c.each(replayColumns+"WHERE done = 0", nil, func(row []driver.Value) error {
			jobs = append(jobs, readReplay(row))
			return nil
		})
	})
	if err != nil {
		return classify(err, "read replays")
	}
	var errs []error // one that fails does not stop the others
	for _, j := range jobs {
		r, err := webhook.DecodeReplay(j.request)
		if err != nil {
			errs = append(errs, fault.Wrap(fault.Internal, err, "a replay cannot be read"))
			continue
		}
		if _, err := s.replay(ctx, j, r); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
