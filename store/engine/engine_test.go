package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/store/sqlite"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/storetest"
)

// disk is a store in memory whose commits wait for the test, or fail.
type disk struct {
	*sqlite.Store
	mu      sync.Mutex
	gate    chan error // if not nil, each commit waits for its outcome
	takes   time.Duration
	sizes   []int // of the commits so far
	commits atomic.Int64
	pages   atomic.Int64
}

func (d *disk) Page(ctx context.Context, no int64, q memory.MessageQuery) ([]memory.Message, error) {
	d.pages.Add(1)
	return d.Store.Page(ctx, no, q)
}

func (d *disk) hold() chan error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate = make(chan error)
	return d.gate
}

func (d *disk) Apply(ctx context.Context, batch []memory.Write) ([]error, error) {
	d.commits.Add(1)
	d.mu.Lock()
	gate := d.gate
	d.sizes = append(d.sizes, len(batch))
	d.mu.Unlock()
	time.Sleep(d.takes) // in fake time; 0 elsewhere
	if gate != nil {
		if err := <-gate; err != nil {
			return nil, err
		}
	}
	return d.Store.Apply(ctx, batch)
}

func agent(n int) memory.Agent {
	return memory.Agent{ID: fmt.Sprintf("agent-%03d", n), Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}
}

func open(t *testing.T, o engine.Options, agents int) (*engine.Engine, *disk) {
	t.Helper()
	d := &disk{Store: storetest.New(t).Store}
	e := engine.New(d, o)
	t.Cleanup(func() { _ = e.Close() }) // ends what waits for more writes
	for n := range agents {
		if _, _, err := e.Create(t.Context(), agent(n), 0, memory.Change{}); err != nil {
			t.Fatal(err)
		}
	}
	return e, d
}

func says(text string) memory.Decision {
	return func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		return memory.Change{Append: []memory.Message{{
			Seq: h.NextSeq, Rev: h.Rev + 1, Role: memory.User, Content: text, TurnID: h.LastTurn + 1,
		}}}, nil
	}
}

func texts(t *testing.T, e memory.Ledger, n int) (out []string) {
	t.Helper()
	_, list, err := e.Recent(t.Context(), "p", agent(n).ID, 100, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		out = append(out, m.Content)
	}
	return out
}

// TestLedger runs the contract of ledgers with one commit under way, with several, and as one of
// several processes.
func TestLedger(t *testing.T) {
	for name, o := range map[string]engine.Options{
		"Single": {}, "Committers": {Committers: 4}, "Shared": {Shared: true, Committers: 2}, "NoCache": {CacheBytes: 1}, "SharedNoCache": {Shared: true, CacheBytes: 1},
		"OneByOne": {MaxGroup: 1},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) memory.Ledger {
				return engine.New(storetest.Shared{Store: storetest.New(t).Store}, o)
			})
		})
	}
}

// TestGroup: what is queued while a commit is under way shares the next one.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 20
		e, d := open(t, engine.Options{MaxGroup: 16}, callers)
		gate := d.hold()
		var wg sync.WaitGroup
		update := func(n int) {
			wg.Go(func() {
				if err := e.Update(t.Context(), "p", agent(n).ID, says("x")); err != nil {
					t.Error(err)
				}
			})
		}
		update(0)
		synctest.Wait()
		for n := 1; n < callers; n++ {
			update(n)
		}
		synctest.Wait()
		for range 3 {
			gate <- nil
		}
		wg.Wait()
		if fmt.Sprint(d.sizes) != "[1 16 3]" {
			t.Errorf("commits of %v writes, want 1, 16 and 3", d.sizes)
		}
	})
}

// TestGather: callers that come back soon after their answers share one commit, even if they did
// not at first. A lone caller and an early write never wait for others.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, rounds = 8, 20
		e, d := open(t, engine.Options{}, callers)
		d.takes = 2 * time.Millisecond
		var wg sync.WaitGroup
		for n := range callers {
			wg.Go(func() {
				for i := range rounds {
					time.Sleep(time.Duration(100+10*n+7*i) * time.Microsecond) // in fake time: the way there and back
					if err := e.Update(t.Context(), "p", agent(n).ID, says("x")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n := len(d.sizes); n > rounds+5 {
			t.Errorf("%d commits of %v writes for %d rounds", n, d.sizes, rounds)
		}
		for range 2 {
			time.Sleep(time.Second) // in fake time: the pause after a group
			start := time.Now()
			if err := e.Update(t.Context(), "p", agent(0).ID, says("alone")); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != d.takes {
				t.Errorf("a lone caller waited %v, %v of them for the disk", took, d.takes)
			}
		}
		for n := range 4 { // the last group is of three
			wg.Go(func() {
				if err := e.Update(t.Context(), "p", agent(n).ID, says("x")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		start, kept := time.Now(), make(chan error)
		if _, err := e.UpdateEarly(t.Context(), "p", agent(0).ID, says("asked"), func(err error) { kept <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-kept; err != nil || time.Since(start) != d.takes {
			t.Errorf("an early write took %v: %v", time.Since(start), err)
		}
	})
}

// TestFailedCommit: a commit that fails fails all that shared it, and the engine goes on with what
// the store holds.
func TestFailedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := open(t, engine.Options{}, 3)
		gate := d.hold()
		errFull := fault.New(fault.Unavailable, "the disk is full")
		var wg sync.WaitGroup
		update := func(n int, text string, want error) {
			wg.Go(func() {
				if err := e.Update(t.Context(), "p", agent(n).ID, says(text)); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", text, err, want)
				}
			})
			synctest.Wait()
		}
		update(0, "first", errFull)
		update(1, "beside", nil)
		update(0, "decided on the first", nil) // which fails, so it is decided again
		gate <- errFull
		synctest.Wait()
		gate <- nil // the one beside
		gate <- nil // decided again
		wg.Wait()
		if got := fmt.Sprint(texts(t, e, 0), texts(t, e, 1)); got != "[decided on the first] [beside]" {
			t.Errorf("stored %s", got)
		}
		h, err := e.Head(t.Context(), "p", agent(0).ID)
		if err != nil || h.NextSeq != 2 || h.Rev != 2 {
			t.Errorf("head %+v, %v", h, err)
		}
	})
}

// TestEarly: a caller goes on before the disk, readers wait for the outcome, and what was built on
// a failed change fails.
func TestEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := open(t, engine.Options{}, 1)
		gate := d.hold()
		kept := make(chan error, 10)
		begin := func(text string) {
			t.Helper()
			early, err := e.UpdateEarly(t.Context(), "p", agent(0).ID, says(text), func(err error) { kept <- err })
			if !early || err != nil {
				t.Fatalf("early %v, %v", early, err)
			}
			synctest.Wait() // its commit is under way, or it waits behind one
		}
		begin("one")
		begin("two") // decided on the first, which is not on disk
		read := make(chan []string, 1)
		go func() { read <- texts(t, e, 0) }()
		synctest.Wait()
		select {
		case got := <-read:
			t.Errorf("a reader saw %v before the disk", got)
		default:
		}
		gate <- nil
		synctest.Wait()
		gate <- nil
		if got := fmt.Sprint(<-read, <-kept, <-kept); got != "[one two] <nil> <nil>" {
			t.Errorf("read and outcomes: %s", got)
		}

		begin("three")
		begin("four")
		begin("five")
		errFull := fault.New(fault.Unavailable, "the disk is full")
		gate <- errFull
		for range 3 {
			if err := <-kept; fault.CodeOf(err) != fault.Unavailable || !errors.Is(err, errFull) {
				t.Errorf("a change that was built on a failed one ended with %v", err)
			}
		}
		synctest.Wait()
		begin("six")
		gate <- nil
		if got := fmt.Sprint(<-kept, texts(t, e, 0)); got != "<nil> [one two six]" {
			t.Errorf("after the failure: %s", got)
		}
		begin("seven")
		closed := make(chan error)
		go func() { closed <- e.Close() }() // waits for what is on its way
		synctest.Wait()
		gate <- nil
		if got := fmt.Sprint(<-kept, <-closed); got != "<nil> <nil>" {
			t.Errorf("closing: %s", got)
		}
	})
}

// TestLeave: a caller whose context ends takes its change back if no commit has taken it, and waits
// for the commit else.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := open(t, engine.Options{}, 2)
		gate := d.hold()
		errGone := errors.New("the caller hung up")
		ctx, leave := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		update := func(ctx context.Context, n int, text string, want error) {
			wg.Go(func() {
				if err := e.Update(ctx, "p", agent(n).ID, says(text)); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", text, err, want)
				}
			})
			synctest.Wait()
		}
		update(ctx, 0, "taken", nil)
		update(ctx, 1, "queued", errGone)
		update(t.Context(), 1, "behind", nil)
		wg.Go(func() { // waits for its turn behind a decision that does not end
			err := e.Update(t.Context(), "p", agent(0).ID, func(memory.AgentView) (memory.Change, error) {
				<-ctx.Done()
				return memory.Change{}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		update(ctx, 0, "waiting for its turn", errGone)
		leave(errGone)
		synctest.Wait()
		// The one that was taken, the one behind, and that again since what it was decided on is
		// gone.
		for range 3 {
			select {
			case gate <- nil:
			case <-time.After(time.Second):
			}
			synctest.Wait()
		}
		wg.Wait()
		if got := fmt.Sprint(texts(t, e, 0), texts(t, e, 1)); got != "[taken] [behind]" {
			t.Errorf("stored %s", got)
		}
	})
}

// TestQueueFull: a queue takes no more than it may hold.
func TestQueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := open(t, engine.Options{QueueLen: 2}, 1)
		gate := d.hold()
		var wg sync.WaitGroup
		var full atomic.Int64
		for range 8 {
			wg.Go(func() {
				switch err := e.Update(t.Context(), "p", agent(0).ID, says("x")); {
				case fault.Is(err, fault.Unavailable):
					full.Add(1)
				case err != nil:
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		gate <- nil
		synctest.Wait()
		gate <- nil
		wg.Wait()
		if n := len(texts(t, e, 0)); n != 3 || full.Load() != 5 {
			t.Errorf("%d stored and %d refused, want 3 and 5", n, full.Load())
		}
	})
}

// TestTwoProcesses: two engines over one store write to one agent; each decision builds on
// everything before it.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	store := storetest.Shared{Store: storetest.New(t).Store}
	var engines []*engine.Engine
	for range 2 {
		engines = append(engines, engine.New(store, engine.Options{Shared: true}))
	}
	if _, _, err := engines[0].Create(t.Context(), agent(0), 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	const writers, each = 32, 20
	var wg sync.WaitGroup
	for w := range writers {
		e := engines[w%2]
		wg.Go(func() {
			for i := range each {
				if err := e.Update(t.Context(), "p", agent(0).ID, says(fmt.Sprint(w, ".", i))); err != nil {
					t.Error(err)
				}
				if h, err := engines[(w+1)%2].Head(t.Context(), "p", agent(0).ID); err != nil || h.NextSeq <= int64(i+1) {
					t.Errorf("the other process is at %d after %d writes: %v", h.NextSeq, i+1, err)
				}
			}
		})
	}
	wg.Wait()
	list, err := engines[0].Messages(t.Context(), "p", agent(0).ID, memory.MessageQuery{Limit: 10_000})
	if err != nil || len(list) != writers*each {
		t.Fatalf("%d messages of %d: %v", len(list), writers*each, err)
	}
	for i, m := range list {
		if m.Seq != int64(i+1) || m.Rev != int64(i+2) || m.TurnID != int64(i) {
			t.Fatalf("message %d: %+v", i, m)
		}
	}
	// A decision that writes nothing, or refuses, does not answer by what is out of date either.
	if err := engines[0].Erase(t.Context(), "p", agent(0).ID); err != nil {
		t.Fatal(err)
	}
	err = engines[1].Update(t.Context(), "p", agent(0).ID, func(memory.AgentView) (memory.Change, error) { return memory.Change{}, nil })
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("an update of an agent that another process has erased: %v", err)
	}
}

// TestHotAgent: many writers to one agent share commits, and each gets its turn.
func TestHotAgent(t *testing.T) {
	t.Parallel()
	e, d := open(t, engine.Options{}, 1)
	const writers, each = 64, 20
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				if err := e.Update(t.Context(), "p", agent(0).ID, says("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if h, err := e.Head(t.Context(), "p", agent(0).ID); err != nil || h.NextSeq != writers*each+1 {
		t.Errorf("head at %d, %v", h.NextSeq, err)
	}
	if n := d.commits.Load(); n > writers*each/2 {
		t.Errorf("%d commits for %d writes", n, writers*each)
	}
}

// TestChangesFromMemory checks that the latest changes of a long ledger are read from memory, and
// that a change of a message which is no longer there is found in the store.
func TestChangesFromMemory(t *testing.T) {
	t.Parallel()
	e, d := open(t, engine.Options{}, 1)
	ctx, id := t.Context(), agent(0).ID
	for range 200 {
		if err := e.Update(ctx, "p", id, says("x")); err != nil {
			t.Fatal(err)
		}
	}
	changedSince := func(rev int64) (seqs []int64) {
		t.Helper()
		list, err := e.Messages(ctx, "p", id, memory.MessageQuery{AfterRev: rev, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			seqs = append(seqs, m.Seq)
		}
		return seqs
	}
	h, err := e.Head(ctx, "p", id)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Update(ctx, "p", id, says("new")); err != nil {
		t.Fatal(err)
	}
	if got := changedSince(h.Rev); !slices.Equal(got, []int64{201}) || d.pages.Load() != 0 {
		t.Errorf("changed %d after %d reads of the store, want [201] after none", got, d.pages.Load())
	}
	err = e.Update(ctx, "p", id, func(view memory.AgentView) (memory.Change, error) {
		m, err := view.Seq(3)
		m.Content, m.Rev = "revised", view.Head().Rev+1
		return memory.Change{Replace: []memory.Message{m}}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := changedSince(h.Rev); !slices.Equal(got, []int64{3, 201}) {
		t.Errorf("changed %d, want [3 201]", got)
	}
}

// TestRewritten: a change that rewrites events is decided on what is on disk, so that it has seen
// the events of all writes before it.
func TestRewritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := open(t, engine.Options{}, 1)
		gate := d.hold()
		go func() { _ = e.Update(t.Context(), "p", agent(0).ID, says("one")) }()
		synctest.Wait() // its commit is under way
		var seen []int64
		done := make(chan error)
		go func() {
			done <- e.Update(t.Context(), "p", agent(0).ID, func(memory.AgentView) (memory.Change, error) {
				s, err := d.Load(t.Context(), "p", agent(0).ID, 1, memory.Version{})
				seen = append(seen, s.Head.NextSeq)
				return memory.Change{Rewritten: []memory.Event{{ID: "e"}}}, err
			})
		}()
		synctest.Wait()
		gate <- nil
		gate <- nil
		if err := <-done; err != nil || seen[len(seen)-1] != 2 {
			t.Errorf("the decisions saw %v on disk, %v", seen, err)
		}
	})
}
