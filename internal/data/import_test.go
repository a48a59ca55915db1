package data_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// stores opens an empty store of each kind that subcommands work on.
func stores() map[string]func(t *testing.T) string {
	return map[string]func(t *testing.T) string{"sqlite": sqliteURL, "postgres": func(t *testing.T) string { return postgrestest.URL(t) }}
}

// TestImportClashes: if records conflict with the store, import and migrate store nothing and list
// the first conflicts.
func TestImportClashes(t *testing.T) {
	t.Parallel()
	for kind, open := range stores() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			from := sqliteURL(t) // its own: one process at a time has it
			filled(t, from, 70)
			all := exported(t, from)
			into := open(t)
			s := openStore(t, into)
			for i, id := range []string{"a69", "other"} {
				if _, _, err := s.Create(t.Context(), memory.Agent{ID: id, Name: []string{"", "n68"}[i], Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}, 0, memory.Change{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := kv.Put(t.Context(), s, kv.Space{Project: "p"}, kv.Entry{Key: "c", Value: []byte(`{}`), ExpiresMS: kv.Never}, kv.Limit{}, 0); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			before := exported(t, into)
			for _, args := range [][]string{{"import"}, {"migrate", "-from", from, "-into-existing", "-spool", t.TempDir()}} {
				if args[0] == "migrate" {
					args = append(args, "-to", into)
				}
				_, errs, err := run(t, settingsOf(into), all, args[0], args[1:]...)
				if err == nil || !strings.Contains(err.Error(), "3 records clash") {
					t.Errorf("%s: %v", args[0], err)
				}
				for _, want := range []string{"agent a69 of project p is there already", "agent a68 of project p has the name of a live agent", "conversation c of project p is there already"} {
					if !strings.Contains(errs, want) {
						t.Errorf("%s: %q is not in\n%s", args[0], want, errs)
					}
				}
				if exported(t, into) != before {
					t.Errorf("%s: something was stored", args[0])
				}
				if out, _, err := run(t, settingsOf(into), "", "verify"); err != nil {
					t.Errorf("%s: %v\n%s", args[0], err, out)
				}
			}
			if _, errs, err := run(t, settingsOf(from), all, "import", "-store", from); err == nil || !strings.Contains(errs, "and 92 more") || strings.Count(errs, "\n") != 51 {
				// 70 agents, as many events, a conversation and a record.
				t.Errorf("into itself: %v\n%s", err, errs)
			}
		})
	}
}

// TestImportSlow: while stdin stalls, the store is not locked and no data is on disk in clear. Then
// all of it is imported. An export that ends too early is not stored at all.
func TestImportSlow(t *testing.T) {
	t.Parallel()
	from := sqliteURL(t)
	filled(t, from, 5)
	all := exported(t, from)
	for kind, open := range stores() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			into, spool := open(t), t.TempDir()
			in, w := io.Pipe()
			e, errs := env(settingsOf(into), "")
			e.Stdin, e.Stdout = in, io.Discard
			done := make(chan error, 1)
			go func() { done <- command(t.Context(), e, "import", []string{"-spool", spool}) }()
			must(io.WriteString(w, all[:len(all)/2])) // returns when it was read
			s := openStore(t, into)                   // as a server does
			if _, _, err := s.Create(t.Context(), memory.Agent{ID: "z", Name: "z", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}, 0, memory.Change{}); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			for _, f := range must(filepath.Glob(spool + "/*")) {
				if strings.Contains(string(must(os.ReadFile(f))), "hidden-key") {
					t.Errorf("%s is in clear", f)
				}
			}
			must(io.WriteString(w, all[len(all)/2:]))
			_ = w.Close()
			if err := <-done; err != nil || !strings.Contains(errs.String(), "5 agents with 100 messages") {
				t.Errorf("%v\n%s", err, errs)
			}
			if list := must(os.ReadDir(spool)); len(list) > 0 {
				t.Errorf("left %v", list)
			}
			if out, _, err := run(t, settingsOf(into), "", "verify"); err != nil || !strings.Contains(out, "6 agents with 100 messages") {
				t.Errorf("%v\n%s", err, out)
			}
			other := open(t)
			if _, _, err := run(t, settingsOf(other), all[:len(all)-9], "import"); err == nil || !strings.Contains(err.Error(), "nothing was imported") {
				t.Errorf("cut off: %v", err)
			}
			openStore(t, other).Close()
			if out, _, err := run(t, settingsOf(other), "", "verify"); err != nil || !strings.Contains(out, " 0 agents") {
				t.Errorf("cut off: %v\n%s", err, out)
			}
		})
	}
}

// TestUnfinished: verify and doctor report an unfinished import; it can be resumed or accepted as
// it is.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	from := sqliteURL(t)
	filled(t, from, 120) // more than is stored at once
	all := exported(t, from)
	for kind, open := range stores() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, how := range []string{"goes on", "is left"} {
				into := open(t)
				ctx, cancel := context.WithCancel(t.Context())
				e, _ := env(settingsOf(into), all)
				e.Terminal = true
				e.Stderr = writes(func(line string) {
					if strings.HasPrefix(line, "\r\x1b[Kimport") {
						cancel()
					}
				})
				if err := command(ctx, e, "import", nil); err == nil || !strings.Contains(err.Error(), "goes on behind it") {
					t.Fatalf("it was not cut short: %v", err)
				}
				if out, _, err := run(t, settingsOf(into), "", "verify"); err == nil || !strings.Contains(out, "1 import was not finished") {
					t.Errorf("verify: %v\n%s", err, out)
				}
				if out, _, _ := run(t, settingsOf(into), "", "doctor", "-offline"); !strings.Contains(out, "warn store    an import, restore or migration into it was not finished") {
					t.Errorf("doctor:\n%s", out)
				}
				args := []string{}
				if how == "is left" {
					args = append(args, "-forget")
				}
				if _, errs, err := run(t, settingsOf(into), all, "import", args...); err != nil {
					t.Errorf("%s: %v\n%s", how, err, errs)
				}
				if out, _, _ := run(t, settingsOf(into), "", "doctor", "-offline"); strings.Contains(out, "import") {
					t.Errorf("doctor:\n%s", out)
				}
				out, _, err := run(t, settingsOf(into), "", "verify")
				if whole := strings.Contains(out, "120 agents with 2400 messages"); whole != (how == "goes on") || strings.Contains(out, "import") || whole && err != nil {
					t.Errorf("%s: %v\n%s", how, err, out)
				}
			}
		})
	}
}
