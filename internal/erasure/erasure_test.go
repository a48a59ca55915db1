package erasure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

var errKilled = errors.New("the process was killed")

// life ends after a number of writes: from then on none succeeds, as in a process that was killed.
type life struct{ left int }

func (l *life) write() error {
	if l.left--; l.left < 0 {
		return errKilled
	}
	return nil
}

// mortalStore is a store of a process that may be killed.
type mortalStore struct {
	*store.SQLite
	life *life
}

func (m mortalStore) ChangeRecords(ctx context.Context, s record.Space, changes []record.Change, limit record.Limit, events []memory.Event, nowMS int64) (record.State, error) {
	if err := m.life.write(); err != nil {
		return record.State{}, err
	}
	return m.SQLite.ChangeRecords(ctx, s, changes, limit, events, nowMS)
}

func (m mortalStore) EraseRecords(ctx context.Context, project, user, prefix string) (int, error) {
	if err := m.life.write(); err != nil {
		return 0, err
	}
	return m.SQLite.EraseRecords(ctx, project, user, prefix)
}

func (m mortalStore) Erase(ctx context.Context, project, id string) error {
	if err := m.life.write(); err != nil {
		return err
	}
	return m.SQLite.Erase(ctx, project, id)
}

// mortalPlace is the place of a ledger of such a process.
type mortalPlace struct {
	blob.Store
	life *life
}

func (m mortalPlace) PutBytes(ctx context.Context, name string, b []byte) error {
	if err := m.life.write(); err != nil {
		return err
	}
	return m.Store.PutBytes(ctx, name, b)
}

func (m mortalPlace) Remove(ctx context.Context, name string) error {
	if err := m.life.write(); err != nil {
		return err
	}
	return m.Store.Remove(ctx, name)
}

type noEvents struct{}

func (noEvents) Wants(string, int) bool                { return false }
func (noEvents) FactBody(facts.Notice) ([]byte, error) { return nil, nil }

// process is what a process has open: a store, and a service that erases there.
type process struct {
	*erasure.Service
	store *store.SQLite
	holds *hold.Service
}

// start opens the store and the ledger in a folder, for so many writes.
func start(t *testing.T, dir string, writes int) process {
	t.Helper()
	return startAt(t, dir, filepath.Join(dir, "erasures"), os.Getenv, writes)
}

// startAt is start with the ledger elsewhere.
func startAt(t *testing.T, dir, at string, getenv func(string) string, writes int) process {
	t.Helper()
	s, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: filepath.Join(dir, "h.db")}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	place, err := blob.Open(at, getenv)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{writes}
	m := mortalStore{s, l}
	newID := func() string { return uuid.Must(uuid.NewV7()).String() }
	callers := &caller.Service{Records: m, Ledger: m, Now: time.Now, Key: []byte("key")}
	holds := &hold.Service{Records: s, Now: time.Now, NewID: newID, Names: callers.Names}
	service := agents.NewService(agents.Config{Ledger: m, Now: time.Now, Held: func(ctx context.Context, h *memory.Head) error { return holds.CheckAgent(ctx, h) }})
	callers.Items = memories.Service{Holds: holds, Memory: service, Ledger: m, Store: s, Records: m}
	return process{&erasure.Service{
		Ledger: erasure.NewLedger(mortalPlace{place, l}), Records: m, Agents: service.Agents, Callers: callers, Items: callers.Items, Keys: s, Values: s, Webhooks: &webhook.Service{Store: s},
		Facts: facts.NewService(facts.Config{Store: m, Upkeep: m, Ledger: m, Items: s, Callers: callers, Now: time.Now, NewID: newID, Events: noEvents{}, Count: func(string, string) {}}),
		Now:   time.Now, NewID: newID,
	}, s, holds}
}

func (p process) close(t *testing.T) {
	t.Helper()
	if err := p.store.Close(); err != nil {
		t.Fatal(err)
	}
}

// fill stores two calls and a fact of anna, and one call of ben.
func fill(t *testing.T, p process) {
	t.Helper()
	for id, user := range map[string]string{"a1": "anna", "a2": "anna", "b1": "ben"} {
		p.call(t, id, user, time.Now())
	}
	at := record.Space{Project: "p", Name: "fact", User: "anna"}
	if _, err := p.store.ChangeRecords(t.Context(), at, []record.Change{{ID: "f", Body: []byte(`{"id":"f","state":"active","source":{"agent_id":"a1"}}`)}}, record.Limit{}, nil, time.Now().UnixMilli()); err != nil {
		t.Fatal(err)
	}
}

func (p process) call(t *testing.T, id, user string, at time.Time) {
	t.Helper()
	a := memory.Agent{ID: id, Project: "p", Status: memory.Running, StartMS: at.UnixMilli(), Rev: 1}
	a.Settings.Scope.UserID = user
	if _, _, err := p.store.Create(t.Context(), a, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
}

// left returns which of the calls and facts there are.
func (p process) left(t *testing.T) string {
	t.Helper()
	var out []string
	for _, id := range []string{"a1", "a2", "a3", "b1"} {
		_, err := p.store.Head(t.Context(), "p", id)
		if err == nil {
			out = append(out, id)
		} else if !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
	}
	if _, err := p.store.Record(t.Context(), record.Space{Project: "p", Name: "fact", User: "anna"}, "f"); err == nil {
		out = append(out, "f")
	}
	return strings.Join(out, " ")
}

// entries returns the objects of the ledger's entries in a folder.
func entries(t *testing.T, dir string) (out []string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "erasures", "p", "*"))
	for _, path := range list {
		var b []byte
		if b, err = os.ReadFile(path); err == nil {
			out = append(out, string(b))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestKilled: a process that is killed after any of its writes has either erased nothing and never
// will, or has erased all after the next start.
func TestKilled(t *testing.T) {
	t.Parallel()
	all := "a1 a2 b1 f"
	for kind, tt := range map[string]struct {
		erase func(context.Context, process) error
		want  string
	}{
		"agent":   {func(ctx context.Context, p process) error { _, err := p.Agent(ctx, "p", "a1", "key"); return err }, "a2 b1"},
		"user":    {func(ctx context.Context, p process) error { _, _, err := p.User(ctx, "p", "anna", "key"); return err }, "b1"},
		"project": {func(ctx context.Context, p process) error { _, err := p.Project(ctx, "p", "key"); return err }, ""},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for writes := range 100 {
				dir := t.TempDir()
				p := start(t, dir, 1000)
				fill(t, p)
				p.close(t)
				p = start(t, dir, writes)
				erased := tt.erase(t.Context(), p)
				was := p.left(t)
				p.close(t)
				asked := len(entries(t, dir)) == 1
				if !asked && was != all {
					t.Fatalf("after %d writes %q are left, and the ledger does not say so", writes, was)
				}
				p = start(t, dir, 1000)
				if _, err := p.Apply(t.Context(), false, 0); err != nil {
					t.Fatal(err)
				}
				got, want := p.left(t), all
				if asked {
					want = tt.want
				}
				if got != want {
					t.Errorf("after %d writes and the next start: %q, want %q", writes, got, want)
				}
				list, _, err := p.List(t.Context(), "p", "", 10)
				if err != nil || asked != (len(list) == 1) {
					t.Errorf("after %d writes the store has noted %v, error %v", writes, list, err)
				}
				for _, e := range entries(t, dir) {
					if !strings.Contains(e, `"state":"done"`) {
						t.Errorf("after %d writes the ledger has %s", writes, e)
					}
				}
				again, err := p.Apply(t.Context(), false, 0)
				if err != nil || again != (erasure.Applied{}) {
					t.Errorf("applied once more: %v %v", again, err)
				}
				p.close(t)
				if erased == nil {
					if writes < 3 {
						t.Errorf("there were only %d writes", writes)
					}
					return
				}
			}
			t.Error("it never came to an end")
		})
	}
}

// TestHolds: an erasure that a hold refuses leaves the ledger, even if the process was killed
// before it could say so. One that was done, and whose data came back under a hold, waits for its
// end.
func TestHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, 1000)
	fill(t, p)
	target := hold.Target{User: "anna"}
	if _, err := p.holds.Set(t.Context(), "p", target, "case 1", "", ""); err != nil {
		t.Fatal(err)
	}
	p.close(t)
	backup, err := os.ReadFile(filepath.Join(dir, "h.db"))
	if err != nil {
		t.Fatal(err)
	}
	for writes := range 3 {
		p = start(t, dir, writes)
		if _, _, err := p.User(t.Context(), "p", "anna", ""); err == nil {
			t.Fatal("erased under hold")
		}
		p.close(t)
		p = start(t, dir, 1000)
		asked, dropped := len(entries(t, dir)), 0
		p.Dropped = func(string, string) { dropped++ }
		if _, err := p.Apply(t.Context(), false, 0); err != nil || dropped != asked {
			t.Fatalf("dropped %d of %d, error %v", dropped, asked, err)
		}
		if list := entries(t, dir); len(list) > 0 || p.left(t) != "a1 a2 b1 f" {
			t.Errorf("after %d writes: the ledger has %q, and %s are left", writes, list, p.left(t))
		}
		p.close(t)
	}
	p = start(t, dir, 1000)
	if _, err := p.holds.Lift(t.Context(), "p", target); err != nil {
		t.Fatal(err)
	}
	e, _, err := p.User(t.Context(), "p", "anna", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.User(t.Context(), "p", "ben", ""); err != nil { // whom no hold keeps
		t.Fatal(err)
	}
	p.close(t)
	if err := os.WriteFile(filepath.Join(dir, "h.db"), backup, 0o600); err != nil { // a restore
		t.Fatal(err)
	}
	p = start(t, dir, 1000)
	defer p.close(t)
	for _, want := range []struct {
		held bool
		left string
	}{{true, "a1 a2 f"}, {false, ""}} {
		if _, err := p.Apply(t.Context(), false, 0); err != nil {
			t.Fatal(err)
		}
		n, err := p.Get(t.Context(), "p", e.ID)
		if err != nil || n.Held != want.held || p.left(t) != want.left {
			t.Errorf("held %t, want %t; %s are left; error %v", n.Held, want.held, p.left(t), err)
		}
		where, remains := p.Receipt(t.Context(), &n)
		if held := remains[0].What == "hold" && where[0].State == "held"; held != want.held {
			t.Errorf("the receipt: %v %v", where, remains)
		}
		if want.held {
			if _, err := p.holds.Lift(t.Context(), "p", target); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBucket: a ledger in a bucket is applied to another store, and copied to a folder.
func TestBucket(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0)).Server())
	t.Cleanup(srv.Close)
	at := "s3://bucket/some/ledger?region=r-1&path-style=true&endpoint=" + srv.URL
	getenv := func(string) string { return "hidden" }
	restored, dir := t.TempDir(), t.TempDir()
	for _, dir := range []string{restored, dir} {
		p := start(t, dir, 1000)
		fill(t, p)
		p.close(t)
	}
	p := startAt(t, dir, at, getenv, 1000)
	if _, _, err := p.User(t.Context(), "p", "anna", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Agent(t.Context(), "p", "b1", ""); err != nil {
		t.Fatal(err)
	}
	p.close(t)
	from, err := blob.Open(at, getenv)
	if err != nil {
		t.Fatal(err)
	}
	p = start(t, restored, 1000)
	defer p.close(t)
	for _, want := range []int{2, 0} {
		if n, err := p.Ledger.Copy(t.Context(), erasure.NewLedger(from)); n != want || err != nil {
			t.Errorf("copied %d, want %d: %v", n, want, err)
		}
	}
	if done, err := p.Apply(t.Context(), false, 0); err != nil || done.Again != 2 || p.left(t) != "" {
		t.Errorf("applied %v; %s are left: %v", done, p.left(t), err)
	}
}

// TestNoLedger: an erasure whose ledger cannot be written erases nothing.
func TestNoLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, dir, 1000)
	defer p.close(t)
	fill(t, p)
	if err := os.WriteFile(filepath.Join(dir, "erasures"), nil, 0o600); err != nil { // in the folder's place
		t.Fatal(err)
	}
	_, err := p.Agent(t.Context(), "p", "a1", "")
	_, _, err2 := p.User(t.Context(), "p", "anna", "")
	_, err3 := p.Project(t.Context(), "p", "")
	for _, err := range []error{err, err2, err3} {
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(fmt.Sprint(err), "HEARDLOG_ERASURES") {
			t.Errorf("error %v", err)
		}
	}
	if got := p.left(t); got != "a1 a2 b1 f" {
		t.Errorf("%s are left", got)
	}
}
