package compat_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// subcommand runs a subcommand to its end and returns its output and its exit code.
func subcommand(t *testing.T, store string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := run(t, program(t, "api"), args, "HEARDLOG_STORE="+storeURL(store))
	code = p.wait(t)
	return p.stdout.String(), p.stderr.String(), code
}

// storeURL returns the URL of a store, given a file or a URL.
func storeURL(store string) string {
	if strings.Contains(store, "://") {
		return store
	}
	return "sqlite:" + store
}

// TestDataKill checks that an export beside a running server is complete, that a killed one leaves
// no file under its name, and that a killed import continues when it is run again. The copy has the
// same bytes, verify finds nothing, and a server can use it.
func TestDataKill(t *testing.T) {
	t.Parallel()
	s := start(t)
	var first string
	for i := range 8 {
		id := s.join(t, fmt.Sprintf("agent-%d", i), nil)
		if i == 0 {
			first = id
		}
		for range 3 {
			var batch []object
			for n := range 64 {
				batch = append(batch, object{"role": []string{"user", "assistant"}[n%2], "content": fmt.Sprintf("message %d %s", n, strings.Repeat("é", 50))})
			}
			s.call(t, 200, "POST", "/v1/agents/"+id+"/messages", object{"messages": batch}, nil)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "all.jsonl")
	if out, errs, code := subcommand(t, s.store, "verify"); code != 0 || !strings.Contains(out, "8 agents with 1536 messages") {
		t.Fatalf("verify beside the server: code %d\n%s%s", code, out, errs)
	}
	if _, errs, code := subcommand(t, s.store, "import", "/dev/null"); code != 1 {
		t.Errorf("an import of nothing: code %d, %s", code, errs)
	}
	for i := range 5 {
		p := run(t, program(t, "api"), []string{"export", file}, "HEARDLOG_STORE=sqlite:"+s.store)
		if i%2 == 0 {
			eventually(t, "the export has begun", func() bool { list, _ := filepath.Glob(file + "*"); return len(list) > 0 || !p.running() })
		}
		p.kill()
		if b, err := os.ReadFile(file); err == nil && !strings.Contains(string(b[max(0, len(b)-400):]), `{"end":{`) {
			t.Fatal("an export that was killed has left a file that is not whole")
		}
		_ = os.Remove(file)
	}
	if _, errs, code := subcommand(t, s.store, "export", "-secrets", file); code != 0 {
		t.Fatalf("export: code %d, %s", code, errs)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The process is killed while it waits for the rest of its input: nothing is stored, and
	// nothing of the input stays.
	into := t.TempDir()
	copied := filepath.Join(into, "copy.db")
	lines := bytes.SplitAfter(want, []byte("\n"))
	cmd := exec.Command(program(t, "api"), "import")
	cmd.Env = []string{"HEARDLOG_STORE=sqlite:" + copied}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(bytes.Join(lines[:1200], nil)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if list, err := os.ReadDir(into); err != nil || len(list) > 0 {
		t.Errorf("an import that was killed has left %v, error %v", list, err)
	}
	if _, errs, code := subcommand(t, copied, "import", file); code != 0 || !strings.Contains(errs, "imported into") {
		t.Fatalf("the import again: code %d, %s", code, errs)
	}
	if _, errs, code := subcommand(t, copied, "import", file); code != 1 || !strings.Contains(errs, "clash with what the store holds") {
		t.Errorf("a third import: code %d, %s", code, errs)
	}
	if got, errs, code := subcommand(t, copied, "export", "-secrets"); code != 0 || got != string(want) {
		t.Errorf("the copy's export has %d bytes and not %d, or others; code %d, %s", len(got), len(want), code, errs)
	}
	if out, errs, code := subcommand(t, copied, "verify"); code != 0 {
		t.Errorf("verify of the copy: code %d\n%s%s", code, out, errs)
	}
	again := start(t, "HEARDLOG_STORE=sqlite:"+copied)
	if n := len(again.ledger(t, first)); n != 192 {
		t.Errorf("the copy serves %d messages of the first agent, want 192", n)
	}
}
