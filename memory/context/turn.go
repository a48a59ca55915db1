package context

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/window"
)

// ForTurn sets a turn's context by the agent's policy and the request's; see TurnRequest.Window.
// The request's messages are stored already, and messages that came after them may be in the
// context too.
func (s *Service) ForTurn(ctx context.Context, t *agents.Turn, request *window.Policy) error {
	p := s.policies.Of(&t.Agent, request)
	c, err := s.policies.Counter(&p)
	if err != nil {
		return err
	}
	v := s.viewOf(&t.Agent, request)
	how := func(*memory.Agent) (method, error) {
		return method{policy: p, counter: c, view: v, extras: window.Extras{Question: true}}, nil
	}
	_, mem, _, read, err := s.read(ctx, t.Agent.Ref(), how, false, true)
	if err != nil {
		return err
	}
	t.Window = &agents.TurnWindow{Policy: p, Counter: c, View: v}
	if !*p.Enabled {
		t.Context = memory.LastQuestion(mem.rest)
		return nil
	}
	t.Context = make([]*memory.Message, 0, len(read.Entries))
	last := &memory.Message{}
	for _, e := range read.Entries {
		if e.Kind == window.Kept {
			last = mem.at(e.Index)
			t.Context = append(t.Context, last)
			continue
		}
		m := memory.Message{TurnID: last.TurnID, Timestamp: last.Timestamp}
		if e.Index >= 0 {
			m = *mem.at(e.Index)
			m.Generated, m.Sent, m.Interrupted = "", "", false // the text is not what was said
		}
		m.Role, m.Content, m.Parts = e.Message.Role, e.Message.Text, e.Message.Parts
		m.ToolCalls, m.ToolCallID, m.ToolName = e.Message.ToolCalls, e.Message.ToolCallID, e.Message.ToolName
		if string(m.Parts) == "null" {
			m.Parts = nil
		}
		t.Context = append(t.Context, &m)
	}
	if !slices.ContainsFunc(t.Context, func(m *memory.Message) bool { return !m.Role.Instructs() }) {
		t.Context = memory.LastQuestion(mem.rest) // a model needs something to answer
	}
	return nil
}
