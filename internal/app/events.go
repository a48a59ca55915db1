package app

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/turns"
	"github.com/heardlog/heardlog/webhook"
)

// events answers which events an endpoint wants, and writes their bodies.
type events struct {
	// endpoints returns all endpoints. Its pointer stays the same until an endpoint changes.
	endpoints func() *[]webhook.Endpoint
	types     []int // all event types
	wanted    atomic.Pointer[wanted]
}

// wanted holds the event types that the endpoints of one list want. Every write asks for them, so
// they are computed once per list.
type wanted struct {
	of        *[]webhook.Endpoint
	byProject map[string]map[int]bool
}

var (
	_ agents.Events = (*events)(nil)
	_ facts.Events  = (*events)(nil)
)

func newEvents(endpoints func() *[]webhook.Endpoint) (*events, error) {
	catalogue, err := webhook.Catalogue()
	if err != nil {
		return nil, err
	}
	e := &events{endpoints: endpoints}
	for _, c := range catalogue {
		e.types = append(e.types, c.Number)
	}
	return e, nil
}

// Wants implements agents.Events. An endpoint counts once its creation has been answered.
func (e *events) Wants(project string, eventType int) bool {
	list := e.endpoints()
	w := e.wanted.Load()
	if w == nil || w.of != list {
		w = e.read(list)
		e.wanted.Store(w) // a late store of an older list only costs another computation
	}
	return w.byProject[project][eventType]
}

func (e *events) read(list *[]webhook.Endpoint) *wanted {
	w := &wanted{of: list, byProject: map[string]map[int]bool{}}
	for _, p := range *list {
		for _, t := range e.types {
			if !p.Wants(t) {
				continue
			}
			if w.byProject[p.Project] == nil {
				w.byProject[p.Project] = map[int]bool{}
			}
			w.byProject[p.Project][t] = true
		}
	}
	return w
}

// Body implements agents.Events.
func (e *events) Body(f agents.EventFacts) ([]byte, error) {
	a := f.Agent
	about := webhook.About{
		AgentID: a.ID, Name: a.Name, Channel: a.Settings.Channel, StartMS: a.StartMS, Labels: a.Settings.Labels, Sequence: f.Sequence,
	}
	var p webhook.Payload
	switch f.Type {
	case event.Joined:
		p = webhook.Joined{About: about}
	case event.Left:
		p = webhook.Left{About: about, StopMS: a.StopMS, Status: a.Status.String(), Message: a.Message}
	case event.History:
		p = webhook.History{
			About: about, StopMS: a.StopMS, Contents: contents(f.Messages), EndReason: string(f.End.Reason), EndTurn: f.End.TurnID,
		}
	case event.Expiring:
		p = webhook.Expiring{About: about, ExpireMS: a.StartMS + memory.Lifetime.Milliseconds()}
	case event.Error:
		p = webhook.Failed{About: about, TurnID: f.TurnID, Errors: []webhook.Failure{
			{Module: "llm", TurnID: f.TurnID, Code: f.Failure.Code, Message: f.Failure.Message},
		}}
	case event.Metrics:
		p = webhook.Metrics{About: about, StopMS: a.StopMS, Turns: measured(turns.Of(f.Messages))}
	case event.Turns:
		p = webhook.Turns{About: about, StopMS: a.StopMS, Turns: table(turns.Of(f.Messages))}
	case event.Interrupted:
		p = interrupted(about, f.Answer)
	case event.Scored:
		sc := f.Score
		p = webhook.Scored{About: about, ScoreID: sc.ID, ScoreName: sc.Name, Value: sc.Value, TurnID: sc.Turn, Comment: sc.Comment, Author: sc.Author, Source: sc.Source}
	case event.Message:
		p = webhook.Messages{About: about, Messages: changed(f.Messages)}
	}
	return webhook.Encode(webhook.Notice{ID: f.ID, SID: a.ID, AtMS: f.AtMS, Payload: p})
}

// FactBody implements facts.Events.
func (e *events) FactBody(n facts.Notice) ([]byte, error) {
	f := &n.Fact
	p := webhook.Fact{
		Type: n.Type, UserID: n.User, FactID: f.ID, Kind: string(f.Kind),
		Confidence: f.Confidence, State: string(f.State), Reason: f.Reason, Supersedes: f.Supersedes, SupersededBy: f.SupersededBy,
	}
	if f.Source != nil {
		p.AgentID = f.Source.AgentID
	}
	return webhook.Encode(webhook.Notice{ID: n.ID, SID: p.AgentID, AtMS: n.AtMS, Payload: p})
}

func contents(msgs []memory.Message) []json.RawMessage {
	out := make([]json.RawMessage, len(msgs))
	for i, m := range msgs {
		out[i] = m.AppendHistory(nil)
	}
	return out
}

// changed returns messages in the form of history, with seq and state in front.
func changed(msgs []memory.Message) []json.RawMessage {
	out := make([]json.RawMessage, len(msgs))
	for i, m := range msgs {
		b := strconv.AppendInt([]byte(`{"seq":`), m.Seq, 10)
		b = append(append(append(b, `,"state":"`...), state(m.State)...), `",`...)
		out[i] = append(b, m.AppendHistory(nil)[1:]...)
	}
	return out
}

// state returns the state as the API shows it.
func state(s memory.State) string {
	if s == memory.Final {
		return "final"
	}
	return string(s)
}

func interrupted(about webhook.About, m *memory.Message) webhook.Interrupted {
	p := webhook.Interrupted{
		About: about, TurnID: m.TurnID, Seq: m.Seq, State: state(m.State), Cut: m.Interrupted, Heard: m.Content, Sent: m.SentText(), Generated: m.Original(),
		Complete: !m.CutGenerated, Method: string(m.Method), Confidence: m.Confidence,
	}
	if m.Interrupted {
		p.AtMS, p.CausedBy = m.InterruptMS, m.InterruptBy
	}
	return p
}

// measured returns the latencies that the proxy measured, without turns that have none.
func measured(rows []turns.Row) []webhook.TurnMetrics {
	var out []webhook.TurnMetrics
	for _, r := range rows {
		if r.FirstTokenMS > 0 || r.FirstSentenceMS > 0 {
			out = append(out, webhook.TurnMetrics{TurnID: r.TurnID, TTFBMS: r.FirstTokenMS, TTFSMS: r.FirstSentenceMS})
		}
	}
	return out
}

func table(rows []turns.Row) []webhook.Turn {
	out := make([]webhook.Turn, len(rows))
	for i, r := range rows {
		t := webhook.Turn{TurnID: r.TurnID, E2EMS: r.E2EMS, Start: webhook.TurnEdge{AtMS: r.StartMS, Type: r.StartType, Metadata: object(r.StartMetadata())}}
		if r.EndType != "" {
			t.End = &webhook.TurnEdge{AtMS: r.EndMS, Type: r.EndType, Metadata: object(r.EndMetadata())}
		}
		t.SegmentsMS = map[string]int64{}
		for _, l := range r.Latencies() {
			t.SegmentsMS[l.Name] = l.MS
		}
		out[i] = t
	}
	return out
}

func object(m map[string]any) json.RawMessage {
	b, err := json.Marshal(m)
	if err != nil { // strings and numbers always encode
		return nil
	}
	return b
}

// erasedEvent returns the event that says that a caller was erased.
func erasedEvent(e caller.Erasure) ([]memory.Event, error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", e.Project, e.User, e.AtMS))
	id := hex.EncodeToString(sum[:12]) + ":" + strconv.Itoa(event.UserErased)
	body, err := webhook.Encode(webhook.Notice{ID: id, SID: e.User, AtMS: e.AtMS, Payload: webhook.UserErased{
		UserID: e.User, Agents: e.Agents, Memories: e.Memories, Records: e.Records, Aliases: e.Aliases, ErasedMS: e.AtMS,
	}})
	return []memory.Event{{ID: id, Type: event.UserErased, CreatedMS: e.AtMS, Body: body}}, err
}
