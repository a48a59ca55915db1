package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// The event types of the outbox (reference/agora-api.md 5.4).
const (
	TypeJoined  = 101
	TypeLeft    = 102
	TypeHistory = 103
	TypeError   = 110
	TypeTurns   = 112
)

// Events decides which events are wanted and gives their bodies; the domain knows what happened, not how it is written.
type Events interface {
	// Wants tells whether any endpoint of the project takes the type.
	Wants(project string, eventType int) bool
	// Body builds the event's bytes, which never change afterwards.
	Body(f EventFacts) ([]byte, error)
}

// EventFacts is everything that an event's body may tell.
type EventFacts struct {
	ID       string
	Type     int
	Sequence int64 // grows with each event of the agent; may skip
	AtMS     int64
	Agent    Agent
	Messages []Message // 103: the whole memory as history shows it
	Turns    []TurnRow // 112
	TurnID   int64     // 110
	Failure  *Failure  // 110
}

type noEvents struct{}

func (noEvents) Wants(string, int) bool          { return false }
func (noEvents) Body(EventFacts) ([]byte, error) { return nil, nil }

// event makes an outbox row, or none where nobody wants the type. rev is the revision of the change it belongs to, nth its place in it.
func (s *Service) event(a Agent, eventType int, rev, nth, now int64, f EventFacts) ([]Event, error) {
	if !s.cfg.Events.Wants(a.Project, eventType) {
		return nil, nil
	}
	// The id is made of what the event tells of, so that a decision that runs twice names it the same. The agent is in it as a hash, because
	// projects and ids may hold what a header may not.
	sum := sha256.Sum256([]byte(a.Project + "\x00" + a.ID))
	f.ID = hex.EncodeToString(sum[:12]) + ":" + strconv.FormatInt(rev, 10) + ":" + strconv.Itoa(eventType)
	f.Type, f.Sequence, f.AtMS, f.Agent = eventType, rev*8+nth, now, a
	body, err := s.cfg.Events.Body(f)
	if err != nil {
		return nil, err
	}
	return []Event{{ID: f.ID, Type: eventType, CreatedMS: now, Body: body}}, nil
}
