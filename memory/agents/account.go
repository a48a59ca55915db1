package agents

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Account stores what a platform's own account of a call adds to the memory, outside a turn: no
// answer is asked for. plan gets the head and at least the newest depth messages, up to a limit;
// see TurnRequest.Plan. An agent that has ended takes accounts too. It returns fault.NotFound for
// an unknown agent, and for one of which only notifications are left.
func (s *Turns) Account(ctx context.Context, project, id string, depth int, plan func(memory.Head, []memory.Message) (Plan, error)) error {
	ref := memory.Ref{Project: project, ID: id}
	return s.messages.update(ctx, ref, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if h.Agent.Archived() {
			return memory.Change{}, h.Agent.MustBeActive(fault.NotFound)
		}
		recent, err := view.Last(max(h.Agent.Settings.LLM.MaxHistory+16, min(depth, maxDepth)))
		if err != nil {
			return memory.Change{}, err
		}
		what, err := plan(h, recent)
		if err != nil {
			return memory.Change{}, err
		}
		h.LastTurn = max(h.LastTurn, s.live.lastTurn(ref))
		p := planner{view: view, redactor: s.messages.Redactor(h.Agent), head: h, rev: h.Rev + 1, now: s.messages.NowMS(), recent: recent}
		err = p.apply(what, s.live.isAnswering(ref, h.LastTurn))
		p.change.Account = true
		return p.change, err
	})
}

// Note stores one message that a platform has committed, unless it is stored: item is the
// platform's ID of it, "" for none, by which a message that was noted before is known. Without it,
// the newest message of the same words that bears no other ID is the same one. It fails as Account
// does.
func (s *Turns) Note(ctx context.Context, project, id, item string, depth int, plan func(memory.Head, []memory.Message) (Plan, error)) error {
	return s.Account(ctx, project, id, depth, func(h memory.Head, recent []memory.Message) (Plan, error) {
		out, err := plan(h, recent)
		if err != nil || len(out.Append) != 1 {
			return out, err
		}
		m := &out.Append[0]
		redactor := s.messages.Redactor(h.Agent)
		for i := range slices.Backward(recent) {
			r := &recent[i]
			if r.Role != m.Role || r.State != memory.Final && r.Role == memory.User {
				continue
			}
			if item != "" && r.Heard().PlatformID == item {
				return Plan{}, nil
			}
			if (r.Heard().PlatformID == "" || item == "") && memory.SameSaid(*r, *m, redactor) {
				return Plan{PlatformIDs: map[int64]string{r.Seq: item}}, nil
			}
		}
		if item != "" {
			m.Amend(func(r *memory.Details) { r.PlatformID = item })
		}
		return out, nil
	})
}
