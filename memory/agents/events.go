package agents

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
)

// Events selects events and builds their bodies. This package knows what happened, not how it is
// encoded.
type Events interface {
	// Wants reports whether an endpoint of the project receives the type. It is called with every
	// change, inside the decision, and must not block.
	Wants(project string, eventType int) bool
	// Body builds the event's bytes, which never change afterwards.
	Body(f EventFacts) ([]byte, error)
}

// EventFacts is everything that an event's body may contain.
type EventFacts struct {
	ID       string
	Type     int
	Sequence int64 // grows with each event of the agent; may skip
	AtMS     int64
	Agent    memory.Agent
	// 103: the whole memory as history shows it; 111, 112: the agent's own messages, by Seq; 10002:
	// the messages that a change altered, by Seq.
	Messages []memory.Message
	End      memory.OpenEnd  // 103
	TurnID   int64           // 110
	Failure  *memory.Failure // 110
	Answer   *memory.Message // 10001
	Score    *memory.Score   // 10003
}

type noEvents struct{}

func (noEvents) Wants(string, int) bool { return false }

func (noEvents) Body(EventFacts) ([]byte, error) { return nil, nil }

// The places of the events of one change in its sequence. A change reports fewer answers than
// maxDepth, the most that an agent shows to one call, and a call that records evidence brings at
// most 1,000 reports.
const (
	perChange   = 4096
	nthMessages = 8 // before it those that a decision makes itself
	nthAnswer   = 9 // and up
)

// event returns an outbox row, or none if no endpoint wants the type. rev is the revision of its
// change, nth its place in it.
func (s *Messages) event(a *memory.Agent, eventType int, rev, nth, now int64, f EventFacts) ([]memory.Event, error) {
	if !s.cfg.Events.Wants(a.Project, eventType) {
		return nil, nil
	}
	// The ID is derived from what the event is about, so that a decision that runs twice uses the
	// same one. The agent is in it as a hash, because projects and IDs may contain characters that
	// headers may not.
	sum := sha256.Sum256([]byte(a.Project + "\x00" + a.ID))
	f.ID = hex.EncodeToString(sum[:12]) + ":" + strconv.FormatInt(rev, 10) + ":" + strconv.Itoa(eventType)
	if f.Answer != nil {
		f.ID += ":" + strconv.FormatInt(f.Answer.Seq, 10)
	}
	if f.Failure = f.Failure.Redacted(s.Redactor(a)); s.paused(a) {
		f.Failure = withoutText(f.Failure)
	}
	f.Type, f.Sequence, f.AtMS, f.Agent = eventType, rev*perChange+nth, now, *a
	body, err := s.cfg.Events.Body(f)
	if err != nil {
		return nil, err
	}
	return []memory.Event{{ID: f.ID, Type: eventType, CreatedMS: now, Body: body}}, nil
}

// addEvents adds the events that follow from the messages of a change: those about messages as they
// are now, and those about answers that were cut. view has the messages that the change replaces.
// If no endpoint wants such events, it costs two calls of Wants.
func (s *Messages) addEvents(a *memory.Agent, rev int64, c *memory.Change, view memory.AgentView) error {
	if len(c.Append)+len(c.Replace) == 0 {
		return nil
	}
	messages, cuts := s.cfg.Events.Wants(a.Project, event.Message), s.cfg.Events.Wants(a.Project, event.Interrupted)
	if !messages && !cuts {
		return nil
	}
	var told []memory.Message
	now := s.NowMS()
	nth := int64(nthAnswer)
	each := func(old, m *memory.Message) error {
		if messages && shownDifferently(m, old) {
			told = append(told, *m)
		}
		if !cuts || !cutDiffers(m, old) {
			return nil
		}
		ev, err := s.event(a, event.Interrupted, rev, nth, now, EventFacts{Answer: m})
		nth++
		c.Events = append(c.Events, ev...)
		return err
	}
	for i := range c.Replace {
		old, err := view.Seq(c.Replace[i].Seq)
		if err != nil {
			return err
		}
		if err := each(&old, &c.Replace[i]); err != nil {
			return err
		}
	}
	for i := range c.Append {
		if err := each(&memory.Message{}, &c.Append[i]); err != nil {
			return err
		}
	}
	if len(told) == 0 {
		return nil
	}
	ev, err := s.event(a, event.Message, rev, nthMessages, now, EventFacts{Messages: told})
	c.Events = append(c.Events, ev...)
	return err
}

// shownDifferently reports whether history shows m differently than old, which is zero for a new
// message.
func shownDifferently(m *memory.Message, old *memory.Message) bool {
	is, was := m.InHistory(), old.InHistory()
	switch {
	case !is && !was:
		return false
	case is != was:
		return true
	}
	return !bytes.Equal(m.AppendHistory(nil), old.AppendHistory(nil))
}

// cutDiffers reports whether the cut of the answer differs from that of old, or no longer belongs
// to an answer that counts.
func cutDiffers(m *memory.Message, old *memory.Message) bool {
	is, was := cutFacts(m), cutFacts(old)
	if is == nil && was == nil {
		return false
	}
	if is == nil || was == nil {
		return true
	}
	return *is != *was || m.Original() != old.Original()
}

// cutDetails is what event 10001 contains beside the generated texts.
type cutDetails struct {
	heard, by string
	atMS      int64
	method    memory.Method
	state     memory.State
}

// cutFacts returns the facts about the cut, or nil unless the answer was cut and may have been
// heard.
func cutFacts(m *memory.Message) *cutDetails {
	if m.Role != memory.Assistant || !m.Interrupted || m.State == memory.Superseded || m.State == memory.Empty {
		return nil
	}
	return &cutDetails{heard: m.Content, by: m.InterruptBy, atMS: m.InterruptMS, method: m.Method, state: m.State}
}
