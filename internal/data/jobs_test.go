package data_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestJobs: the jobs of a store are listed beside the server that has it open, those first that
// failed.
func TestJobs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "h.db")
	url := postgrestest.URL(t)
	stores := map[string]record.Store{
		"sqlite:" + file: must(store.OpenSQLite(t.Context(), sqlite.Options{Path: file, SealKey: []byte(sealKey)}, engine.Options{})),
		url:              must(store.OpenPostgres(t.Context(), postgres.Options{URL: url, SealKey: []byte(sealKey)}, engine.Options{})),
	}
	for url, store := range stores {
		t.Cleanup(func() { _ = store.(interface{ Close() error }).Close() })
		ctx, stop := context.WithCancel(t.Context())
		r := job.New(job.Config{Store: store, Now: time.Now})
		q := r.Handle(job.Kind{Name: job.Facts, Stored: true, Tries: 1, Do: func(context.Context, job.Key) (job.Result, error) {
			return job.Result{}, fault.New(fault.Upstream, "the model is gone")
		}})
		ended := make(chan struct{})
		go func() { defer close(ended); _ = r.Run(ctx) }()
		for id, after := range map[string]time.Duration{"waits": time.Hour, "fails": 0} {
			if err := q.Put(t.Context(), job.Key{Project: "shop", ID: id}, after); err != nil {
				t.Fatal(err)
			}
		}
		for tick := time.NewTicker(time.Millisecond); len(r.List("shop", job.Failed)) == 0; <-tick.C {
		}
		stop()
		<-ended
		// A note of retention, whose space has a name that looks like one of jobs.
		note := record.Change{ID: "0000000000000001/job/call", Body: []byte("{}"), If: record.Any}
		if _, err := store.ChangeRecords(t.Context(), record.Space{Project: "~", Name: "retention/job"}, []record.Change{note}, record.Limit{}, nil, 1); err != nil {
			t.Fatal(err)
		}
		env := map[string]string{"HEARDLOG_STORE": url, "HEARDLOG_SECRET_KEY": sealKey}
		list := func(args ...string) []string {
			t.Helper()
			out, errs, err := run(t, env, "", "jobs", args...)
			if err != nil {
				t.Fatalf("%v %s", err, errs)
			}
			return strings.Split(strings.TrimSpace(out), "\n")
		}
		if got := list(); len(got) != 3 || !strings.HasPrefix(got[1], "failed ") || !strings.HasSuffix(got[1], " 1      the model is gone") || !strings.HasPrefix(got[2], "waiting  facts  shop     waits") {
			t.Errorf("%q", got)
		}
		if got := list("--state", "waiting", "--project", "shop"); len(got) != 2 {
			t.Errorf("%q", got)
		}
		if got := list("--project", "other"); len(got) != 1 {
			t.Errorf("%q", got)
		}
		if _, _, err := run(t, env, "", "jobs", "--state", "lost"); err == nil || !strings.Contains(err.Error(), "--state") {
			t.Errorf("%v", err)
		}
	}
}
