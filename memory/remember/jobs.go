package remember

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/record"
)

// jobSpace has the jobs of all projects, so that a server finds all of them. They name agents, and
// hold nothing that was said. No project has this name.
var jobSpace = record.Space{Project: "~", Name: "remember/job"}

// job is a call whose facts are to be extracted once it has ended.
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
func (x *Extractor) put(ctx context.Context, j *job) error {
	body, err := json.Marshal(j)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "a job could not be encoded")
	}
	state, err := x.cfg.Store.ChangeRecords(ctx, jobSpace, []record.Change{{ID: j.id(), Body: body, If: j.rev}}, record.Limit{}, nil, x.cfg.Now().UnixMilli())
	if err == nil {
		j.rev = state.Rev
	}
	return err
}

// drop deletes a job, unless another server has changed it.
func (x *Extractor) drop(ctx context.Context, j *job) error {
	_, err := x.cfg.Store.ChangeRecords(ctx, jobSpace, []record.Change{{ID: j.id(), If: j.rev}}, record.Limit{}, nil, x.cfg.Now().UnixMilli())
	if errors.Is(err, record.ErrStale) {
		return nil
	}
	return err
}

// jobPage is how many jobs are read at a time.
const jobPage = 500

// refresh reads the jobs that have changed, or all of them if that is not known any more.
func (x *Extractor) refresh(ctx context.Context) error {
	for {
		list, state, err := x.cfg.Store.Records(ctx, jobSpace, record.Query{ByRev: true, AfterRev: x.rev, Limit: jobPage})
		if err != nil {
			return err
		}
		if state.Whole > x.rev && x.rev > 0 {
			x.rev = 0
			x.mu.Lock()
			for id, j := range x.jobs {
				if !j.busy {
					delete(x.jobs, id)
				}
			}
			x.mu.Unlock()
			continue
		}
		x.mu.Lock()
		for i := range list {
			x.take(&list[i])
		}
		x.mu.Unlock()
		if len(list) < jobPage {
			x.rev = state.Rev
			return nil
		}
		x.rev = list[len(list)-1].Rev
	}
}

// take notes a record. The caller holds mu.
func (x *Extractor) take(r *record.Record) {
	old := x.jobs[r.ID]
	switch {
	case old != nil && old.busy:
		old.missed = r
		return
	case old != nil && old.rev >= r.Rev:
		return
	case r.Deleted:
		delete(x.jobs, r.ID)
		return
	}
	var j job
	if err := json.Unmarshal(r.Body, &j); err != nil {
		x.cfg.OnError("read a job of extraction", err)
		return
	}
	j.rev = r.Rev
	j.look = time.UnixMilli(j.DueMS)
	x.jobs[r.ID] = &j
}
