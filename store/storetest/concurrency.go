package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

func testConcurrentOneAgent(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	const writers, each = 64, 10
	var running atomic.Int32
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				err := s.Update(ctx, project, a.ID, func(view memory.AgentView) (memory.Change, error) {
					if running.Add(1) != 1 {
						t.Error("two decisions of one agent at once")
					}
					defer running.Add(-1)
					return says(fmt.Sprintf("%d/%d", w, i))(view)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	list := ledger(t, ctx, s, a)
	if len(list) != writers*each {
		t.Fatalf("%d messages of %d", len(list), writers*each)
	}
	next := [writers]int{}
	for i, m := range list {
		if m.Seq != int64(i+1) || m.TurnID != int64(i) || m.Rev != int64(i+2) {
			t.Fatalf("message %d: seq %d, turn %d, rev %d", i, m.Seq, m.TurnID, m.Rev)
		}
		var w, n int
		if _, err := fmt.Sscanf(m.Content, "%d/%d", &w, &n); err != nil || n != next[w] {
			t.Fatalf("writer %d: %q where %d was due", w, m.Content, next[w])
		}
		next[w]++
	}
}

func testConcurrentManyAgents(t *testing.T, ctx context.Context, s memory.Ledger) {
	const agents, each = 64, 10
	var wg sync.WaitGroup
	for n := range agents {
		wg.Go(func() {
			a := newAgent(n)
			if _, _, err := s.Create(ctx, a, 0, memory.Change{}); err != nil {
				t.Error(err)
				return
			}
			for i := range each {
				if err := s.Update(ctx, project, a.ID, says(fmt.Sprintf("%d of %d", i, n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for n := range agents {
		list := ledger(t, ctx, s, newAgent(n))
		if len(list) != each {
			t.Fatalf("agent %d has %d messages", n, len(list))
		}
		for i, m := range list {
			if m.Content != fmt.Sprintf("%d of %d", i, n) || m.Seq != int64(i+1) {
				t.Fatalf("agent %d, message %d: %+v", n, i, m)
			}
		}
	}
}

// testConcurrentReadYourWrites: a read shows what was acknowledged before it began, and head and
// messages are of one moment.
func testConcurrentReadYourWrites(t *testing.T, ctx context.Context, s memory.Ledger) {
	const agents, writes = 8, 30
	acked := [agents]atomic.Int64{}
	for n := range agents {
		create(t, ctx, s, newAgent(n))
	}
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for n := range agents {
		writers.Go(func() {
			for i := range int64(writes) {
				if err := s.Update(ctx, project, newAgent(n).ID, says("m")); err != nil {
					t.Error(err)
				}
				acked[n].Store(i + 1)
			}
		})
	}
	for r := range 8 {
		readers.Go(func() {
			for i := r; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				n := i % agents
				at := acked[n].Load()
				h, list, err := s.Recent(ctx, project, newAgent(n).ID, 1+i%40, false)
				if err != nil {
					t.Error(err)
					return
				}
				if h.NextSeq-1 < at {
					t.Errorf("agent %d: %d were acknowledged, head knows %d", n, at, h.NextSeq-1)
					return
				}
				if len(list) > 0 && list[len(list)-1].Seq != h.NextSeq-1 || len(list) == 0 && h.NextSeq > 1 {
					t.Errorf("agent %d: head at %d with %d messages of another moment", n, h.NextSeq-1, len(list))
					return
				}
				page, err := s.Messages(ctx, project, newAgent(n).ID, memory.MessageQuery{AfterSeq: at - 1, Limit: 1})
				if err != nil || at > 0 && (len(page) != 1 || page[0].Seq != at) {
					t.Errorf("agent %d: message %d was acknowledged and is not there: %v", n, at, err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

func testFailingNeighbours(t *testing.T, ctx context.Context, s memory.Ledger) {
	const callers = 64
	for n := range callers {
		create(t, ctx, s, newAgent(n))
	}
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			for i := range 5 {
				err := s.Update(ctx, project, newAgent(n).ID, func(view memory.AgentView) (memory.Change, error) {
					switch n % 4 {
					case 1:
						return memory.Change{}, errRefused
					case 2:
						panic("in a decision")
					}
					return says(fmt.Sprint(i))(view)
				})
				switch n % 4 {
				case 1:
					if !errors.Is(err, errRefused) {
						t.Errorf("refused: %v", err)
					}
				case 2:
					if fault.CodeOf(err) != fault.Internal {
						t.Errorf("panicked: %v", err)
					}
				default:
					if err != nil {
						t.Errorf("neighbour failed: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	for n := range callers {
		want := 5
		if n%4 == 1 || n%4 == 2 {
			want = 0
		}
		if list := ledger(t, ctx, s, newAgent(n)); len(list) != want {
			t.Errorf("agent %d has %d messages, want %d", n, len(list), want)
		}
	}
}

// testDatabaseErrorsOfNeighbours has changes that only the writing itself finds out to be wrong.
func testDatabaseErrorsOfNeighbours(t *testing.T, ctx context.Context, s memory.Ledger) {
	const callers = 64
	shared := create(t, ctx, s, newAgent(1000))
	for n := range callers {
		create(t, ctx, s, newAgent(n))
	}
	var wg sync.WaitGroup
	var runs atomic.Int32
	for n := range callers {
		wg.Go(func() {
			for i := range 5 {
				bad := n%8 == 3
				a := newAgent(n)
				if n%2 == 0 {
					a = shared
				}
				err := s.Update(ctx, project, a.ID, func(view memory.AgentView) (memory.Change, error) {
					runs.Add(1)
					c, err := says(fmt.Sprint(n, "/", i))(view)
					if bad {
						c.Append = append(c.Append, c.Append[0]) // the same seq
					}
					return c, err
				})
				if bad != (err != nil) {
					t.Errorf("bad %v: %v", bad, err)
				}
			}
		})
	}
	wg.Wait()
	if n := runs.Load(); n < callers*5 {
		t.Errorf("%d decisions ran", n)
	}
	list := ledger(t, ctx, s, shared)
	if len(list) != callers/2*5 {
		t.Errorf("the shared agent has %d messages", len(list))
	}
	for i, m := range list {
		if m.Seq != int64(i+1) {
			t.Fatalf("message %d has seq %d", i, m.Seq)
		}
	}
	for n := 1; n < callers; n += 2 {
		want := 5
		if n%8 == 3 {
			want = 0
		}
		h, list, err := s.Recent(ctx, project, newAgent(n).ID, 10, false)
		if err != nil || len(list) != want || h.NextSeq != int64(want+1) {
			t.Errorf("agent %d: %d messages, head %+v, %v", n, len(list), h, err)
		}
	}
}

func testCanceled(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	cause := errors.New("the caller hung up")
	gone, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	err := s.Update(gone, project, a.ID, func(memory.AgentView) (memory.Change, error) {
		t.Error("the decision ran")
		return memory.Change{}, nil
	})
	if !errors.Is(err, cause) || fault.CodeOf(err) == fault.Internal {
		t.Errorf("update: %v (%s)", err, fault.CodeOf(err))
	}
	if _, _, err := s.Create(gone, newAgent(2), 0, memory.Change{}); !errors.Is(err, cause) {
		t.Errorf("create: %v", err)
	}
	_, err = s.Head(ctx, project, newAgent(2).ID)
	wantCode(t, err, fault.NotFound)

	// Callers leave while others write. Each has written its message or got an error; none has
	// written it twice.
	const callers = 64
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for n := range callers {
		wg.Go(func() {
			own, cancel := context.WithCancel(ctx)
			if n%2 == 0 {
				go cancel()
			}
			defer cancel()
			errs[n] = s.Update(own, project, a.ID, says(fmt.Sprint(n)))
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, m := range ledger(t, ctx, s, a) {
		seen[m.Content]++
	}
	for n, err := range errs {
		if err == nil && seen[fmt.Sprint(n)] != 1 || seen[fmt.Sprint(n)] > 1 {
			t.Errorf("caller %d: err %v, stored %d times", n, err, seen[fmt.Sprint(n)])
		}
		if n%2 == 1 && err != nil {
			t.Errorf("caller %d did not leave and got %v", n, err)
		}
	}
}

func testPing(t *testing.T, ctx context.Context, s memory.Ledger) {
	for range 3 {
		if err := s.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func testClosed(t *testing.T, ctx context.Context, s memory.Ledger) {
	a := create(t, ctx, s, newAgent(1))
	update(t, ctx, s, a, says("one"))
	var wg sync.WaitGroup
	for range 8 { // closing while others call
		wg.Go(func() {
			for range 100 {
				err := s.Update(ctx, project, a.ID, says("more"))
				if err != nil && fault.CodeOf(err) != fault.Unavailable {
					t.Errorf("while closing: %v", err)
				}
				if _, _, err := s.Recent(ctx, project, a.ID, 100, false); err != nil && fault.CodeOf(err) != fault.Unavailable {
					t.Errorf("while closing: %v", err)
				}
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	_, err := s.Head(ctx, project, a.ID)
	wantCode(t, err, fault.Unavailable)
	_, _, err = s.Recent(ctx, project, a.ID, 1, false)
	wantCode(t, err, fault.Unavailable)
	_, err = s.Messages(ctx, project, a.ID, memory.MessageQuery{Limit: 1})
	wantCode(t, err, fault.Unavailable)
	_, err = s.Agents(ctx, memory.AgentQuery{Project: project, Limit: 1})
	wantCode(t, err, fault.Unavailable)
	_, _, err = s.Create(ctx, newAgent(2), 0, memory.Change{})
	wantCode(t, err, fault.Unavailable)
	wantCode(t, s.Update(ctx, project, a.ID, says("x")), fault.Unavailable)
	wantCode(t, s.Live(ctx, func(memory.Head) error { return nil }), fault.Unavailable)
	_, err = s.Count(ctx)
	wantCode(t, err, fault.Unavailable)
	_, err = s.Sweep(ctx, 1, 1)
	wantCode(t, err, fault.Unavailable)
	wantCode(t, s.Ping(ctx), fault.Unavailable)
}
