package memory

import (
	"cmp"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
)

// Marks are the revisions at which a stored message passed what the live tail tells apart from its other changes, so that a reader who comes back is
// told of each once, by whatever server. 0 stands for the message's own Rev: a message that never changed has none.
type Marks struct {
	Born  int64 `json:"born,omitempty"`  // it was appended
	Cut   int64 `json:"cut,omitempty"`   // that it is interrupted, when, why, or what was heard of it then; looked at of interrupted messages only
	Heard int64 `json:"heard,omitempty"` // the evidence of what was heard
	Turn  int64 `json:"turn,omitempty"`  // it moved to another turn; 0 = never
	State int64 `json:"state,omitempty"` // its state became what it is
}

// BornRev gives the revision at which the message was appended.
func (m *Message) BornRev() int64 { return cmp.Or(m.Marks.Born, m.Rev) }

// CutRev gives the revision at which the interruption became what it is; 0 for a message that is not interrupted.
func (m *Message) CutRev() int64 {
	if !m.Interrupted {
		return 0
	}
	return cmp.Or(m.Marks.Cut, m.Rev)
}

// HeardRev gives the revision at which the evidence of what was heard became what it is; 0 where there is none that says more than our own assumption.
func (m *Message) HeardRev() int64 {
	if m.Role != Assistant || m.Method.Rank() <= AssumedFull.Rank() {
		return 0
	}
	return cmp.Or(m.Marks.Heard, m.Rev)
}

// MovedRev gives the revision at which the message came to another turn; 0 if it never did.
func (m *Message) MovedRev() int64 { return m.Marks.Turn }

// StateRev gives the revision at which the message's state became what it is.
func (m *Message) StateRev() int64 { return cmp.Or(m.Marks.State, m.Rev) }

// Closes tells whether the message is an answer that ends its turn: an empty one leaves it open, and so does one that only calls tools.
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

// Said tells whether the words are the agent's own, not the model's: greeting, silence, speak.
func (m *Message) Said() bool { return m.Role == Assistant && m.Source.unsolicited() }

// mark sets the marks of a change's new values of stored messages. The decision's transaction has the old ones.
func mark(view AgentView, c *Change) error {
	for i := range c.Replace {
		m := &c.Replace[i]
		old, err := view.Seq(m.Seq)
		if fault.Is(err, fault.NotFound) {
			continue // the store refuses the change
		}
		if err != nil {
			return err
		}
		m.Marks = m.after(&old)
		if m.Content != old.Content || m.Interrupted != old.Interrupted || m.InterruptMS != old.InterruptMS {
			m.forgetRaw() // it says what the caller did not hear
		}
	}
	return nil
}

// after gives the marks of m, the new value of old.
func (m *Message) after(old *Message) Marks {
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

// What is done to a memory (reference/memory-semantics.md 003-22: memory:added, memory:searched, memory:cleared), as the live tail tells it.
const (
	ActionAdded    = "added"    // a message was appended
	ActionSearched = "searched" // leaves nothing in the ledger
	ActionCleared  = "cleared"  // the whole memory, or one message of it
	ActionTrimmed  = "trimmed"  // a message was cut from the memory
	ActionRestored = "restored" // another memory was put in its place
)

// MaxActs is how many acts an agent keeps.
const MaxActs = 16

// MemoryAct is one thing that was done to the whole memory.
type MemoryAct struct {
	Rev    int64  `json:"rev"`
	Action string `json:"action"` // ActionCleared, ActionTrimmed or ActionRestored
	Base   int64  `json:"base"`   // Memory.BaseSeq since then
}

// markMemory notes in a change of the agent at which revision its summary and its memory became what they are.
func markMemory(head *Head, c *Change) {
	if c.Agent == nil {
		return
	}
	was, is := &head.Agent.Settings.Memory, &c.Agent.Settings.Memory
	is.SummaryRev, is.Acts = was.SummaryRev, was.Acts
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
	acts := was.Acts[max(0, len(was.Acts)-MaxActs+1):]
	is.Acts = append(acts[:len(acts):len(acts)], act) // the old list is the store's
}

// drops tells whether a message of the list was cut from the memory.
func drops(list []Message) bool {
	return slices.ContainsFunc(list, func(m Message) bool { return m.State == Dropped })
}
