package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/turns"
	"github.com/heardlog/heardlog/store/storetest"
)

// outbox is a store that notes the events of what was written, and the wish for some types. Their
// bodies are lines that a test can read.
type outbox struct {
	memory.Ledger
	want map[int]bool

	mu    sync.Mutex
	built int
	ids   map[string]bool
	lines []string // of what was written
	last  map[string]int64
	fault []string
}

func newOutbox(t testing.TB, types ...int) *outbox {
	o := &outbox{Ledger: storetest.New(t), want: map[int]bool{}, ids: map[string]bool{}, last: map[string]int64{}}
	for _, t := range types {
		o.want[t] = true
	}
	return o
}

func (o *outbox) service(t testing.TB) *agents.Service {
	return newService(t, func(c *agents.Config) { c.Ledger, c.Events, c.SettleWait = o, o, 50*time.Millisecond })
}

func (o *outbox) Wants(_ string, eventType int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.want[eventType]
}

// body is what the test's events hold.
type body struct {
	Agent    string
	Sequence int64
	Line     string
}

func (o *outbox) Body(f agents.EventFacts) ([]byte, error) {
	o.mu.Lock()
	o.built++
	o.mu.Unlock()
	line := fmt.Sprint(f.Type)
	if f.Type == event.Turns || f.Type == event.Metrics {
		for _, r := range turns.Of(f.Messages) {
			line += fmt.Sprintf(" turn %d ttft %d", r.TurnID, r.FirstTokenMS)
		}
	} else {
		for _, m := range f.Messages {
			line += fmt.Sprintf(" %d %s%q", m.Seq, m.State, m.Content)
		}
	}
	if m := f.Answer; m != nil {
		line += fmt.Sprintf(" %d %s%v %q of %q %s", m.Seq, m.State, m.Interrupted, m.Content, m.Original(), m.Method)
	}
	if f.End.Reason != "" {
		line += fmt.Sprintf(" turn %d %s", f.End.TurnID, f.End.Reason)
	}
	return json.Marshal(body{f.Agent.ID, f.Sequence, line})
}

// note keeps what a change tells, and finds fault with numbers that do not grow and ids that come
// twice.
func (o *outbox) note(events []memory.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	numbers := map[int64]bool{}
	highest := map[string]int64{}
	for _, e := range events {
		var b body
		if err := json.Unmarshal(e.Body, &b); err != nil {
			o.fault = append(o.fault, err.Error())
		}
		if b.Sequence <= o.last[b.Agent] || numbers[b.Sequence] {
			o.fault = append(o.fault, fmt.Sprintf("%s has sequence %d after %d", b.Line, b.Sequence, o.last[b.Agent]))
		}
		if o.ids[e.ID] {
			o.fault = append(o.fault, "twice: "+e.ID)
		}
		o.ids[e.ID] = true
		numbers[b.Sequence] = true
		highest[b.Agent] = max(highest[b.Agent], b.Sequence)
		o.lines = append(o.lines, b.Line)
	}
	for a, n := range highest {
		o.last[a] = n
	}
}

func (o *outbox) Create(ctx context.Context, a memory.Agent, limit int, c memory.Change) (memory.Agent, bool, error) {
	stored, created, err := o.Ledger.Create(ctx, a, limit, c)
	if err == nil && created {
		o.note(c.Events)
	}
	return stored, created, err
}

func (o *outbox) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	var c memory.Change
	err := o.Ledger.Update(ctx, project, id, func(view memory.AgentView) (_ memory.Change, err error) {
		c, err = decide(view)
		return c, err
	})
	if err == nil {
		o.note(c.Events)
	}
	return err
}

func (o *outbox) UpdateEarly(ctx context.Context, project, id string, decide memory.Decision, _ func(error)) (bool, error) {
	return false, o.Update(ctx, project, id, decide)
}

// told demands these lines since the last call.
func (o *outbox) told(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if diff := cmp.Diff(want, o.lines); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, f := range o.fault {
		t.Error(f)
	}
	o.lines, o.fault = nil, nil
}

// TestMessageEvents: each message of the history is told of when it is stored, and again when it
// changes or leaves the history; nothing else is.
func TestMessageEvents(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, event.Message)
	s := o.service(t)
	a := join(t, s, func(x *memory.Settings) { x.LLM.Greeting = "Hello" })
	o.told(t, `10002 1 "Hello"`)
	tool := memory.Message{Role: memory.Tool, ToolCallID: "c", Content: "t"}
	calls := memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, ToolCalls: json.RawMessage(`[{}]`)}
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("a"), calls, tool, llm("b")}); err != nil {
		t.Fatal(err)
	}
	o.told(t, `10002 2 "a" 5 "b"`)
	turn := begin(t, s, a.ID, nil, user("long question"))
	o.told(t, `10002 6 "long question"`)
	settle(t, s, turn, agents.Answer{Generated: "whole answer", Sent: "whole answer", Complete: true})
	o.told(t, `10002 7 "whole answer"`)
	heard := "whole"
	for range 2 { // the second time it changes nothing
		if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{Heard: &heard}); err != nil {
			t.Fatal(err)
		}
	}
	o.told(t, `10002 7 "whole"`)
	turn = beginPlan(t, s, a.ID, agents.Plan{Supersede: []int64{7}, Extend: []agents.Extension{{Seq: 6, Content: "long question indeed"}}})
	o.told(t, `10002 7 superseded"whole" 6 "long question indeed"`)
	settle(t, s, turn, agents.Answer{Complete: true}) // empty: it is in no history
	o.told(t)
	if err := s.Agents.End(t.Context(), "p", a.ID, memory.EndOK); err != nil {
		t.Fatal(err)
	}
	o.told(t)
}

func beginPlan(t *testing.T, s *agents.Service, id string, p agents.Plan) *agents.Turn {
	t.Helper()
	turn, err := s.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{
		Plan: func(memory.Head, []memory.Message) (agents.Plan, error) { return p, nil }, Cut: func(error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// TestInterruptedEvents: a cut is told of when it is stored, again when better evidence says
// otherwise, and never when nothing changed.
func TestInterruptedEvents(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, event.Interrupted)
	s := o.service(t)
	a := join(t, s, nil)
	turn := begin(t, s, a.ID, nil, user("q"))
	settle(t, s, turn, agents.Answer{Generated: "one two three", Sent: "one two", Err: agents.ErrClientGone})
	o.told(t, `10001 2 true "one two" of "one two three" disconnect_only`)
	// Drained behind the client's back.
	if err := s.Turns.Complete(t.Context(), turn, "one two three four"); err != nil {
		t.Fatal(err)
	}
	o.told(t, `10001 2 true "one two" of "one two three four" disconnect_only`)
	say := func(heard string) {
		t.Helper()
		if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{Heard: &heard, AtMS: 5}); err != nil && !fault.Is(err, fault.Invalid) {
			t.Fatal(err)
		}
	}
	say("one")
	o.told(t, `10001 2 true "one" of "one two three four" vendor_text`)
	say("one")
	ms := int64(900)
	// Weaker.
	if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{HeardMS: &ms, AtMS: 4}); err != nil {
		t.Fatal(err)
	}
	o.told(t)
	beginPlan(t, s, a.ID, agents.Plan{Supersede: []int64{2}})
	o.told(t, `10001 2 supersededtrue "one" of "one two three four" vendor_text`)
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("x"), llm("all of it"), cut("half", "half of it")}); err != nil {
		t.Fatal(err)
	}
	o.told(t, `10001 6 true "half" of "half of it" vendor_text`)
}

// TestEventsOfOneChange: a change that cuts many answers tells of each, under an id and a number of
// its own, and of the messages.
func TestEventsOfOneChange(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, event.Interrupted, event.Message)
	s := o.service(t)
	a := join(t, s, nil)
	batch := make([]memory.Message, 0, memory.MaxBatch)
	for i := range memory.MaxBatch {
		batch = append(batch, cut(fmt.Sprint("half ", i), fmt.Sprint("half ", i, " of it")))
	}
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, batch); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("next")}); err != nil {
		t.Fatal(err)
	}
	if len(o.lines) != memory.MaxBatch+2 {
		t.Errorf("%d events", len(o.lines))
	}
	o.lines = nil
	o.told(t)
}

// TestUnwantedEvents: where nobody wants an event, none is built.
func TestUnwantedEvents(t *testing.T) {
	t.Parallel()
	o := newOutbox(t)
	s := o.service(t)
	a := join(t, s, func(x *memory.Settings) { x.LLM.Greeting = "Hello" })
	turn := begin(t, s, a.ID, nil, user("q"))
	settle(t, s, turn, agents.Answer{Generated: "one two three", Sent: "one two", Err: agents.ErrClientGone, Failure: &memory.Failure{Reason: "LLM_REQUEST_ERR"}})
	if err := s.Agents.End(t.Context(), "p", a.ID, memory.EndOK); err != nil {
		t.Fatal(err)
	}
	o.told(t)
	if o.built != 0 {
		t.Errorf("%d bodies were built", o.built)
	}
}

// TestEndEvents: 102, 103, 111 and 112 come with the end, in this order of sequence.
func TestEndEvents(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, event.Left, event.History, event.Metrics, event.Turns, event.Error)
	s := o.service(t)
	a := join(t, s, nil)
	turn := begin(t, s, a.ID, nil, user("q"))
	settle(t, s, turn, agents.Answer{Generated: "yes", Sent: "yes", Complete: true, Timings: memory.Timings{StartMS: 1, FirstTokenMS: 20}})
	if err := s.Agents.Leave(t.Context(), "p", a.ID, ""); err != nil {
		t.Fatal(err)
	}
	o.told(t, "102", `103 1 "q" 2 "yes"`, "112 turn 0 ttft 20", "111 turn 0 ttft 20")
}

// TestExpiring: one hour before its lifetime is over an agent's expiry is announced, once, also
// over a restart, and not at all where nobody wants to know.
func TestExpiring(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(t, event.Expiring, event.Left)
		s := o.service(t)
		stop := runUntil(t, s)
		a := join(t, s, nil)
		time.Sleep(memory.Lifetime - memory.ExpiringLead - time.Second)
		o.told(t)
		time.Sleep(2 * time.Second)
		o.told(t, "104")
		stop()
		stop = runUntil(t, o.service(t))
		time.Sleep(time.Minute)
		o.told(t)
		time.Sleep(memory.ExpiringLead)
		o.told(t, "102")
		if h, err := o.Head(t.Context(), "p", a.ID); err != nil || h.Agent.Message != memory.EndLifetime {
			t.Errorf("%v: ended with %q", err, h.Agent.Message)
		}
		stop()
	})
	synctest.Test(t, func(t *testing.T) { // who begins to want it within the last hour gets it then
		o := newOutbox(t)
		stop := runUntil(t, o.service(t))
		join(t, o.service(t), nil)
		stop()
		stop = runUntil(t, o.service(t))
		time.Sleep(memory.Lifetime - memory.ExpiringLead + 10*time.Minute)
		synctest.Wait()
		o.told(t)
		o.mu.Lock()
		o.want[event.Expiring] = true
		o.mu.Unlock()
		time.Sleep(2 * time.Minute)
		o.told(t, "104")
		time.Sleep(10 * time.Minute)
		o.told(t)
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox(t)
		s := o.service(t)
		stop := runUntil(t, s)
		a := join(t, s, func(x *memory.Settings) { x.IdleTimeoutS = 1800 })
		for range 143 { // calls keep it from being idle until half an hour before the end
			time.Sleep(30*time.Minute - time.Second)
			s.Messages.Touch("p", a.ID)
		}
		if h, err := o.Head(t.Context(), "p", a.ID); err != nil || h.Rev != 1 || h.Agent.Status != memory.Running {
			t.Errorf("%v: %s at revision %d", err, h.Agent.Status, h.Rev)
		}
		stop()
	})
}

// runUntil runs the service's timers until the function that it gives is called.
func runUntil(t *testing.T, s *agents.Service) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Agents.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// cut is an answer of which some was heard.
func cut(heard, whole string) memory.Message {
	return memory.Message{
		Role: memory.Assistant, Source: memory.SourceLLM, Content: heard, Generated: whole, Interrupted: true,
		Method: memory.VendorText,
	}
}
