// Package told keeps what an LLM was given for an answer. Record makes a record (memory.Told) of
// the body of a request: which messages of the ledger are in it, and the texts between them. Turn
// shows the bodies of a turn again, and which messages were left out and why.
package told

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// Limits of Turn: how many answers it returns, and how many messages that were left out,
// the newest ones each.
const (
	maxAnswers    = 20
	maxLeftOut    = 100
	leftOutWithin = 1000 // messages before the answer that are looked through
)

// Request is what the LLM was given for one answer.
type Request struct {
	Answer memory.Message // has a Told
	Body   []byte         // of the request
	Exact  bool           // Body is what was sent
	// Messages are those of the body, empty if too much of it is gone.
	Messages []Message
	LeftOut  []LeftOut
}

// Message is one message of a request.
type Message struct {
	JSON    json.RawMessage
	Seqs    []int64 // of the messages of the ledger in it
	Changed bool    // the ledger may no longer have the text that was told
}

// LeftOut is a message of the ledger that the LLM was not given.
type LeftOut struct {
	memory.Message
	Reason string // see leftOutReason
}

// Turn returns what the LLM was given in one turn, oldest answer first. It returns fault.NotFound
// if there is no such agent, and nothing for a turn without a record.
func Turn(ctx context.Context, s *agents.Service, project, id string, turn int64) ([]Request, error) {
	if _, err := s.Head(ctx, project, id); err != nil {
		return nil, err
	}
	msgs, err := s.Messages(ctx, project, id, memory.MessageQuery{Turn: &turn, Limit: 1000})
	if err != nil {
		return nil, err
	}
	msgs = slices.DeleteFunc(msgs, func(m memory.Message) bool { return m.Told() == nil })
	out := make([]Request, 0, len(msgs))
	for _, m := range msgs[max(0, len(msgs)-maxAnswers):] {
		t, err := forAnswer(ctx, s, project, id, m)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// forAnswer returns what the LLM was given for an answer.
func forAnswer(ctx context.Context, s *agents.Service, project, id string, answer memory.Message) (Request, error) {
	const page = 1000
	needs := append(Needs(answer.Told()), Span{From: max(1, answer.Seq-leftOutWithin), To: answer.Seq})
	slices.SortFunc(needs, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	found := map[int64]*memory.Message{}
	read, whole := int64(0), false // up to which message the ledger was read, and whether that is all
	for _, need := range needs {
		for read = max(read, need.From-1); read < need.To && !whole; {
			msgs, err := s.Messages(ctx, project, id, memory.MessageQuery{AfterSeq: read, Limit: page})
			if err != nil {
				return Request{}, err
			}
			for i := range msgs {
				found[msgs[i].Seq], read = &msgs[i], msgs[i].Seq
			}
			whole = len(msgs) < page
		}
	}
	t := Request{Answer: answer}
	var said []Part
	t.Body, said, t.Exact = Body(answer.Told(), found)
	t.Messages = messagesOf(t.Body, said)
	for _, p := range said {
		delete(found, p.Seq)
	}
	for seq, m := range found {
		if seq < answer.Seq && seq >= answer.Seq-leftOutWithin {
			t.LeftOut = append(t.LeftOut, LeftOut{*m, leftOutReason(m, answer.Told())})
		}
	}
	slices.SortFunc(t.LeftOut, func(a, b LeftOut) int { return int(a.Seq - b.Seq) })
	t.LeftOut = t.LeftOut[max(0, len(t.LeftOut)-maxLeftOut):]
	return t, nil
}

// messagesOf returns the messages of a request's body, or nothing if it is not whole JSON.
func messagesOf(body []byte, said []Part) []Message {
	out := []Message{}
	d := json.NewDecoder(bytes.NewReader(body))
	if !json.Valid(body) {
		return out
	}
	_, _ = d.Token() // the body is valid, so these do not fail
	for d.More() {
		if name, _ := d.Token(); name != "messages" {
			_ = d.Decode(new(json.RawMessage))
			continue
		}
		for _, _ = d.Token(); d.More(); {
			var m Message
			_ = d.Decode(&m.JSON)
			for len(said) > 0 && said[0].Offset < int(d.InputOffset()) {
				if said[0].Offset >= 0 {
					m.Changed = m.Changed || said[0].Changed
					if !slices.Contains(m.Seqs, said[0].Seq) {
						m.Seqs = append(m.Seqs, said[0].Seq)
					}
				}
				said = said[1:]
			}
			out = append(out, m)
		}
		break
	}
	return out
}

// leftOutReason returns why the LLM was not given a message: its state, or cleared (it had left the
// memory), instruction (a stored system message), platform (the platform's own list did not have
// it) or limit (the policy's).
func leftOutReason(m *memory.Message, t *memory.Told) string {
	switch {
	case m.State == memory.Unplayed:
		return "unheard"
	case m.State != memory.Final:
		return string(m.State)
	case m.Status != memory.Accepted:
		return string(m.Status)
	case m.Seq < t.Base:
		return "cleared"
	case m.Role.Instructs():
		return "instruction"
	case !m.InMemory():
		return string(memory.Empty)
	case t.Resent && t.Policy == (memory.Limits{}):
		return "platform"
	}
	return "limit"
}
