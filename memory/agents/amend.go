package agents

import (
	"context"

	"github.com/heardlog/heardlog/memory"
)

// Amendment changes an answer that is still being generated, once it is stored. It is kept in this
// process only, as the answer is until then.
type Amendment interface {
	// Fits reports whether the amendment may be about the answer.
	Fits(m *memory.Message) bool
	// Apply returns the answer with the amendment, and whether that changes it.
	Apply(m memory.Message, now int64) (memory.Message, bool, error)
	// ApplyElsewhere is called after the answer was stored if the amendment does not fit it.
	ApplyElsewhere(ctx context.Context) error
}

// LiveAnswer identifies an answer that is being sent.
type LiveAnswer struct {
	Heard *string // a text that must be part of it; nil fits any
	AtMS  int64   // a time at which it must have started, Unix ms; 0 fits any
	Cut   bool    // stop it, as interrupted by the caller
}

// AmendResult is the result of AmendLive.
type AmendResult int

// The results.
const (
	NoLiveAnswer      AmendResult = iota // no such answer is being sent
	AmendedWhenStored                    // the amendment is applied when the answer is stored
	AlreadyStored                        // the answer was stored in the meantime, without the amendment
)

// maxAmendments limits the amendments of one answer. A further one replaces the last: later reports
// about the playing of an answer contain the earlier ones.
const maxAmendments = 256

// AmendLive adds an amendment to the answer that is being sent. An answer of which nothing was sent
// yet is not taken into account, because it cannot have been played. If another process is sending
// the answer and is to cut it, AmendLive waits until that process has stored it.
func (s *Turns) AmendLive(ctx context.Context, project, id string, about LiveAnswer, a Amendment) (AmendResult, error) {
	ref := memory.Ref{Project: project, ID: id}
	for _, o := range s.live.openAnswers(ref) {
		if memory.Phase(o.phase.Load()) != memory.Speaking || about.AtMS != 0 && about.AtMS < o.startMS || !o.says(about.Heard) {
			continue
		}
		if about.Cut {
			s.cutAnswers(ctx, ref, ErrBargeIn, func(other *openAnswer) bool { return other == o })
		}
		if o.amend(a) {
			return AmendedWhenStored, nil
		}
		select {
		case <-o.settled: // within one commit
			return AlreadyStored, nil
		case <-ctx.Done():
			return NoLiveAnswer, context.Cause(ctx)
		}
	}
	if about.Cut && about.AtMS == 0 {
		s.askIfPending(ctx, ref, ErrBargeIn, nil, about.Heard)
	}
	return NoLiveAnswer, nil
}

// amend adds an amendment. It reports false if the answer is being stored already.
func (o *openAnswer) amend(a Amendment) bool {
	o.agent.mu.Lock()
	defer o.agent.mu.Unlock()
	if o.closed {
		return false
	}
	if len(o.amendments) == maxAmendments {
		o.amendments[maxAmendments-1] = a
		return true
	}
	o.amendments = append(o.amendments, a)
	return true
}

// amended returns the answer with the amendments that fit it. No more amendments are accepted after
// it.
func (o *openAnswer) amended(m memory.Message, now int64) memory.Message {
	o.agent.mu.Lock()
	o.closed = true
	amendments := o.amendments
	o.agent.mu.Unlock()
	for _, a := range amendments {
		if m.State == memory.Superseded || !a.Fits(&m) {
			continue
		}
		if updated, changed, err := a.Apply(m, now); err == nil && changed {
			m = updated
		}
	}
	return m
}

// amendOthers applies the amendments that do not fit the stored answer elsewhere.
func (s *Turns) amendOthers(ctx context.Context, o *openAnswer, m *memory.Message) {
	if m.State == memory.Superseded {
		return
	}
	for _, a := range o.amendments { // closed: nothing is added anymore
		if a.Fits(m) {
			continue
		}
		if err := a.ApplyElsewhere(ctx); err != nil {
			s.cfg.OnError("record evidence", err)
			return
		}
	}
}
