package agents

import (
	"context"
	"slices"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// SetScore stores a score of a call, live or ended, or of one of its turns, in the place of the
// one with its ID, and returns it as stored. Without an ID it gets one. created reports whether it
// is new. It fails as Score.Check does, with fault.NotFound if there is no such agent, and with
// fault.Quota beyond memory.MaxScores.
func (s *Agents) SetScore(ctx context.Context, project, id string, score memory.Score) (out memory.Score, created bool, err error) {
	if err := score.Check(); err != nil {
		return out, false, err
	}
	if score.ID == "" {
		score.ID = s.cfg.NewID()
	}
	score.UpdatedMS = s.messages.NowMS()
	err = s.messages.update(ctx, memory.Ref{Project: project, ID: id}, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if score.Turn != nil && (*score.Turn < 0 || *score.Turn > h.LastTurn) {
			return memory.Change{}, fault.At(fault.Invalid, "turn_id", "is %d; the last turn of the call is %d", *score.Turn, h.LastTurn)
		}
		a := *h.Agent
		before := len(a.Settings.Scores)
		list, err := memory.SetScore(a.Settings.Scores, score)
		if err != nil {
			return memory.Change{}, err
		}
		a.Settings.Scores, a.Rev = list, h.Rev+1
		a = a.Redacted(s.messages.Redactor(&a))
		at := slices.IndexFunc(a.Settings.Scores, func(o memory.Score) bool { return o.ID == score.ID })
		out, created = a.Settings.Scores[at], len(list) > before
		events, err := s.messages.event(&a, event.Scored, a.Rev, 0, score.UpdatedMS, EventFacts{Score: &out})
		return memory.Change{Agent: &a, Events: events}, err
	})
	return out, created, err
}

// DeleteScore deletes a score of a call or a turn. It returns fault.NotFound if there is none.
func (s *Agents) DeleteScore(ctx context.Context, project, id, score string) error {
	return s.messages.update(ctx, memory.Ref{Project: project, ID: id}, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		a := *h.Agent
		list := slices.DeleteFunc(slices.Clone(a.Settings.Scores), func(o memory.Score) bool { return o.ID == score })
		if len(list) == len(a.Settings.Scores) {
			return memory.Change{}, fault.New(fault.NotFound, "the call has no score %q", score)
		}
		a.Settings.Scores, a.Rev = slices.Clip(list), h.Rev+1
		if len(list) == 0 {
			a.Settings.Scores = nil
		}
		return memory.Change{Agent: &a}, nil
	})
}

// SetChecks stores which checks have found something in a call, by their names. It returns
// memory.ErrStale if the agent has another revision than rev.
func (s *Agents) SetChecks(ctx context.Context, ref memory.Ref, rev int64, names []string) error {
	stale := false
	err := s.messages.update(ctx, ref, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if stale = h.Rev != rev; stale {
			return memory.Change{}, nil
		}
		a := *h.Agent
		a.Settings.Checks, a.Rev = names, rev+1
		return memory.Change{Agent: &a}, nil
	})
	if err == nil && stale {
		return memory.ErrStale
	}
	return err
}
