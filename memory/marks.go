package memory

import (
	"cmp"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
)

// Marks are the revisions at which a stored message changed in the ways that a live tail
// distinguishes, so that a client that reconnects gets each change once, from any server. 0 stands
// for the message's own Rev; a message that never changed has no marks.
type Marks struct {
	Born int64 `json:"born,omitempty"` // it was appended
	// The interruption: that, when and why, and what was heard; for interrupted messages only
	Cut   int64 `json:"cut,omitempty"`
	Heard int64 `json:"heard,omitempty"` // the evidence of what was heard
	Turn  int64 `json:"turn,omitempty"`  // it moved to another turn; 0 = never
	State int64 `json:"state,omitempty"` // its state became what it is
}

// BornRev returns the revision at which the message was appended.
func (m *Message) BornRev() int64 { return cmp.Or(m.Marks.Born, m.Rev) }

// CutRev returns the revision at which the interruption last changed, or 0 if the message is not
// interrupted.
func (m *Message) CutRev() int64 {
	if !m.Interrupted {
		return 0
	}
	return cmp.Or(m.Marks.Cut, m.Rev)
}

// HeardRev returns the revision at which the evidence of what was heard last changed, or 0 if there
// is none beyond our own assumption.
func (m *Message) HeardRev() int64 {
	if m.Role != Assistant || m.Method.Rank() <= AssumedFull.Rank() {
		return 0
	}
	return cmp.Or(m.Marks.Heard, m.Rev)
}

// StateRev returns the revision at which the message's state last changed.
func (m *Message) StateRev() int64 { return cmp.Or(m.Marks.State, m.Rev) }

// Closes reports whether the message is an answer that ends its turn. Empty answers and answers
// with tool calls only do not.
func (m *Message) Closes() bool {
	if m.Role != Assistant {
		return false
	}
	switch m.State {
	case Final, Unplayed, Replaced:
		return m.Original() != "" || m.Failure != nil
	}
	return m.Failure != nil && m.State != Superseded
}

// Said reports whether the words are the agent's own, not the model's: greeting, silence, speak.
func (m *Message) Said() bool { return m.Role == Assistant && m.Source.unsolicited() }

// Mark sets the marks of the changed messages, and keeps texts that they had where records of
// requests refer to them. The view has their old values.
func (c *Change) Mark(view AgentView) error {
	for i := range c.Replace {
		m := &c.Replace[i]
		old, err := view.Seq(m.Seq)
		if fault.Is(err, fault.NotFound) {
			continue // the store refuses the change
		}
		if err != nil {
			return err
		}
		m.Marks = marksAfter(m, &old)
		if m.State != Removed && !m.begins(&old) {
			ledger, err := view.Last(int(view.Head().NextSeq - m.Seq))
			if err != nil {
				return err
			}
			m.keep(&old, c.replaced(ledger), c.Append)
		}
		if m.Content != old.Content || m.Interrupted != old.Interrupted || m.InterruptMS != old.InterruptMS {
			m.dropRaw() // it has what the caller did not hear
		}
	}
	return nil
}

// replaced returns messages as they are after the change.
func (c *Change) replaced(msgs []Message) []Message {
	if len(c.Replace) < 2 { // the message itself
		return msgs
	}
	out := slices.Clone(msgs)
	for i := range c.Replace {
		if at := slices.IndexFunc(out, func(m Message) bool { return m.Seq == c.Replace[i].Seq }); at >= 0 {
			out[at] = c.Replace[i]
		}
	}
	return out
}

// marksAfter returns the marks of m, the new value of old.
func marksAfter(m, old *Message) Marks {
	if m.Rev == old.Rev {
		return old.Marks
	}
	k := Marks{Born: old.BornRev(), Turn: old.Marks.Turn}
	if m.Interrupted == old.Interrupted && m.InterruptMS == old.InterruptMS && m.InterruptBy == old.InterruptBy && m.Content == old.Content {
		k.Cut = old.CutRev()
	}
	if m.Method == old.Method && m.EvidenceMS == old.EvidenceMS && m.Confidence == old.Confidence && m.Content == old.Content && m.State == old.State {
		k.Heard = old.HeardRev()
	}
	if m.State == old.State && m.State != Final {
		k.State = old.StateRev()
	}
	if m.TurnID != old.TurnID {
		k.Turn = m.Rev
	}
	return k
}

// Operations on a memory, as live tails show them.
const (
	ActionAdded    = "added"    // a message was appended
	ActionSearched = "searched" // leaves nothing in the ledger
	ActionCleared  = "cleared"  // the whole memory, or one message of it
	ActionTrimmed  = "trimmed"  // a message was cut from the memory
	ActionRestored = "restored" // another memory was put in its place
)

// maxActs is how many acts an agent keeps.
const maxActs = 16

// MemoryAct is one thing that was done to the whole memory.
type MemoryAct struct {
	Rev    int64  `json:"rev"`
	Action string `json:"action"` // ActionCleared, ActionTrimmed or ActionRestored
	Base   int64  `json:"base"`   // Memory.BaseSeq since then
}

// MarkMemory records in a change of the agent at which revision its summary and its memory changed,
// and notes its instructions. The head is that before the change.
func (c *Change) MarkMemory(head *Head) {
	if c.Agent == nil {
		if list, from, differ := head.Agent.Settings.Memory.instructionsAfter(c); differ {
			a := *head.Agent
			a.Settings.Memory.Instructions, a.Settings.Memory.ConversationFrom = list, from
			c.Agent = &a // nothing that a live tail shows: the agent keeps its Rev
		}
		return
	}
	was, is := &head.Agent.Settings.Memory, &c.Agent.Settings.Memory
	is.SummaryRev, is.Acts, is.Instructions = was.SummaryRev, was.Acts, was.Instructions
	is.NoteInstructions(c)
	if is.Summary != was.Summary || is.SummaryMS != was.SummaryMS || is.SummaryUpTo != was.SummaryUpTo {
		is.SummaryRev = head.Rev + 1
	}
	if is.BaseSeq == was.BaseSeq {
		return
	}
	act := MemoryAct{Rev: head.Rev + 1, Action: ActionCleared, Base: is.BaseSeq}
	switch {
	case is.BaseSeq < head.NextSeq, drops(c.Append), drops(c.Replace): // some of it stays
		act.Action = ActionTrimmed
	case len(c.Append) > 0:
		act.Action = ActionRestored
	case is.SummaryRev == act.Rev: // what is gone stays in the summary's words
		act.Action = ActionTrimmed
	}
	acts := was.Acts[max(0, len(was.Acts)-maxActs+1):]
	is.Acts = append(acts[:len(acts):len(acts)], act) // the old list is the store's
}

// drops reports whether a message of the list left the memory.
func drops(list []Message) bool {
	return slices.ContainsFunc(list, func(m Message) bool { return m.State == Dropped })
}
