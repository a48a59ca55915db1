package aftercall

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/record"
)

// jobSpace returns where the jobs of all projects are, so that a server finds all of them. They
// name agents, and hold nothing that was said. No project has this name.
func jobSpace(work string) record.Space { return record.Space{Project: "~", Name: work + "/job"} }

// job is a call that is worked on once it has ended.
type job struct {
	Project string `json:"project"`
	Agent   string `json:"agent"`
	Tries   int    `json:"tries,omitempty"`
	DueMS   int64  `json:"due_ms,omitempty"` // not before; Unix ms

	rev  int64     // of its record
	look time.Time // not before; the zero time is at once
	busy bool      // in work at this server
	// missed is what another server stored while this one was busy; nil for nothing.
	missed *record.Record
}

func jobID(project, agent string) string { return project + "/" + agent }

func (j *job) id() string { return jobID(j.Project, j.Agent) }

// put stores a job if its record has the revision j.rev, and notes the new one.
func (w *Worker) put(ctx context.Context, j *job) error {
	body, err := json.Marshal(j)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "a job could not be encoded")
	}
	state, err := w.cfg.Store.ChangeRecords(ctx, w.space, []record.Change{{ID: j.id(), Body: body, If: j.rev}}, record.Limit{}, nil, w.cfg.Now().UnixMilli())
	if err == nil {
		j.rev = state.Rev
	}
	return err
}

// drop deletes a job, unless another server has changed it.
func (w *Worker) drop(ctx context.Context, j *job) error {
	_, err := w.cfg.Store.ChangeRecords(ctx, w.space, []record.Change{{ID: j.id(), If: j.rev}}, record.Limit{}, nil, w.cfg.Now().UnixMilli())
	if errors.Is(err, record.ErrStale) {
		return nil
	}
	return err
}

// jobReader reads jobs whose bodies cannot be decrypted too, so that one does not hide the others.
type jobReader struct{ record.Store }

// Records implements record.Reader.
func (r jobReader) Records(ctx context.Context, at record.Space, q record.Query) ([]record.Record, record.State, error) {
	q.Broken = true
	return r.Store.Records(ctx, at, q)
}

// refresh reads the jobs that have changed, or all of them if that is not known any more.
func (w *Worker) refresh(ctx context.Context) error {
	return record.Follow(ctx, jobReader{w.cfg.Store}, w.space, &w.known, func(list []record.Record, _ record.State) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range list {
			w.take(&list[i])
		}
		return nil
	}, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		maps.DeleteFunc(w.jobs, func(_ string, j *job) bool { return !j.busy })
	})
}

// take notes a record. The caller holds mu.
func (w *Worker) take(r *record.Record) {
	old := w.jobs[r.ID]
	switch {
	case old != nil && old.busy:
		old.missed = r
		return
	case old != nil && old.rev >= r.Rev:
		return
	case r.Deleted:
		delete(w.jobs, r.ID)
		return
	}
	var j job
	if err := json.Unmarshal(r.Body, &j); err != nil {
		w.cfg.OnError("read a job of "+w.cfg.Work, err)
		return
	}
	j.rev = r.Rev
	j.look = time.UnixMilli(j.DueMS)
	w.jobs[r.ID] = &j
}
