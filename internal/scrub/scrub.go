// Package scrub removes the words of erased messages from the events that hold them. Pending
// deliveries, retries and replays send the stored event, so none of them has the words any more.
package scrub

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/heardlog/heardlog/internal/event"
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
	g := newErased(ledger)
	err = log.AgentEvents(ctx, project, agentID, func(e webhook.Event) error {
		if body := g.without(e.Type, string(e.Body)); body != string(e.Body) {
			out = append(out, memory.Event{ID: e.ID, Type: e.Type, CreatedMS: e.CreatedMS, Body: []byte(body)})
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

// erased knows which messages of a ledger were removed.
type erased struct {
	bySeq   map[int64]*memory.Message // those that were removed
	byPlace map[place][]*memory.Message
	answers map[int64]bool // turns with a removed answer
}

func newErased(ledger []memory.Message) *erased {
	g := &erased{map[int64]*memory.Message{}, map[place][]*memory.Message{}, map[int64]bool{}}
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
func (g *erased) without(eventType int, body string) string {
	switch eventType {
	case event.History:
		return change(body, "payload.contents", func(list gjson.Result) string {
			return array(list, func(m gjson.Result) string {
				if g.holds(m) {
					return ""
				}
				return m.Raw
			})
		})
	case event.Message:
		return change(body, "payload.messages", func(list gjson.Result) string {
			return array(list, func(m gjson.Result) string {
				if gone := g.bySeq[m.Get("seq").Int()]; gone != nil {
					return tombstone(gone)
				}
				return m.Raw
			})
		})
	case event.Interrupted:
		if g.bySeq[gjson.Get(body, "payload.seq").Int()] == nil {
			return body
		}
		body = change(body, "payload.state", func(gjson.Result) string { return `"` + string(memory.Removed) + `"` })
		for _, text := range []string{"heard", "sent", "generated"} {
			body = change(body, "payload."+text, empty)
		}
	case event.Error: // an upstream may repeat what it was sent
		if g.answers[gjson.Get(body, "payload.turn_id").Int()] {
			for i := range gjson.Get(body, "payload.errors").Array() {
				body = change(body, "payload.errors."+strconv.Itoa(i)+".message", empty)
			}
		}
	case event.Turns:
		for i, turn := range gjson.Get(body, "payload.turns").Array() {
			if g.answers[turn.Get("turn_id").Int()] {
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
func (g *erased) holds(entry gjson.Result) bool {
	at := place{entry.Get("role").Str, entry.Get("turn_id").Int(), entry.Get("timestamp").Int()}
	list := g.byPlace[at]
	if len(list) == 0 { // the message was revised since
		at.timeMS = 0
		list = g.byPlace[at]
	}
	removed := slices.ContainsFunc(list, func(m *memory.Message) bool { return m.State == memory.Removed })
	content := entry.Get("content").String()
	return removed && !slices.ContainsFunc(list, func(m *memory.Message) bool {
		return m.State != memory.Removed && (m.Content == content || m.Original() == content)
	})
}

// tombstone returns a removed message as event 10002 shows it.
func tombstone(m *memory.Message) string {
	form := m.AppendHistory(nil)
	return `{"seq":` + strconv.FormatInt(m.Seq, 10) + `,"state":"` + string(m.State) + `",` + string(form[1:])
}

func empty(gjson.Result) string { return `""` }

// change replaces the value at a path, if there is one.
func change(body, path string, by func(gjson.Result) string) string {
	r := gjson.Get(body, path)
	if !r.Exists() || r.Index == 0 {
		return body
	}
	return body[:r.Index] + by(r) + body[r.Index+len(r.Raw):]
}

// array returns a list with each entry as by returns it, without those for which that is "".
func array(list gjson.Result, by func(gjson.Result) string) string {
	var out []string
	list.ForEach(func(_, entry gjson.Result) bool {
		if s := by(entry); s != "" {
			out = append(out, s)
		}
		return true
	})
	return "[" + strings.Join(out, ",") + "]"
}
