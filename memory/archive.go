package memory

import (
	"context"

	"github.com/heardlog/heardlog/internal/fault"
)

// Archive holds the facts about an agent that runs elsewhere, at Agora, and is known here from its
// notifications only. Package archive merges notifications into it and derives the agent and its
// messages from it. Notifications may arrive in any order and more than once; the facts end up the
// same.
type Archive struct {
	// Name is the agent's name. Agent.Name is set only once the agent has ended, so that names at
	// Agora and names of live agents here cannot collide.
	Name    string `json:"name,omitempty"`
	StartMS int64  `json:"start_ms,omitempty"`
	StopMS  int64  `json:"stop_ms,omitempty"`
	// Left is how the agent ended; nil while no notification has reported it.
	Left *ArchiveEnd `json:"left,omitempty"`
	// Messages is the length of the best history received so far, and Digest a hash of it. The
	// longer history wins. Told has, for each message, a bit for each field that the history itself
	// contained; the other fields are derived from other facts.
	Messages int    `json:"messages,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Told     []byte `json:"told,omitempty"`
	// Notices are the IDs of the first MaxArchiveNotices notifications. A repeat of a later one is
	// recognized because it changes nothing.
	Notices []string       `json:"notices,omitempty"`
	Turns   []ArchiveTurn  `json:"turns,omitempty"`  // by turn, at most MaxArchiveTurns
	Errors  []ArchiveError `json:"errors,omitempty"` // sorted, at most MaxArchiveErrors
}

// Limits of what is kept of one archived agent. The history is limited by MaxArchiveMessages.
const (
	MaxArchiveNotices  = 256
	MaxArchiveTurns    = 1000
	MaxArchiveErrors   = 200
	MaxArchiveMessages = 10_000
)

// ArchiveEnd is how an archived agent ended.
type ArchiveEnd struct {
	Status  Status `json:"status"` // Stopped or Failed
	Message string `json:"message,omitempty"`
}

// ArchiveTurn holds the facts about one turn, with the fields of Agora's turn table. Times are Unix
// ms, latencies ms.
type ArchiveTurn struct {
	TurnID     int64  `json:"turn_id"` // Agora's number
	StartMS    int64  `json:"start_ms,omitempty"`
	StartType  string `json:"start_type,omitempty"`
	EndMS      int64  `json:"end_ms,omitempty"`
	EndType    string `json:"end_type,omitempty"`
	CausedBy   string `json:"caused_by,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Details    string `json:"details,omitempty"`
	E2EMS      int64  `json:"e2e_ms,omitempty"`
	TokenMS    int64  `json:"token_ms,omitempty"`
	SentenceMS int64  `json:"sentence_ms,omitempty"`

	Code int `json:"code,omitempty"` // of its error
}

// ArchiveError is one entry of an error notification.
type ArchiveError struct {
	TurnID  int64  `json:"turn_id"`
	Module  string `json:"module,omitempty"`
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// Archived reports whether the agent runs elsewhere and is only recorded here.
func (a Agent) Archived() bool { return a.Settings.Archive != nil }

// ShownName returns the agent's name, also while an archived agent is live.
func (a Agent) ShownName() string {
	if a.Name == "" && a.Archived() {
		return a.Settings.Archive.Name
	}
	return a.Name
}

// PastRetention reports whether an agent that ended at endMS would have been erased by now.
func (s *Service) PastRetention(endMS int64) bool {
	return s.cfg.Retention > 0 && endMS < s.NowMS()-s.cfg.Retention.Milliseconds()
}

// CreateArchived stores an archived agent and its messages. The limit on live agents does not
// apply. It returns fault.Conflict if the ID is taken.
func (s *Service) CreateArchived(ctx context.Context, a Agent, msgs []Message) error {
	if _, _, err := s.cfg.Store.Create(ctx, a, 0, Change{Append: msgs}); err != nil {
		return err
	}
	if !a.Status.Ended() {
		s.live.add(keyOf(a), s.cfg.Now())
		s.timers.poke(s.dueOf(NewHead(a, nil, 0)), a.Project, a.ID)
	}
	return nil
}

// UpdateArchived changes an archived agent. Nothing happens here because of the change: no events
// are sent, and policies and limits do not apply. It returns fault.NotFound for an unknown agent,
// and fault.Conflict for one that runs here.
func (s *Service) UpdateArchived(ctx context.Context, project, id string, decide Decision) error {
	var updated *Agent
	err := s.cfg.Store.Update(ctx, project, id, func(view AgentView) (Change, error) {
		updated = nil
		if h := view.Head(); !h.Agent.Archived() {
			return Change{}, fault.At(fault.Conflict, "agent_id", "%q is an agent that runs here, whose record is its own", id)
		}
		c, err := decide(view)
		if err == nil {
			err = mark(view, &c)
		}
		if err == nil {
			updated = c.Agent
		}
		return c, err
	})
	if err != nil || updated == nil {
		return err
	}
	k := agentKey{project, id}
	s.live.changed(k)
	if updated.Status.Ended() {
		s.live.remove(k)
	}
	return nil
}

// expireArchived ends an archived agent whose end was never reported within the longest time that
// an agent may run. A notification that arrives later still counts.
func (s *Service) expireArchived(ctx context.Context, project, id string) error {
	return s.UpdateArchived(ctx, project, id, func(view AgentView) (Change, error) {
		h := view.Head()
		if h.Agent.Status.Ended() {
			return Change{}, nil
		}
		a := h.Agent
		a.Status, a.Message, a.Name = Stopped, EndLifetime, a.Settings.Archive.Name
		a.StopMS, a.Rev = a.StartMS+Lifetime.Milliseconds(), h.Rev+1
		return Change{Agent: &a}, nil
	})
}
