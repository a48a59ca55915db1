package memory

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
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
func (s *Service) Speak(ctx context.Context, project, id, text string, p Priority, key string) (Agent, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err != nil {
		return Agent{}, err
	}
	if err := h.Agent.MustBeActive(fault.NotFound); err != nil {
		return Agent{}, err
	}
	m := Message{Role: Assistant, Source: SourceCommand, Content: text, ID: key}
	if known, err := s.Stored(ctx, project, id, m); err != nil || known {
		return h.Agent, err
	}
	if _, busy := s.Busy(ctx, project, id); busy {
		switch p {
		case SpeakIgnore:
			return h.Agent, nil
		case SpeakInterrupt:
			s.Cut(ctx, project, id, ErrSpeak)
		// The answer in flight has its place in the ledger already, before this one.
		case SpeakAppend:
		}
	}
	return s.say(ctx, project, id, m, func(Head) error { return nil })
}

// Stored reports whether a message with this ID is stored. It returns fault.Conflict if that has
// other content. A message without an ID is never stored.
func (s *Service) Stored(ctx context.Context, project, id string, m Message) (bool, error) {
	if m.ID == "" {
		return false, nil
	}
	found := false
	err := s.cfg.Store.Update(ctx, project, id, func(view AgentView) (Change, error) {
		known, err := knownIDs(view, []Message{m})
		if err != nil {
			return Change{}, err
		}
		var stored Message
		if stored, found = known[m.ID]; found && !sameWords(stored, m) {
			return Change{}, fault.At(fault.Conflict, "Idempotency-Key", "was used for another text")
		}
		return Change{}, nil
	})
	return found, err
}

// say appends an assistant message that is not from the model, if still allows it.
func (s *Service) say(ctx context.Context, project, id string, m Message, still func(Head) error) (Agent, error) {
	var a Agent
	err := s.update(ctx, project, id, func(view AgentView) (Change, error) {
		h := view.Head()
		a = h.Agent
		if err := a.MustBeActive(fault.NotFound); err != nil {
			return Change{}, err
		}
		if err := still(h); err != nil {
			return Change{}, err
		}
		known, err := knownIDs(view, []Message{m})
		if err != nil {
			return Change{}, err
		}
		if stored, ok := known[m.ID]; ok {
			if !sameWords(stored, m) {
				return Change{}, fault.At(fault.Conflict, "Idempotency-Key", "was used for another text")
			}
			return Change{}, nil
		}
		put := m
		put.Method = AssumedFull
		if put, err = h.Place(put, h.Rev+1, s.NowMS(), false); err != nil {
			return Change{}, err
		}
		return Change{Append: []Message{put}}, nil
	})
	return a, err
}
