package memory

import (
	"cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/heard"
)

// applyEvidence gives m as the evidence has it, and whether that is any change. A higher method replaces a lower one; of two equal ones the words of an
// echo count more than their absence, then the later moment, then the shorter text, so that any order of the same evidence, however often repeated,
// gives the same record.
func applyEvidence(m Message, e Evidence, now int64) (Message, bool, error) {
	whole := m.Original()
	said := whole
	switch {
	case e.State != Final:
		said = ""
	case !e.Full:
		var ok bool
		if said, ok = heard.Align(whole, e.Heard); !ok {
			return m, false, fault.At(fault.Invalid, "heard", "is no part of the answer of turn %d, which begins %q; send the words of it that were heard", m.TurnID, clip(whole, 60))
		}
	}
	cut := said != whole || e.Method == DisconnectOnly || m.CutGenerated
	sent := m.SentText() // as it was before anything is changed
	changed := cut && m.noteCut(e, now)
	if !e.beats(&m, said) {
		if !m.Interrupted && e.Method == DisconnectOnly && m.Method == DisconnectOnly { // a cut that says nothing of what was heard is a cut all the same
			m.Interrupted, changed = true, true
		}
		return m, changed, nil
	}
	m.Method, m.EvidenceMS, m.Confidence = e.Method, e.AtMS, e.Confidence
	// So is an answer that was cut while it was made; heard text that is the whole answer is none.
	m.Interrupted = cut
	m.Content, m.Generated, m.Sent = said, whole, sent
	if m.Generated == m.Content && !m.CutGenerated {
		m.Generated = ""
	}
	if m.Sent == m.sentUnsaid() {
		m.Sent = ""
	}
	m.State = e.stateOf(&m)
	return m, true, nil
}

// stateOf gives the state of m, of which the evidence holds: a ghost stays one.
func (e Evidence) stateOf(m *Message) State {
	switch {
	case m.State == Superseded:
		return Superseded
	case e.State != Final:
		return e.State
	case m.State == Empty && m.Content == "":
		return Empty
	}
	return Final
}

// noteCut takes over when and why the answer was cut, where the evidence knows it better, and tells whether it did. What Settle saw of the
// cause stays; a named cause counts more than none.
func (m *Message) noteCut(e Evidence, now int64) bool {
	changed := false
	switch {
	case e.AtMS != 0 && (m.InterruptMS == 0 || cmp.Or(cmp.Compare(e.Method.Rank(), m.InterruptMSFrom().Rank()), cmp.Compare(e.AtMS, m.InterruptMS)) > 0):
		m.InterruptMS, changed = e.AtMS, true
		m.Amend(func(r *Rare) { r.InterruptMSFrom = e.Method })
	case m.InterruptMS == 0:
		m.InterruptMS, changed = now, true
	}
	by, from := e.By, e.Method
	if by == "" {
		by, from = ByStartOfSpeech, AssumedFull
	}
	if m.InterruptBy == "" || m.InterruptByFrom() != "" && cmp.Or(cmp.Compare(from.Rank(), m.InterruptByFrom().Rank()), cmp.Compare(by, m.InterruptBy)) > 0 {
		m.InterruptBy, changed = by, true
		m.Amend(func(r *Rare) { r.InterruptByFrom = from })
	}
	return changed
}

// beats tells whether the evidence, which says that heard was heard, replaces what m says. It is a total order: by method; an echo that has words before one that
// has none; then what names a time before what names none, the later time first; the shorter text first; and last, between equals, what is surer of itself.
func (e Evidence) beats(m *Message, heard string) bool {
	c := cmp.Compare(e.Method.Rank(), m.Method.Rank())
	if c == 0 && e.Method == EchoDiff {
		c = cmp.Compare(min(len(heard), 1), min(len(m.Content), 1))
	}
	return cmp.Or(c,
		cmp.Compare(e.AtMS, m.EvidenceMS), // 0 is no time
		cmp.Compare(len(m.Content), len(heard)),
		cmp.Compare(e.Confidence, m.Confidence),
		cmp.Compare(e.weight(m, e.State), e.weight(m, m.State)),
	) > 0
}

// weight orders what may be said of an answer that was not heard: other words in its place say more than silence. A ghost has no such state to change.
func (Evidence) weight(m *Message, s State) int {
	switch {
	case m.State == Superseded:
		return 0
	case s == Replaced:
		return 2
	case s == Unplayed:
		return 1
	}
	return 0
}
