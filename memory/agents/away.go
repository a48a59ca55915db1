package agents

import (
	"context"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// Away takes the changes of turns while the store is away; see package memory/away.
type Away interface {
	// Update applies a decision as memory.Ledger.UpdateEarly does, or as Update if done is nil. If
	// the store is away, it keeps the change, to store it later, and returns passed or calls done
	// with it. With hold nothing of the agent is stored before Release.
	Update(ctx context.Context, project, id string, decide memory.Decision, hold bool, done func(passed bool, err error)) (early, passed bool, err error)
	// Release ends what an Update with hold has begun.
	Release(project, id string)
	// Ready fails with fault.Unavailable if changes of the agent are kept and cannot be stored now.
	Ready(ctx context.Context, project, id string) error
	// Away reports whether the store is known to be away.
	Away() bool
	// Head is Ledger.Head within two seconds. If the store is away, it returns what is known of the
	// agent, or fault.Unavailable.
	Head(ctx context.Context, project, id string) (h memory.Head, stored bool, err error)
}

// Passed reports whether the turn goes on without the store: what it has changed is stored later,
// or never. It is final once Durable and Settle have returned.
func (t *Turn) Passed() bool { return t.answer.passed.Load() }

// HeadForTurn is Head for a call that asks for an answer. stored is false if the store is away and
// the head is what this process knows.
func (s *Turns) HeadForTurn(ctx context.Context, project, id string) (h memory.Head, stored bool, err error) {
	if s.cfg.Away == nil {
		h, err = s.cfg.Ledger.Head(ctx, project, id)
		return h, true, err
	}
	return s.cfg.Away.Head(ctx, project, id)
}

// updateTurn is updateEarly for the change of a turn, which may go on without the store. Without
// hold it is update.
func (s *Turns) updateTurn(ctx context.Context, ref memory.Ref, decide memory.Decision, o *openAnswer, hold bool) (durable func() error, err error) {
	if !s.refuses(ctx, ref) {
		ctx = Withholding(ctx)
	}
	if s.cfg.Away == nil {
		if !hold {
			return nil, s.messages.update(ctx, ref, decide)
		}
		return s.messages.updateEarly(ctx, ref, decide, o.stop)
	}
	err = s.messages.checked(ctx, ref.Project, func(l *redact.Lookup) (err error) {
		durable, err = s.updateAway(ctx, ref, l, decide, o, hold)
		return err
	})
	return durable, err
}

// refuses reports whether a turn whose texts cannot be checked for names is refused, since the LLM
// is to see none. The words of other turns are withheld.
func (s *Turns) refuses(ctx context.Context, ref memory.Ref) bool {
	if s.messages.detects(ref.Project) == nil {
		return false
	}
	h, _, err := s.HeadForTurn(ctx, ref.Project, ref.ID)
	if err != nil {
		return false
	}
	_, upstream := s.messages.patterns(h.Agent)
	return upstream == redact.Redacted
}

// updateAway is updateTurn where turns may go on without the store. l is as for withEffects.
func (s *Turns) updateAway(ctx context.Context, ref memory.Ref, l *redact.Lookup, decide memory.Decision, o *openAnswer, hold bool) (durable func() error, err error) {
	e, done := &effects{}, make(chan struct{})
	after := func(passed bool, err error) {
		switch {
		case err != nil:
		case passed:
			o.mustRelease.Store(hold || o.mustRelease.Load())
			o.passed.Store(true)
		default:
			s.messages.afterCommit(ref, e)
		}
	}
	var outcome error
	var late func(bool, error)
	if hold {
		late = func(passed bool, err error) {
			outcome = err
			after(passed, err)
			close(done)
			if err != nil {
				o.stop(err)
			}
		}
	}
	early, passed, err := s.cfg.Away.Update(ctx, ref.Project, ref.ID, s.messages.withEffects(ctx, e, l, decide), hold, late)
	if err != nil {
		return nil, err
	}
	if !early {
		after(passed, nil)
		return nil, nil
	}
	return func() error {
		<-done
		return outcome
	}, nil
}
