package data_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/record"
)

// called stores calls of a caller, each with a message, a fact, a checkpoint, a summary and the
// result of a replay.
func called(t *testing.T, s whole, project, user string, startMS int64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		a := memory.Agent{ID: id, Project: project, Status: memory.Stopped, StartMS: startMS, StopMS: startMS + 1, Rev: 1}
		a.Settings.Scope.UserID = user
		said := memory.Message{Seq: 1, Rev: 1, Role: memory.User, Content: "said in " + id, Timestamp: startMS, Details: &memory.Details{Filed: memory.Filed{Scope: memory.Scope{UserID: user}}}}
		if _, _, err := s.Create(t.Context(), a, 0, memory.Change{Append: []memory.Message{said}}); err != nil {
			t.Fatal(err)
		}
		at := record.Space{Project: project, Name: "fact", User: user}
		fact := fmt.Sprintf(`{"id":"f-%s","content":"fact of %s","state":"active","source":{"agent_id":%q,"from_seq":1,"to_seq":1}}`, id, id, id)
		if _, err := s.ChangeRecords(t.Context(), at, []record.Change{{ID: "f-" + id, Body: []byte(fact)}}, record.Limit{}, nil, startMS); err != nil {
			t.Fatal(err)
		}
		for space, name := range map[string]string{"checkpoint/": "h/1", "call-summary/": "summary", "replay.result/": "r/1"} {
			at := record.Space{Project: project, Name: space + id}
			body := fmt.Appendf(nil, `{"text":"said in %s"}`, id)
			if _, err := s.ChangeRecords(t.Context(), at, []record.Change{{ID: name, Body: body}}, record.Limit{}, nil, startMS); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// calls returns which of the agents a store has, and which facts of callers.
func calls(t *testing.T, at string, users ...string) (agents, facts []string) {
	t.Helper()
	s := openStore(t, at)
	defer s.Close()
	for _, id := range []string{"anna1", "anna2", "anna3", "ben1", "ben2", "q1"} {
		project := map[bool]string{true: "q", false: "p"}[id == "q1"]
		_, err := s.Head(t.Context(), project, id)
		if err == nil {
			agents = append(agents, id)
		} else if !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
	}
	for _, user := range users {
		list, _, err := s.Records(t.Context(), record.Space{Project: "p", Name: "fact", User: user}, record.Query{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			facts = append(facts, r.ID)
		}
	}
	return agents, facts
}

// noted returns the IDs of the erasures that a store has noted of a project, by kind.
func noted(t *testing.T, at, project string) map[string]string {
	t.Helper()
	s := openStore(t, at)
	defer s.Close()
	list, _, err := s.Records(t.Context(), record.Space{Project: "~" + project, Name: "erasure"}, record.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range list {
		var n struct{ ID, Kind string }
		if err := json.Unmarshal(r.Body, &n); err != nil {
			t.Fatal(err)
		}
		out[n.Kind] = n.ID
	}
	return out
}

// eraseAll erases the caller anna, the agent ben1 and the project q with the subcommand. It returns
// the IDs of the erasures.
func eraseAll(t *testing.T, settings map[string]string) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for kind, args := range map[string][]string{"user": {"-project", "p", "-user", "anna"}, "agent": {"-project", "p", "-agent", "ben1"}, "project": {"-project", "q", "-whole"}} {
		out, _, err := run(t, settings, "", "erase", args...)
		var got struct {
			ID string `json:"erasure_id"`
		}
		if bad := json.Unmarshal([]byte(out), &got); err != nil || bad != nil || got.ID == "" {
			t.Fatalf("%q: %s %v", args, out, err)
		}
		ids[kind] = got.ID
	}
	return ids
}

func wantCalls(t *testing.T, when, at, agents, facts string) {
	t.Helper()
	a, f := calls(t, at, "anna", "ben")
	if got := strings.Join(a, " "); got != agents {
		t.Errorf("%s: agents %s, want %s", when, got, agents)
	}
	if got := strings.Join(f, " "); got != facts {
		t.Errorf("%s: facts %s, want %s", when, got, facts)
	}
}

// another returns an empty store of the same kind.
func another(t *testing.T, kind string) string {
	if kind == "postgres" {
		return postgrestest.URL(t)
	}
	return sqliteURL(t)
}

// TestErasureSurvives: what was erased is erased again in a store that a backup from before was
// restored into, and when an export from before is imported; what came after the erasure stays.
// The receipts are there, and no file of the ledger has the name.
func TestErasureSurvives(t *testing.T) {
	t.Parallel()
	for kind, open := range stores() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at, dir := open(t), t.TempDir()
			ledger := filepath.Join(dir, "erasures")
			with := func(store string) map[string]string {
				return map[string]string{"HEARDLOG_STORE": store, "HEARDLOG_SECRET_KEY": sealKey, "HEARDLOG_ERASURES": ledger}
			}
			s := openStore(t, at)
			called(t, s, "p", "anna", 1, "anna1", "anna2")
			called(t, s, "p", "ben", 1, "ben1", "ben2")
			called(t, s, "q", "anna", 1, "q1")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			backups := filepath.Join(dir, "backups")
			if _, _, err := run(t, with(at), "", "backup", "-plain", backups); err != nil {
				t.Fatal(err)
			}
			old := sqliteURL(t)
			s = openStore(t, old)
			called(t, s, "p", "anna", 1, "anna1", "anna2")
			called(t, s, "p", "ben", 1, "ben1")
			called(t, s, "q", "anna", 1, "q1")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			before := exported(t, old)
			ids := eraseAll(t, with(at))
			wantCalls(t, "after the erasures", at, "ben2", "f-ben2")

			// The caller comes back.
			s = openStore(t, at)
			called(t, s, "p", "anna", time.Now().Add(time.Second).UnixMilli(), "anna3")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if _, errs, err := run(t, with(at), before, "import"); err != nil {
				t.Fatal(err, errs)
			}
			wantCalls(t, "after an import", at, "anna3 ben2", "f-anna3 f-ben2")

			restored := another(t, kind)
			_, errs, err := run(t, with(restored), "", "restore", backups)
			if err != nil || !strings.Contains(errs, "erasures applied again: 3") {
				t.Fatal(errs, err)
			}
			wantCalls(t, "after a restore", restored, "ben2", "f-ben2")
			for _, kept := range []string{"said in anna", "said in ben1", "said in q1"} {
				if strings.Contains(exported(t, restored), kept) {
					t.Errorf("after a restore: %q is there", kept)
				}
			}
			if path, file := strings.CutPrefix(restored, "sqlite:"); file {
				b, err := os.ReadFile(path)
				if err != nil || strings.Contains(string(b), "said in anna") || strings.Contains(string(b), "said in ben1") {
					t.Errorf("the restored file has words of what was erased, or: %v", err)
				}
			}
			for kind, id := range noted(t, restored, "p") {
				if ids[kind] != id {
					t.Errorf("%s is noted as %s, not as %s", kind, id, ids[kind])
				}
			}
			if n := len(noted(t, restored, "p")) + len(noted(t, restored, "q")); n != 3 {
				t.Errorf("%d erasures are noted after the restore", n)
			}
			out, _, _ := run(t, with(restored), "", "doctor", "-offline")
			if !strings.Contains(out, "the store has applied all erasures") {
				t.Errorf("doctor after the restore: %s", out)
			}
			err = filepath.WalkDir(ledger, func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				b, err := os.ReadFile(path)
				if strings.Contains(string(b), "anna") || !strings.HasPrefix(filepath.Base(path), "key-") && !strings.Contains(string(b), `"state":"done"`) {
					t.Errorf("%s: %s", path, b)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}

			// A migration takes the ledger along.
			moved := sqliteURL(t)
			without := map[string]string{"HEARDLOG_SECRET_KEY": sealKey}
			if kind == "sqlite" {
				path := strings.TrimPrefix(at, "sqlite:")
				if err := os.Rename(ledger, path+".erasures"); err != nil {
					t.Fatal(err)
				}
			} else {
				without["HEARDLOG_ERASURES"] = ledger
			}
			if _, errs, err := run(t, without, "", "migrate", "-from", at, "-to", moved, "-spool", dir); err != nil {
				t.Fatal(err, errs)
			}
			wantCalls(t, "after a migration", moved, "anna3 ben2", "f-anna3 f-ben2")
			if kind == "sqlite" {
				list, err := filepath.Glob(strings.TrimPrefix(moved, "sqlite:") + ".erasures/*/*")
				if err != nil || len(list) != 3 {
					t.Errorf("the ledger after the migration: %q %v", list, err)
				}
			}
		})
	}
}

// TestImportNoted: an import stays noted until a server has applied its ledger, also one from a
// shell that names no ledger or another one than the server.
func TestImportNoted(t *testing.T) {
	t.Parallel()
	for kind, open := range stores() {
		for _, ledger := range []string{"", filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "other")} {
			t.Run(kind+" "+filepath.Base(ledger), func(t *testing.T) {
				t.Parallel()
				old, at := sqliteURL(t), open(t)
				s := openStore(t, old)
				called(t, s, "p", "anna", 1, "anna1")
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				settings := settingsOf(at)
				settings["HEARDLOG_ERASURES"] = ledger
				if filepath.Base(ledger) == "other" {
					other := settingsOf(old)
					other["HEARDLOG_ERASURES"] = ledger
					if _, _, err := run(t, other, "", "erase", "-project", "p", "-user", "ben"); err != nil {
						t.Fatal(err)
					}
				}
				_, errs, err := run(t, settings, exported(t, old), "import")
				if told := strings.Contains(errs, "what was erased since may be back"); err != nil || told != (filepath.Base(ledger) != "other") {
					t.Fatal(err, errs)
				}
				s = openStore(t, at)
				defer s.Close()
				list, _, err := s.Records(t.Context(), record.Space{Project: "~", Name: record.Local + "erasure.import"}, record.Query{Limit: 10})
				if err != nil || len(list) != 1 {
					t.Errorf("%d imports are noted, error %v", len(list), err)
				}
			})
		}
	}
}

// TestMigrateIntoExisting: what was erased of a project of the source is not erased of a project
// with the same name that the target has, and the target's erasures are applied to what came.
func TestMigrateIntoExisting(t *testing.T) {
	t.Parallel()
	from, to := sqliteURL(t), sqliteURL(t)
	for at, calls := range map[string]map[string]string{from: {"anna1": "anna", "ben1": "ben"}, to: {"anna2": "anna", "ben2": "ben"}} {
		s := openStore(t, at)
		for id, user := range calls {
			called(t, s, "p", user, 1, id)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for at, user := range map[string]string{from: "anna", to: "ben"} {
		if _, errs, err := run(t, settingsOf(at), "", "erase", "-project", "p", "-user", user); err != nil {
			t.Fatal(err, errs)
		}
	}
	settings := settingsOf(to)
	if _, errs, err := run(t, settings, "", "migrate", "-from", from, "-to", to, "-into-existing", "-spool", t.TempDir()); err != nil {
		t.Fatal(err, errs)
	}
	wantCalls(t, "after the migration", to, "anna2", "f-anna2")
}
