package job

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/record"
)

// body is the body of a job's record, whose ID is the job's Key.
type body struct {
	SinceMS  int64  `json:"since_ms,omitempty"`  // Unix ms: when it was added
	DueMS    int64  `json:"due_ms,omitempty"`    // Unix ms: not before; of a claimed job, the end of the claim
	Busy     bool   `json:"busy,omitempty"`      // a server has claimed it
	Tries    int    `json:"tries,omitempty"`     // that failed in a row
	Error    string `json:"error,omitempty"`     // of the last of them
	FailedMS int64  `json:"failed_ms,omitempty"` // Unix ms: when it was given up
	// Progress is of a call that still runs.
	Progress Progress `json:"progress,omitzero"`
}

// Project is the project of the records of jobs. It cannot be the name of a project.
const Project = "~"

// suffix ends the names of the spaces of jobs.
const suffix = "/job"

// space returns where the jobs of a kind are, those of all projects, so that a server finds them.
// They hold IDs, and nothing that was said.
func space(kind string) record.Space { return record.Space{Project: Project, Name: kind + suffix} }

// read returns the job of a record. A job whose body cannot be read is due at once, since its ID is
// all that is needed to run it.
func read(r *record.Record) *entry {
	e := &entry{place: -1, rev: r.Rev}
	e.Project, e.ID, _ = strings.Cut(r.ID, "/")
	if json.Unmarshal(r.Body, &e.body) != nil {
		e.body = body{}
	}
	if e.at = time.UnixMilli(e.DueMS); e.FailedMS > 0 {
		e.at = time.UnixMilli(e.FailedMS).Add(KeepFailed)
	}
	return e
}

// read is read, without the claims of servers that have ended.
func (q *Queue) read(r *record.Record) *entry {
	e := read(r)
	if q.r.cfg.Alone && e.Busy {
		e.Busy, e.DueMS, e.at = false, 0, time.Time{}
	}
	return e
}

// store stores a job if its record has a revision, and returns the new one.
func (q *Queue) store(ctx context.Context, k Key, b body, rev int64) (int64, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return 0, fault.Wrap(fault.Internal, err, "a job could not be encoded")
	}
	state, err := q.change(ctx, record.Change{ID: k.recordID(), Body: text, If: rev})
	return state.Rev, err
}

func (q *Queue) change(ctx context.Context, c record.Change) (record.State, error) {
	return q.r.cfg.Store.ChangeRecords(ctx, space(q.kind.Name), []record.Change{c}, record.Limit{}, nil, q.r.cfg.Now().UnixMilli())
}

// claim takes a job for this server alone, or renews that. The try counts from now on, in case it
// crashes the server. It fails with record.ErrStale if another server has claimed or done
// the job.
func (q *Queue) claim(ctx context.Context, e *entry) error {
	b := e.body
	b.Busy, b.Tries, b.DueMS = true, b.Tries+1, q.r.cfg.Now().Add(claimFor).UnixMilli()
	rev, err := q.store(ctx, e.Key, b, e.rev)
	if err == nil {
		q.mu.Lock()
		e.rev = rev
		q.mu.Unlock()
	}
	return err
}

// hold renews the claim of a job until release is called. It calls lose if another server has taken
// the job.
func (q *Queue) hold(ctx context.Context, e *entry, lose context.CancelCauseFunc) (release func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(claimFor / 3)
		defer tick.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-tick.C:
			}
			// Not cut short: what it stores is needed to know the revision.
			within, stop := context.WithTimeout(context.WithoutCancel(ctx), storeFor)
			err := q.claim(within, e)
			stop()
			if errors.Is(err, record.ErrStale) {
				lose(errTaken)
				return
			}
		}
	}()
	return func() { close(stopped); <-done }
}

// errTaken ends a job that another server has taken over.
var errTaken = errors.New("another server has taken the job over")

// settle stores the result of a try. A job that another server has taken over meanwhile is left
// alone.
func (q *Queue) settle(ctx context.Context, e *entry, v *verdict) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), storeFor)
	defer stop()
	b, now := e.body, q.r.cfg.Now()
	b.Busy, b.DueMS = false, 0
	if v.Progress != nil {
		b.Progress = *v.Progress
	}
	switch {
	case v.failed:
		b.FailedMS = now.UnixMilli()
	case v.Again && v.After > 0:
		b.DueMS = now.Add(v.After).UnixMilli()
	}
	var rev int64
	var err error
	if q.kind.Stored && (v.failed || v.Again) {
		rev, err = q.store(ctx, e.Key, b, e.rev)
	} else {
		var state record.State
		state, err = q.change(ctx, record.Change{ID: e.Key.recordID(), If: e.rev})
		if rev = record.Absent; q.kind.Stored { // what was stored before is known
			rev = state.Rev
		}
	}
	switch {
	case errors.Is(err, record.ErrStale):
		*v = verdict{Result: Again(claimAgain), elsewhere: true} // what it has become is read then
		return nil
	case err != nil:
		return err
	}
	q.mu.Lock()
	e.body, e.rev = b, rev
	q.mu.Unlock()
	return nil
}

// theirs returns the result for a job that another server has changed: this server waits until the
// other one's claim ends, or forgets the job if it is done.
func (q *Queue) theirs(ctx context.Context, e *entry) (Result, error) {
	r, err := q.r.cfg.Store.Record(ctx, space(q.kind.Name), e.Key.recordID())
	if fault.Is(err, fault.NotFound) {
		q.mu.Lock()
		e.rev = record.Absent
		q.mu.Unlock()
		return Result{Again: !q.kind.Stored}, nil
	}
	if err != nil {
		return Result{}, err
	}
	now := q.read(&r)
	wait := max(now.at.Sub(q.r.cfg.Now()), 0)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.kind.Stored {
		if e.body, e.rev = now.body, now.rev; e.FailedMS > 0 {
			q.failed++
		}
		return Again(wait), nil
	}
	if e.rev = record.Absent; wait == 0 { // that server has ended in the middle of it
		e.rev = now.rev
	}
	return Again(min(wait, claimAgain)), nil
}

// forget deletes the record of a job that was given up long ago.
func (q *Queue) forget(ctx context.Context, e *entry) {
	_, err := q.change(ctx, record.Change{ID: e.Key.recordID(), If: e.rev})
	if err != nil && !errors.Is(err, record.ErrStale) && ctx.Err() == nil {
		q.r.problem("a job that was given up could not be forgotten", q.kind.Name, err)
	}
}

// brokenToo reads jobs whose bodies cannot be decrypted too, so that one does not hide the others.
type brokenToo struct{ record.Store }

// Records implements record.Reader.
func (r brokenToo) Records(ctx context.Context, at record.Space, q record.Query) ([]record.Record, record.State, error) {
	q.Broken = true
	return r.Store.Records(ctx, at, q)
}

// refresh reads the stored jobs that have changed, or all of them if the store no longer lists the
// changes.
func (q *Queue) refresh(ctx context.Context) error {
	err := record.Follow(ctx, brokenToo{q.r.cfg.Store}, space(q.kind.Name), &q.known, func(list []record.Record, _ record.State) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		for i := range list {
			q.take(&list[i])
		}
		return nil
	}, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		for e := range maps.Values(maps.Clone(q.jobs)) {
			if !e.busy {
				q.remove(e)
			}
		}
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		clear(q.wanted) // what was not found is done
	}
	return err
}

// take learns of a record; mu is held.
func (q *Queue) take(r *record.Record) {
	e := q.read(r)
	old := q.jobs[e.Key]
	switch {
	case old != nil && old.rev >= r.Rev:
		return
	case old != nil && old.busy:
		old.missed = r
		return
	case old != nil:
		q.remove(old)
	}
	if r.Deleted {
		return
	}
	if q.wanted[e.Key] && !e.Busy && e.Tries == 0 && e.FailedMS == 0 {
		e.at = q.r.cfg.Now()
	}
	q.enter(e)
}
