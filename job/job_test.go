package job_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// server is a Runner with one kind, whose runs it notes.
type server struct {
	*job.Queue
	runner *job.Runner
	stop   func()

	mu   sync.Mutex
	ran  []string
	most map[string]int // at a time, by project
	now  map[string]int
}

// start starts a server. do may be nil.
func start(t *testing.T, c job.Config, k job.Kind, do func(ctx context.Context, k job.Key) (job.Result, error)) *server {
	t.Helper()
	s := &server{most: map[string]int{}, now: map[string]int{}}
	if c.Store == nil {
		c.Store = storetest.New(t).Store
	}
	c.Now = time.Now
	s.runner = job.New(c)
	if k.Name == "" {
		k.Name = job.Facts
	}
	k.Do = func(ctx context.Context, k job.Key) (job.Result, error) {
		s.mu.Lock()
		s.ran = append(s.ran, k.Project+"/"+k.ID)
		s.now[k.Project]++
		s.most[k.Project] = max(s.most[k.Project], s.now[k.Project])
		s.mu.Unlock()
		defer func() { s.mu.Lock(); defer s.mu.Unlock(); s.now[k.Project]-- }()
		if do == nil {
			return job.Done(job.OK), nil
		}
		return do(ctx, k)
	}
	s.Queue = s.runner.Handle(k)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = s.runner.Run(ctx) }()
	s.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(s.stop)
	return s
}

// runs returns what ran since it was last called, after some time.
func (s *server) runs(after time.Duration) string {
	time.Sleep(after) // fake time
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.ran, " ")
	s.ran = nil
	return out
}

// stored returns the jobs that a store holds.
func stored(t *testing.T, s record.Store) string {
	t.Helper()
	at := record.Space{Project: job.Project, Name: "facts/job"}
	list, _, err := s.Records(t.Context(), at, record.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list {
		j, ok := job.Record(at, &list[i])
		if !ok {
			t.Errorf("%s is not a job", list[i].ID)
		}
		out = append(out, fmt.Sprint(j.Project, "/", j.ID, " ", j.State))
	}
	return strings.Join(out, ", ")
}

func key(id string) job.Key { return job.Key{Project: "p", ID: id} }

func in(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// TestAdd: a job runs once when its time has come, one that waits is not added twice, and one that
// is added while it runs runs once more.
func TestAdd(t *testing.T) {
	in(t, func(t *testing.T) {
		s := start(t, job.Config{}, job.Kind{}, func(context.Context, job.Key) (job.Result, error) {
			time.Sleep(time.Second) // fake time
			return job.Done(job.OK), nil
		})
		s.Add(key("later"), time.Minute)
		s.Add(key("later"), 0)
		s.Add(key("now"), 0)
		if got := s.runs(time.Second / 2); got != "p/now" {
			t.Errorf("ran %q", got)
		}
		s.Add(key("now"), 0)
		s.Add(key("now"), 0)
		if got := s.runs(time.Minute); got != "p/now p/later" {
			t.Errorf("ran %q", got)
		}
		s.Add(key("later"), time.Hour)
		s.Now(key("later"))
		if got := s.runs(time.Second); got != "p/later" {
			t.Errorf("ran %q", got)
		}
		if got := s.runs(2 * time.Hour); got != "" {
			t.Errorf("ran %q", got)
		}
	})
}

// TestFair: one project has at most half of the places, so that the jobs of another start at once.
func TestFair(t *testing.T) {
	in(t, func(t *testing.T) {
		s := start(t, job.Config{}, job.Kind{Places: 4}, func(context.Context, job.Key) (job.Result, error) {
			time.Sleep(time.Minute) // fake time
			return job.Done(job.OK), nil
		})
		for i := range 100 {
			s.Add(key(fmt.Sprint(i)), 0)
		}
		s.Add(job.Key{Project: "small"}, 0)
		if got := s.runs(time.Second); !strings.Contains(got, "small/") {
			t.Errorf("ran %q", got)
		}
		s.runs(time.Hour)
		if s.most["p"] != 2 || len(s.runner.List("p", "")) != 0 {
			t.Errorf("%d at a time, %d left", s.most["p"], len(s.runner.List("p", "")))
		}
	})
}

// TestDrop: a job that was dropped does not run, and one that runs is canceled.
func TestDrop(t *testing.T) {
	in(t, func(t *testing.T) {
		s := start(t, job.Config{}, job.Kind{Places: 1}, func(ctx context.Context, _ job.Key) (job.Result, error) {
			<-ctx.Done()
			return job.Result{}, ctx.Err()
		})
		for _, id := range []string{"runs", "waits", "next"} {
			s.Add(key(id), 0)
			synctest.Wait()
		}
		s.Drop(key("waits"))
		s.Drop(key("runs"))
		if got := s.runs(0); got != "p/runs p/next" {
			t.Errorf("ran %q", got)
		}
		s.stop()
		if got := s.runs(0); got != "" {
			t.Errorf("ran %q after the end", got)
		}
	})
}

// TestRetry: a job that fails or panics is tried again after growing pauses, but not before the
// delay that the upstream asked for. After Tries failures it stays failed. Each try is counted and
// logged.
func TestRetry(t *testing.T) {
	in(t, func(t *testing.T) {
		var log bytes.Buffer
		var at []time.Duration
		began := time.Now()
		reg := prometheus.NewRegistry()
		s := start(t, job.Config{Log: zerolog.New(&log), Metrics: reg}, job.Kind{
			Tries: 4, First: time.Minute, Longest: 2 * time.Hour,
			RetryAfter: func(err error) time.Duration {
				if strings.Contains(err.Error(), "busy") {
					return time.Hour
				}
				return 0
			},
		}, func(context.Context, job.Key) (job.Result, error) {
			switch at = append(at, time.Since(began)); len(at) {
			case 1:
				panic("key-1")
			case 2:
				return job.Result{}, errors.New("busy")
			}
			return job.Result{}, fault.Wrap(fault.Upstream, errors.New(`no answer to "I live in Lisbon"`), "the LLM failed")
		})
		s.Add(key("a"), 0)
		time.Sleep(time.Second) // fake time
		synctest.Wait()
		list := s.runner.List("p", "")
		if len(list) != 1 || list[0].State != job.Retrying || list[0].Tries != 1 || list[0].Error != "internal error; the log has the cause" {
			t.Errorf("%+v", list)
		}
		time.Sleep(24 * time.Hour) // fake time
		synctest.Wait()
		if len(at) != 4 || at[1] < 30*time.Second || at[1] > time.Minute || at[2]-at[1] != time.Hour || at[3]-at[2] < 2*time.Minute || at[3]-at[2] > 4*time.Minute {
			t.Errorf("tried at %v", at)
		}
		want := []job.Info{{Kind: job.Facts, Key: key("a"), State: job.Failed, SinceMS: began.UnixMilli(), DueMS: began.Add(at[3]).UnixMilli(), Tries: 4, Error: "the LLM failed"}}
		if d := cmp.Diff(want, s.runner.List("p", "")); d != "" {
			t.Error(d)
		}
		if n := strings.Count(log.String(), `"level":"warn"`); n != 3 || !strings.Contains(log.String(), `"level":"error","kind":"facts","outcome":"given_up"`) {
			t.Errorf("%d warnings in %s", n, &log)
		}
		metrics := `
# HELP heardlog_jobs_total Runs of background jobs, by kind and outcome.
# TYPE heardlog_jobs_total counter
heardlog_jobs_total{kind="facts",outcome="given_up"} 1
heardlog_jobs_total{kind="facts",outcome="retried"} 3
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(metrics), "heardlog_jobs_total"); err != nil {
			t.Error(err)
		}
		if got := s.runs(job.KeepFailed); len(s.runner.List("p", "")) != 0 {
			t.Errorf("ran %q, still listed: %+v", got, s.runner.List("p", ""))
		}
	})
}

// TestManyFailed: those that failed last are listed.
func TestManyFailed(t *testing.T) {
	in(t, func(t *testing.T) {
		s := start(t, job.Config{}, job.Kind{Tries: 1}, func(context.Context, job.Key) (job.Result, error) {
			return job.Result{}, errors.New("no")
		})
		for i := range job.MaxFailed + 5 {
			s.Add(key(fmt.Sprintf("%04d", i)), time.Duration(i)*time.Second)
		}
		s.runs(time.Hour)
		if list := s.runner.List("p", ""); len(list) != job.MaxFailed || list[0].ID != "0005" {
			t.Errorf("%d are listed, from %s", len(list), list[0].ID)
		}
	})
}

// TestEvery: something is done at the start and then periodically, and soon again after a failure.
func TestEvery(t *testing.T) {
	in(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		r := job.New(job.Config{Now: time.Now})
		r.Every("sweep", time.Hour, func(context.Context) error {
			if at = append(at, time.Since(began).Round(time.Minute)); len(at) == 2 {
				return errors.New("full")
			}
			return nil
		})
		ctx, stop := context.WithTimeout(t.Context(), 150*time.Minute)
		defer stop()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(at) != 4 || at[1] != time.Hour || at[2] < 65*time.Minute || at[2] > 70*time.Minute || at[3] != 2*time.Hour {
			t.Errorf("at %v", at)
		}
	})
}

// TestFind: jobs that were not added are found, more of them as soon as those are done, and not
// sooner.
func TestFind(t *testing.T) {
	in(t, func(t *testing.T) {
		var left, finds atomic.Int64
		left.Store(250)
		s := start(t, job.Config{}, job.Kind{Places: 2, Every: time.Hour, Find: func(_ context.Context, add func(job.Key) bool) (bool, error) {
			finds.Add(1)
			for n := 0; n < 100 && left.Load() > 0; n++ {
				add(key(fmt.Sprint(left.Add(-1))))
			}
			return left.Load() > 0, nil
		}}, func(context.Context, job.Key) (job.Result, error) {
			time.Sleep(100 * time.Millisecond) // fake time
			return job.Done(job.OK), nil
		})
		if got := len(strings.Fields(s.runs(time.Minute))); got != 250 || finds.Load() != 3 {
			t.Errorf("%d ran, after %d searches", got, finds.Load())
		}
		left.Store(1)
		if got := s.runs(50 * time.Minute); got != "" {
			t.Errorf("ran %q", got)
		}
		if got := s.runs(10 * time.Minute); got != "p/0" {
			t.Errorf("ran %q", got)
		}
	})
}

// TestStored: a stored job is done once by one of two servers, however long it takes, and by the
// other one if the first ends in the middle of it.
func TestStored(t *testing.T) {
	in(t, func(t *testing.T) {
		store := storetest.New(t).Store
		slow := func(context.Context, job.Key) (job.Result, error) {
			time.Sleep(10 * time.Minute) // fake time
			return job.Done(job.OK), nil
		}
		dying := &storetest.CutOff{Store: store}
		k := job.Kind{Stored: true, Timeout: time.Hour}
		a := start(t, job.Config{Store: dying}, k, slow)
		b := start(t, job.Config{Store: store}, k, slow)
		if err := a.Put(t.Context(), key("one"), 0); err != nil {
			t.Fatal(err)
		}
		if err := b.Put(t.Context(), key("one"), 0); !errors.Is(err, record.ErrStale) {
			t.Errorf("put twice: %v", err)
		}
		if got := a.runs(9*time.Minute) + b.runs(0); got != "p/one" || stored(t, store) != "p/one running" {
			t.Errorf("ran %q; stored: %s", got, stored(t, store))
		}
		if got := a.runs(time.Hour) + b.runs(0); got != "" || stored(t, store) != "" {
			t.Errorf("ran %q; stored: %s", got, stored(t, store))
		}
		if err := a.Put(t.Context(), key("two"), 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		dying.Cut(errors.New("killed"))
		if got := b.runs(50 * time.Second); got != "" {
			t.Errorf("ran %q during the claim", got)
		}
		if got := b.runs(time.Minute); got != "p/two" {
			t.Errorf("ran %q after the claim", got)
		}
		if b.runs(time.Hour); stored(t, store) != "" {
			t.Errorf("stored: %s", stored(t, store))
		}
	})
}

// TestAlone: a server that has the store for itself does not wait for the claim of the one before.
func TestAlone(t *testing.T) {
	in(t, func(t *testing.T) {
		store := storetest.New(t).Store
		dying := &storetest.CutOff{Store: store}
		hang := func(ctx context.Context, _ job.Key) (job.Result, error) { <-ctx.Done(); return job.Result{}, ctx.Err() }
		k := job.Kind{Stored: true}
		a := start(t, job.Config{Store: dying, Alone: true}, k, hang)
		for id, after := range map[string]time.Duration{"runs": 0, "waits": time.Hour, "starts": time.Hour} {
			if err := a.Put(t.Context(), key(id), after); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.runs(0); got != "p/runs" {
			t.Errorf("ran %q", got)
		}
		if err := a.Start(t.Context(), key("starts")); err != nil {
			t.Fatal(err)
		}
		dying.Cut(errors.New("killed"))
		a.stop()
		b := start(t, job.Config{Store: store, Alone: true}, k, nil)
		if got := b.runs(time.Second); got != "p/runs p/starts" && got != "p/starts p/runs" {
			t.Errorf("ran %q", got)
		}
	})
}

// TestNow: a server can have a job done at once that another server has stored.
func TestNow(t *testing.T) {
	in(t, func(t *testing.T) {
		store := storetest.New(t).Store
		k := job.Kind{Stored: true}
		a := start(t, job.Config{Store: store}, k, nil)
		a.stop()
		b := start(t, job.Config{Store: store}, k, nil)
		synctest.Wait()
		if err := a.Put(t.Context(), key("one"), time.Hour); err != nil {
			t.Fatal(err)
		}
		b.Now(key("one"))
		b.Now(key("unknown"))
		if got := b.runs(0); got != "p/one" {
			t.Errorf("ran %q", got)
		}
	})
}

// TestGivenUp: a stored job that has failed for good is listed after a restart too, until it is
// old. If the last try that is allowed crashed the server, the job fails without another.
func TestGivenUp(t *testing.T) {
	in(t, func(t *testing.T) {
		store := storetest.New(t).Store
		at := record.Space{Project: "~", Name: "facts/job"}
		poison := record.Change{ID: "p/poison", Body: []byte(`{"tries":3,"busy":true,"due_ms":1}`), If: record.Absent}
		if _, err := store.ChangeRecords(t.Context(), at, []record.Change{poison}, record.Limit{}, nil, 1); err != nil {
			t.Fatal(err)
		}
		k := job.Kind{Stored: true, Tries: 3, Final: func(err error) bool { return fault.Is(err, fault.NotFound) }}
		no := func(context.Context, job.Key) (job.Result, error) {
			return job.Result{}, fault.New(fault.NotFound, "gone")
		}
		s := start(t, job.Config{Store: store}, k, no)
		if err := s.Put(t.Context(), key("one"), 0); err != nil {
			t.Fatal(err)
		}
		if got := s.runs(time.Hour); got != "p/one" {
			t.Errorf("ran %q", got)
		}
		s.stop()
		s = start(t, job.Config{Store: store}, k, no)
		if got := s.runs(time.Hour); got != "" || len(s.runner.List("p", "")) != 2 || s.runner.List("p", "")[0].Error == "" {
			t.Errorf("ran %q; %+v", got, s.runner.List("p", ""))
		}
		s.runs(job.KeepFailed)
		if got := stored(t, store); got != "" {
			t.Errorf("stored: %s", got)
		}
	})
}

// TestStoreFails: while the store fails nothing is lost or given up, and what was done meanwhile is
// done again.
func TestStoreFails(t *testing.T) {
	in(t, func(t *testing.T) {
		store := &storetest.CutOff{Store: storetest.New(t).Store}
		s := start(t, job.Config{Store: store}, job.Kind{Stored: true, Tries: 2}, func(context.Context, job.Key) (job.Result, error) {
			time.Sleep(time.Second) // fake time
			return job.Done(job.OK), nil
		})
		for _, id := range []string{"one", "two"} {
			if err := s.Put(t.Context(), key(id), map[string]time.Duration{"two": 5 * time.Second}[id]); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.runs(0); got != "p/one" {
			t.Errorf("ran %q", got)
		}
		store.Cut(fault.New(fault.Unavailable, "full"))
		if got := s.runs(time.Hour); got != "" {
			t.Errorf("ran %q without a claim", got)
		}
		store.Cut(nil)
		if got := s.runs(time.Minute); got != "p/one p/two" && got != "p/two p/one" || len(s.runner.List("p", "")) != 0 {
			t.Errorf("ran %q; %+v", got, s.runner.List("p", ""))
		}
	})
}

// sealed is a store in which the body of one record cannot be decrypted.
type sealed struct {
	record.Store
	broken string
}

// Records implements record.Store.
func (s sealed) Records(ctx context.Context, at record.Space, q record.Query) ([]record.Record, record.State, error) {
	list, state, err := s.Store.Records(ctx, at, q)
	for i := range list {
		if list[i].ID == s.broken && !list[i].Deleted {
			if list[i].Body = nil; !q.Broken {
				return nil, record.State{}, errors.New("cannot be decrypted")
			}
		}
	}
	return list, state, err
}

// TestBroken: a job that cannot be decrypted does not keep others from being done, and is done too,
// since its ID is all that is needed.
func TestBroken(t *testing.T) {
	in(t, func(t *testing.T) {
		store := storetest.New(t).Store
		k := job.Kind{Stored: true}
		before := start(t, job.Config{Store: store}, k, nil)
		before.stop()
		for _, id := range []string{"broken", "other"} {
			if err := before.Put(t.Context(), key(id), time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		s := start(t, job.Config{Store: sealed{store, "p/broken"}}, k, nil)
		if got := s.runs(time.Second); got != "p/broken" {
			t.Errorf("ran %q", got)
		}
		if got := s.runs(time.Minute); got != "p/other" {
			t.Errorf("ran %q", got)
		}
	})
}
