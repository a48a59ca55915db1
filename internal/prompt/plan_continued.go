package prompt

import (
	"slices"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/echo"
)

// continued plans a call that continues an answer and repeats it: its list begins with that answer
// as it was heard, and goes on with what came after it. LiveKit's lists do. The list is aligned
// with the ledger from that answer on; the LLM is given the ledger. It reports false for a list
// that begins otherwise, which brings only what is new.
func (p *Plan) continued(head memory.Head, recent []memory.Message) (out agents.Plan, ok bool, err error) {
	first := slices.IndexFunc(p.req.Messages, func(m llmadapter.Incoming) bool { return !m.IsSystem() })
	from := latest(recent, func(m *memory.Message) bool { return m.Seq == p.after })
	if first < 0 || from < 0 || !isAnswer(p.req.Messages[first]) {
		return out, false, nil
	}
	p.mode = ModeReconcile
	out, err = p.reconcile(head, recent[from:])
	p.mode = ModeInject
	if k := p.rec.Pair[first]; err == nil && k >= 0 && p.known[k] == p.after {
		return out, true, nil
	}
	p.rec, p.known = echo.Result{}, nil
	return agents.Plan{}, false, err
}
