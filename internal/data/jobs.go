package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
)

type jobsCommand struct {
	StoreFlag
	Project string `help:"Only this project."`
	State   string `help:"Only jobs in this state: waiting, running, retrying or failed."`
}

// Help returns the details.
func (*jobsCommand) Help() string {
	return "Lists the background jobs that the store holds, also while a server uses it: facts and summaries of calls that have ended, and imports of documents. Failed ones, which are not tried again, come first; then those that are due first. Other jobs, such as checkpoints and embeddings, are known to the server alone that runs them: ask it for GET /v1/jobs, or for the metrics heardlog_jobs and heardlog_jobs_total."
}

// Run lists jobs.
func (j *jobsCommand) Run(ctx context.Context, e Env) (err error) {
	state, err := job.ParseState("--state", j.State)
	if err != nil {
		return err
	}
	c, err := loadStore(ctx, e, j.Store)
	if err != nil {
		return err
	}
	from, err := openSource(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	var list []job.Info
	err = from.Export(ctx, export.Scope{Project: job.Project}, func(r export.Record) error {
		if r.Value == nil {
			return nil
		}
		i, ok := job.Record(r.Value.Space(), &record.Record{ID: string(r.Value.ID), Rev: r.Value.Rev, Body: r.Value.Body})
		if ok && (j.Project == "" || j.Project == i.Project) && (state == "" || state == i.State) {
			list = append(list, i)
		}
		if len(list) > 2*job.MaxList {
			list = job.Sorted(list)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STATE\tKIND\tPROJECT\tID\tDUE\tTRIES\tERROR")
	for _, i := range job.Sorted(list) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", i.State, i.Kind, i.Project, i.ID, dueText(i.DueMS), i.Tries, cmp.Or(i.Error, "-"))
	}
	return w.Flush()
}

// dueText returns a time as a person reads it; 0 is at once.
func dueText(ms int64) string {
	if ms == 0 {
		return "now"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}
