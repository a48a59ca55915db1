// Package requests keeps what an LLM was given for an answer. Record makes a record
// (memory.Request) of the body of a request: what differs from the body for the answer before, and
// where the messages of the ledger are in it. Turn shows the bodies of a turn again, and which
// messages were left out and why. Drop drops the records of bodies with removed messages.
package requests

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
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
	Answer memory.Message // has a Request
	Body   []byte         // of the request
	Exact  bool           // Body is what was sent
	// Messages are those of the body.
	Messages []Message
	LeftOut  []LeftOut
}

// Message is one message of a request.
type Message struct {
	JSON    json.RawMessage
	Seqs    []int64 // of the messages of the ledger in it
	Changed bool    // the ledger has other words now
}

// LeftOut is a message of the ledger that the LLM was not given.
type LeftOut struct {
	memory.Message
	Reason string // see leftOutReason
}

// Turn returns what the LLM was given in one turn, oldest answer first. It returns fault.NotFound
// if there is no such agent, and nothing for a turn without a record.
func Turn(ctx context.Context, s *agents.Messages, project, id string, turn int64) ([]Request, error) {
	if _, err := s.Head(ctx, project, id); err != nil {
		return nil, err
	}
	msgs, err := s.Page(ctx, project, id, memory.MessageQuery{Turn: &turn, Limit: 1000})
	if err != nil {
		return nil, err
	}
	msgs = slices.DeleteFunc(msgs, func(m memory.Message) bool { return m.Made().Request == nil })
	out := make([]Request, 0, len(msgs))
	for _, m := range msgs[max(0, len(msgs)-maxAnswers):] {
		t, err := ForAnswer(ctx, s, project, id, m)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// ForAnswer returns what the LLM was given for an answer that has a Request.
func ForAnswer(ctx context.Context, s *agents.Messages, project, id string, answer memory.Message) (t Request, err error) {
	found, first := map[int64]*memory.Message{}, max(1, answer.Seq-leftOutWithin)
	read := func(from, to int64) { // up to to, not included
		for more := true; more && from < to && err == nil; {
			var msgs []memory.Message
			msgs, err = s.Page(ctx, project, id, memory.MessageQuery{AfterSeq: from - 1, Limit: int(min(to-from, 1000))})
			for i := range msgs {
				found[msgs[i].Seq], from = &msgs[i], msgs[i].Seq+1
			}
			more = len(msgs) > 0
		}
	}
	read(first, answer.Seq)
	parts, whole := Parts(answer.Made().Request, func(seq int64) *memory.Request {
		if found[seq] == nil {
			read(seq, seq+1)
		}
		if m := found[seq]; m != nil {
			return m.Made().Request
		}
		return nil
	})
	t = Request{Answer: answer, Exact: whole && len(parts) > 0, Messages: []Message{}}
	said := slices.Clone(answer.Made().Request.Unplaced)
	for _, p := range parts {
		said = append(said, p.Seqs...)
	}
	read(slices.Min(append(said, first)), first)
	read(answer.Seq, slices.Max(append(said, 0))+1)
	lengths := make([]int, len(parts))
	for i, p := range parts {
		s, ok := p.Whole(func(seq int64) *memory.Message { return found[seq] })
		t.Body, lengths[i], t.Exact = append(t.Body, s...), len(s), t.Exact && ok
	}
	at := 0
	for _, v := range peek.At(t.Body, "messages").List() {
		m := Message{JSON: json.RawMessage(v)}
		end := v.Offset(t.Body) + len(v)
		for ; len(parts) > 0 && at+lengths[0] <= end; parts, lengths = parts[1:], lengths[1:] {
			at, m.Seqs = at+lengths[0], append(m.Seqs, parts[0].Seqs...)
		}
		m.Changed = slices.ContainsFunc(m.Seqs, func(seq int64) bool { return changed(found[seq], answer.Made().Request, v) })
		t.Messages = append(t.Messages, m)
	}
	for seq, m := range found {
		if seq < answer.Seq && seq >= first && !slices.Contains(said, seq) {
			t.LeftOut = append(t.LeftOut, LeftOut{*m, leftOutReason(m, answer.Made().Request)})
		}
	}
	slices.SortFunc(t.LeftOut, func(a, b LeftOut) int { return int(a.Seq - b.Seq) })
	t.LeftOut = t.LeftOut[max(0, len(t.LeftOut)-maxLeftOut):]
	return t, err
}

// changed reports whether the ledger has other words for a message than the body. More words behind
// those, and evidence that fewer were heard, change nothing.
func changed(m *memory.Message, t *memory.Request, body peek.Value) bool {
	if m == nil || m.Rev <= t.Rev {
		return m == nil
	}
	original := *m
	original.Content = m.Original()
	for _, words := range append(formsOf(m), formsOf(&original)...) {
		if bytes.Contains(body, words) {
			return false
		}
	}
	said := body.At("content").Text()
	return said == "" || !strings.HasPrefix(original.Content, said)
}

// leftOutReason returns why the LLM was not given a message: its state, or cleared (it had left the
// memory), instruction (a stored system message), platform (the platform's own list did not have
// it) or limit (the policy's).
func leftOutReason(m *memory.Message, t *memory.Request) string {
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
