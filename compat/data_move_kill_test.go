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

// TestDataMoveKill kills import, migrate, backup and restore at random moments, several times each,
// on SQLite files and PostgreSQL databases, and runs them again. The result has the same bytes as
// without a kill, verify finds nothing, and no partial result is taken for a complete one.
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
	path := func(t *testing.T) string { return filepath.Join(t.TempDir(), "h.db") }
	tables := func(t *testing.T) string { return strings.TrimPrefix(database(t), "HEARDLOG_STORE=") }
	for name, c := range map[string]moved{
		"import":              {into: path, args: func(_, _, _ string) []string { return []string{"import", file} }},
		"import to postgres":  {into: tables, args: func(_, _, _ string) []string { return []string{"import", file} }},
		"restore":             {into: path, args: func(_, _, _ string) []string { return []string{"restore", kept} }},
		"restore to postgres": {into: tables, args: func(_, _, _ string) []string { return []string{"restore", kept} }},
		"migrate":             {from: path, into: path, args: migrates, again: []string{"-resume"}},
		"migrate to postgres": {from: path, into: tables, args: migrates, again: []string{"-resume"}},
		"migrate of postgres": {from: tables, into: path, args: migrates, again: []string{"-resume"}},
		"backup":              {from: path, args: backs},
		"backup of postgres":  {from: tables, args: backs},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.want = want
			if c.from != nil {
				c.source = c.from(t)
				if _, errs, code := subcommand(t, c.source, "import", file); code != 0 {
					t.Fatalf("import: code %d, %s", code, errs)
				}
			}
			began := time.Now()
			if _, errs, code := c.run(t, t.TempDir(), nil).ended(t); code != 0 {
				t.Fatalf("in peace: code %d, %s", code, errs)
			}
			took := time.Since(began)
			killed := 0
			for round := 0; killed < killAt && round < 10*killAt; round++ {
				if c.killed(t, rand.N(took)) {
					killed++
				} else { // it is quicker than it was in peace
					took = max(took-took/4, time.Millisecond)
				}
			}
			if killed < killAt {
				t.Errorf("only %d were killed in the middle", killed)
			}
		})
	}
}

// moved is a subcommand that is killed.
type moved struct {
	from   func(t *testing.T) string                 // makes what it reads; nil where that is a file that is there
	into   func(t *testing.T) string                 // makes an empty store that it fills; nil for backup
	args   func(source, target, dir string) []string // dir is a folder of its own
	again  []string                                  // is given besides when it is run again
	source string
	target string
	want   string // of what comes out, the export
}

func migrates(source, target, dir string) []string {
	return []string{"migrate", "-from", storeURL(source), "-to", storeURL(target), "-spool", dir}
}

func backs(_, _, dir string) []string { return []string{"backup", filepath.Join(dir, "kept")} }

// run starts it, on a new target unless it is run again.
func (c *moved) run(t *testing.T, dir string, more []string) *process {
	t.Helper()
	if c.into != nil && more == nil {
		c.target = c.into(t)
	}
	store := c.target
	if c.from != nil {
		store = c.source
	}
	return run(t, program(t, "api"), again(c.args(c.source, c.target, dir), more), "HEARDLOG_STORE="+storeURL(store))
}

// ended waits for a process to end.
func (p *process) ended(t *testing.T) (stdout, stderr string, code int) {
	t.Helper()
	code = p.wait(t)
	return p.stdout.String(), p.stderr.String(), code
}

// killed kills it after that time, runs it again and checks the result. It returns false if the
// command had ended before.
func (c *moved) killed(t *testing.T, after time.Duration) bool {
	t.Helper()
	dir := t.TempDir()
	p := c.run(t, dir, nil)
	at := time.NewTimer(after)
	select {
	case <-at.C:
	case <-p.done:
	}
	at.Stop()
	running := p.running()
	p.kill()
	switch name := c.args("", "", "")[0]; {
	case name == "backup":
		list, _ := os.ReadDir(filepath.Join(dir, "kept"))
		for _, e := range list {
			if !wholeBackup.MatchString(e.Name()) && !strings.Contains(e.Name(), ".part-") {
				t.Errorf("left %s", e.Name())
			}
		}
	case name == "restore" && !strings.Contains(c.target, "://"):
		// It was killed after its last step.
		if _, err := os.Stat(c.target); err == nil && p.cmd.ProcessState.ExitCode() != 0 {
			if got, _, _ := subcommand(t, c.target, "export", "-secrets"); got != c.want {
				t.Fatal("a restore that was killed has left a store that is not whole")
			}
			return running
		}
	}
	if p.cmd.ProcessState.ExitCode() != 0 {
		for try := 0; ; try++ {
			_, errs, code := c.run(t, dir, append([]string{}, c.again...)).ended(t)
			if code == 0 {
				break
			}
			// The killed one may have come to its end. What it has stored is compared below.
			name := c.args("", "", "")[0]
			if name == "import" && strings.Contains(errs, "clash with what the store holds") || name == "migrate" && strings.Contains(errs, "is not empty") {
				break
			}
			// The last write of the killed process was stored late.
			if try < 5 && strings.Contains(errs, "another import stores into the same store") {
				continue
			}
			t.Fatalf("run again: code %d, %s", code, errs)
		}
	}
	to := c.target
	if c.into == nil {
		to = filepath.Join(dir, "restored.db")
		if _, errs, code := subcommand(t, to, "restore", filepath.Join(dir, "kept")); code != 0 {
			t.Fatalf("restore of what was backed up: code %d, %s", code, errs)
		}
	}
	if got, errs, code := subcommand(t, to, "export", "-secrets"); code != 0 || got != c.want {
		t.Fatalf("other bytes, %d and not %d; code %d, %s", len(got), len(c.want), code, errs)
	}
	if out, errs, code := subcommand(t, to, "verify"); code != 0 {
		t.Errorf("verify: code %d\n%s%s", code, out, errs)
	}
	return running
}

// wholeBackup matches the name of a complete backup.
var wholeBackup = regexp.MustCompile(`^heardlog-\d{8}T\d{6}\.\d{3}Z\.jsonl\.zst$`)

// again returns the arguments of a command with more flags.
func again(args, more []string) []string {
	return append(append([]string{args[0]}, more...), args[1:]...)
}
