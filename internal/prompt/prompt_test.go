package prompt_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/store/storetest"
)

// call is a call in progress: an agent, and what it has been asked and has answered.
type call struct {
	*testing.T
	mem   *agents.Service
	agent memory.Agent
}

func newCall(t *testing.T, edit func(*memory.LLMSettings)) *call {
	t.Helper()
	c := &call{T: t, mem: agents.NewService(agents.Config{Ledger: storetest.New(t), Now: time.Now, NewID: func() string { return "a1" }})}
	settings := memory.Settings{IdleTimeoutS: -1}
	if edit != nil {
		edit(&settings.LLM)
	}
	var err error
	if c.agent, err = c.mem.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: "n", Settings: settings}); err != nil {
		t.Fatal(err)
	}
	return c
}

// list returns a client's messages: "user: Hello." for a text, JSON for anything else.
func list(messages ...string) string {
	out := make([]string, len(messages))
	for i, m := range messages {
		if out[i] = m; m[0] != '{' {
			role, said, _ := strings.Cut(m, ": ")
			out[i] = fmt.Sprintf(`{"role":%q,"content":%q}`, role, said)
		}
	}
	return `{"messages":[` + strings.Join(out, ",") + `]}`
}

// ask begins a turn with a client's list, and returns the plan, the turn and the messages for the
// LLM.
func (c *call) ask(mode string, body string) (*prompt.Plan, *agents.Turn, []string) {
	c.Helper()
	in, err := llmadapter.ParseRequest([]byte(body))
	if err != nil {
		c.Fatal(err)
	}
	h := http.Header{}
	if mode != "" {
		h.Set(prompt.ModeHeader, mode)
	}
	p, err := prompt.NewPlan(prompt.Rules{Redactor: func(*memory.Agent) *redact.Redactor { return nil }}, h, &prompt.Call{Request: in})
	if err != nil {
		c.Fatal(err)
	}
	ask := p.Begin()
	ask.Window = memctx.New(c.mem).ForTurn
	t, err := c.mem.Turns.Begin(c.Context(), "p", "a1", ask)
	if err != nil {
		c.Fatal(err)
	}
	var got struct {
		Messages []struct {
			Role, Content string
			Calls         json.RawMessage `json:"tool_calls"`
		}
	}
	b := prompt.New(t, &t.Agent.Settings.LLM, p, nil, 0).Body(&prompt.Recipient{})
	if err := json.Unmarshal(b, &got); err != nil {
		c.Fatalf("%v: %s", err, b)
	}
	var out []string
	for _, m := range got.Messages {
		out = append(out, m.Role+": "+m.Content+string(m.Calls))
	}
	return p, t, out
}

// answer stores what the model said in a turn, and how much of it was sent.
func (c *call) answer(t *agents.Turn, said, sent string, calls string) memory.Message {
	c.Helper()
	a := agents.Answer{Generated: said, Sent: sent, Complete: said == sent, Timings: memory.Timings{FirstTokenMS: 1}}
	if calls != "" {
		a.ToolCalls = []byte(calls)
	}
	if said != sent {
		a.Err = agents.ErrInterrupted
	}
	m, err := c.mem.Turns.Settle(c.Context(), t, a)
	if err != nil {
		c.Fatal(err)
	}
	return m
}

// TestPrompt checks what the LLM is given in the second turn of a call.
func TestPrompt(t *testing.T) {
	t.Parallel()
	const (
		first  = "user: When does it leave?"
		second = "user: And back?"
		calls  = `[{"id":"c1","type":"function","function":{"name":"find","arguments":"{}"}}]`
		result = `{"role":"tool","tool_call_id":"c1","content":"nine"}`
	)
	for name, tt := range map[string]struct {
		mode       string
		said, sent string // the first answer
		calls      string
		heard      string // by a report, "" without one
		list       []string
		want       []string
	}{
		"only what is new": {
			said: "At nine.", sent: "At nine.", list: []string{second},
			want: []string{first, "assistant: At nine.", second},
		},
		"the whole history": {
			said: "At nine.", sent: "At nine.", list: []string{first, "assistant: At nine.", second},
			want: []string{first, "assistant: At nine.", second},
		},
		"a cut answer that the list has in full": {
			mode: prompt.ModeReconcile, said: "At nine from platform two.", sent: "At nine from", heard: "At nine",
			list: []string{first, "assistant: At nine from platform two.", second},
			want: []string{first, "assistant: At nine", second},
		},
		"a heard answer that the list lacks": {
			mode: prompt.ModeReconcile, said: "At nine from platform two.", sent: "At nine from platform two.", heard: "At nine",
			list: []string{first, second},
			want: []string{first, "assistant: At nine", second},
		},
		"a system message of the client": {
			said: "At nine.", sent: "At nine.", list: []string{"system: Be brief.", second},
			want: []string{"system: Be brief.", first, "assistant: At nine.", second},
		},
		"a result": {
			calls: calls, list: []string{result},
			want: []string{first, "assistant: " + calls, "tool: nine"},
		},
		"a call that the client sends again": {
			mode: prompt.ModeInject, calls: calls, list: []string{`{"role":"assistant","content":null,"tool_calls":` + calls + `}`, result},
			want: []string{first, "assistant: " + calls, "tool: nine"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCall(t, nil)
			_, turn, _ := c.ask("", list(first))
			stored := c.answer(turn, tt.said, tt.sent, tt.calls)
			if tt.heard != "" {
				if err := c.mem.Messages.Change(t.Context(), "p", "a1", func(view memory.AgentView) (memory.Change, error) {
					m, err := view.Seq(stored.Seq)
					if err != nil {
						return memory.Change{}, err
					}
					h := view.Head()
					m, _, err = m.WithEvidence(memory.Evidence{Seq: m.Seq, Method: memory.VendorText, Heard: tt.heard, Confidence: 100}, 1)
					m.Rev = h.Rev + 1
					return memory.Change{Replace: []memory.Message{m}}, err
				}); err != nil {
					t.Fatal(err)
				}
			}
			p, next, got := c.ask(tt.mode, list(tt.list...))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if p.Ghost() {
				t.Error("the call counts as asked again")
			}
			c.answer(next, "At ten.", "At ten.", "")
		})
	}
}

// TestGhost checks that the same list again is another answer to the same question.
func TestGhost(t *testing.T) {
	t.Parallel()
	c := newCall(t, nil)
	body := list("user: When does it leave?", "assistant: At nine.", "user: And back?")
	p, turn, _ := c.ask("", body)
	if p.Ghost() {
		t.Error("the first call counts as asked again")
	}
	c.answer(turn, "At ten.", "At ten.", "")
	again, next, got := c.ask("", body)
	if !again.Ghost() || next.TurnID != turn.TurnID {
		t.Errorf("ghost %t, turn %d after %d", again.Ghost(), next.TurnID, turn.TurnID)
	}
	if want := []string{"user: When does it leave?", "assistant: At nine.", "user: And back?"}; !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
	c.answer(next, "At ten.", "At ten.", "")
}

// TestNewPlan checks what a call is refused for.
func TestNewPlan(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ header, value, body, field string }{
		"mode":       {prompt.ModeHeader, "both", list("user: Hello."), prompt.ModeHeader},
		"projection": {prompt.ProjectionHeader, "all", list("user: Hello."), prompt.ProjectionHeader},
		"own member": {"", "", `{"messages":[{"role":"user","content":"Hello."}],"heardlog":{"polcy":{}}}`, "heardlog.polcy"},
		"policy":     {"", "", `{"messages":[{"role":"user","content":"Hello."}],"heardlog":{"policy":{"max_messages":-1}}}`, "heardlog.policy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, err := llmadapter.ParseRequest([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			if tt.header != "" {
				h.Set(tt.header, tt.value)
			}
			_, err = prompt.NewPlan(prompt.Rules{}, h, &prompt.Call{Request: in})
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tt.field) {
				t.Errorf("%v", err)
			}
		})
	}
}
