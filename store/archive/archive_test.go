package archive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

// place is a folder that fails on demand.
type place struct {
	blob.Store
	mu   sync.Mutex
	put  func(b []byte) ([]byte, error) // nil stores what it is given
	open func() error                   // nil opens
	gone error                          // of Remove
}

func (p *place) PutBytes(ctx context.Context, name string, b []byte) error {
	if p.put != nil {
		var err error
		if b, err = p.put(b); err != nil || b == nil {
			return err
		}
	}
	return p.Store.PutBytes(ctx, name, b)
}

func (p *place) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if p.open != nil {
		if err := p.open(); err != nil {
			return nil, err
		}
	}
	return p.Store.Open(ctx, name)
}

func (p *place) Remove(ctx context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone != nil {
		return p.gone
	}
	return p.Store.Remove(ctx, name)
}

// rows is a store whose moves fail on demand.
type rows struct {
	archive.Rows
	note   error
	freeze func(do func() error) error
}

func (r *rows) NoteObject(ctx context.Context, o memory.ColdObject, now int64) error {
	if r.note != nil {
		return r.note
	}
	return r.Rows.NoteObject(ctx, o, now)
}

func (r *rows) Freeze(ctx context.Context, m memory.Move) error {
	if r.freeze != nil {
		return r.freeze(func() error { return r.Rows.Freeze(ctx, m) })
	}
	return r.Rows.Freeze(ctx, m)
}

// fixture is a store with one call that has ended.
type fixture struct {
	t     testing.TB
	dir   string
	place *place
	s     *store.SQLite
	rows  *rows
	k     *archive.Keeper
	now   time.Time
	call  memory.Agent
	want  []memory.Message
}

func newFixture(t testing.TB, messages int) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: filepath.Join(t.TempDir(), "archive"), now: time.UnixMilli(1_800_000_000_000)}
	folder, err := blob.Open(f.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.place = &place{Store: folder}
	a := archive.New(f.place)
	f.s, err = store.OpenArchivedSQLite(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "db"), SealKey: []byte("key")}, engine.Options{CacheBytes: 1}, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.s.Close() })
	f.rows = &rows{Rows: f.s.Rows()}
	f.k = f.keeper(a)
	f.call = memory.Agent{ID: "01900000-0000-7000-8000-000000000001", Project: "p", Status: memory.Stopped, StartMS: 1, StopMS: f.now.UnixMilli() - 5000, Message: memory.EndOK, Rev: 1}
	if _, _, err := f.s.Create(t.Context(), f.call, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		f.say(fmt.Sprintf("text %d of a call about ferries", i))
	}
	f.want = f.messages()
	return f
}

func (f *fixture) keeper(a *archive.Archive) *archive.Keeper {
	k := &archive.Keeper{Rows: f.rows, Archive: a, After: time.Second, Now: func() time.Time { return f.now }}
	k.Handle(job.New(job.Config{Store: f.s, Now: k.Now}))
	return k
}

func (f *fixture) say(text string) {
	f.t.Helper()
	err := f.s.Update(f.t.Context(), "p", f.call.ID, func(v memory.AgentView) (memory.Change, error) {
		h := v.Head()
		m := memory.Message{Seq: h.NextSeq, Rev: h.Rev + 1, ID: fmt.Sprint("id", h.NextSeq), Role: memory.User, Content: text, TurnID: h.LastTurn + 1}
		m.Amend(func(d *memory.Details) { d.Scope = memory.Scope{UserID: "ann"} })
		return memory.Change{Append: []memory.Message{m}}, nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) messages() []memory.Message {
	f.t.Helper()
	_, list, err := f.s.Recent(f.t.Context(), "p", f.call.ID, 5000, false)
	if err != nil {
		f.t.Fatal(err)
	}
	return list
}

func (f *fixture) move(want bool) {
	f.t.Helper()
	if done, err := f.k.Move(f.t.Context(), f.call.Ref()); err != nil || done != want {
		f.t.Fatalf("the move: %t, %v", done, err)
	}
}

// wantAll demands that the call reads as at the beginning, from a server that has just started.
func (f *fixture) wantAll(cold bool) {
	f.t.Helper()
	s := archive.NewStore(f.s.Rows(), archive.New(f.place))
	st, err := s.Load(f.t.Context(), "p", f.call.ID, 5000, memory.Version{})
	if err != nil {
		f.t.Fatal(err)
	}
	if diff := cmp.Diff(f.want, st.Tail); diff != "" || (st.Head.Agent.Cold != nil) != cold {
		f.t.Errorf("in the archive: %t, %s", st.Head.Agent.Cold != nil, diff)
	}
}

// objects returns the names of all files of the archive.
func (f *fixture) objects() (list []string) {
	f.t.Helper()
	names, err := filepath.Glob(filepath.Join(f.dir, "*", "*"))
	if err != nil {
		f.t.Fatal(err)
	}
	return names
}

func (f *fixture) sweep(want int) {
	f.t.Helper()
	if err := f.k.Sweep(f.t.Context()); err != nil {
		f.t.Error(err)
	}
	if got := f.objects(); len(got) != want {
		f.t.Errorf("after the sweep there are %q, want %d", got, want)
	}
}

var errNo = errors.New("no")

// TestMove: a call moves, reads as before, and comes back when it is changed.
func TestMove(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 30)
	f.move(true)
	f.wantAll(true)
	f.move(false) // it is there already
	for _, q := range []memory.MessageQuery{
		{Limit: 7}, {AfterSeq: 5, Limit: 3}, {AfterSeq: 29, Limit: 3}, {AfterSeq: 30, Limit: 3}, {AfterRev: 20, Limit: 100}, {IDs: []string{"id3", "id9", "none"}, Limit: 2}, {HistoryOnly: true, Limit: 4}, {Turn: new(int64(4))},
	} {
		got, err := f.s.Messages(t.Context(), "p", f.call.ID, q)
		if err != nil {
			t.Fatal(err)
		}
		var want []memory.Message
		for _, m := range f.want {
			byID := len(q.IDs) > 0 && (m.ID == "id3" || m.ID == "id9")
			byTurn := q.Turn != nil && m.TurnID == *q.Turn
			if byID || byTurn || len(q.IDs) == 0 && q.Turn == nil && m.Seq > q.AfterSeq && m.Rev > q.AfterRev && len(want) < q.Limit {
				want = append(want, m)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: %s", q, diff)
		}
	}
	items, _, err := f.s.Items(t.Context(), "p", memories.Query{Scope: memory.Scope{UserID: "ann"}, Limit: 100})
	if err != nil || len(items) != 30 || items[0].Message.Content != f.want[29].Content || items[0].Cold {
		t.Fatalf("%d items, %v", len(items), err)
	}
	if it, err := f.s.Item(t.Context(), "p", items[4].Row.ID); err != nil || it.Message.Content != f.want[25].Content {
		t.Errorf("%+v, %v", it, err)
	}
	f.say("and one more thing")
	f.want = append(f.want, f.messages()[30])
	f.wantAll(false)
	f.sweep(0)
	f.move(true)
	f.wantAll(true)
	f.sweep(1)
}

// TestMoveFails: whichever step fails, the rows stay where they were, and the next try succeeds.
func TestMoveFails(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*fixture){
		"the note": func(f *fixture) { f.rows.note = errNo },
		"the disk": func(f *fixture) { f.place.put = func([]byte) ([]byte, error) { return nil, errNo } },
		"a part":   func(f *fixture) { f.place.put = func(b []byte) ([]byte, error) { return b[:len(b)/2], nil } },
		"a bit": func(f *fixture) {
			f.place.put = func(b []byte) ([]byte, error) { return append([]byte{b[0] ^ 1}, b[1:]...), nil }
		},
		"more":    func(f *fixture) { f.place.put = func(b []byte) ([]byte, error) { return append(b, 0), nil } },
		"nothing": func(f *fixture) { f.place.put = func([]byte) ([]byte, error) { return nil, nil } },
		"reading": func(f *fixture) { f.place.open = func() error { return errNo } },
		"the end": func(f *fixture) { f.rows.freeze = func(func() error) error { return errNo } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 5)
			breaks(f)
			if done, err := f.k.Move(t.Context(), f.call.Ref()); err == nil || done {
				t.Fatalf("%t, %v", done, err)
			}
			f.rows.note, f.rows.freeze, f.place.put, f.place.open = nil, nil, nil, nil
			f.wantAll(false)
			f.move(true)
			f.wantAll(true)
			f.now = f.now.Add(25 * time.Hour)
			f.sweep(1)
			f.wantAll(true)
		})
	}
}

// TestMoveUnknown: a move whose commit succeeded without an answer is a move.
func TestMoveUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 5)
	f.rows.freeze = func(do func() error) error { return errors.Join(errNo, do()) }
	f.move(true)
	f.now = f.now.Add(25 * time.Hour)
	f.sweep(1)
	f.wantAll(true)
}

// TestMoveLate: a call that is changed while it moves stays, with the change.
func TestMoveLate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 5)
	f.rows.freeze = func(do func() error) error {
		f.say("late")
		return do()
	}
	f.move(false)
	f.want = f.messages()
	f.wantAll(false)
	if len(f.want) != 6 {
		t.Errorf("%d messages", len(f.want))
	}
	f.sweep(1) // in case the commit comes through yet
	f.now = f.now.Add(25 * time.Hour)
	f.sweep(0)
}

// TestMoveTwice: of two servers that move a call at the same time, one does, and the other's object
// goes.
func TestMoveTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	done := make([]bool, 4)
	var group sync.WaitGroup
	for i := range done {
		k := f.keeper(archive.New(f.place))
		group.Go(func() {
			var err error
			if done[i], err = k.Move(context.WithoutCancel(t.Context()), f.call.Ref()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	n := 0
	for _, d := range done {
		if d {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%v", done)
	}
	f.wantAll(true)
	f.now = f.now.Add(25 * time.Hour)
	f.sweep(1)
	f.wantAll(true)
}

// TestDamaged: an object that is missing, damaged or of another call is an error that names it, for
// every read and every change, and never a call without messages. The call can be erased.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(object string) error{
		"missing": os.Remove,
		"changed": func(object string) error {
			b, err := os.ReadFile(object)
			if err == nil {
				b[len(b)/2] ^= 4
				err = os.WriteFile(object, b, 0o600)
			}
			return err
		},
		"short": func(object string) error { return os.Truncate(object, 40) },
		"empty": func(object string) error { return os.Truncate(object, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 60)
			f.move(true)
			object := f.objects()[0]
			a := archive.New(f.place)
			fresh := engine.New(archive.NewStore(f.s.Rows(), a), engine.Options{})
			if err := damage(object); err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			_, _, recent := fresh.Recent(ctx, "p", f.call.ID, 10, false)
			_, page := fresh.Messages(ctx, "p", f.call.ID, memory.MessageQuery{Limit: 5})
			_, _, items := archive.NewStore(f.s.Rows(), a).Reads().Items(ctx, "p", memories.Query{Limit: 5})
			change := fresh.Update(ctx, "p", f.call.ID, func(memory.AgentView) (memory.Change, error) {
				return memory.Change{Agent: new(f.call)}, nil
			})
			exported := archive.Source{Reader: source{s: f.s}, Archive: a}.Export(ctx, export.Scope{}, func(export.Record) error { return nil })
			for what, err := range map[string]error{"recent": recent, "a page": page, "items": items, "a change": change, "an export": exported} {
				if !fault.Is(err, fault.Unavailable) || !errors.Is(err, memory.ErrArchive) || !strings.Contains(err.Error(), filepath.Base(object)) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := fresh.Erase(ctx, "p", f.call.ID); err != nil {
				t.Error(err)
			}
			f.sweep(0)
		})
	}
}

// source exports the raw rows of a store.
type source struct {
	archive.Reader
	s *store.SQLite
}

// Export implements export.Source.
func (s source) Export(ctx context.Context, _ export.Scope, each func(export.Record) error) error {
	page, err := s.s.Agents(ctx, memory.AgentQuery{Project: "p", Limit: 10})
	for _, h := range page.Heads {
		if err == nil {
			err = each(export.Record{Agent: &export.Agent{Agent: *h.Agent}})
		}
	}
	return err
}

// TestErase: an erased call is gone even while its object cannot be deleted, which is tried again.
func TestErase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 5)
	f.move(true)
	f.place.mu.Lock()
	f.place.gone = errNo
	f.place.mu.Unlock()
	if err := f.s.Erase(t.Context(), "p", f.call.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.s.Messages(t.Context(), "p", f.call.ID, memory.MessageQuery{Limit: 5}); !fault.Is(err, fault.NotFound) {
		t.Errorf("an erased call reads: %v", err)
	}
	if err := f.k.Sweep(t.Context()); !errors.Is(err, errNo) || len(f.objects()) != 1 {
		t.Errorf("%q, %v", f.objects(), err)
	}
	f.place.mu.Lock()
	f.place.gone = nil
	f.place.mu.Unlock()
	f.sweep(0)

	// Retention erases calls by their age.
	g := newFixture(t, 5)
	g.move(true)
	if n, err := g.s.Sweep(t.Context(), g.now.UnixMilli(), 10); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	g.sweep(0)
}

// TestSealed: an object has no word of the call in it, and its name none of the project.
func TestSealed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 5)
	f.move(true)
	b, err := os.ReadFile(f.objects()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"ferries", "text", "message", "ann"} {
		if strings.Contains(string(b), word) {
			t.Errorf("the object has %q in it", word)
		}
	}
}
