package data_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/data"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestMigrate: all data moves between any two stores unchanged. A target that is not empty is
// refused without --into-existing.
func TestMigrate(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"sqlite", "postgres"} {
		for _, to := range []string{"sqlite", "postgres"} {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				open := func(kind string) string {
					if kind == "sqlite" {
						return sqliteURL(t)
					}
					return postgrestest.URL(t)
				}
				a, b, spool := open(from), open(to), t.TempDir()
				filled(t, a, 30)
				want := exported(t, a)
				args := []string{"-from", a, "-to", b, "-spool", spool}
				m := map[string]string{"HEARDLOG_SECRET_KEY": sealKey}
				if _, errs, err := run(t, m, "", "migrate", args...); err != nil || !strings.Contains(errs, "30 agents with 600 messages") || strings.Contains(errs, "hidden") {
					t.Fatalf("%v\n%s", err, errs)
				}
				if exported(t, b) != want {
					t.Error("other bytes")
				}
				if list, _ := filepath.Glob(spool + "/*"); len(list) > 0 {
					t.Errorf("left %q", list)
				}
				if _, _, err := run(t, m, "", "migrate", args...); err == nil || !strings.Contains(err.Error(), "-into-existing") {
					t.Errorf("again: %v", err)
				}
				if exported(t, b) != want {
					t.Error("a refused migration has changed something")
				}
				// Beside another's agents.
				c := open(to)
				s := openStore(t, c)
				if _, _, err := s.Create(t.Context(), memory.Agent{ID: "z", Name: "z", Project: "q", Status: memory.Running, StartMS: 1, Rev: 1}, 0, memory.Change{Append: []memory.Message{{Seq: 1, Rev: 1, Role: memory.User, Content: "x", Timestamp: 1}}}); err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if _, errs, err := run(t, m, "", "migrate", "-from", a, "-to", c, "-spool", spool, "-into-existing"); err != nil {
					t.Fatalf("%v\n%s", err, errs)
				}
				if out, _, err := run(t, settingsOf(c), "", "verify"); err != nil || !strings.Contains(out, "31 agents with 601 messages") {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// TestMigrateLive: if the source changes meanwhile, ErrChanged is returned, and the target holds
// exactly the copied moment.
func TestMigrateLive(t *testing.T) {
	t.Parallel()
	a, b := sqliteURL(t), sqliteURL(t)
	filled(t, a, 3)
	want := exported(t, a)
	s := openStore(t, a)
	defer s.Close()
	e, errs := env(settingsOf(a), "")
	e.Stderr = writes(func(line string) { // between the copy and the second look
		if strings.Contains(line, "migrated ") {
			if _, _, err := s.Create(t.Context(), memory.Agent{ID: "late", Name: "late", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}, 0, memory.Change{}); err != nil {
				t.Error(err)
			}
		}
	})
	err := command(t.Context(), e, "migrate", []string{"-to", b, "-spool", t.TempDir()})
	if !errors.Is(err, data.ErrChanged) || data.ExitCode(err) != 2 {
		t.Fatalf("error %v\n%s", err, errs)
	}
	if exported(t, b) != want {
		t.Error("the target holds another moment")
	}
}

// writes is a writer that passes on what is written.
type writes func(string)

func (w writes) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}

// TestMigrateResume: a migration that was interrupted before, during or after its writing needs
// --resume and has the same result.
func TestMigrateResume(t *testing.T) {
	t.Parallel()
	a, spool := sqliteURL(t), t.TempDir()
	filled(t, a, 60)
	want := exported(t, a)
	for name, cut := range map[string]func(line string) bool{
		"while it reads":  func(line string) bool { return strings.HasPrefix(line, "\r\x1b[Kread") },
		"while it writes": func(line string) bool { return strings.HasPrefix(line, "\r\x1b[Kwrite") },
		"behind it":       func(line string) bool { return strings.HasPrefix(line, "migrated") },
	} {
		t.Run(name, func(t *testing.T) {
			b := sqliteURL(t)
			args := []string{"-to", b, "-spool", spool}
			ctx, cancel := context.WithCancel(t.Context())
			e, _ := env(settingsOf(a), "")
			e.Terminal = true
			e.Stderr = writes(func(line string) {
				if cut(line) {
					cancel()
				}
			})
			err := command(ctx, e, "migrate", args)
			if err == nil {
				t.Fatal("it was not cut short")
			}
			list, _ := filepath.Glob(spool + "/*.spool")
			if len(list) > 0 {
				if b := must(os.ReadFile(list[0])); !strings.HasPrefix(string(b), "age-encryption.org") {
					t.Error("the file in between is in clear")
				}
				if _, _, err := run(t, settingsOf(a), "", "migrate", args...); err == nil || !strings.Contains(err.Error(), "-resume") {
					t.Errorf("unasked: %v", err)
				}
			}
			if _, errs, err := run(t, settingsOf(a), "", "migrate", append(args, "-resume")...); err != nil {
				t.Fatalf("%v\n%s", err, errs)
			}
			if exported(t, b) != want {
				t.Error("other bytes")
			}
		})
	}
}
