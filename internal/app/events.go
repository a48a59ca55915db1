package app

import (
	"encoding/json"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

// events tells the domain which events anybody wants and writes their bodies. The endpoints come from the settings and do not change
// while the server runs.
type events struct {
	byProject map[string][]webhook.Endpoint
}

var _ memory.Events = (*events)(nil)

func newEvents(endpoints []webhook.Endpoint) *events {
	e := &events{byProject: map[string][]webhook.Endpoint{}}
	for _, p := range endpoints {
		e.byProject[p.Project] = append(e.byProject[p.Project], p)
	}
	return e
}

// Wants implements memory.Events.
func (e *events) Wants(project string, eventType int) bool {
	for _, p := range e.byProject[project] {
		if p.Wants(eventType) {
			return true
		}
	}
	return false
}

// Body implements memory.Events.
func (e *events) Body(f memory.EventFacts) ([]byte, error) {
	a := f.Agent
	about := webhook.About{
		AgentID: a.ID, Name: a.Name, Channel: a.Settings.Channel, StartMS: a.StartMS, Labels: a.Settings.Labels, Sequence: f.Sequence,
	}
	var p webhook.Payload
	switch f.Type {
	case memory.TypeJoined:
		p = webhook.Joined{About: about}
	case memory.TypeLeft:
		p = webhook.Left{About: about, StopMS: a.StopMS, Status: a.Status.String(), Message: a.Message}
	case memory.TypeHistory:
		p = webhook.History{About: about, StopMS: a.StopMS, Contents: contents(f.Messages)}
	case memory.TypeError:
		p = webhook.Failed{About: about, TurnID: f.TurnID, Errors: []webhook.Failure{
			{Module: "llm", TurnID: f.TurnID, Code: f.Failure.Code, Message: f.Failure.Message},
		}}
	case memory.TypeTurns:
		p = webhook.Turns{About: about, StopMS: a.StopMS, Turns: turns(f.Turns)}
	}
	return webhook.Encode(webhook.Notice{ID: f.ID, SID: a.ID, AtMS: f.AtMS, Payload: p})
}

func contents(msgs []memory.Message) []json.RawMessage {
	out := make([]json.RawMessage, len(msgs))
	for i, m := range msgs {
		out[i] = m.AppendHistory(nil)
	}
	return out
}

func turns(rows []memory.TurnRow) []webhook.Turn {
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
