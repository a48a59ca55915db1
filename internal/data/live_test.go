package data_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/webhook"
)

// TestLooksChangeNothing: a subcommand that only reads leaves secrets in clear even if it has a
// key, and needs no right to write.
func TestLooksChangeNothing(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	o := postgres.Options{URL: url}
	s := must(store.OpenPostgres(t.Context(), o, engine.Options{}))
	defer s.Close()
	put := func(id string) {
		t.Helper()
		if _, _, err := s.Create(t.Context(), memory.Agent{ID: id, Name: id, Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}, 0, memory.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	for _, name := range []string{"verify", "export"} {
		if _, errs, err := run(t, settingsOf(url), "", name); err != nil {
			t.Errorf("%s: %v\n%s", name, err, errs)
		}
	}
	if _, errs, err := run(t, settingsOf(url), "", "backup", "-no-secrets", t.TempDir()); err != nil {
		t.Errorf("backup: %v\n%s", err, errs)
	}
	if _, errs, err := run(t, settingsOf(url), "", "erase", "-project", "p", "-agent", "a"); err != nil {
		t.Errorf("erase: %v\n%s", err, errs)
	}
	put("b")
	again, err := store.OpenPostgres(t.Context(), o, engine.Options{})
	if err != nil {
		t.Fatalf("without a key, as before: %v", err)
	}
	defer again.Close()
	if _, err := again.Agents(t.Context(), memory.AgentQuery{Project: "p", Limit: 10}); err != nil {
		t.Errorf("without a key, as before: %v", err)
	}
}

// TestLive: exports taken while others write can be imported into another store without findings.
func TestLive(t *testing.T) {
	t.Parallel()
	for _, url := range []string{sqliteURL(t), postgrestest.URL(t)} {
		s := openStore(t, url)
		if err := webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://one.example/x", Events: []string{"*"}}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var stop atomic.Bool
		var done atomic.Int64
		for w := range 3 {
			wg.Go(func() {
				for i := 0; !stop.Load(); i++ {
					id := fmt.Sprintf("w%d-%d", w, i)
					a := memory.Agent{ID: id, Name: id, Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}
					_, _, err := s.Create(t.Context(), a, 0, memory.Change{Events: []memory.Event{{ID: "ev" + id, Type: 101, CreatedMS: 5, Body: []byte("{}")}}})
					if err != nil {
						t.Errorf("write: %v", err)
						return
					}
					err = s.Update(t.Context(), "p", id, func(tx memory.AgentView) (memory.Change, error) {
						h := tx.Head()
						return memory.Change{Append: []memory.Message{{Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: "x", Timestamp: 1}}, Events: []memory.Event{{ID: "m" + id, Type: 102, CreatedMS: 6, Body: []byte("{}")}}}, nil
					})
					if err != nil {
						t.Errorf("write: %v", err)
						return
					}
					done.Add(1)
				}
			})
		}
		for i := range 5 {
			for at := done.Load(); done.Load() < at+3 && !t.Failed(); {
				must(0, s.Ping(t.Context()))
			}
			into := "sqlite:" + t.TempDir() + "/copy.db"
			var errs string
			var err error
			if i%2 == 0 {
				var out string
				if out, errs, err = run(t, settingsOf(url), "", "export", "-secrets"); err == nil {
					_, errs, err = run(t, settingsOf(into), out, "import")
				}
			} else {
				place := t.TempDir()
				if _, errs, err = run(t, settingsOf(url), "", "backup", "-plain", place); err == nil {
					_, errs, err = run(t, settingsOf(into), "", "restore", place)
				}
			}
			if err != nil {
				t.Errorf("%d: %v\n%s", i, err, errs)
			}
			if out, _, err := run(t, settingsOf(into), "", "verify"); err != nil || strings.Contains(out, " 0 agents") {
				t.Errorf("%d: %v\n%s", i, err, out)
			}
		}
		stop.Store(true)
		wg.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
