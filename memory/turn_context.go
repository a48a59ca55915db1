package memory

import (
	"slices"

	"github.com/heardlog/heardlog/memory/window"
)

// TurnWindow is the policy that made a turn's context, if it is not the default one with the
// agent's MaxHistory.
type TurnWindow struct {
	Policy  window.Policy // with every field set
	Counter window.Counter
	// View is how the conversation is shown under it.
	View *View
}

// asksNothing reports whether Context has no words to answer.
func (t *Turn) asksNothing() bool {
	return !slices.ContainsFunc(t.Context, func(m *Message) bool { return !instructs(m.Role) })
}

// LastQuestion returns the newest user message and what follows it.
func LastQuestion(msgs []Message) []*Message {
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

// Left reports whether a message of the ledger is no longer in the agent's memory: it was cleared,
// trimmed, or its status excludes it.
func (t *Turn) Left(m *Message) bool {
	if m.Seq < t.Agent.Settings.Memory.BaseSeq || m.Status != Accepted {
		return true
	}
	return m.State == Dropped || m.State == Merged || m.State == Removed
}

// summary returns the summary that the model is given, or "".
func (t *Turn) summary() string {
	if t.Window != nil && !*t.Window.Policy.Enabled {
		return ""
	}
	return t.Agent.Settings.Memory.Summary
}
