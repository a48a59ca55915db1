package recall_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
)

// source holds calls for a Service and counts the messages that are read.
type source struct {
	mu     sync.Mutex
	calls  []string // the oldest first
	said   map[string][]string
	read   int
	broken string // the call that fails after its first page
	// agentsOf, if set, is called first by AgentsOf.
	agentsOf func(project string)
	// messages, if set, is called first by Messages.
	messages func()
}

type ledger struct {
	memory.Ledger
	*source
}

type itemStore struct {
	memories.Store
	*source
}

func (s itemStore) AgentsOf(_ context.Context, project, _ string) (out []memories.AgentVersion, err error) {
	if s.agentsOf != nil {
		s.agentsOf(project)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range s.calls {
		if len(s.said[id]) > 0 {
			out = append(out, memories.AgentVersion{ID: id, Version: memory.Version{No: int64(i + 1), Rev: int64(len(s.said[id]))}})
		}
	}
	return out, nil
}

func (s ledger) Head(_ context.Context, _, id string) (memory.Head, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.said[id]) == 0 {
		return memory.Head{}, fault.New(fault.NotFound, "there is no agent %q", id)
	}
	return memory.Head{Agent: &memory.Agent{ID: id}, Rev: int64(len(s.said[id]))}, nil
}

func (s ledger) Messages(_ context.Context, _, id string, q memory.MessageQuery) (out []memory.Message, err error) {
	if s.messages != nil {
		s.messages()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == s.broken && q.AfterSeq > 0 {
		return nil, errors.New("the disk is on fire")
	}
	for i := max(q.AfterSeq, q.AfterRev); i < int64(len(s.said[id])) && len(out) < q.Limit; i++ {
		out = append(out, memory.Message{
			Seq: i + 1, Role: memory.User, Content: s.said[id][i], Details: &memory.Details{Filed: memory.Filed{Scope: memory.Scope{UserID: "anna"}}},
		})
	}
	s.read += len(out)
	return out, nil
}

// say appends messages to a call.
func (s *source) say(id string, texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said == nil {
		s.said = map[string][]string{}
	}
	if !slices.Contains(s.calls, id) {
		s.calls = append(s.calls, id)
	}
	s.said[id] = append(s.said[id], texts...)
}

// erase removes a call and returns what was said in it.
func (s *source) erase(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.said[id]
	delete(s.said, id)
	return was
}

// reads returns how many messages were read since it was called last.
func (s *source) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.read
	s.read = 0
	return n
}

// serve starts a Service of one megabyte over a source. An index may take half of that.
func serve(t *testing.T, s *source) *recall.Service {
	t.Helper()
	return run(t, recall.Config{Ledger: ledger{source: s}, Items: itemStore{source: s}, MaxMB: 1, OnError: func(string, error) {}})
}

// run starts a Service.
func run(t *testing.T, c recall.Config) *recall.Service {
	t.Helper()
	out := recall.NewService(c)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = out.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return out
}

// find returns the calls in which a word was found, in order of their names.
func find(t *testing.T, s *recall.Service, word string, degraded ...string) (out []string) {
	t.Helper()
	got, err := s.Search(t.Context(), "p", "anna", recall.Query{Text: word, K: 50, Now: now}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Degraded, degraded) {
		t.Errorf("%s: degraded %q, want %q", word, got.Degraded, degraded)
	}
	for _, h := range got.Hits {
		if strings.Contains(h.Text, word) {
			out = append(out, h.Call)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// long returns n messages that take nearly 2 KB each in an index.
func long(n int) []string {
	return slices.Repeat([]string{strings.Repeat("a long story about a parcel and a ladder ", 25)}, n)
}

// TestFull: an index that is full leaves out the oldest calls, says so with every search, and reads
// no call again for each of its new messages.
func TestFull(t *testing.T) {
	t.Parallel()
	var src source
	s := serve(t, &src)
	for i := range 6 {
		src.say(fmt.Sprint("call", i), append(long(80), fmt.Sprint("The zebra has stripes: ", i))...)
	}
	want := []string{"call3", "call4", "call5"}
	check := func(what string) {
		t.Helper()
		if got := find(t, s, "zebra", recall.Partial); !slices.Equal(got, want) {
			t.Errorf("%s: found in %q, want %q", what, got, want)
		}
	}
	check("at first")
	src.reads()
	check("unchanged")
	if n := src.reads(); n != 0 {
		t.Errorf("%d messages were read though none is new", n)
	}
	// The live call grows until it takes the place of the oldest.
	for range 12 {
		src.say("call5", long(10)...)
		find(t, s, "zebra", recall.Partial)
		if n := src.reads(); n > 10 {
			t.Errorf("%d messages were read, want the new 10", n)
		}
	}
	want = []string{"call4", "call5"}
	check("as it grows")
	// Nor is it lost when it does not fit alone: its last messages are found.
	src.say("call5", long(300)...)
	src.say("call5", "The zebra sleeps, does it not?")
	want = []string{"call5"}
	check("a call that does not fit")
	// A small call that is new does not hide that others are left out.
	src.say("call6", "Another zebra.")
	want = []string{"call5", "call6"}
	check("a small call")
	// What is erased makes room.
	src.erase("call5")
	want = []string{"call2", "call3", "call4", "call6"}
	check("after the erasure")
}

// TestErased: what is erased leaves the memory with the next search.
func TestErased(t *testing.T) {
	t.Parallel()
	var src source
	s := serve(t, &src)
	src.say("call", "The zebra is striped.")
	find(t, s, "zebra")
	was := src.erase("call")
	find(t, s, "zebra")
	src.reads()
	src.say("call", was...)
	if find(t, s, "zebra"); src.reads() != 1 {
		t.Error("the erased call was still in memory")
	}
	// Of a call, the first page alone can be read; then the call is erased.
	src.say("broken", slices.Repeat([]string{strings.Repeat("parcel ladder ", 30)}, 600)...)
	src.broken = "broken"
	if _, err := s.Search(t.Context(), "p", "anna", recall.Query{Text: "zebra", K: 1, Now: now}, time.Minute); err == nil {
		t.Error("a search succeeds though a call cannot be read")
	}
	src.erase("broken")
	src.say("next", long(120)...)
	find(t, s, "zebra") // the index would be full with both
}

// TestForgottenWhileRead: an index that is dropped while it is built does not come back.
func TestForgottenWhileRead(t *testing.T) {
	t.Parallel()
	var src source
	s := serve(t, &src)
	src.say("call", "The zebra is striped.")
	src.messages = sync.OnceFunc(func() { s.Forget("p", "anna") })
	find(t, s, "zebra")
	src.reads()
	if find(t, s, "zebra"); src.reads() != 1 {
		t.Error("the index is in memory again")
	}
}

// TestFair: a project with many callers to build holds up no other, and waits for a limited number.
func TestFair(t *testing.T) {
	t.Parallel()
	other, done := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	n := 0
	src := &source{}
	src.agentsOf = func(project string) {
		if project == "other" {
			close(other)
			return
		}
		<-other
		mu.Lock()
		defer mu.Unlock()
		if n++; n == 32 {
			close(done)
		}
	}
	s := recall.NewService(recall.Config{Ledger: ledger{source: src}, Items: itemStore{source: src}, MaxMB: 1, OnError: func(string, error) {}})
	for i := range 300 {
		s.Warm(t.Context(), "busy", fmt.Sprint(i))
	}
	s.Warm(t.Context(), "other", "anna")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx)
	}()
	for _, c := range []chan struct{}{other, done} {
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Fatal("a project waits for another")
		}
	}
	stop()
	<-ended
	if n != 32 {
		t.Errorf("%d callers of one project were waiting, want 32", n)
	}
}

// TestNotCall: a call that is left out of a search is not read for it, and the next search without
// that finds it.
func TestNotCall(t *testing.T) {
	t.Parallel()
	var src source
	s := serve(t, &src)
	src.say("old", "The zebra is striped.")
	find(t, s, "zebra")
	src.reads()
	for range 2 {
		src.say("live", "Has the zebra eaten?")
		got, err := s.Search(t.Context(), "p", "anna", recall.Query{Text: "zebra", K: 9, Now: now, NotCall: "live"}, time.Minute)
		if err != nil || len(got.Hits) != 1 || got.Hits[0].Call != "old" || src.reads() != 0 {
			t.Errorf("%+v %v", got, err)
		}
	}
	if got := find(t, s, "zebra"); !slices.Equal(got, []string{"live", "old"}) || src.reads() != 2 {
		t.Errorf("%q", got)
	}
}

// hasty is a ledger that reads nothing once the time of its caller is over.
type hasty struct{ ledger }

func (l hasty) Messages(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return l.ledger.Messages(ctx, project, id, q)
}

// TestBehind: what searches have no time to read is read by itself.
func TestBehind(t *testing.T) {
	t.Parallel()
	src := &source{}
	s := run(t, recall.Config{Ledger: hasty{ledger{source: src}}, Items: itemStore{source: src}, MaxMB: 1, OnError: func(what string, err error) { t.Errorf("%s: %v", what, err) }})
	src.say("old", "The zebra is striped.")
	find(t, s, "zebra")
	src.say("new", "Has the zebra eaten?")
	for end := time.Now().Add(time.Minute); ; {
		got, err := s.Search(t.Context(), "p", "anna", recall.Query{Text: "zebra", K: 9, Now: now}, time.Nanosecond)
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v %v", got, err)
		}
		if !slices.Contains(got.Degraded, recall.Behind) && len(got.Hits) == 2 {
			return
		}
	}
}

// TestWaiting: a search does not wait beyond its deadline for another one of the same caller.
func TestWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // fake time
		src := &source{}
		s := serve(t, src)
		src.say("old", "The zebra is striped.")
		find(t, s, "zebra")
		release := make(chan struct{})
		go func() {
			slow := recall.Query{Text: "zebra", K: 9, Now: now, Except: func(*recall.Turn) bool { <-release; return false }}
			_, _ = s.Search(t.Context(), "p", "anna", slow, time.Minute)
		}()
		synctest.Wait()
		began := time.Now()
		got, err := s.Search(t.Context(), "p", "anna", recall.Query{Text: "zebra", K: 9, Now: now}, 5*time.Millisecond)
		if took := time.Since(began); err != nil || took != 5*time.Millisecond || !slices.Equal(got.Degraded, []string{recall.Partial}) || got.Calls != 1 {
			t.Errorf("after %v: %+v, %v", took, got, err)
		}
		close(release)
	})
}
