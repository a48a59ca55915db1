package memory

import (
	"context"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// MaxSpeak is how long a text to speak may be, in bytes (reference/agora-api.md 1.10).
const MaxSpeak = 512

// Priority says what speak does while an answer is in flight.
type Priority string

// The priorities.
const (
	SpeakInterrupt Priority = "INTERRUPT" // cut it and speak
	SpeakAppend    Priority = "APPEND"    // speak after it
	SpeakIgnore    Priority = "IGNORE"    // do not speak
)

// Speak makes the agent say a text: it is stored as an assistant message of source command and shown to those who watch the
// agent. key, if not empty, is the message's ID, so that a repeated call speaks once. fault.NotFound if the agent has ended.
func (s *Service) Speak(ctx context.Context, project, id, text string, p Priority, key string) (Agent, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err != nil {
		return Agent{}, err
	}
	if err := mustBeActive(h.Agent, fault.NotFound); err != nil {
		return Agent{}, err
	}
	if _, busy := s.Busy(project, id); busy {
		switch p {
		case SpeakIgnore:
			return h.Agent, nil
		case SpeakInterrupt:
			s.Cut(ctx, project, id, ErrSpeak)
		case SpeakAppend: // the answer in flight has its place in the ledger already, before this one
		}
	}
	return s.say(ctx, project, id, Message{Role: Assistant, Source: SourceCommand, Content: text, ID: key})
}

// say appends an assistant message that nobody asked the model for.
func (s *Service) say(ctx context.Context, project, id string, m Message) (Agent, error) {
	var a Agent
	err := s.update(ctx, project, id, func(tx Tx) (Change, error) {
		h := tx.Head()
		a = h.Agent
		if err := mustBeActive(a, fault.NotFound); err != nil {
			return Change{}, err
		}
		known, err := knownIDs(tx, []Message{m})
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
		if put, err = place(&h, put, h.Rev+1, s.nowMS(), false); err != nil {
			return Change{}, err
		}
		return Change{Append: []Message{put}}, nil
	})
	return a, err
}

// fill puts the template variables into a text, once: what a variable holds is not looked at again (reference/agora-api.md 2.1). A name
// that has no value stays as it is.
func (l LLMSettings) fill(text string) string { return FillTemplate(text, l.Variables) }

// FillTemplate replaces each {{name}} by its value in one pass.
func FillTemplate(text string, vars map[string]string) string {
	if len(vars) == 0 || !strings.Contains(text, "{{") {
		return text
	}
	var b strings.Builder
	for {
		open := strings.Index(text, "{{")
		if open < 0 {
			break
		}
		end := strings.Index(text[open:], "}}")
		if end < 0 {
			break
		}
		end += open
		v, ok := vars[strings.TrimSpace(text[open+2:end])]
		if !ok { // look again behind these braces: "{{{{name}}"
			b.WriteString(text[:open+2])
			text = text[open+2:]
			continue
		}
		b.WriteString(text[:open])
		b.WriteString(v)
		text = text[end+2:]
	}
	b.WriteString(text)
	return b.String()
}
