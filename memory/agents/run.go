package agents

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// liveAgain is how long takeUpAll waits for a store that could not answer.
const liveAgain = time.Second

// takeUpAll takes up every live agent of the store. While the store is unavailable it tries again,
// as a restart would have to. It returns any other error.
func (s *Agents) takeUpAll(ctx context.Context) error {
	now := s.cfg.Now()
	for {
		err := s.cfg.Ledger.Live(ctx, func(h memory.Head) error {
			s.takeUp(&h, now)
			s.resume(h.Agent)
			return nil
		})
		if ctx.Err() != nil || !fault.Is(err, fault.Unavailable) {
			return err
		}
		s.cfg.OnError("take up the live agents", err)
		alarm := time.NewTimer(liveAgain)
		select {
		case <-ctx.Done():
			alarm.Stop()
			return ctx.Err()
		case <-alarm.C:
		}
	}
}

// takeUp plans the timers of a live agent that another process created, or this one before it was
// restarted. h is without the last message.
func (s *Agents) takeUp(h *memory.Head, now time.Time) {
	ref := h.Agent.Ref()
	s.live.adopt(ref, now)
	s.timers.poke(s.timers.dueOf(h), ref)
}

// resume reports an agent that asks for summaries or checkpoints to the workers that make them:
// what was due when the process ended is due now.
func (s *Agents) resume(a *memory.Agent) {
	if s.messages.mayMakeSummaries(a) && (s.policies.Of(a, nil).Summarizes() || a.Settings.Memory.Ancestry()) {
		s.cfg.Summaries.Changed(a.Project, a.ID)
	}
	if n := a.Settings.Memory.Checkpoints.EverySeconds; n > 0 && s.cfg.Changed != nil {
		s.cfg.Changed(a.Project, a.ID, n)
	}
}

// timerWorkers is how many agents are checked at once.
const timerWorkers = 32

// Run runs the agents' timers and sweeps until ctx is done; then it finishes what has begun and
// returns nil. It first loads all live agents of the store. Those that were leaving are ended; the
// others go on, and their idle time starts now.
func (s *Agents) Run(ctx context.Context) error {
	if err := s.takeUpAll(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	work := make(chan dueEntry)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(work)
	for range timerWorkers {
		wg.Go(func() {
			for e := range work {
				// What fell due is finished; each check is bounded.
				s.checkTimers(context.WithoutCancel(ctx), e)
			}
		})
	}
	wg.Go(func() { s.sweepUntil(ctx) })
	if s.peers != nil {
		wg.Go(func() { s.peers.run(ctx, s.turns.answerPeer, s.takeUp) })
	}
	for {
		due, next := s.timers.next(s.cfg.Now())
		for _, e := range due {
			select {
			case work <- e:
			case <-ctx.Done():
				return nil
			}
		}
		wait := time.Hour
		if !next.IsZero() {
			wait = min(wait, next.Sub(s.cfg.Now()))
		}
		alarm := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
			alarm.Stop()
			return nil
		case <-alarm.C:
		case <-s.timers.wake:
			alarm.Stop()
		}
	}
}

// checkTimeout bounds one check of an agent; the think of a silence runs on its own.
const checkTimeout = 2 * time.Minute

// retryCheck is when a check that failed is tried again.
const retryCheck = 5 * time.Second

// checkTimers does what is due for one agent and plans the next check.
func (s *Agents) checkTimers(ctx context.Context, e dueEntry) {
	ctx, stop := context.WithTimeout(Withholding(ctx), checkTimeout)
	defer stop()
	h, err := s.cfg.Ledger.Head(ctx, e.Project, e.ID)
	again := time.Time{} // no sooner
	if err == nil && !h.Agent.Status.Ended() {
		if s.peers == nil {
			err = s.runDue(ctx, &h)
		} else {
			again, err = s.runDueAlone(ctx, &h)
		}
	}
	if fault.Is(err, fault.NotFound) || err == nil && h.Agent.Status.Ended() {
		s.live.remove(e.Ref) // erased, or ended, perhaps by another process
		if s.cfg.Summaries != nil {
			s.cfg.Summaries.Ended(e.Project, e.ID)
		}
		return
	}
	if err != nil {
		s.cfg.OnError("timer of agent "+e.ID, err)
		s.timers.poke(s.cfg.Now().Add(retryCheck), e.Ref)
		return
	}
	if h, err = s.cfg.Ledger.Head(ctx, e.Project, e.ID); err == nil && !h.Agent.Status.Ended() {
		due := s.timers.dueOf(&h)
		if due.Before(again) {
			due = again
		}
		s.timers.poke(due, e.Ref)
	}
}

// runDueAlone is runDue if several processes serve the agent: their activity counts, and one of
// them acts at a time. It returns when to check again at the earliest.
func (s *Agents) runDueAlone(ctx context.Context, h *memory.Head) (again time.Time, err error) {
	ref := h.Agent.Ref()
	again = s.cfg.Now().Add(lookAgain)
	if err := s.peers.learn(ctx, ref); err != nil {
		return again, err
	}
	if s.timers.dueOf(h).After(s.cfg.Now()) {
		return time.Time{}, nil
	}
	release, ok, err := s.peers.Lease(ctx, ref.Project, ref.ID, memory.WorkTimers, lookLease)
	if err != nil || !ok {
		return again, err
	}
	defer release()
	latest, err := s.cfg.Ledger.Head(ctx, ref.Project, ref.ID)
	if err != nil || latest.Agent.Status.Ended() {
		return again, err
	}
	h = &latest
	// Only the process that was asked for a farewell knows of it. For the others the agent is being
	// answered.
	now := s.cfg.Now()
	if until := s.live.farewellEnd(ref); h.Agent.Status == memory.Idle && s.peers.others.Load() && len(s.live.openAnswers(ref)) == 0 && (until.IsZero() || now.Before(until)) {
		if now.Sub(s.live.conversation(ref, now)) < seenGrace {
			return again, nil
		}
	}
	return again, s.runDue(ctx, h)
}

// runDue does what is due now.
func (s *Agents) runDue(ctx context.Context, h *memory.Head) error {
	a := h.Agent
	now := s.cfg.Now()
	switch {
	case a.Status == memory.Stopping:
		return s.End(ctx, a.Project, a.ID, memory.EndOK)
	// The farewell is over, or has nothing to wait for: a restart leaves no answer open.
	case a.Status == memory.Idle:
		if now.Before(s.live.farewell(a.Ref())) {
			return nil
		}
		return s.End(ctx, a.Project, a.ID, memory.EndOK)
	case !now.Before(time.UnixMilli(a.StartMS).Add(memory.Lifetime)):
		if a.Archived() {
			return s.expireArchived(ctx, a.Ref())
		}
		return s.End(ctx, a.Project, a.ID, memory.EndLifetime)
	case s.timers.idleSince(a, now):
		err := s.stop(ctx, a.Ref(), memory.EndIdle, "", func(a memory.Agent) error {
			if !s.timers.idleSince(&a, s.cfg.Now()) {
				return errNotDue
			}
			return nil
		})
		return ignoreNotDue(err)
	}
	if at := s.timers.warningDue(a); !at.IsZero() && !now.Before(at) {
		return s.warn(ctx, a)
	}
	if at := greetingDue(h); !at.IsZero() && !now.Before(at) {
		m := memory.Message{Role: memory.Assistant, Source: memory.SourceGreeting, ID: "heardlog:greeting", Content: a.Settings.LLM.Fill(a.Settings.LLM.Greeting)}
		_, err := s.messages.say(ctx, a.Ref(), m, func(h memory.Head) error {
			if greetingDue(&h).IsZero() {
				return errNotDue
			}
			return nil
		})
		return ignoreNotDue(err)
	}
	if at := s.timers.silenceDue(h); !at.IsZero() && !now.Before(at) {
		if broken, err := s.silenceBroken(ctx, a); err != nil || broken {
			s.live.silence(a.Ref(), broken)
			return err
		}
		text := a.Settings.LLM.Fill(a.Settings.Silence.Content)
		if a.Settings.Silence.Action == "think" {
			s.live.silence(a.Ref(), true)
			if s.cfg.Think == nil {
				return nil
			}
			return s.cfg.Think(ctx, a.Project, a.ID, text)
		}
		_, err := s.messages.say(ctx, a.Ref(), memory.Message{Role: memory.Assistant, Source: memory.SourceSilence, Content: text}, func(h memory.Head) error {
			if at := s.timers.silenceDue(&h); at.IsZero() || s.cfg.Now().Before(at) {
				return errNotDue
			}
			return nil
		})
		return ignoreNotDue(err)
	}
	return nil
}

// errNotDue is returned if a timer's action is no longer due when it runs.
var errNotDue = errors.New("not due any more")

func ignoreNotDue(err error) error {
	if errors.Is(err, errNotDue) {
		return nil
	}
	return err
}

// warnAgain is how often to check whether the announcement of an expiry is wanted by now.
const warnAgain = time.Minute

// warn announces the agent's expiry, once. If no endpoint wants the announcement, nothing is
// stored. It is not activity of the agent.
func (s *Agents) warn(ctx context.Context, a *memory.Agent) error {
	ref, again := a.Ref(), s.cfg.Now().Add(warnAgain)
	if s.cfg.Events.Wants(a.Project, event.Expiring) {
		again = time.Time{}
		err := s.cfg.Ledger.Update(ctx, a.Project, a.ID, func(view memory.AgentView) (memory.Change, error) {
			h := view.Head()
			a := *h.Agent
			if a.Status.Ended() || a.Settings.WarnedMS != 0 {
				return memory.Change{}, nil
			}
			a.Rev, a.Settings.WarnedMS = h.Rev+1, s.messages.NowMS()
			ev, err := s.messages.event(&a, event.Expiring, a.Rev, 0, a.Settings.WarnedMS, EventFacts{})
			return memory.Change{Agent: &a, Events: ev}, err
		})
		if err != nil {
			return err
		}
		s.live.changed(ref)
	}
	s.live.warn(ref, again)
	return nil
}

// silenceBroken reports whether the ledger shows that the running silence was broken by a think, of
// another process or before a restart.
func (s *Agents) silenceBroken(ctx context.Context, a *memory.Agent) (bool, error) {
	if s.peers == nil || a.Settings.Silence.Action != "think" {
		return false, nil
	}
	_, list, err := s.cfg.Ledger.Recent(ctx, a.Project, a.ID, pendingLook, false)
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Role == memory.User {
			return list[i].Source == memory.SourceSilence, err
		}
	}
	return false, err
}
