package postgres_test

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestUsageFolded: two servers end calls while both fold what projects use into few rows. No call
// is counted twice or forgotten.
func TestUsageFolded(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	a, b := open(t, postgres.Options{URL: url}), open(t, postgres.Options{URL: url})
	postgrestest.Exec(t, url, "INSERT INTO project_use (project, messages) SELECT 'p', CASE WHEN n % 2 = 0 THEN 1 ELSE -1 END FROM generate_series(1, 5000) n")
	var g errgroup.Group
	const calls = 60
	for i := range calls {
		g.Go(func() error {
			s := a
			if i%2 == 1 {
				s = b
			}
			call := memory.Agent{Project: "p", ID: fmt.Sprint(i), Name: fmt.Sprint(i), Status: memory.Stopped, StartMS: 1, StopMS: 2, Rev: 1}
			if _, _, err := s.Create(t.Context(), call, 0, memory.Change{Append: []memory.Message{{Seq: 1, Rev: 1, Role: memory.User, Content: "hello", Timestamp: 1}}}); err != nil {
				return err
			}
			_, err := s.Usage(t.Context())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	list, err := a.Usage(t.Context())
	if err != nil || len(list) != 1 || list[0].Agents != 0 || list[0].Messages != calls {
		t.Errorf("%+v, %v", list, err)
	}
	ended, err := b.Count(t.Context())
	if err != nil || ended[memory.Stopped] != calls {
		t.Errorf("%v, %v", ended, err)
	}
	if rows := count(t, url, "SELECT count(*) FROM project_use"); rows > 2*calls {
		t.Errorf("%d rows are left", rows)
	}
	if err := a.Probe(t.Context(), func(f export.Finding) error { t.Error(f.What); return nil }); err != nil {
		t.Error(err)
	}
}
