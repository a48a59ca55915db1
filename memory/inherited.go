package memory

import (
	"slices"
)

// Inherit is what a new agent takes over from the last one of its name.
type Inherit string

// The ways to inherit. The zero value is InheritNone.
const (
	InheritNone    Inherit = "none"
	InheritSummary Inherit = "summary" // begins with a summary of what the last one remembered
	InheritFull    Inherit = "full"    // goes on with its messages and its summary
)

// Inherited is what an agent took over when it began. It is not changed once set, but replaced.
type Inherited struct {
	From     string  `json:"from"` // the agent's id
	Mode     Inherit `json:"mode"`
	Messages int     `json:"messages,omitempty"` // how many were taken over
	LeftOut  int     `json:"left_out,omitempty"` // how many older ones were not, for the bounds
	Summary  bool    `json:"summary,omitempty"`  // there was a summary
	// UpToSeq is the Seq of the last message that was taken over; 0 is none. Later messages are the
	// agent's own.
	UpToSeq int64 `json:"up_to_seq,omitempty"`
	// Ancestors are agents whose messages are still to be put into the summary, oldest first.
	Ancestors []Ancestor `json:"ancestors,omitempty"`
}

// Ancestor is an agent that has ended, of whose messages some are not summarised yet.
type Ancestor struct {
	ID    string `json:"id"`
	After int64  `json:"after,omitempty"` // Seq of the last message that is
}

// Ancestry reports whether messages of earlier agents are still to be summarized.
func (m *Memory) Ancestry() bool { return m.Inherited != nil && len(m.Inherited.Ancestors) > 0 }

// OwnSince returns the Seq after which the agent's own messages begin.
func (m *Memory) OwnSince() int64 {
	if m.Inherited == nil {
		return 0
	}
	return m.Inherited.UpToSeq
}

// Own returns the messages of a ledger that were not taken over from an earlier agent.
func (m *Memory) Own(msgs []Message) []Message {
	since := m.OwnSince()
	if since == 0 {
		return msgs
	}
	return slices.DeleteFunc(slices.Clone(msgs), func(msg Message) bool { return msg.Seq <= since })
}
