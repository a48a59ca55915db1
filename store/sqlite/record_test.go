package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
)

var helperSpace = record.Space{Project: "p", Name: "fact", User: "u"}

// helpRecords changes records with several callers at once and prints each acknowledged revision
// with the ID that it stored, until the process is killed. Each change has two records and an
// event.
func helpRecords(ctx context.Context, s *store.SQLite) error {
	var out sync.Mutex
	errs := make(chan error)
	run := rand.Uint64()
	body := bytes.Repeat([]byte("x"), 100<<10)
	for w := range helperAgents {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", run, w, i)
				changes := []record.Change{{ID: id, Body: body[:rand.IntN(len(body))]}, {ID: id + "+", Body: []byte{}}}
				ev := memory.Event{ID: id, Type: event.Left, CreatedMS: 1, Body: []byte(id)}
				st, err := s.ChangeRecords(ctx, helperSpace, changes, record.Limit{}, []memory.Event{ev}, 1)
				if err != nil {
					errs <- err
					return
				}
				out.Lock()
				fmt.Println("ack", st.Rev, id)
				out.Unlock()
			}
		}()
	}
	return <-errs
}

// TestKillRecords kills a process that changes records, again and again, and looks for what it had
// acknowledged.
func TestKillRecords(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "k.db")
	acked := map[string]int64{}
	for range 6 {
		cmd, lines := startHelper(t, path, "records")
		last := 10 + rand.IntN(50)
		for n := 0; lines.Scan(); n++ {
			if n == last {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			var rev int64
			var id string
			if _, err := fmt.Sscanf(lines.Text(), "ack %d %s", &rev, &id); err != nil || strings.Count(id, "-") != 2 {
				break // a line cut by the kill
			}
			acked[id] = rev
		}
		_ = cmd.Wait()
	}
	s := open(t, sqlite.Options{Path: path})
	stored := map[string]int64{}
	var state record.State
	for after := int64(0); ; {
		list, st, err := s.Records(t.Context(), helperSpace, record.Query{ByRev: true, AfterRev: after, Limit: 50})
		if err != nil {
			t.Fatal(err)
		}
		if state = st; len(list) == 0 {
			break
		}
		for _, r := range list {
			stored[r.ID], after = r.Rev, r.Rev
		}
	}
	lost := 0
	for id, rev := range acked {
		if got, pair := stored[id], stored[id+"+"]; pair != got || got < rev || got == 0 {
			lost++
		}
	}
	if lost > 0 || len(acked) < 6*10 {
		t.Errorf("%d of %d acknowledged changes are lost", lost, len(acked))
	}
	if int64(len(stored)) != 2*state.Rev || state.Count != 2*state.Rev {
		t.Errorf("%d records are stored, the state is %+v", len(stored), state)
	}
	if b, err := s.Backlog(t.Context()); err != nil || int64(b.Pending) != state.Rev {
		t.Errorf("%d deliveries of %d changes: %v", b.Pending, state.Rev, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantNoFindings(t, path)
}

// TestRecordsAtRest: bodies are plain without a key and sealed once there is one, also those of
// before; and no record's bytes can be read as another's.
func TestRecordsAtRest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.db")
	const body = `{"text":"what is known"}`
	at := record.Space{Project: "p", Name: "fact", User: "u"}
	readable := func() bool {
		for _, suffix := range []string{"", "-wal"} {
			if b, err := os.ReadFile(path + suffix); err == nil && bytes.Contains(b, []byte("what is known")) {
				return true
			}
		}
		return false
	}
	set := func(s *store.SQLite, id string) {
		t.Helper()
		if _, err := s.ChangeRecords(t.Context(), at, []record.Change{{ID: id, Body: []byte(body), If: record.Any}}, record.Limit{}, nil, 1); err != nil {
			t.Fatal(err)
		}
	}
	want := func(s *store.SQLite, id string) {
		t.Helper()
		if r, err := s.Record(t.Context(), at, id); err != nil || string(r.Body) != body {
			t.Errorf("%s: %q, %v", id, r.Body, err)
		}
	}
	s := open(t, sqlite.Options{Path: path})
	set(s, "a")
	set(s, "b")
	set(s, "gone")
	if _, err := s.ChangeRecords(t.Context(), at, []record.Change{{ID: "gone", If: record.Any}}, record.Limit{}, nil, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !readable() {
		t.Fatal("the search itself finds nothing in a plain file")
	}
	sealed := sqlite.Options{Path: path, SealKey: []byte("key")}
	s = open(t, sealed)
	want(s, "a")
	set(s, "c")
	if readable() {
		t.Error("readable after sealing")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if readable() {
		t.Error("readable when closed")
	}
	rawSQL(t, path, "UPDATE record SET body = (SELECT body FROM record WHERE id = 'c') WHERE id = 'a'")
	s = open(t, sealed)
	want(s, "b")
	want(s, "c")
	if _, err := s.Record(t.Context(), at, "a"); !fault.Is(err, fault.Internal) {
		t.Errorf("another's bytes were read: %v", err)
	}
}

// TestLargeRecords: of large changes that wait, a commit has one, so that agents do not wait for
// all of them.
func TestLargeRecords(t *testing.T) {
	t.Parallel()
	const changes = 12
	held, release := make(chan struct{}), make(chan struct{})
	var hold sync.Once
	var mu sync.Mutex
	commits := 0
	s := open(t, sqlite.Options{Observe: func(sqlite.Commit) {
		hold.Do(func() { close(held); <-release }) // the first commit keeps the turn
		mu.Lock()
		commits++
		mu.Unlock()
	}})
	var wg sync.WaitGroup
	body := make([]byte, 256<<10)
	for i := range changes {
		wg.Go(func() {
			at := record.Space{Project: "p", Name: "fact", User: fmt.Sprint(i)}
			if _, err := s.ChangeRecords(t.Context(), at, []record.Change{{ID: "a", Body: body}}, record.Limit{}, nil, 1); err != nil {
				t.Error(err)
			}
		})
	}
	<-held
	close(release)
	wg.Wait()
	if commits != changes {
		t.Errorf("%d large changes were stored in %d commits", changes, commits)
	}
}

// wantNoFindings probes a database file.
func wantNoFindings(t *testing.T, path string) {
	t.Helper()
	r, err := sqlite.OpenReader(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Probe(t.Context(), func(f export.Finding) error { t.Error(f.What); return nil }); err != nil {
		t.Fatal(err)
	}
}
