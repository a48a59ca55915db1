// Package erased removes the words of erased messages from the events that hold them, and those of
// numbers that turn out to go on in the next message. Pending deliveries, retries and replays send
// the stored event, so none of them has the words any more.
package erased

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// Log has the events of agents. A webhook.Log is one.
type Log interface {
	AgentEvents(ctx context.Context, project, agentID string, each func(webhook.Event) error) error
}

// Events returns the events of an agent that hold words of messages that its ledger has as removed,
// with bodies that do not. ledger has all messages of the agent.
func Events(ctx context.Context, log Log, project, agentID string, ledger []memory.Message) (out []memory.Event, err error) {
	g := newWords(ledger)
	err = log.AgentEvents(ctx, project, agentID, func(e webhook.Event) error {
		if body := g.without(e.Type, e.Body); !bytes.Equal(body, e.Body) {
			out = append(out, memory.Event{ID: e.ID, Type: e.Type, CreatedMS: e.CreatedMS, Body: body})
		}
		return nil
	})
	return out, err
}

// place is what tells messages in history form apart. They have no seq.
type place struct {
	role   string
	turn   int64
	timeMS int64 // 0 = any
}

// words knows which messages of a ledger were removed.
type words struct {
	bySeq   map[int64]*memory.Message // those that were removed
	byPlace map[place][]*memory.Message
	answers map[int64]bool // turns with a removed answer
}

func newWords(ledger []memory.Message) *words {
	g := &words{map[int64]*memory.Message{}, map[place][]*memory.Message{}, map[int64]bool{}}
	for i := range ledger {
		m := &ledger[i]
		for _, at := range []place{{string(m.Role), m.TurnID, m.Timestamp}, {string(m.Role), m.TurnID, 0}} {
			g.byPlace[at] = append(g.byPlace[at], m)
		}
		if m.State != memory.Removed {
			continue
		}
		g.bySeq[m.Seq] = m
		if m.Role == memory.Assistant {
			g.answers[m.TurnID] = true
		}
	}
	return g
}

// without returns the body of an event without the words of removed messages. Everything else stays
// byte for byte.
func (g *words) without(eventType int, body []byte) []byte {
	switch eventType {
	case event.History:
		return change(body, "payload.contents", func(list peek.Value) string {
			return array(list, func(m peek.Value) string {
				if g.holds(m) {
					return ""
				}
				return string(m)
			})
		})
	case event.Message:
		return change(body, "payload.messages", func(list peek.Value) string {
			return array(list, func(m peek.Value) string {
				if gone := g.bySeq[m.At("seq").Int()]; gone != nil {
					return tombstone(gone)
				}
				return string(m)
			})
		})
	case event.Interrupted:
		if g.bySeq[peek.At(body, "payload", "seq").Int()] == nil {
			return body
		}
		body = change(body, "payload.state", func(peek.Value) string { return `"` + string(memory.Removed) + `"` })
		for _, text := range []string{"heard", "sent", "generated"} {
			body = change(body, "payload."+text, empty)
		}
	case event.Error: // an upstream may repeat what it was sent
		if g.answers[peek.At(body, "payload", "turn_id").Int()] {
			for i := range peek.At(body, "payload", "errors").List() {
				body = change(body, "payload.errors."+strconv.Itoa(i)+".message", empty)
			}
		}
	case event.Turns:
		for i, turn := range peek.At(body, "payload", "turns").List() {
			if g.answers[turn.At("turn_id").Int()] {
				for _, text := range []string{"details", "error"} {
					body = change(body, "payload.turns."+strconv.Itoa(i)+".end.metadata."+text, empty)
				}
			}
		}
	}
	return body
}

// holds reports whether an entry of a history is a removed message. Where its place fits both a
// removed message and one that is kept, the words decide.
func (g *words) holds(entry peek.Value) bool {
	at := place{entry.At("role").Str(), entry.At("turn_id").Int(), entry.At("timestamp").Int()}
	list := g.byPlace[at]
	if len(list) == 0 { // the message was revised since
		at.timeMS = 0
		list = g.byPlace[at]
	}
	removed := slices.ContainsFunc(list, func(m *memory.Message) bool { return m.State == memory.Removed })
	content := entry.At("content").Text()
	return removed && !slices.ContainsFunc(list, func(m *memory.Message) bool {
		return m.State != memory.Removed && (m.Content == content || m.Original() == content)
	})
}

// tombstone returns a removed message as event 10002 shows it.
func tombstone(m *memory.Message) string {
	form := m.AppendHistory(nil)
	return `{"seq":` + strconv.FormatInt(m.Seq, 10) + `,"state":"` + string(m.State) + `",` + string(form[1:])
}

func empty(peek.Value) string { return `""` }

// change replaces the value at a path, if there is one.
func change(body []byte, path string, by func(peek.Value) string) []byte {
	old := peek.Parse(body).Path(path)
	return peek.Replace(body, old, by(old))
}

// array returns a list with each entry as by returns it, without those for which that is "".
func array(list peek.Value, by func(peek.Value) string) string {
	var out []string
	for _, entry := range list.List() {
		if s := by(entry); s != "" {
			out = append(out, s)
		}
	}
	return "[" + strings.Join(out, ",") + "]"
}

// Reworded returns the events of an agent that hold messages of was whose words are other ones in
// is, with bodies that hold those.
func Reworded(ctx context.Context, log Log, project, agentID string, was, is []memory.Message) (out []memory.Event, err error) {
	old := map[int64]*memory.Message{}
	for i := range was {
		old[was[i].Seq] = &was[i]
	}
	err = log.AgentEvents(ctx, project, agentID, func(e webhook.Event) error {
		body := e.Body
		for i := range is {
			if m := &is[i]; old[m.Seq] != nil {
				body = reworded(e.Type, body, old[m.Seq], m)
			}
		}
		if !bytes.Equal(body, e.Body) {
			out = append(out, memory.Event{ID: e.ID, Type: e.Type, CreatedMS: e.CreatedMS, Body: body})
		}
		return nil
	})
	return out, err
}

// reworded returns the body of an event with a message as it is now.
func reworded(eventType int, body []byte, was, is *memory.Message) []byte {
	switch eventType {
	case event.History:
		return change(body, "payload.contents", func(list peek.Value) string {
			return array(list, func(m peek.Value) string {
				content := m.At("content").Text()
				if m.At("role").Str() == string(was.Role) && m.At("turn_id").Int() == was.TurnID && (content == was.Content || content == was.Original()) {
					return string(is.AppendHistory(nil))
				}
				return string(m)
			})
		})
	case event.Message:
		return change(body, "payload.messages", func(list peek.Value) string {
			return array(list, func(m peek.Value) string {
				if m.At("seq").Int() != is.Seq {
					return string(m)
				}
				return `{"seq":` + strconv.FormatInt(is.Seq, 10) + `,"state":` + string(m.At("state")) + `,` + string(is.AppendHistory(nil)[1:])
			})
		})
	case event.Interrupted:
		if peek.At(body, "payload", "seq").Int() != is.Seq {
			return body
		}
		for name, now := range map[string]string{"heard": is.Content, "sent": is.SentText(), "generated": is.Original()} {
			body = change(body, "payload."+name, func(peek.Value) string { return string(text.AppendJSON(nil, now)) })
		}
	}
	return body
}
