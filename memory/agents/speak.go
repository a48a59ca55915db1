package agents

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// MaxSpeak limits a text to speak, in bytes, as Agora does.
const MaxSpeak = 512

// Priority is what speak does while an answer is being generated.
type Priority string

// The priorities.
const (
	SpeakInterrupt Priority = "INTERRUPT" // cut it and speak
	SpeakAppend    Priority = "APPEND"    // speak after it
	SpeakIgnore    Priority = "IGNORE"    // do not speak
)

// Speak makes the agent say a text: it is stored as an assistant message with source command, and
// followers get it. key, if not empty, is the message's ID, so that a repeated call speaks once. It
// returns fault.NotFound if the agent has ended.
func (s *Turns) Speak(ctx context.Context, project, id, text string, p Priority, key string) (memory.Agent, error) {
	h, err := s.cfg.Ledger.Head(ctx, project, id)
	if err != nil {
		return memory.Agent{}, err
	}
	if err := h.Agent.MustBeActive(fault.NotFound); err != nil {
		return memory.Agent{}, err
	}
	m := memory.Message{Role: memory.Assistant, Source: memory.SourceCommand, Content: text, ID: key}
	if known, err := s.messages.Stored(ctx, project, id, m); err != nil || known {
		return *h.Agent, err
	}
	if _, busy := s.Busy(ctx, project, id); busy {
		switch p {
		case SpeakIgnore:
			return *h.Agent, nil
		case SpeakInterrupt:
			s.Cut(ctx, project, id, ErrSpeak)
		// The open answer has its place in the ledger already, before this one.
		case SpeakAppend:
		}
	}
	return s.messages.say(ctx, memory.Ref{Project: project, ID: id}, m, func(memory.Head) error { return nil })
}

// Stored reports whether a message with this ID is stored. It returns fault.Conflict if that has
// other content. A message without an ID is never stored.
func (s *Messages) Stored(ctx context.Context, project, id string, m memory.Message) (bool, error) {
	if m.ID == "" {
		return false, nil
	}
	found := false
	err := s.plain(ctx, project, id, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		m := withIDs([]memory.Message{m}, s.Redactor(h.Agent))[0]
		known, err := knownIDs(view, []memory.Message{m})
		if err != nil {
			return memory.Change{}, err
		}
		var stored memory.Message
		if stored, found = known[m.ID]; found && !memory.SameSaid(stored, m, s.Redactor(h.Agent)) {
			return memory.Change{}, fault.At(fault.Conflict, "Idempotency-Key", "was used for another text")
		}
		return memory.Change{}, nil
	})
	return found, err
}

// say appends an assistant message that is not from the model, if still allows it.
func (s *Messages) say(ctx context.Context, ref memory.Ref, m memory.Message, still func(memory.Head) error) (memory.Agent, error) {
	var a memory.Agent
	err := s.update(ctx, ref, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		a = *h.Agent
		if err := a.MustBeActive(fault.NotFound); err != nil {
			return memory.Change{}, err
		}
		if err := still(h); err != nil {
			return memory.Change{}, err
		}
		m := withIDs([]memory.Message{m}, s.Redactor(&a))[0]
		known, err := knownIDs(view, []memory.Message{m})
		if err != nil {
			return memory.Change{}, err
		}
		if stored, ok := known[m.ID]; ok {
			if !memory.SameSaid(stored, m, s.Redactor(&a)) {
				return memory.Change{}, fault.At(fault.Conflict, "Idempotency-Key", "was used for another text")
			}
			return memory.Change{}, nil
		}
		put := m
		put.Method = memory.AssumedFull
		if put, err = h.Place(put, h.Rev+1, s.NowMS(), false); err != nil {
			return memory.Change{}, err
		}
		return memory.Change{Append: []memory.Message{put}}, nil
	})
	return a, err
}
