package agents

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// update applies a decision and, once it is stored, informs the agent's followers.
func (s *Messages) update(ctx context.Context, ref memory.Ref, decide memory.Decision) error {
	if s.cfg.Away != nil {
		if err := s.cfg.Away.Ready(ctx, ref.Project, ref.ID); err != nil {
			return err
		}
	}
	return s.Apply(ctx, ref.Project, ref.ID, decide)
}

// updateEarly is update for callers that can do other work while the change is written to disk; see
// Ledger.UpdateEarly. durable waits until the change is on disk and returns the error of update; it
// is nil if the change is on disk already. lost is called as soon as that fails.
func (s *Messages) updateEarly(ctx context.Context, ref memory.Ref, decide memory.Decision, lost func(error)) (durable func() error, err error) {
	err = s.checked(ctx, ref.Project, func(l *redact.Lookup) error {
		e, done := &effects{}, make(chan struct{})
		var outcome error
		early, err := s.cfg.Ledger.UpdateEarly(ctx, ref.Project, ref.ID, s.withEffects(ctx, e, l, decide), func(err error) {
			if outcome = err; err == nil {
				s.afterCommit(ref, e)
			}
			close(done)
			if err != nil {
				lost(err)
			}
		})
		switch {
		case err != nil:
			return err
		case !early:
			s.afterCommit(ref, e)
			return nil
		}
		durable = func() error {
			<-done
			return outcome
		}
		return nil
	})
	return durable, err
}

// effects is what follows from a stored change.
type effects struct {
	change           memory.Change
	rev, unheard     int64
	ended, summaries bool
	saveEvery        int          // seconds; 0 = the memory is not saved by itself
	workOn           bool         // the call, which has ended: Config.Ended
	timed            *memory.Head // where a timer hangs on it; else the head, a kilobyte, is not kept
}

// withEffects returns decide with what goes with every change. e receives the result. l replaces
// names, nil if no detector is set for the project.
func (s *Messages) withEffects(ctx context.Context, e *effects, l *redact.Lookup, decide memory.Decision) memory.Decision {
	named := withNames(l, s.withoutNames(ctx, e, decide))
	return func(view memory.AgentView) (memory.Change, error) {
		c, err := named(view)
		e.change = c
		return c, err
	}
}

// withoutNames is withEffects but for what withNames does.
func (s *Messages) withoutNames(ctx context.Context, e *effects, decide memory.Decision) memory.Decision {
	return func(view memory.AgentView) (memory.Change, error) {
		c, err := decide(view)
		if err != nil {
			return memory.Change{}, err
		}
		head := view.Head()
		agent := head.Agent
		if c.Agent != nil {
			agent = c.Agent
		}
		if err := s.redact(ctx, &c, view, s.Redactor(agent)); err != nil {
			return memory.Change{}, err
		}
		if head.Agent.Settings.PausedUntilMS > 0 {
			if err := hidePaused(&c, view, s.paused(head.Agent)); err != nil {
				return memory.Change{}, err
			}
		}
		e.unheard = c.CountUnheard()
		c.Measure()
		if err := s.checkRoom(&head, &c); err != nil {
			return memory.Change{}, err
		}
		for i := range c.Append { // what was not given its place here has its scope from here
			c.Append[i].ScopeOr(agent.Settings.Scope)
		}
		if err := s.addEvents(agent, head.Rev+1, &c, view); err != nil {
			return memory.Change{}, err
		}
		if err := c.Mark(view); err != nil {
			return memory.Change{}, err
		}
		c.MarkMemory(&head)
		e.rev, e.timed = head.Rev, nil
		e.ended, e.summaries = agent.Status.Ended(), s.mayMakeSummaries(agent)
		e.saveEvery = agent.Settings.Memory.Checkpoints.EverySeconds
		m := &agent.Settings.Memory
		e.workOn = e.ended && (m.Remember.Extract || m.Kept.Summarize) && s.cfg.Ended != nil
		if agent.Settings.Silence.TimeoutMS > 0 || c.Agent != nil {
			h := head.Apply(c)
			e.timed = &h
		}
		return c, nil
	}
}

// afterCommit does what follows from a stored change: it counts, plans timers and informs the
// agent's followers.
func (s *Messages) afterCommit(ref memory.Ref, e *effects) {
	done := &e.change
	if done.Empty() {
		return
	}
	s.cfg.Observe.Appended(len(done.Append))
	s.cfg.Quota.Stored(ref.Project, len(done.Append), bytesOf(done.Append)+bytesOf(done.Replace))
	if e.unheard > 0 {
		s.cfg.Observe.Unheard(e.unheard)
	}
	for _, list := range [][]memory.Message{done.Append, done.Replace} {
		for i := range list {
			if m := &list[i]; m.Interrupted && m.Rev == e.rev+1 && (m.State == memory.Final || m.State == memory.Unplayed) {
				s.cfg.Observe.Interrupted(m.InterruptBy)
			}
		}
	}
	for i := range done.Append {
		if m := &done.Append[i]; m.Role == memory.User && m.Source != memory.SourceSilence {
			s.live.silence(ref, false)
		}
	}
	s.live.publish(ref, e.rev, done)
	if e.summaries {
		s.notifySummaries(ref, done, e.ended)
	}
	if e.workOn {
		s.cfg.Ended(ref.Project, ref.ID)
	}
	if e.ended {
		s.live.remove(ref)
		return
	}
	if e.saveEvery > 0 {
		s.cfg.Changed(ref.Project, ref.ID, e.saveEvery)
	}
	s.live.touch(ref, s.cfg.Now())
	if len(done.Append) > 0 {
		s.live.spoke(ref, s.cfg.Now())
	}
	if e.timed != nil {
		s.timers.poke(s.timers.dueOf(e.timed), ref)
	}
}

// checkRoom refuses a change that makes a ledger too long, or exceeds what the project may store. A
// reserved Seq counts already. Rebuilding a memory with copies may exceed the limits, so that the
// memory of a full ledger can be trimmed and repaired.
func (s *Messages) checkRoom(h *memory.Head, c *memory.Change) error {
	most, added := int64(s.cfg.MaxMessages), c.Append
	// An ended agent gets late answers, and what a platform's last list adds. The one that keeps a
	// project's items, which has ended too, has a limit of its own.
	if n := len(added); n == 0 || h.Agent.Status.Ended() && !c.Account || added[n-1].Seq < h.NextSeq {
		return nil
	}
	if c.Copies {
		most += memory.MaxSnapshot
	} else if err := s.cfg.Quota.Room(h.Agent.Project, len(added), bytesOf(added)); err != nil {
		return err
	}
	if s.cfg.MaxMessages == 0 || added[len(added)-1].Seq <= most {
		return nil
	}
	return fault.New(fault.Quota, "agent %s has as many messages as it may, %d; let it leave and join another", h.Agent.ID, most)
}

// Apply runs a decision on an agent and, once its change is stored, does what follows from it. All
// writes go through it, those that Away has kept too.
func (s *Messages) Apply(ctx context.Context, project, id string, decide memory.Decision) error {
	var e effects
	err := s.checked(ctx, project, func(l *redact.Lookup) error {
		return s.cfg.Ledger.Update(ctx, project, id, s.withEffects(ctx, &e, l, decide))
	})
	if err == nil {
		s.afterCommit(memory.Ref{Project: project, ID: id}, &e)
	}
	return err
}
