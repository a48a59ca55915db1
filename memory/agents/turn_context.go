package agents

import (
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// TurnWindow is the policy that made a turn's context, if it is not the default one with the
// agent's MaxHistory.
type TurnWindow struct {
	Policy  window.Policy // with every field set
	Counter window.Counter
	// View is how the conversation is shown under it.
	View *view.View
}

// asksNothing reports whether Context has no words to answer.
func (t *Turn) asksNothing() bool {
	return !slices.ContainsFunc(t.Context, func(m *memory.Message) bool { return !m.Role.Instructs() })
}

// Left reports whether a message of the ledger is no longer in the agent's memory: it was cleared,
// trimmed, or its status excludes it.
func (t *Turn) Left(m *memory.Message) bool {
	if m.Seq < t.Agent.Settings.Memory.BaseSeq || m.Status != memory.Accepted {
		return true
	}
	return m.State == memory.Dropped || m.State == memory.Merged || m.State == memory.Removed
}

// summary returns the summary that the model is given, or "".
func (t *Turn) summary() string {
	if t.Window != nil && !*t.Window.Policy.Enabled {
		return ""
	}
	return t.Agent.Settings.Memory.Summary
}

// ContextAs returns Context as the view shows it. It is Context itself unless the view shows more
// messages.
func (t *Turn) ContextAs(v *view.View) []*memory.Message {
	if t.Window != nil || !v.ShowsUnheard() {
		return t.Context
	}
	return newestOf(memory.ByTurn(t.Agent.Settings.Memory.Since(t.Recent())), t.Agent.Settings.LLM.MaxHistory, func(m *memory.Message) bool { return m.ShownBy(v) })
}
