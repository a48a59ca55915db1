package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/turns"
	"github.com/heardlog/heardlog/memory/window"
)

// again joins an agent of a name in project p.
func again(t *testing.T, s *agents.Service, r agents.JoinRequest) memory.Agent {
	t.Helper()
	r.Properties = []byte("{}")
	if r.Project == "" {
		r.Project = "p"
	}
	a, err := s.Agents.Join(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func leave(t *testing.T, s *agents.Service, a memory.Agent) {
	t.Helper()
	if err := s.Agents.Leave(t.Context(), a.Project, a.ID, ""); err != nil {
		t.Fatal(err)
	}
}

// TestInheritFull: a new agent of the name goes on with the messages, the summary and the turn
// numbers of the last, under ids and measures of its own.
//
// Rules: 002-12, 004-7
func TestInheritFull(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	first := again(t, s, agents.JoinRequest{Name: "desk"})
	said := llm("At nine from")
	said.ID, said.Generated, said.Interrupted, said.InterruptMS = "a1", "At nine from platform two.", true, 5
	said.Timings, said.UpstreamID = &memory.Timings{StartMS: 1, TotalMS: 2}, "chatcmpl-1"
	draft := user("draft")
	draft.Status = memory.Draft
	if _, err := s.Messages.Append(t.Context(), "p", first.ID, []memory.Message{user("When?"), said, draft, user("Sure?")}); err != nil {
		t.Fatal(err)
	}
	if _, err := memctx.New(s).SetSummary(t.Context(), "p", first.ID, "His name is Ada.", 0); err != nil {
		t.Fatal(err)
	}
	leave(t, s, first)
	second := again(t, s, agents.JoinRequest{Name: "desk", Inherit: memory.InheritFull, Settings: memory.Settings{LLM: memory.LLMSettings{Greeting: "Hello again."}}})
	want := &memory.Inherited{From: first.ID, Mode: memory.InheritFull, Messages: 3, Summary: true, UpToSeq: 3}
	if diff := cmp.Diff(want, second.Settings.Memory.Inherited); diff != "" {
		t.Errorf("what was inherited: %s", diff)
	}
	if got := second.Settings.Memory.Summary; got != "His name is Ada." {
		t.Errorf("summary %q", got)
	}
	h, msgs, err := s.Messages.Remembered(t.Context(), "p", second.ID)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range msgs {
		got = append(got, fmt.Sprintf("%d/%d %s %s|%s|%v %q%q", m.Seq, m.TurnID, m.Role, m.Content, m.Generated, m.Interrupted, m.ID, m.UpstreamID))
		if m.Timings != nil || m.Chars != int64(len(m.Content)) {
			t.Errorf("%+v", m)
		}
	}
	if diff := cmp.Diff([]string{
		`1/0 user When?||false """"`, `2/0 assistant At nine from|At nine from platform two.|true """"`, `3/1 user Sure?||false """"`, `4/2 assistant Hello again.||false """"`,
	}, got); diff != "" {
		t.Errorf("the memory: %s", diff)
	}
	if h.NextSeq != 5 || h.LastTurn != 2 {
		t.Errorf("the next message is %d behind turn %d", h.NextSeq, h.LastTurn)
	}
	_, rows, err := turns.Read(t.Context(), s.Messages, "p", second.ID)
	if err != nil || len(rows) != 1 || rows[0].TurnID != 2 {
		t.Errorf("the turn table holds turns of another agent: %+v, %v", rows, err)
	}
	if _, err := s.Messages.Append(t.Context(), "p", second.ID, []memory.Message{{ID: "a1", Role: memory.User, Content: "x"}}); err != nil {
		t.Errorf("an id of the agent before: %v", err)
	}
	leave(t, s, second)
	third := again(t, s, agents.JoinRequest{Name: "desk", Inherit: memory.InheritFull})
	if in := third.Settings.Memory.Inherited; in == nil || in.From != second.ID || in.Messages != 5 {
		t.Errorf("the third: %+v", in)
	}
}

// TestInheritFrom: the agent that ended last is found by its name, else by a key; none is found
// that is live, of another project, or erased.
//
// Rules: 004-7
func TestInheritFrom(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	from := func(r agents.JoinRequest) string {
		t.Helper()
		r.Inherit = memory.InheritFull
		a := again(t, s, r)
		defer leave(t, s, a)
		if in := a.Settings.Memory.Inherited; in != nil {
			return in.From
		}
		return ""
	}
	keyed := func(name string) agents.JoinRequest {
		return agents.JoinRequest{Name: name, Settings: memory.Settings{Call: memory.Call{Keys: []string{"vapi.call:1"}, Shared: []string{"agora.channel:lobby"}}}}
	}
	if got := from(agents.JoinRequest{Name: "n"}); got != "" {
		t.Errorf("the first of its name inherits from %s", got)
	}
	one := again(t, s, keyed("one"))
	r := keyed("two")
	r.Settings.Call.Keys = nil
	if got := from(r); got != "" {
		t.Errorf("a live agent's memory was taken: %s", got)
	}
	leave(t, s, one)
	if got := from(keyed("three")); got != one.ID {
		t.Errorf("by key: %q, want %s", got, one.ID)
	}
	other := keyed("one")
	other.Project = "other"
	if got := from(other); got != "" {
		t.Errorf("another project's agent inherits from %s", got)
	}
	if got := from(agents.JoinRequest{Name: "one"}); got != one.ID {
		t.Errorf("by name: %q, want %s", got, one.ID)
	}
	none := again(t, s, agents.JoinRequest{Name: "one", Inherit: memory.InheritNone})
	if none.Settings.Memory.Inherited != nil {
		t.Errorf("inherit none: %+v", none.Settings.Memory.Inherited)
	}
	if err := s.Agents.Erase(t.Context(), "p", none.ID); err != nil {
		t.Fatal(err)
	}
	last := from(agents.JoinRequest{Name: "one"})
	if last == none.ID || last == "" {
		t.Errorf("of the erased agent, or none: %q", last)
	}
}

// TestInheritInstructions: what the model was told to do stays in front, however much was said
// since.
func TestInheritInstructions(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	first := again(t, s, agents.JoinRequest{Name: "n"})
	msgs := []memory.Message{{Role: memory.System, Content: "be brief"}, user("old")}
	for len(msgs) < agents.MaxInherited+5 {
		msgs = append(msgs, user("x"))
	}
	for i := 0; i < len(msgs); i += memory.MaxBatch {
		if _, err := s.Messages.Append(t.Context(), "p", first.ID, msgs[i:min(len(msgs), i+memory.MaxBatch)]); err != nil {
			t.Fatal(err)
		}
	}
	leave(t, s, first)
	second := again(t, s, agents.JoinRequest{Name: "n", Inherit: memory.InheritFull})
	if in := second.Settings.Memory.Inherited; in == nil || in.Messages != agents.MaxInherited || in.LeftOut != 5 {
		t.Fatalf("%+v", in)
	}
	_, got, err := s.Messages.Remembered(t.Context(), "p", second.ID)
	if err != nil || got[0].Content != "be brief" || got[1].Content != "x" {
		t.Errorf("%+v %+v, %v", got[0], got[1], err)
	}
	if noted := second.Settings.Memory.Instructions; !slices.Equal(noted, []int64{1}) {
		t.Errorf("instructions: %v", noted)
	}
}

// TestInheritBounds: what is taken over is bounded, and does not begin with a result whose call was
// left behind.
func TestInheritBounds(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	first := again(t, s, agents.JoinRequest{Name: "n"})
	msgs := []memory.Message{user("old"), {Role: memory.Assistant, Source: memory.SourceLLM, ToolCalls: json.RawMessage(`[{"id":"c"}]`)}, {Role: memory.Tool, ToolCallID: "c", Content: "r"}}
	for i := len(msgs); i < agents.MaxInherited+2; i++ {
		msgs = append(msgs, user("x"))
	}
	for i := 0; i < len(msgs); i += memory.MaxBatch {
		if _, err := s.Messages.Append(t.Context(), "p", first.ID, msgs[i:min(len(msgs), i+memory.MaxBatch)]); err != nil {
			t.Fatal(err)
		}
	}
	leave(t, s, first)
	second := again(t, s, agents.JoinRequest{Name: "n", Inherit: memory.InheritFull})
	if in := second.Settings.Memory.Inherited; in == nil || in.Messages != agents.MaxInherited-1 || in.LeftOut != 3 {
		t.Fatalf("%+v", in)
	}
	_, got, err := s.Messages.Remembered(t.Context(), "p", second.ID)
	if err != nil || got[0].Role != memory.User {
		t.Errorf("%+v, %v", got[0], err)
	}
}

// TestInheritSilence: what was said before the agent began is neither its greeting nor the
// beginning of a silence.
func TestInheritSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		first := again(t, s, agents.JoinRequest{Name: "n"})
		if _, err := s.Messages.Append(t.Context(), "p", first.ID, []memory.Message{user("old")}); err != nil {
			t.Fatal(err)
		}
		leave(t, s, first)
		time.Sleep(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Agents.Run(ctx) }()
		second := again(t, s, agents.JoinRequest{Name: "n", Inherit: memory.InheritFull, Settings: memory.Settings{
			LLM: memory.LLMSettings{Greeting: "Hello again.", GreetingDelay: 2000}, Silence: memory.Silence{TimeoutMS: 10_000, Action: "speak", Content: "Still there?"},
		}})
		at := func(after time.Duration) string {
			time.Sleep(after)
			synctest.Wait()
			_, msgs, err := s.Messages.Remembered(t.Context(), "p", second.ID)
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, m := range msgs {
				out = append(out, m.Content)
			}
			return strings.Join(out, "|")
		}
		if got := at(time.Second); got != "old" {
			t.Errorf("after 1 s: %s", got)
		}
		if got := at(2 * time.Second); got != "old|Hello again." {
			t.Errorf("after 3 s: %s", got)
		}
		if got := at(10 * time.Second); got != "old|Hello again.|Still there?" {
			t.Errorf("after 13 s: %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestDropIdle: over the limit the agent that was idle for longest gives its place, never one that
// is busy; where the server is not set so, the new one is refused.
//
// Rules: 004-7
func TestDropIdle(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprint(drop), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, func(c *agents.Config) { c.MaxAgents, c.DropIdle = 3, drop })
				var joined []memory.Agent
				for i := range 3 {
					joined = append(joined, again(t, s, agents.JoinRequest{Name: fmt.Sprint(i)}))
					time.Sleep(time.Minute)
				}
				elsewhere := again(t, s, agents.JoinRequest{Project: "other", Name: "0"})
				s.Messages.Touch("p", joined[0].ID)
				stopWatching := s.Messages.Follow("p", joined[1].ID).Close
				time.Sleep(time.Minute)
				_, err := s.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: "new", Properties: []byte("{}")})
				if !drop {
					if !fault.Is(err, fault.Quota) {
						t.Errorf("over the limit: %v", err)
					}
					stopWatching()
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				want := func(a memory.Agent, status memory.Status, message string) {
					t.Helper()
					now, err := s.Agents.Agent(t.Context(), a.Project, a.ID)
					if err != nil || now.Status != status || now.Message != message {
						t.Errorf("agent %s: %s %q, %v", a.Name, now.Status, now.Message, err)
					}
				}
				want(joined[0], memory.Running, "")
				want(joined[1], memory.Running, "") // somebody watches it
				want(joined[2], memory.Stopped, agents.EndDropped)
				want(elsewhere, memory.Running, "")
				time.Sleep(time.Minute)
				s.Messages.Touch("p", joined[0].ID)
				again(t, s, agents.JoinRequest{Name: "newer"})
				want(joined[0], memory.Running, "")
				stopWatching()
			})
		})
	}
}

// TestDropIdleBusy: no agent is dropped if all of them are busy.
func TestDropIdleBusy(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *agents.Config) { c.MaxAgents, c.DropIdle = 1, true })
	a := again(t, s, agents.JoinRequest{Name: "busy"})
	stop := s.Messages.Follow("p", a.ID).Close
	defer stop()
	if _, err := s.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: "new", Properties: []byte("{}")}); !fault.Is(err, fault.Quota) {
		t.Errorf("%v", err)
	}
}

// TestDropIdleRace: many join at once over the limit, and all are idle: each finds a place, and in
// the end as many run as may.
func TestDropIdleRace(t *testing.T) {
	t.Parallel()
	const limit = 4
	s := newService(t, func(c *agents.Config) { c.MaxAgents, c.DropIdle = limit, true })
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			_, err := s.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: fmt.Sprint(i), Properties: []byte("{}")})
			if err != nil {
				t.Error(errors.Unwrap(err), err)
			}
		})
	}
	wg.Wait()
	page, err := s.Agents.List(t.Context(), memory.AgentQuery{Project: "p", Statuses: []memory.Status{memory.Running}, Limit: 100})
	if err != nil || page.Total != limit {
		t.Errorf("%d agents run, %v", page.Total, err)
	}
}

// TestSessionTTL: an agent whose own policy is OSSA's ends after its hour without activity, unless
// it says otherwise.
//
// Rules: 004-7
func TestSessionTTL(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *agents.Config) { c.IdleTimeout = 30 * time.Minute })
	ossa := memory.Memory{Policy: &window.Policy{Preset: "ossa"}}
	for name, tt := range map[string]struct {
		settings memory.Settings
		want     int
	}{
		"the server's":      {memory.Settings{IdleTimeoutS: -1}, 1800},
		"of the preset":     {memory.Settings{IdleTimeoutS: -1, Memory: ossa}, 3600},
		"its own":           {memory.Settings{IdleTimeoutS: 60, Memory: ossa}, 60},
		"none, as it wants": {memory.Settings{IdleTimeoutS: 0, Memory: ossa}, 0},
	} {
		if a := again(t, s, agents.JoinRequest{Name: name, Settings: tt.settings}); a.Settings.IdleTimeoutS != tt.want {
			t.Errorf("%s: %d s, want %d", name, a.Settings.IdleTimeoutS, tt.want)
		}
	}
}
