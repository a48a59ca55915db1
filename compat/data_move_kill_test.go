package compat_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// killAt is how often each command is killed.
const killAt = 3

// Import, migrate, backup and restore are killed at any moment, several times each, and run again: what comes out is the same bytes as of one that was left in peace,
// nothing is wrong with it, and what a killed one leaves is never taken for a whole one.
func TestDataMoveKill(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 10 {
		id := s.join(t, fmt.Sprintf("agent-%d", i), nil)
		for range 3 {
			var batch []object
			for n := range 64 {
				batch = append(batch, object{"role": []string{"user", "assistant"}[n%2], "content": fmt.Sprintf("message %d %s", n, strings.Repeat("é", 50))})
			}
			s.call(t, 200, "POST", "/v1/agents/"+id+"/messages", object{"messages": batch}, nil)
		}
	}
	dir := t.TempDir()
	file, kept := filepath.Join(dir, "all.jsonl"), filepath.Join(dir, "kept")
	for _, args := range [][]string{{"export", "-secrets", file}, {"backup", kept}} {
		if _, errs, code := subcommand(t, s.store, args...); code != 0 {
			t.Fatalf("%q: code %d, %s", args, code, errs)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := string(raw)
	whole := regexp.MustCompile(`^heardlog-\d{8}T\d{6}\.\d{3}Z\.jsonl\.zst$`)
	for name, c := range map[string]struct {
		// args gives the command, for a folder of its own; again is given besides when it is run again.
		args  func(dir string) []string
		again []string
		copy  func(dir string) string // the store that it fills
	}{
		"import":  {func(dir string) []string { return []string{"import", file} }, nil, func(dir string) string { return filepath.Join(dir, "h.db") }},
		"restore": {func(dir string) []string { return []string{"restore", kept} }, nil, func(dir string) string { return filepath.Join(dir, "h.db") }},
		"migrate": {func(dir string) []string {
			return []string{"migrate", "-from", "sqlite:" + s.store, "-to", "sqlite:" + filepath.Join(dir, "to.db"), "-spool", dir}
		}, []string{"-resume"}, func(dir string) string { return filepath.Join(dir, "to.db") }},
		"backup": {func(dir string) []string { return []string{"backup", filepath.Join(dir, "kept")} }, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			once := t.TempDir()
			store := func(dir string) string {
				if name == "import" || name == "restore" {
					return filepath.Join(dir, "h.db")
				}
				return s.store
			}
			began := time.Now()
			if _, errs, code := subcommand(t, store(once), c.args(once)...); code != 0 {
				t.Fatalf("in peace: code %d, %s", code, errs)
			}
			took := time.Since(began)
			killed := 0
			for round := 0; killed < killAt && round < 10*killAt; round++ {
				dir := t.TempDir()
				p := run(t, program(t, "api"), c.args(dir), "HEARDLOG_STORE=sqlite:"+store(dir))
				at := time.NewTimer(rand.N(took))
				select {
				case <-at.C:
				case <-p.done:
				}
				at.Stop()
				if p.running() {
					killed++
				}
				p.kill()
				if name == "backup" {
					list, _ := os.ReadDir(filepath.Join(dir, "kept"))
					for _, e := range list {
						if !whole.MatchString(e.Name()) && !strings.Contains(e.Name(), ".part-") {
							t.Errorf("left %s", e.Name())
						}
					}
				}
				if name == "restore" {
					if _, err := os.Stat(c.copy(dir)); err == nil && p.cmd.ProcessState.ExitCode() != 0 { // it was killed behind its last step
						if got, _, _ := subcommand(t, c.copy(dir), "export", "-secrets"); got != want {
							t.Fatal("a restore that was killed has left a store that is not whole")
						}
						continue
					}
				}
				if p.cmd.ProcessState.ExitCode() != 0 {
					if _, errs, code := subcommand(t, store(dir), again(c.args(dir), c.again)...); code != 0 && !(name == "import" && strings.Contains(errs, "clash with what the store holds")) {
						t.Fatalf("run again: code %d, %s", code, errs)
					}
				}
				to := ""
				if c.copy != nil {
					to = c.copy(dir)
				} else {
					to = filepath.Join(dir, "restored.db")
					if _, errs, code := subcommand(t, to, "restore", filepath.Join(dir, "kept")); code != 0 {
						t.Fatalf("restore of what was backed up: code %d, %s", code, errs)
					}
				}
				if got, errs, code := subcommand(t, to, "export", "-secrets"); code != 0 || got != want {
					t.Fatalf("other bytes, %d and not %d; code %d, %s", len(got), len(want), code, errs)
				}
				if out, errs, code := subcommand(t, to, "verify"); code != 0 {
					t.Errorf("verify: code %d\n%s%s", code, out, errs)
				}
			}
			if killed < killAt {
				t.Errorf("only %d were killed in the middle", killed)
			}
		})
	}
}

// again gives the arguments of a command with more flags.
func again(args, more []string) []string {
	return append(append([]string{args[0]}, more...), args[1:]...)
}
