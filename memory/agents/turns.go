package agents

import (
	"context"
	"slices"
	"time"

	"github.com/heardlog/heardlog/memory"
)

// Turns has agents answer. A turn begins with words of the caller, for which Begin stores them and
// opens an answer; while the model writes and the voice speaks, the answer is open, and another
// call may cut it, report how much of it was heard, or wait for its end; Settle stores what came of
// it. Of two calls for the same words the later one gets the turn. Open answers are known to this
// process alone. Another one on the same store is asked for its own.
type Turns struct {
	cfg      *Config
	live     *registry
	timers   *timers
	policies *Policies
	messages *Messages
	peers    *peers // nil without others
}

// cutAnswers cuts the open answers that which selects, waits until they are stored (at most
// SettleWait) and returns their turns.
func (s *Turns) cutAnswers(ctx context.Context, ref memory.Ref, cause error, which func(o *openAnswer) bool) []int64 {
	return s.waitStored(ctx, s.stopAnswers(ref, cause, which))
}

// stopAnswers cuts the open answers that which selects, and returns them.
func (s *Turns) stopAnswers(ref memory.Ref, cause error, which func(o *openAnswer) bool) (cut []*openAnswer) {
	for _, o := range s.live.openAnswers(ref) {
		if which(o) {
			o.stop(cause)
			cut = append(cut, o)
		}
	}
	return cut
}

// waitStored waits until the answers are stored, at most SettleWait, and returns their turns.
func (s *Turns) waitStored(ctx context.Context, cut []*openAnswer) (turns []int64) {
	if len(cut) == 0 {
		return nil
	}
	for _, o := range cut {
		turns = append(turns, o.turn.Load())
	}
	wait, stop := context.WithTimeout(ctx, s.cfg.SettleWait)
	defer stop()
	for _, o := range cut {
		select {
		case <-o.settled:
		case <-wait.Done():
			return turns
		}
	}
	return turns
}

// Busy reports whether any process is generating an answer, and the phase of the one that has come
// furthest.
func (s *Turns) Busy(ctx context.Context, project, id string) (memory.Phase, bool) {
	ref := memory.Ref{Project: project, ID: id}
	if phase, busy := s.busyHere(ref); busy {
		return phase, true
	}
	r := s.askIfPending(ctx, ref, nil, nil, nil)
	return r.Phase, len(r.Turns) > 0
}

// busyHere is Busy for this process. An answer that is in the ledger is no longer being generated,
// even before it has ended: a caller that has read it there finds the agent idle.
func (s *Turns) busyHere(ref memory.Ref) (phase memory.Phase, busy bool) {
	for _, o := range s.live.openAnswers(ref) {
		if !o.inLedger.Load() {
			phase, busy = max(phase, memory.Phase(o.phase.Load())), true
		}
	}
	return phase, busy
}

// Answering reports whether this process is generating an answer.
func (s *Turns) Answering(project, id string) bool {
	return len(s.live.openAnswers(memory.Ref{Project: project, ID: id})) > 0
}

// Cut cuts all answers that are being generated, with one of the Err values as the cause, and waits
// until they are stored.
func (s *Turns) Cut(ctx context.Context, project, id string, cause error) {
	ref := memory.Ref{Project: project, ID: id}
	if cut := s.cutAnswers(ctx, ref, cause, func(*openAnswer) bool { return true }); len(cut) == 0 {
		s.askIfPending(ctx, ref, cause, nil, nil)
	}
}

// WaitIdle waits until no answer is being generated; it fails with the context's error.
func (s *Turns) WaitIdle(ctx context.Context, project, id string) error {
	ref := memory.Ref{Project: project, ID: id}
	for _, o := range s.live.openAnswers(ref) {
		select {
		case <-o.settled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for len(s.askIfPending(ctx, ref, nil, nil, nil).Turns) > 0 { // each question takes its moment
		select {
		case <-time.After(tailEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// endAnswer ends an open answer, and the agent if it only waited for that.
func (s *Turns) endAnswer(ref memory.Ref, o *openAnswer) {
	s.live.end(ref, o, s.cfg.Now())
	if o.mustRelease.Load() {
		s.cfg.Away.Release(ref.Project, ref.ID)
	}
	o.agent.mu.Lock()
	leaving := !o.agent.farewell.IsZero()
	o.agent.mu.Unlock()
	if leaving {
		s.timers.now(ref)
	}
}

// Doing returns the phase of the answer that is being generated, of several the one that has come
// furthest, and its turn. ok is false if there is none whose turn is decided.
func (s *Turns) Doing(project, id string) (p memory.Phase, turn int64, ok bool) {
	for _, o := range s.live.openAnswers(memory.Ref{Project: project, ID: id}) {
		t, phase := o.turn.Load(), memory.Phase(o.phase.Load())
		if t != noTurn && (!ok || phase > p || phase == p && t > turn) {
			p, turn, ok = phase, t, true
		}
	}
	return p, turn, ok
}

// Saying reports whether a text is part of an answer that is being generated. Then it is not stored
// yet, although a platform's list may have it.
func (s *Turns) Saying(project, id, text string) bool {
	return slices.ContainsFunc(s.live.openAnswers(memory.Ref{Project: project, ID: id}), func(o *openAnswer) bool {
		return memory.Phase(o.phase.Load()) == memory.Speaking && o.says(&text)
	})
}
