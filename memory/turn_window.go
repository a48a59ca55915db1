package memory

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/memory/window"
)

// TurnWindow is the policy that made a turn's context, where it is not the default with the agent's max_history.
type TurnWindow struct {
	Policy  window.Policy // with every field set
	Counter window.Counter
	// View is how the conversation is shown under it.
	View *View
}

// windowed makes a turn's context by the agent's policy and the request's. The call's messages are stored already, and what came since may be in it.
func (s *Service) windowed(ctx context.Context, t *Turn, request *window.Policy) error {
	p := s.PolicyOf(&t.Agent, request)
	c, err := s.counter(&p)
	if err != nil {
		return err
	}
	v := s.viewOf(&t.Agent, request)
	_, mem, _, read, err := s.read(ctx, t.Agent.Project, t.Agent.ID, func(*Agent) (reading, error) { return reading{policy: p, counter: c, view: v}, nil }, (*recalled).asks)
	if err != nil {
		return err
	}
	t.Window = &TurnWindow{Policy: p, Counter: c, View: v}
	if !*p.Enabled { // what the user says now, and what tools answered since
		t.Context = lastWords(mem.stored)
		return nil
	}
	t.Context = make([]*Message, 0, len(read.Entries))
	last := &Message{}
	for _, e := range read.Entries {
		if e.Kind == window.Kept {
			last = &mem.stored[e.Index]
			t.Context = append(t.Context, last)
			continue
		}
		m := Message{TurnID: last.TurnID, Timestamp: last.Timestamp}
		if e.Index >= 0 {
			m = mem.stored[e.Index]
			m.Generated, m.Sent, m.Interrupted = "", "", false // what is told of it is not what was said
		}
		m.Role, m.Content, m.Parts = Role(e.Message.Role), e.Message.Text, e.Message.Parts
		m.ToolCalls, m.ToolCallID, m.ToolName = e.Message.ToolCalls, e.Message.ToolCallID, e.Message.ToolName
		if string(m.Parts) == "null" {
			m.Parts = nil
		}
		t.Context = append(t.Context, &m)
	}
	if t.asksNothing() {
		t.Context = lastWords(mem.stored) // an LLM that is asked nothing answers nothing
	}
	return nil
}

// asks tells whether the user's last words are at hand.
func (r *recalled) asks() bool {
	return slices.ContainsFunc(r.stored[r.part.lead:], func(m Message) bool { return m.Role == User && m.InContext() })
}

// asksNothing tells whether Context holds no words to answer.
func (t *Turn) asksNothing() bool {
	return !slices.ContainsFunc(t.Context, func(m *Message) bool { return !instructs(m.Role) })
}

// lastWords gives the newest user message and what follows it.
func lastWords(msgs []Message) []*Message {
	var out []*Message
	for i := len(msgs) - 1; i >= 0; i-- {
		m := &msgs[i]
		if !m.InContext() {
			continue
		}
		out = append(out, m)
		if m.Role == User {
			break
		}
	}
	slices.Reverse(out)
	return out
}

// Left tells of a ledger message that is paired with one of a platform's own list whether the agent remembers it no more: it was cleared, trimmed, or its status
// keeps it out.
func (t *Turn) Left(m *Message) bool {
	if m.Seq < t.Agent.Settings.Memory.BaseSeq || m.Status != Accepted {
		return true
	}
	return m.State == Dropped || m.State == Merged || m.State == Removed
}

// summary gives what stands for what has left the memory, as it goes to the LLM; "" where nothing does.
func (t *Turn) summary() string {
	if t.Window != nil && !*t.Window.Policy.Enabled {
		return ""
	}
	return t.Agent.Settings.Memory.Summary
}
