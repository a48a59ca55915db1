package window

import (
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// Scope is whose a message is. Empty IDs are not set.
type Scope struct {
	UserID    string `json:"user_id,omitempty"`
	SessionID string `json:"session_id,omitempty"`
	TaskID    string `json:"task_id,omitempty"`
	AgentID   string `json:"agent_id,omitempty"`
}

// Level is which IDs of a scope are compared.
type Level string

// The levels. The zero value is TaskLevel.
const (
	UserLevel    Level = "user"    // user_id, agent_id
	SessionLevel Level = "session" // and session_id
	TaskLevel    Level = "task"    // and task_id
)

// ParseLevel returns the level of a name; "" is TaskLevel. It returns fault.Invalid with the field
// and what is allowed.
func ParseLevel(field, name string) (Level, error) {
	switch l := Level(name); l {
	case "":
		return TaskLevel, nil
	case UserLevel, SessionLevel, TaskLevel:
		return l, nil
	}
	return "", notOneOf(field, name, string(UserLevel), string(SessionLevel), string(TaskLevel))
}

// Matches reports whether a message of scope s (nil is none) matches the IDs asked for. IDs that
// are not set, or are below the level, are not compared. A message without an ID that is asked for
// does not match.
func (l Level) Matches(asked Scope, s *Scope) bool {
	var own Scope
	if s != nil {
		own = *s
	}
	same := func(want, got string) bool { return want == "" || want == got }
	switch l {
	case UserLevel:
		return same(asked.UserID, own.UserID) && same(asked.AgentID, own.AgentID)
	case SessionLevel:
		return same(asked.UserID, own.UserID) && same(asked.AgentID, own.AgentID) && same(asked.SessionID, own.SessionID)
	}
	return same(asked.UserID, own.UserID) && same(asked.AgentID, own.AgentID) && same(asked.SessionID, own.SessionID) && same(asked.TaskID, own.TaskID)
}

// Status is whether a message is a draft, accepted or discarded. The zero value is Accepted.
type Status string

// The statuses.
const (
	Accepted Status = "accepted"
	Draft    Status = "draft"
	Discard  Status = "discard" // final
)

// Statuses returns all statuses, the default first.
func Statuses() []Status { return []Status{Accepted, Draft, Discard} }

// ParseStatus returns the status of a name; "" is Accepted. It returns fault.Invalid with the field
// and what is allowed.
func ParseStatus(field, name string) (Status, error) {
	if name == "" {
		return Accepted, nil
	}
	if s := Status(name); slices.Contains(Statuses(), s) {
		return s, nil
	}
	return "", notOneOf(field, name, string(Accepted), string(Draft), string(Discard))
}

// Named returns the status, with Accepted for the zero value.
func (s Status) Named() Status { return or(s, Accepted) }

// To returns fault.Conflict unless a message may change to the next status: from draft to the
// others, and from accepted to discard.
func (s Status) To(next Status) error {
	switch from := s.Named(); {
	case from == Draft && (next == Accepted || next == Discard), from == Accepted && next == Discard:
		return nil
	case from == Discard:
		return fault.At(fault.Conflict, "status", "the message is discarded, which is final")
	default:
		allowed := "discard"
		if from == Draft {
			allowed = "accepted or discard"
		}
		return fault.At(fault.Conflict, "status", "a message that is %s cannot become %s; it can become %s", from, text.Clip(string(next), 60), allowed)
	}
}

func notOneOf(field, got string, names ...string) error {
	return fault.At(fault.Invalid, field, "must be one of %s, not %q", strings.Join(names, ", "), text.Clip(got, 60))
}
