package erasure_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestApplyBounds: what began or was stored after an erasure of a caller or a project stays when it
// is applied again.
func TestApplyBounds(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"user", "project"} {
		dir := t.TempDir()
		p := start(t, dir, 1000)
		fill(t, p)
		var err error
		if kind == "user" {
			_, _, err = p.User(t.Context(), "p", "anna", "")
		} else {
			_, err = p.Project(t.Context(), "p", "")
		}
		if err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Minute)
		if kind == "user" {
			if err := p.store.Erase(t.Context(), "p", "b1"); err != nil {
				t.Fatal(err)
			}
		}
		fill(t, p) // as by an import
		old := time.Now().Add(-time.Hour)
		for _, id := range []string{"a1", "a2", "b1"} {
			if err := p.store.Erase(t.Context(), "p", id); err != nil {
				t.Fatal(err)
			}
			p.call(t, id, map[string]string{"a1": "anna", "a2": "anna", "b1": "ben"}[id], old)
		}
		p.call(t, "a3", "anna", later)
		fact := record.Space{Project: "p", Name: "fact", User: "anna"}
		if _, err := p.store.ChangeRecords(t.Context(), fact, []record.Change{{ID: "old", Body: []byte(`{}`), If: record.Any}}, record.Limit{}, nil, old.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.store.ChangeRecords(t.Context(), fact, []record.Change{{ID: "f", Body: []byte(`{}`), If: record.Any}}, record.Limit{}, nil, later.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		done, err := p.Apply(t.Context(), true, 0)
		if err != nil || done.Again != 1 {
			t.Errorf("%s: applied %v, error %v", kind, done, err)
		}
		if got, want := p.left(t), map[string]string{"user": "a3 b1 f", "project": "a3 f"}[kind]; got != want {
			t.Errorf("%s: %s are left, want %s", kind, got, want)
		}
		if _, err := p.store.Record(t.Context(), fact, "old"); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: an old fact: %v", kind, err)
		}
		p.close(t)
	}
}

// TestApplyOthers: entries that cannot be applied are reported, and the others are applied.
func TestApplyOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, 1000)
	fill(t, p)
	p.close(t)
	backup, err := os.ReadFile(filepath.Join(dir, "h.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"anna", "ben"} {
		p = start(t, dir, 1000)
		if _, _, err := p.User(t.Context(), "p", user, ""); err != nil {
			t.Fatal(err)
		}
		p.close(t)
		keys, err := filepath.Glob(filepath.Join(dir, "erasures", "key-*"))
		if err != nil || len(keys) != 1 {
			t.Fatalf("keys %q, error %v", keys, err)
		}
		if user == "anna" { // the key of her entry is lost
			if err := os.Remove(keys[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, b := range map[string][]byte{"h.db": backup, "erasures/p/00000000-0000-7000-8000-000000000000": []byte("damaged")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p = start(t, dir, 1000)
	defer p.close(t)
	done, err := p.Apply(t.Context(), false, 0)
	if !errors.Is(err, erasure.ErrLedger) || !strings.Contains(err.Error(), "read key-") || !strings.Contains(err.Error(), "00000000-0000") {
		t.Errorf("error %v", err)
	}
	if got := p.left(t); done.Again != 1 || got != "a1 a2 f" {
		t.Errorf("applied %v; %s are left, want those of anna", done, got)
	}
}

// TestApplyMeanwhile: what began during an erasure that went through was erased by it, and is
// erased again.
func TestApplyMeanwhile(t *testing.T) {
	t.Parallel()
	for kind, erase := range map[string]func(context.Context, process) error{
		"agent":   func(ctx context.Context, p process) error { _, err := p.Agent(ctx, "p", "a1", ""); return err },
		"user":    func(ctx context.Context, p process) error { _, _, err := p.User(ctx, "p", "anna", ""); return err },
		"project": func(ctx context.Context, p process) error { _, err := p.Project(ctx, "p", ""); return err },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := start(t, t.TempDir(), 1000)
			defer p.close(t)
			asked := time.Now()
			p.call(t, "a1", "anna", asked)
			next := asked
			p.Now = func() (now time.Time) { // an erasure of an hour
				now, next = next, asked.Add(time.Hour)
				return now
			}
			if err := erase(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			p.call(t, "a1", "anna", asked.Add(time.Minute))
			p.call(t, "a2", "anna", asked.Add(2*time.Hour))
			if _, err := p.Apply(t.Context(), true, 0); err != nil || p.left(t) != "a2" {
				t.Errorf("%s are left, want a2; error %v", p.left(t), err)
			}
		})
	}
}

// TestAliasOfAnother: an erased name that a backup has as an alias of another caller does not erase
// the other.
func TestAliasOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, 1000)
	defer p.close(t)
	if _, _, err := p.User(t.Context(), "p", "x", ""); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	p.call(t, "a1", "x", past)
	p.call(t, "b1", "ben", past)
	if _, err := p.Callers.SetAliases(t.Context(), "p", "ben", []string{"x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(t.Context(), true, 0); err != nil {
		t.Fatal(err)
	}
	if got := p.left(t); got != "b1" {
		t.Errorf("%s are left, want b1", got)
	}
	if c, err := p.Callers.Get(t.Context(), "p", "x"); err != nil || c.User != "ben" {
		t.Errorf("x is %s, error %v", c.User, err)
	}
}

// TestAliasOfBefore: a name that was no alias of a caller when that was erased, but is one in a
// backup, stops being one, and keeps its calls.
func TestAliasOfBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, 1000)
	defer p.close(t)
	past := time.Now().Add(-time.Hour)
	p.call(t, "a1", "anna", past)
	p.call(t, "b1", "shared phone", past)
	if _, _, err := p.User(t.Context(), "p", "anna", ""); err != nil {
		t.Fatal(err)
	}
	p.call(t, "a1", "anna", past)
	p.Callers.Now = func() time.Time { return past }
	if _, err := p.Callers.SetAliases(t.Context(), "p", "anna", []string{"shared phone"}); err != nil {
		t.Fatal(err)
	}
	p.Callers.Now = time.Now
	if _, err := p.Apply(t.Context(), true, 0); err != nil || p.left(t) != "b1" {
		t.Errorf("%s are left, want b1; error %v", p.left(t), err)
	}
	if c, err := p.Callers.Get(t.Context(), "p", "shared phone"); err != nil || c.User != "shared phone" {
		t.Errorf("the alias is of %s, error %v", c.User, err)
	}
}

// TestFinishedMeanwhile: an entry that another server finishes while it is applied keeps the counts
// of that server.
func TestFinishedMeanwhile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, 1000)
	fill(t, p)
	p.close(t)
	p = start(t, dir, 1)
	if _, err := p.Agent(t.Context(), "p", "a1", ""); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	p.close(t)
	p = start(t, dir, 1000)
	defer p.close(t)
	list, err := filepath.Glob(filepath.Join(dir, "erasures", "p", "*"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	p.Now = func() time.Time { // after the entry was read
		done := strings.NewReplacer(`"state":"asked"`, `"state":"done"`, `"agents":0`, `"agents":7`).Replace(entries(t, dir)[0])
		if err := os.WriteFile(list[0], []byte(done), 0o600); err != nil {
			t.Error(err)
		}
		return time.Now()
	}
	if _, err := p.Apply(t.Context(), false, 0); err != nil {
		t.Fatal(err)
	}
	n, err := p.Get(t.Context(), "p", filepath.Base(list[0]))
	if err != nil || n.Unfinished || n.Erased.Agents != 7 || strings.Contains(entries(t, dir)[0], "unfinished") {
		t.Errorf("noted %+v, error %v; the ledger has %s", n, err, entries(t, dir))
	}
}

// TestSettleImports: an import that begins while the ledger is applied after another one stays
// noted.
func TestSettleImports(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := func(id string) process {
		to, err := sqlite.OpenImporter(sqlite.Options{Path: filepath.Join(dir, "h.db")})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(erasure.BeginImport(t.Context(), to, id, 1), to.Close()); err != nil {
			t.Fatal(err)
		}
		return start(t, dir, 1000)
	}
	p := begin("one")
	seen, err := p.Imports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.close(t)
	p = begin("two")
	defer p.close(t)
	for _, tt := range []struct {
		settle []string
		left   int
	}{{seen, 2}, {append(seen, "two"), 0}} {
		if err := p.SettleImports(t.Context(), tt.settle); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Imports(t.Context()); err != nil || len(got) != tt.left {
			t.Errorf("noted %q, want %d of them; error %v", got, tt.left, err)
		}
	}
}
