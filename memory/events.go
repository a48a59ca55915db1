package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/heardlog/heardlog/internal/event"
)

// Events decides which events are wanted and gives their bodies; the domain knows what happened, not how it is written.
type Events interface {
	// Wants tells whether any endpoint of the project takes the type. It is asked with every change, inside the decision, and must not block.
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
	Messages []Message // 103: the whole memory as history shows it; 10002: those that a change left otherwise than they were, by Seq
	Turns    []TurnRow // 111, 112
	End      OpenEnd   // 103
	TurnID   int64     // 110
	Failure  *Failure  // 110
	Answer   *Message  // 10001
}

type noEvents struct{}

func (noEvents) Wants(string, int) bool          { return false }
func (noEvents) Body(EventFacts) ([]byte, error) { return nil, nil }

// Where the events of one change stand in its sequence. A change tells of fewer answers than an agent shows to one call, which is MaxDepth, and a
// call of Record brings no more than MaxReports.
const (
	perChange   = 4096
	nthMessages = 8 // before it those that a decision makes itself
	nthAnswer   = 9 // and up
)

// event makes an outbox row, or none where nobody wants the type. rev is the revision of the change it belongs to, nth its place in it.
func (s *Service) event(a *Agent, eventType int, rev, nth, now int64, f EventFacts) ([]Event, error) {
	if !s.cfg.Events.Wants(a.Project, eventType) {
		return nil, nil
	}
	// The id is made of what the event tells of, so that a decision that runs twice names it the same. The agent is in it as a hash, because
	// projects and ids may hold what a header may not.
	sum := sha256.Sum256([]byte(a.Project + "\x00" + a.ID))
	f.ID = hex.EncodeToString(sum[:12]) + ":" + strconv.FormatInt(rev, 10) + ":" + strconv.Itoa(eventType)
	if f.Answer != nil {
		f.ID += ":" + strconv.FormatInt(f.Answer.Seq, 10)
	}
	f.Type, f.Sequence, f.AtMS, f.Agent = eventType, rev*perChange+nth, now, *a
	body, err := s.cfg.Events.Body(f)
	if err != nil {
		return nil, err
	}
	return []Event{{ID: f.ID, Type: eventType, CreatedMS: now, Body: body}}, nil
}

// tell adds to a change the events that follow from its messages, whoever decided on it: those of messages as they stand now, and those of answers
// that were cut. tx gives the messages that the change replaces as they were. Where nobody wants such events it costs two questions.
func (s *Service) tell(a *Agent, rev int64, c *Change, view AgentView) error {
	if len(c.Append)+len(c.Replace) == 0 {
		return nil
	}
	messages, cuts := s.cfg.Events.Wants(a.Project, event.Message), s.cfg.Events.Wants(a.Project, event.Interrupted)
	if !messages && !cuts {
		return nil
	}
	var told []Message
	now := s.NowMS()
	nth := int64(nthAnswer)
	each := func(old, m *Message) error {
		if messages && m.tellsMore(old) {
			told = append(told, *m)
		}
		if !cuts || !m.cutOtherwise(old) {
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
		if err := each(&Message{}, &c.Append[i]); err != nil {
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

// tellsMore tells whether a reader of the history would see m otherwise than old, which is zero for a new message.
func (m *Message) tellsMore(old *Message) bool {
	is, was := m.InHistory(), old.InHistory()
	switch {
	case !is && !was:
		return false
	case is != was:
		return true
	}
	return !bytes.Equal(m.AppendHistory(nil), old.AppendHistory(nil))
}

// cutOtherwise tells whether what is known of the answer's cut is not what old said, or is no cut of an answer that counts any more.
func (m *Message) cutOtherwise(old *Message) bool {
	is, was := m.cutKnown(), old.cutKnown()
	if is == nil && was == nil {
		return false
	}
	if is == nil || was == nil {
		return true
	}
	return *is != *was || m.Original() != old.Original()
}

// knownCut is what event 10001 tells beside the texts that the model made.
type knownCut struct {
	heard, by string
	atMS      int64
	method    Method
	state     State
}

// cutKnown gives what is known of the cut, nil where there is none of an answer that anybody could have heard.
func (m *Message) cutKnown() *knownCut {
	if m.Role != Assistant || !m.Interrupted || m.State == Superseded || m.State == Empty {
		return nil
	}
	return &knownCut{heard: m.Content, by: m.InterruptBy, atMS: m.InterruptMS, method: m.Method, state: m.State}
}
