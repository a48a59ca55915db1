package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/webhook"
)

// replayJob is a row of table replay: a replay under way, or one whose name is kept so that it can
// be repeated.
type replayJob struct {
	webhook.ReplayJob
	no          int64
	id, request string
	delivery    int64 // of a replay of one delivery: the delivery that it made
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

const selectReplay = "SELECT no, id, request, now_ms, upto, at_ms, at_id, made, delivery_id, more, to_ms, done FROM replay "

func readReplay(row dbfile.Row) (replayJob, error) {
	return replayJob{
		no: row.Int(0), id: row.Text(1), request: row.Text(2), delivery: row.Int(8),
		ReplayJob: webhook.ReplayJob{
			NowMS: row.Int(3), Upto: row.Int(4), At: webhook.Cursor{MS: row.Int(5), ID: row.Int(6)}, Made: row.Int(7),
			More: row.Bool(9), ToMS: row.Int(10), Done: row.Bool(11),
		},
	}, nil
}

// replayJob returns the replay of an ID, nil if there is none.
func (t *tx) replayJob(id string) (*replayJob, error) {
	list, err := dbfile.Collect(t.Conn, readReplay, selectReplay+"WHERE id = ?", id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

func (t *tx) insertReplay(j *replayJob, project string) (err error) {
	j.no, err = t.Insert("INSERT INTO replay (id, project, request, now_ms, upto, at_ms, at_id, made, delivery_id, more, to_ms, done) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		j.id, project, j.request, j.NowMS, j.Upto, j.At.MS, j.At.ID, j.Made, j.delivery, j.More, j.ToMS, j.Done)
	return err
}

// noteReplay stores the progress of a replay. A finished one is kept only if it has a name.
func (t *tx) noteReplay(j replayJob) error {
	if j.Done && !j.named() {
		return t.ExecEach(j.id, "DELETE FROM replay WHERE id = ?")
	}
	_, err := t.Exec("UPDATE replay SET at_ms = ?, at_id = ?, made = ?, more = ?, to_ms = ?, done = ? WHERE id = ?",
		j.At.MS, j.At.ID, j.Made, j.More, j.ToMS, j.Done, j.id)
	return err
}

// beginReplay stores a new replay, or returns the one of that name.
func (s *Store) beginReplay(ctx context.Context, id string, r webhook.Replay) (job replayJob, err error) {
	request, err := webhook.EncodeReplay(r)
	if err != nil {
		return job, err
	}
	err = s.write(ctx, "begin replay", func(t *tx) error {
		was, err := t.replayJob(id)
		if err != nil {
			return err
		}
		if was != nil {
			job = *was
			return webhook.SameReplay(was.request, request)
		}
		upto, err := t.Conn.Number("SELECT coalesce(max(id), 0) FROM delivery")
		if err != nil {
			return err
		}
		job = replayJob{id: id, request: request, ReplayJob: webhook.NewReplayJob(r.NowMS, upto)}
		return t.insertReplay(&job, r.Filter.Project)
	})
	if err != nil {
		return replayJob{id: id}, err
	}
	return job, nil
}

// resumeReplays finishes the replays that a crash has interrupted.
func (s *Store) resumeReplays(ctx context.Context) error {
	var jobs []replayJob
	err := s.db.Read(ctx, "read replays", func(c *dbfile.Conn) (err error) {
		jobs, err = dbfile.Collect(c, readReplay, selectReplay+"WHERE done = 0")
		return err
	})
	if err != nil {
		return err
	}
	var errs []error // one that fails does not stop the others
	for _, j := range jobs {
		r, err := webhook.DecodeReplay(j.request)
		if err != nil {
			errs = append(errs, fault.Wrap(fault.Internal, err, "a replay cannot be read"))
			continue
		}
		if err := s.replay(ctx, &j, r); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
