package prompt

import (
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// branch plans a call that continues an older answer than the last one: the client has gone back
// to it, or repeats a call. What came after that answer is taken back, the caller's words and their
// answers, unless something confirms it: a tool has run, or a platform has reported what was heard.
// The call then goes on from the last answer. Words that the call repeats stay as they are.
func (p *Plan) branch(recent []memory.Message, out *agents.Plan) {
	if latest(recent, func(m *memory.Message) bool { return m.Seq == p.after && m.State == memory.Superseded }) >= 0 {
		return
	}
	var undo []int64
	var words []*memory.Message
	for i := range recent {
		m := &recent[i]
		switch {
		case m.Seq <= p.after || m.State != memory.Final:
		case m.Role == memory.Tool, sentByProxy(m) && !m.Provisional():
			return
		case m.Role == memory.User:
			words = append(words, m)
		case m.Provisional() && len(words) > 0:
			undo = append(undo, m.Seq)
		}
	}
	if len(words) == 0 {
		return
	}
	at := slices.IndexFunc(out.Append, func(m memory.Message) bool { return m.Role == memory.User })
	if p.ghost = true; len(words) == 1 && at >= 0 && words[0].Content == out.Append[at].Content {
		out.Append, out.Overtakes = slices.Delete(out.Append, at, at+1), false
	} else {
		for _, m := range words {
			undo = append(undo, m.Seq)
		}
	}
	out.Supersede = append(out.Supersede, undo...)
}
