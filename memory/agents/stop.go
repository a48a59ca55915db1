package agents

import (
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Leave ends an agent. The request is durable when Leave returns. If an answer is being generated
// or a farewell is spoken, the end itself follows within the farewell's time. key is the call's
// Idempotency-Key, or "": the call that ended the agent succeeds again with it. It returns
// fault.NotFound if there is no such agent or it has left.
func (s *Agents) Leave(ctx context.Context, project, id, key string) error {
	h, err := s.cfg.Ledger.Head(ctx, project, id)
	if err != nil {
		return err
	}
	if endedByKey(*h.Agent, key) {
		return nil
	}
	if err := mustBeLeavable(*h.Agent); err != nil {
		return err
	}
	ref := memory.Ref{Project: project, ID: id}
	// Asked before the decision, which must not wait.
	elsewhere := len(s.turns.askIfPending(ctx, ref, nil, nil, nil).Turns) > 0
	err = s.stop(ctx, ref, memory.EndOK, key, func(a memory.Agent) error {
		if endedByKey(a, key) {
			return errLeft
		}
		if err := mustBeLeavable(a); err != nil {
			return err
		}
		if _, busy := s.turns.busyHere(ref); busy || elsewhere {
			return errBusy
		}
		return nil
	})
	if errors.Is(err, errLeft) {
		return nil
	}
	if !errors.Is(err, errBusy) {
		return err
	}
	next := memory.Stopping
	if f := h.Agent.Settings.Farewell; f.Graceful && f.TimeoutS > 0 {
		next = memory.Idle
	}
	if next == memory.Idle {
		s.live.setFarewell(ref, s.cfg.Now().Add(time.Duration(h.Agent.Settings.Farewell.TimeoutS)*time.Second))
	}
	if err := s.mark(ctx, ref, next, key); err != nil {
		if errors.Is(err, errLeft) {
			return nil
		}
		return err
	}
	s.timers.now(ref) // the timers' loop ends what has been marked, now and after a restart
	return nil
}

// errBusy is returned if an answer is being generated and must be stored before the end.
var errBusy = errors.New("an answer is being generated")

// errLeft is returned if this very call has already ended the agent.
var errLeft = errors.New("left with the same key")

// endedByKey reports whether the call with this key ended the agent.
func endedByKey(a memory.Agent, key string) bool {
	return key != "" && a.Settings.LeaveKey == key
}

func mustBeLeavable(a memory.Agent) error {
	if a.Status == memory.Idle || a.Status == memory.Stopping {
		return fault.New(fault.NotFound, "agent %s is leaving already", a.ID)
	}
	return a.MustBeActive(fault.NotFound)
}

// mark sets the status of an agent that will end soon.
func (s *Agents) mark(ctx context.Context, ref memory.Ref, next memory.Status, key string) error {
	return s.messages.update(ctx, ref, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if endedByKey(*h.Agent, key) {
			return memory.Change{}, errLeft
		}
		if err := mustBeLeavable(*h.Agent); err != nil {
			return memory.Change{}, err
		}
		a := *h.Agent
		a.Status, a.Rev, a.Message, a.Settings.LeaveKey = next, h.Rev+1, memory.EndOK, key
		return memory.Change{Agent: &a}, nil
	})
}

// End ends an agent for good, in any state, and cuts its answers. An agent that has ended stays as
// it is.
func (s *Agents) End(ctx context.Context, project, id, why string) error {
	s.turns.Cut(ctx, project, id, ErrLeave)
	return s.stop(ctx, memory.Ref{Project: project, ID: id}, why, "", func(memory.Agent) error { return nil })
}

// stop stores the end: status, stop time, final memory and events in one transaction. may can
// refuse it; key is that of the call.
func (s *Agents) stop(ctx context.Context, ref memory.Ref, why, key string, may func(memory.Agent) error) error {
	// The events contain the whole memory. It is read before the transaction, and again if
	// something was stored in between.
	for try := 0; ; try++ {
		if try == 3 { // a busy agent would outrun us for ever: have it take nothing more
			if err := s.mark(ctx, ref, memory.Stopping, key); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
			may = func(memory.Agent) error { return nil }
		}
		h, err := s.cfg.Ledger.Head(ctx, ref.Project, ref.ID)
		if err != nil {
			return err
		}
		if err := may(*h.Agent); err != nil {
			return err
		}
		var msgs []memory.Message
		wants := s.cfg.Events.Wants
		if wants(ref.Project, event.History) || wants(ref.Project, event.Turns) || wants(ref.Project, event.Metrics) {
			if msgs, err = s.messages.All(ctx, ref.Project, ref.ID); err != nil {
				return err
			}
		}
		now := s.messages.NowMS()
		a := *h.Agent
		a.Status, a.StopMS, a.Rev = memory.Stopped, now, h.Rev+1
		if a.Message == "" {
			a.Message = why
		}
		if key != "" {
			a.Settings.LeaveKey = key
		}
		events, err := s.endEvents(&a, msgs, now)
		if err != nil {
			return err
		}
		stale := false
		err = s.messages.update(ctx, ref, func(view memory.AgentView) (memory.Change, error) {
			now := view.Head()
			if now.Agent.Status.Ended() {
				return memory.Change{}, may(*now.Agent)
			}
			if err := may(*now.Agent); err != nil {
				return memory.Change{}, err
			}
			if stale = now.Rev != h.Rev; stale {
				return memory.Change{}, nil
			}
			return memory.Change{Agent: &a, Events: events}, nil
		})
		if err != nil || !stale {
			return err
		}
	}
}

func (s *Agents) endEvents(a *memory.Agent, msgs []memory.Message, now int64) ([]memory.Event, error) {
	var shown []memory.Message
	for _, m := range memory.ByTurn(a.Settings.Memory.Since(msgs)) {
		if m.InHistory() {
			shown = append(shown, m)
		}
	}
	own := a.Settings.Memory.Own(msgs)
	end := memory.EndOf(msgs, func(turn int64) bool { return s.live.lastTurn(a.Ref()) >= turn })
	facts := []struct {
		eventType int
		facts     EventFacts
	}{
		{event.Left, EventFacts{}},
		{event.History, EventFacts{Messages: shown, End: end}},
		{event.Turns, EventFacts{Messages: own}},
		{event.Metrics, EventFacts{Messages: own}},
	}
	var out []memory.Event
	for i, f := range facts {
		ev, err := s.messages.event(a, f.eventType, a.Rev, int64(i), now, f.facts)
		if err != nil {
			return nil, err
		}
		out = append(out, ev...)
	}
	return out, nil
}
