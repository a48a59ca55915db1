package away_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/store/sqlite"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/away"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/storetest"
)

// disk is a store in memory that fails as a test wants.
type disk struct {
	*sqlite.Store
	mu   sync.Mutex
	fail string
}

// How a disk fails.
const (
	refuses = "refuses" // nothing is written
	answers = "answers" // it is written, and the answer is lost
	hangs   = "hangs"   // until its context ends
)

var errDisk = fault.New(fault.Unavailable, "the disk fails")

func (d *disk) set(fail string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fail
}

func (d *disk) how() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fail
}

// Apply implements memory.Store.
func (d *disk) Apply(ctx context.Context, batch []memory.Write) ([]error, error) {
	switch d.how() {
	case refuses:
		return nil, errDisk
	case hangs:
		<-ctx.Done()
		return nil, fault.Ended(ctx)
	case answers:
		_, err := d.Store.Apply(ctx, batch)
		return nil, errors.Join(errDisk, err)
	}
	return d.Store.Apply(ctx, batch)
}

// Ping implements memory.Store.
func (d *disk) Ping(ctx context.Context) error {
	if d.how() != "" {
		return errDisk
	}
	return d.Store.Ping(ctx)
}

// house is an engine over a disk, with what keeps its turns.
type house struct {
	*away.Keeper
	t       testing.TB
	ledger  *engine.Engine
	disk    *disk
	path    string
	file    *away.File
	counts  map[string]int
	mu      sync.Mutex
	outages []string
	joined  map[string]string // labels of the agent that was created
}

const project, id = "p", "a"

func newHouse(t testing.TB) *house {
	t.Helper()
	d := &disk{Store: storetest.New(t).Store}
	h := &house{t: t, disk: d, ledger: engine.New(d, engine.Options{Remember: true}), path: filepath.Join(t.TempDir(), "kept")}
	if _, _, err := h.ledger.Create(t.Context(), memory.Agent{ID: id, Project: project, Status: memory.Running, StartMS: 1, Rev: 1}, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	h.open()
	t.Cleanup(func() { _ = h.file.Close(); _ = h.ledger.Close() })
	return h
}

// open begins with the file as it is, as the next start of the server does.
func (h *house) open() {
	h.t.Helper()
	if h.file != nil {
		if err := h.file.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
	var err error
	if h.file, err = away.OpenFile(h.path); err != nil {
		h.t.Fatal(err)
	}
	h.counts, h.outages = map[string]int{}, nil
	h.Keeper = away.New(away.Config{
		Ledger: h.ledger, Known: h.ledger.Known, Store: h.ledger.Update, File: h.file,
		Join: func(ctx context.Context, project, id string, labels map[string]string) error {
			h.joined = labels
			_, _, err := h.ledger.Create(ctx, memory.Agent{ID: id, Project: project, Status: memory.Running, StartMS: 1, Rev: 1}, 0, memory.Change{})
			return errors.Join(err, h.Ready(ctx, project, id))
		},
		Report: func(cause error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.outages = append(h.outages, fmt.Sprint(cause != nil))
		},
		OnError: func(what, _, _ string, err error) { h.t.Log(what, err) },
		Count: func(event string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.counts[event]++
		},
	})
}

// says returns a decision that appends a user's words and keeps a place for the answer.
func says(words string, at int64, seq *int64) memory.Decision {
	return func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		m, err := h.Place(memory.Message{Role: memory.User, Content: words, Timestamp: at}, h.Rev+1, at, false)
		m.AnswerSeq = m.Seq + 1
		*seq = m.AnswerSeq
		return memory.Change{Append: []memory.Message{m}}, err
	}
}

// answers returns a decision that stores an answer at its place.
func answer(words string, at, seq int64) memory.Decision {
	return func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		question, err := view.Seq(seq - 1)
		return memory.Change{Append: []memory.Message{{
			Seq: seq, Rev: h.Rev + 1, TurnID: question.TurnID, TurnHasUser: true, Role: memory.Assistant, Source: memory.SourceLLM, Content: words, Timestamp: at,
		}}}, err
	}
}

// begin begins a turn and waits until it is stored or kept. It returns the place of its answer.
func (h *house) begin(words string, at int64) (seq int64, passed bool) {
	h.t.Helper()
	kept, later := make(chan error, 1), false
	early, passed, err := h.Update(h.t.Context(), project, id, says(words, at, &seq), true, func(p bool, err error) {
		later = p
		kept <- err
	})
	if early {
		err = <-kept
		passed = later
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return seq, passed
}

func (h *house) end(words string, at, seq int64) {
	h.t.Helper()
	if _, _, err := h.Update(h.t.Context(), project, id, answer(words, at, seq), false, nil); err != nil {
		h.t.Fatal(err)
	}
}

// turn plays a whole turn.
func (h *house) turn(words string, at int64) (passed bool) {
	h.t.Helper()
	seq, passed := h.begin(words, at)
	h.end("re: "+words, at+1, seq)
	if passed {
		h.Release(project, id)
	}
	return passed
}

func (h *house) ledgerTexts() (out []string) {
	h.t.Helper()
	list, err := h.ledger.Messages(h.t.Context(), project, id, memory.MessageQuery{Limit: 1000})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, m := range list {
		out = append(out, fmt.Sprintf("%d %d %s @%d", m.Seq, m.TurnID, m.Content, m.Timestamp))
	}
	return out
}

func (h *house) is(want ...string) {
	h.t.Helper()
	if d := cmp.Diff(want, h.ledgerTexts()); d != "" {
		h.t.Errorf("the ledger (-want +got):\n%s", d)
	}
}

func (h *house) counted(want map[string]int) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := cmp.Diff(want, h.counts); d != "" {
		h.t.Errorf("counted (-want +got):\n%s", d)
	}
}

// back waits until the store is known to be back and has all that was kept.
func (h *house) back() {
	h.t.Helper()
	h.disk.set("")
	ctx, stop := context.WithCancel(h.t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	time.Sleep(15 * time.Second) // in fake time; a commit that hangs holds up the others for 10
	stop()
	if err := <-done; err != nil {
		h.t.Fatal(err)
	}
	if err := h.Ready(h.t.Context(), project, id); err != nil {
		h.t.Errorf("when the store is back: %v", err)
	}
}

// TestInPlace: whatever the outage, a turn goes on at once or within two seconds, and is stored
// once at its place, with its time.
func TestInPlace(t *testing.T) {
	t.Parallel()
	for _, fail := range []string{refuses, answers, hangs} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprint(fail, " killed ", kill), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					h := newHouse(t)
					if h.turn("one", 1000) {
						t.Error("it passed a store that works")
					}
					h.disk.set(fail)
					began := time.Now()
					for i, words := range []string{"two", "three"} {
						if !h.turn(words, int64(2000+1000*i)) {
							t.Errorf("%s did not pass", words)
						}
					}
					if took := time.Since(began); took > 2*time.Second+time.Millisecond {
						t.Errorf("two turns took %v", took)
					}
					if err := h.Ready(t.Context(), project, id); fault.CodeOf(err) != fault.Unavailable {
						t.Errorf("another change: %v", err)
					}
					h.counted(map[string]int{away.Passed: 2, away.Kept: 2})
					if kill {
						time.Sleep(time.Minute) // in fake time; the store gives up what hangs
						h.open()
					}
					h.back()
					h.is("1 0 one @1000", "2 0 re: one @1001", "3 1 two @2000", "4 1 re: two @2001", "5 2 three @3000", "6 2 re: three @3001")
					if kill {
						h.counted(map[string]int{away.Stored: 2})
					} else {
						h.counted(map[string]int{away.Passed: 2, away.Kept: 2, away.Stored: 2})
						if !slices.Equal(h.outages, []string{"true", "false"}) {
							t.Errorf("reported %v", h.outages)
						}
					}
					h.open() // nothing is left in the file
					h.back()
					if h.turn("four", 9000) {
						t.Error("it passed a store that is back")
					}
					if n := len(h.ledgerTexts()); n != 8 {
						t.Errorf("%d messages", n)
					}
				})
			})
		}
	}
}

// TestAnswerOnly: the store fails between the question and the answer, whose place stays its own.
func TestAnswerOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		seq, passed := h.begin("one", 1000)
		if passed {
			t.Error("it passed a store that works")
		}
		h.disk.set(refuses)
		h.end("re: one", 1001, seq)
		h.disk.set("")
		h.other("later", 5000)
		h.back()
		h.is("1 0 one @1000", "2 0 re: one @1001", "3 0 later @5000")
	})
}

// other stores a user message as another server does.
func (h *house) other(words string, at int64) {
	h.t.Helper()
	var seq int64
	if err := h.ledger.Update(h.t.Context(), project, id, says(words, at, &seq)); err != nil {
		h.t.Fatal(err)
	}
}

// TestLate: something newer was stored meanwhile. The kept turn is appended, with its time, and
// what is there already is not doubled, even if the server is killed before it notes that it has
// stored it.
func TestLate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		others []string
		want   []string
	}{
		"new":        {[]string{"newer"}, []string{"3 1 newer @5000", "5 1 two @2000", "6 1 re: two @2001"}},
		"the same":   {[]string{"two"}, []string{"3 1 two @5000", "5 1 re: two @2001"}},
		"twice same": {[]string{"two", "two"}, []string{"3 1 two @5000", "5 1 two @5000", "7 1 re: two @2001"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				h.turn("one", 1000)
				h.disk.set(refuses)
				h.turn("two", 2000)
				h.disk.set("")
				for _, words := range tt.others {
					h.other(words, 5000)
				}
				h.disk.set(answers) // it is stored, and that is not learnt
				_ = h.Ready(t.Context(), project, id)
				h.open()
				_ = h.Ready(t.Context(), project, id)
				h.open()
				h.back()
				h.is(append([]string{"1 0 one @1000", "2 0 re: one @1001"}, tt.want...)...)
				h.counted(map[string]int{away.Late: 1})
			})
		})
	}
}

// TestHeld: nothing of an agent is stored while a turn of it goes on, so that its answer has its
// place.
func TestHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.disk.set(refuses)
		seq, _ := h.begin("one", 1000)
		h.disk.set("")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		time.Sleep(time.Minute) // in fake time: a held turn is not stored meanwhile
		h.is()
		h.end("re: one", 1001, seq)
		h.Release(project, id)
		time.Sleep(3 * time.Second) // in fake time: the store is asked each second
		h.is("1 0 one @1000", "2 0 re: one @1001")
		stop()
		<-done
	})
}

// TestFileFull: what does not fit into the file goes on, and is stored unless the server stops.
func TestFileFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.disk.set(refuses)
		long := string(make([]byte, away.FileBytes/3))
		h.turn(long, 1000)
		h.turn("two", 2000)
		h.counted(map[string]int{away.Passed: 2, away.Kept: 1, away.NotKept: 1})
		h.back()
		if got := h.ledgerTexts(); len(got) != 4 {
			t.Errorf("%d messages", len(got))
		}
	})
}

// TestRefused: an agent that has ended takes no turns, one that is not known passes none, and what
// is kept of one that was erased is dropped.
func TestRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.disk.set(refuses)
		h.turn("one", 1000)
		want := fault.New(fault.Stopped, "it has ended")
		_, _, err := h.Update(t.Context(), project, id, func(memory.AgentView) (memory.Change, error) { return memory.Change{}, want }, false, nil)
		if !errors.Is(err, want) {
			t.Errorf("a decision that refuses: %v", err)
		}
		var seq int64
		if _, _, err := h.Update(t.Context(), project, "unknown", says("one", 1, &seq), true, nil); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("an unknown agent: %v", err)
		}
		h.disk.set("")
		if err := h.ledger.Erase(t.Context(), project, id); err != nil {
			t.Fatal(err)
		}
		h.back()
		h.counted(map[string]int{away.Passed: 1, away.Kept: 1, away.Dropped: 1})
	})
}

// TestSecondServer: two servers cannot have one file.
func TestSecondServer(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	if f, err := away.OpenFile(h.path); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("opened %v, %v", f, err)
	}
}

// TestExpected: an agent that is first named while the store is away is created when it is back,
// also by the next start.
func TestExpected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.disk.set(refuses)
		h.turn("one", 1000)
		if !h.Expect(memory.Agent{ID: "new", Project: project, Status: memory.Running, Rev: 1, Settings: memory.Settings{Labels: map[string]string{"shop": "5"}}}, nil) {
			t.Fatal("the store is away")
		}
		if _, _, err := h.Update(t.Context(), project, "new", func(memory.AgentView) (memory.Change, error) {
			return memory.Change{}, errDisk // a decision that comes again
		}, true, nil); !errors.Is(err, errDisk) {
			t.Error(err)
		}
		var seq int64
		_, passed, err := h.Update(t.Context(), project, "new", says("two", 2000, &seq), true, nil)
		if err != nil || !passed {
			t.Fatalf("passed %v, %v", passed, err)
		}
		h.open()
		h.disk.set("")
		h.back()
		list, err := h.ledger.Messages(t.Context(), project, "new", memory.MessageQuery{Limit: 10})
		if err != nil || len(list) != 1 || h.joined["shop"] != "5" {
			t.Errorf("%v, %v, labels %v", list, err, h.joined)
		}
	})
}
