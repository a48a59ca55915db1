package data_test

import (
	"context"
	dbsql "database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestErase: an agent is erased with its data, another project's agent with the same ID is not, and
// the receipt holds numbers and no content.
func TestErase(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (url string, open func() (memory.Ledger, error)){
		"sqlite": func(t *testing.T) (string, func() (memory.Ledger, error)) {
			path := filepath.Join(t.TempDir(), "h.db")
			return "sqlite:" + path, func() (memory.Ledger, error) {
				return store.OpenSQLite(t.Context(), sqlite.Options{Path: path}, engine.Options{})
			}
		},
		"postgres": func(t *testing.T) (string, func() (memory.Ledger, error)) {
			url := postgrestest.URL(t)
			return url, func() (memory.Ledger, error) {
				return store.OpenPostgres(t.Context(), postgres.Options{URL: url}, engine.Options{})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, open := open(t)
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			for _, project := range []string{"p", "q"} {
				_, _, err := s.Create(t.Context(), memory.Agent{ID: "a", Project: project, Status: memory.Running, StartMS: 1, Rev: 1}, 0, memory.Change{Append: []memory.Message{
					{Seq: 1, Rev: 1, Role: memory.User, Content: "very private", Timestamp: 1, Details: &memory.Details{Filed: memory.Filed{Scope: memory.Scope{UserID: "private-user"}}}}, {Seq: 2, Rev: 1, Role: memory.Assistant, Content: "private too", Timestamp: 1},
				}})
				if err != nil {
					t.Fatal(err)
				}
			}
			for user, fact := range map[string]string{"private-user": "very private", "other": "a fact"} {
				at := record.Space{Project: "q", Name: "fact", User: user}
				if _, err := s.(record.Store).ChangeRecords(t.Context(), at, []record.Change{{ID: "a", Body: []byte(fact)}}, record.Limit{}, nil, 1); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			m := map[string]string{"HEARDLOG_STORE": url}
			for _, args := range [][]string{{}, {"-project", "p"}, {"-agent", "a"}, {"-project", "p", "-agent", "a", "-whole"}, {"-whole"}, {"-user", "u"}, {"-project", "p", "-agent", "other"}} {
				if out, _, err := run(t, m, "", "erase", args...); err == nil || out != "" {
					t.Errorf("%q: error %v, receipt %s", args, err, out)
				}
			}
			out, errs, err := run(t, m, "", "erase", "-project", "p", "-agent", "a")
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Project, Agent string
				ErasedAt       string `json:"erased_at"`
				Erased         struct{ Agents, Messages, Items int }
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil || got.Project != "p" || got.Agent != "a" || got.ErasedAt == "" || got.Erased.Agents != 1 || got.Erased.Messages != 2 || got.Erased.Items != 1 {
				t.Errorf("receipt %s, error %v", out, err)
			}
			if strings.Contains(out+errs, "private") {
				t.Errorf("the receipt tells: %s%s", out, errs)
			}
			if out, _, err := run(t, m, "", "verify"); err != nil || !strings.Contains(out, "1 agents with 2 messages") {
				t.Errorf("afterwards: %s %v", out, err)
			}
			if _, _, err := run(t, m, "", "erase", "-project", "p", "-agent", "a"); err == nil {
				t.Error("erased twice")
			}
			out, _, err = run(t, m, "", "erase", "-project", "q", "-user", "private-user")
			if err != nil || !strings.Contains(out, `"user":"private-user"`) || !strings.Contains(out, `"erased":{"agents":0,"memories":1,"records":1,"aliases":0}`) {
				t.Errorf("a user: %s %v", out, err)
			}
			if out, _, err := run(t, m, "", "export"); err != nil || strings.Contains(out, "very private") || !strings.Contains(out, "private too") {
				t.Errorf("after a user was erased: %v\n%s", err, out)
			}
			out, _, err = run(t, m, "", "erase", "-project", "q", "-whole")
			// One of the records notes that the user was erased.
			if err != nil || !strings.Contains(out, `"erased":{"agents":1,"memories":0,"records":2,"conversations":0,"keys":0,"endpoints":0}`) {
				t.Errorf("a project: %s %v", out, err)
			}
			if out, _, err := run(t, m, "", "verify"); err != nil || !strings.Contains(out, " 0 agents with 0 messages") {
				t.Errorf("at the end: %s %v", out, err)
			}
		})
	}
}

// TestEraseHeld: what is under hold is refused without a receipt, also in what was exported and
// imported.
func TestEraseHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to := "sqlite:"+filepath.Join(dir, "from.db"), "sqlite:"+filepath.Join(dir, "to.db")
	filled(t, from, 2)
	s := openStore(t, from)
	holds := hold.Service{
		Records: s, Now: time.Now, NewID: func() string { return "h1" },
		Names: func(_ context.Context, _, name string) ([]string, error) { return []string{name}, nil },
	}
	for _, target := range []hold.Target{{User: "anna"}, {AgentID: "a1"}} {
		if _, err := holds.Set(t.Context(), "p", target, "case 1", "", ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	exported, _, err := run(t, settingsOf(from), "", "export")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, settingsOf(to), exported, "import"); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{from, to} {
		for _, args := range [][]string{{"-user", "anna"}, {"-agent", "a1"}, {"-whole"}} {
			out, _, err := run(t, settingsOf(url), "", "erase", append([]string{"-project", "p"}, args...)...)
			if err == nil || out != "" || !strings.Contains(err.Error(), "is under hold h1") {
				t.Errorf("%s %q: error %v, receipt %s", url, args, err, out)
			}
		}
	}
}

// TestEraseUnfinished: an erasure that fails reports what it has erased, and the next counts the
// rest.
func TestEraseUnfinished(t *testing.T) {
	t.Parallel()
	for kind, open := range stores() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := open(t)
			filled(t, url, 10)
			change := func(statements ...string) {
				t.Helper()
				for _, sql := range statements {
					if kind == "postgres" {
						postgrestest.Exec(t, url, sql)
						continue
					}
					db := must(dbsql.Open("sqlite", strings.TrimPrefix(url, "sqlite:")))
					must(db.ExecContext(t.Context(), sql))
					_ = db.Close()
				}
			}
			if kind == "postgres" {
				change("CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stop'; END $$",
					"CREATE TRIGGER stop BEFORE DELETE ON agent FOR EACH ROW WHEN (OLD.id = 'a4') EXECUTE FUNCTION stop()")
			} else {
				change("CREATE TRIGGER stop BEFORE DELETE ON agent WHEN OLD.id = 'a4' BEGIN SELECT RAISE(ABORT, 'stop'); END")
			}
			type receipt struct {
				Erased     struct{ Agents, Endpoints, Conversations int }
				Unfinished bool
			}
			erase := func() (r receipt, err error) {
				t.Helper()
				out, _, err := run(t, settingsOf(url), "", "erase", "-project", "p", "-whole")
				if bad := json.Unmarshal([]byte(out), &r); bad != nil {
					t.Errorf("receipt %q: %v", out, bad)
				}
				return r, err
			}
			first, err := erase()
			if err == nil || !first.Unfinished || first.Erased.Agents < 1 || first.Erased.Agents > 9 || first.Erased.Endpoints != 1 {
				t.Errorf("receipt %+v, error %v", first, err)
			}
			if kind == "postgres" {
				change("DROP TRIGGER stop ON agent")
			} else {
				change("DROP TRIGGER stop")
			}
			second, err := erase()
			if err != nil || second.Unfinished || first.Erased.Agents+second.Erased.Agents != 10 || second.Erased.Endpoints != 0 || second.Erased.Conversations != 1 {
				t.Errorf("receipts %+v and %+v, error %v", first, second, err)
			}
		})
	}
}
