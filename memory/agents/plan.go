package agents

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// planner turns a Plan into a Change.
type planner struct {
	view      memory.AgentView
	redactor  *redact.Redactor // nil replaces nothing
	head      memory.Head
	rev, now  int64
	recent    []memory.Message // shared with the store until owned is set
	owned     bool
	change    memory.Change
	turn      int64
	answerSeq int64
	userMS    int64
	greeting  bool
}

// run plans a turn: what apply does, and a place for the answer.
func (p *planner) run(plan Plan, answering bool) error {
	if err := p.apply(plan, answering); err != nil {
		return err
	}
	return p.reserve(plan)
}

// apply adds to the Change what a plan brings.
func (p *planner) apply(plan Plan, answering bool) error {
	for _, e := range plan.Evidence {
		if err := p.replace(e.Seq, func(m memory.Message) (memory.Message, bool, error) {
			return m.Renamed(p.redactor).WithEvidence(e, p.now)
		}); err != nil {
			return err
		}
	}
	for _, seq := range plan.Supersede {
		if err := p.replace(seq, func(m memory.Message) (memory.Message, bool, error) {
			changed := m.State != memory.Superseded
			m.State = memory.Superseded
			return m, changed, nil
		}); err != nil {
			return err
		}
	}
	for _, x := range plan.Extend {
		if err := p.replace(x.Seq, x.extend); err != nil {
			return err
		}
	}
	for _, x := range plan.Results {
		if err := p.replace(x.Seq, func(m memory.Message) (memory.Message, bool, error) {
			m.Content, m.Parts = x.Content, nil
			return m, true, nil
		}); err != nil {
			return err
		}
	}
	for seq, item := range plan.PlatformIDs {
		if err := p.replace(seq, func(m memory.Message) (memory.Message, bool, error) {
			changed := item != "" && m.Heard().PlatformID != item
			if changed {
				m.Amend(func(r *memory.Details) { r.PlatformID = item })
			}
			return m, changed, nil
		}); err != nil {
			return err
		}
	}
	known, err := knownIDs(p.view, plan.Append)
	if err != nil {
		return err
	}
	start := p.head.LastTurn
	for i, m := range plan.Append {
		if answer := plan.Before[i]; answer != 0 && p.placeBefore(m, answer) {
			continue
		}
		if stored, ok := known[m.ID]; ok && m.ID != "" {
			if !memory.SameSaid(stored, m, p.redactor) {
				return fault.At(fault.Conflict, "Idempotency-Key", "%q names a stored message with other content", m.ID)
			}
			continue // the same question again: only the answer is generated again
		}
		m, err := p.head.Place(m, p.rev, p.now, answering && p.head.LastTurn == start)
		if err != nil {
			return err
		}
		p.change.Append = append(p.change.Append, m)
	}
	return nil
}

// placeBefore places a message before a stored answer, in its turn. It reports false if there is no
// free Seq.
func (p *planner) placeBefore(m memory.Message, answer int64) bool {
	taken := func(o memory.Message) bool { return o.Seq == answer-1 }
	at := slices.IndexFunc(p.recent, func(o memory.Message) bool { return o.Seq == answer })
	if at <= 0 || slices.ContainsFunc(p.recent, taken) || slices.ContainsFunc(p.change.Append, taken) {
		return false
	}
	next := &p.recent[at]
	m.ScopeOr(p.head.Agent.Settings.Scope)
	m.Seq, m.Rev, m.TurnID, m.TurnHasUser = answer-1, p.rev, next.TurnID, next.TurnHasUser
	m.GivenTurn, m.Opens, m.Marks = false, false, memory.Marks{}
	if m.Timestamp == 0 {
		m.Timestamp = next.Timestamp
	}
	p.change.Append = append(p.change.Append, m)
	return true
}

// extend sets the newer text of a user message.
func (x Extension) extend(m memory.Message) (memory.Message, bool, error) {
	if m.Content == x.Content {
		return m, false, nil
	}
	if _, known := m.Metadata[firstTranscript]; !known && !strings.HasPrefix(x.Content, m.Content) {
		first, err := json.Marshal(m.Content)
		if err != nil {
			return m, false, fault.Wrap(fault.Internal, err, "a text could not be encoded")
		}
		all := maps.Clone(m.Metadata) // copies of messages share it
		if all == nil {
			all = map[string]json.RawMessage{}
		}
		all[firstTranscript] = first
		m.Metadata = all
	}
	m.Content = x.Content
	return m, true, nil
}

// reserve keeps a Seq free for the answer and finds its turn.
func (p *planner) reserve(plan Plan) error {
	last := p.head.Last
	switch {
	case plan.Unsolicited:
		p.turn, p.userMS = p.head.OwnTurn(), p.now
		p.greeting = !slices.ContainsFunc(slices.Concat(p.recent, p.change.Append), memory.Message.InHistory)
		if last.Seq == 0 {
			return nil // no message could keep it
		}
	case last.Seq == 0:
		return fault.At(fault.Missing, "messages", "is required: there is nothing to answer yet")
	default:
		p.turn, p.userMS = last.TurnID, last.Timestamp
		if m := p.lastUser(); m != nil {
			p.turn, p.userMS = max(p.turn, m.TurnID), m.Timestamp
		}
	}
	if p.answerSeq = p.head.NextSeq; plan.Resent {
		p.answerSeq++
	}
	if n := len(p.change.Append); n > 0 && p.change.Append[n-1].Seq == last.Seq {
		p.change.Append[n-1].AnswerSeq = p.answerSeq
		return nil
	}
	return p.replace(last.Seq, func(m memory.Message) (memory.Message, bool, error) {
		m.AnswerSeq = p.answerSeq
		return m, true, nil
	})
}

// lastUser returns the newest user message that counts, or nil.
func (p *planner) lastUser() *memory.Message {
	for _, list := range [][]memory.Message{p.change.Append, p.recent} {
		for i := len(list) - 1; i >= 0; i-- {
			if m := &list[i]; m.Role == memory.User && m.Counts() {
				return m
			}
		}
	}
	return nil
}

// replace changes a stored message in this Change, building on what the Change holds of it already.
func (p *planner) replace(seq int64, edit func(memory.Message) (memory.Message, bool, error)) error {
	at := slices.IndexFunc(p.change.Replace, func(m memory.Message) bool { return m.Seq == seq })
	var m memory.Message
	if at >= 0 {
		m = p.change.Replace[at]
	} else {
		var err error
		if m, err = p.view.Seq(seq); err != nil {
			return err
		}
	}
	m, changed, err := edit(m)
	if err != nil || !changed {
		return err
	}
	m.Rev = p.rev
	if at >= 0 {
		p.change.Replace[at] = m
	} else {
		p.change.Replace = append(p.change.Replace, m)
	}
	if i := slices.IndexFunc(p.recent, func(r memory.Message) bool { return r.Seq == seq }); i >= 0 {
		if !p.owned {
			p.recent, p.owned = slices.Clone(p.recent), true
		}
		p.recent[i] = m
	}
	if p.head.Last.Seq == seq {
		p.head.Last = m
	}
	return nil
}
