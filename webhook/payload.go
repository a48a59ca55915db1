package webhook

import (
	"encoding/json"

	"github.com/heardlog/heardlog/internal/event"
)

// Payload is the content of one event type; every type in this package with a method EventType is
// one. Times are Unix milliseconds here. Each payload encodes them in the unit that Agora's event
// of that type uses.
type Payload interface {
	// EventType is one of the numbers of package event.
	EventType() int
	encode(b *builder)
}

// About is what every payload says of its agent.
type About struct {
	AgentID string
	Name    string
	Channel string
	StartMS int64
	Labels  map[string]string // shown only where the join set some
	// Sequence grows with each of the agent's events and may skip. It is Heardlog's addition:
	// events may arrive out of order and more than once.
	Sequence int64
}

// head writes the fields that come first. unit is seconds, or milliseconds in event 112.
func (a About) head(b *builder, unit int64) {
	b.str("agent_id", a.AgentID)
	b.str("name", a.Name)
	b.str("channel", a.Channel)
	b.num("start_ts", a.StartMS/unit)
}

func (a About) tail(b *builder) {
	if len(a.Labels) > 0 {
		b.value("labels", a.Labels)
	}
	b.num("sequence", a.Sequence)
}

// The divisors that turn ms into a payload's unit.
const (
	seconds = 1000
	millis  = 1
)

// Joined is event 101: an agent started.
type Joined struct {
	About
}

// EventType is event.Joined.
func (Joined) EventType() int { return event.Joined }

func (p Joined) encode(b *builder) {
	p.head(b, seconds)
	p.tail(b)
}

// Left is event 102: an agent ended.
type Left struct {
	About
	StopMS  int64
	Status  string // STOPPED or FAILED
	Message string // why: "OK", "Idle for too long", "Task lifetime limit exceeded", …
}

// EventType is event.Left.
func (Left) EventType() int { return event.Left }

func (p Left) encode(b *builder) {
	p.head(b, seconds)
	b.num("stop_ts", p.StopMS/seconds)
	b.str("status", p.Status)
	b.str("message", p.Message)
	p.tail(b)
}

// History is event 103: the agent's whole memory.
type History struct {
	About
	StopMS   int64
	Contents []json.RawMessage // the messages in history form, oldest first
	// EndReason says why the last requested answer is not in Contents, and EndTurn which turn it
	// belongs to; "" if nothing is missing. The values are those of memory.EndReason. Both fields
	// are Heardlog's addition.
	EndReason string
	EndTurn   int64
}

// EventType is event.History.
func (History) EventType() int { return event.History }

func (p History) encode(b *builder) {
	p.head(b, seconds)
	b.num("stop_ts", p.StopMS/seconds)
	b.list("contents", p.Contents)
	if p.EndReason != "" {
		b.str("end_reason", p.EndReason)
		b.num("end_turn_id", p.EndTurn)
	}
	p.tail(b)
}

// Failed is event 110: something that a turn needed failed.
type Failed struct {
	About
	TurnID int64
	Errors []Failure
}

// Failure is one entry of event 110.
type Failure struct {
	Module  string `json:"module"` // llm, tts, asr, agent, …
	TurnID  int64  `json:"turn_id"`
	Code    int    `json:"code"` // the HTTP status, or the vendor's own
	Message string `json:"message"`
}

// EventType is event.Error.
func (Failed) EventType() int { return event.Error }

func (p Failed) encode(b *builder) {
	p.head(b, seconds)
	b.num("turn_id", p.TurnID)
	errs := p.Errors
	if errs == nil {
		errs = []Failure{}
	}
	b.value("errors", errs)
	p.tail(b)
}

// Turns is event 112: the turn table of an agent that has ended. It holds every turn; Agora cuts
// the table at 200.
type Turns struct {
	About
	StopMS int64
	Turns  []Turn
}

// Turn is one row of the turn table, as in Agora's turns call.
type Turn struct {
	TurnID int64
	Start  TurnEdge  // Type is voice_input, greeting, silence_timeout, api_speak or api_think
	End    *TurnEdge // Type is ok, interrupted, ignored or error; nil for a turn that has none
	// E2EMS is the time from the end of the caller's words to the beginning of the answer, in ms; 0
	// if it was not measured.
	E2EMS int64
	// SegmentsMS holds the parts of E2EMS by name (asr_ttlw, llm_ttft, …), in ms. It is an object
	// here and a list in the turns call.
	SegmentsMS map[string]int64
}

// TurnEdge is the start or the end of a turn.
type TurnEdge struct {
	AtMS     int64
	Type     string
	Metadata json.RawMessage // an object; nil is an empty one
}

// EventType is event.Turns.
func (Turns) EventType() int { return event.Turns }

func (p Turns) encode(b *builder) {
	p.head(b, millis)
	b.num("stop_ts", p.StopMS)
	b.num("total_turn_count", int64(len(p.Turns)))
	b.value("is_truncated", false)
	b.key("turns")
	b.buf = append(b.buf, '[')
	for i, t := range p.Turns {
		if i > 0 {
			b.buf = append(b.buf, ',')
		}
		b.open()
		b.num("turn_id", t.TurnID)
		b.str("agent_id", p.AgentID)
		b.str("channel", p.Channel)
		t.encode(b)
		b.close()
	}
	b.buf = append(b.buf, ']')
	p.tail(b)
}

func (t Turn) encode(b *builder) {
	t.Start.encode(b, "start", "start_at")
	if t.End != nil {
		t.End.encode(b, "end", "end_at")
	}
	b.key("metrics")
	b.open()
	if t.E2EMS != 0 {
		b.num("e2e_latency_ms", t.E2EMS)
	}
	segments := t.SegmentsMS
	if segments == nil {
		segments = map[string]int64{}
	}
	b.value("segmented_latency_ms", segments)
	b.close()
}

func (e TurnEdge) encode(b *builder, name, at string) {
	b.key(name)
	b.open()
	b.num(at, e.AtMS)
	b.str("type", e.Type)
	if e.Metadata == nil {
		b.raw("metadata", json.RawMessage("{}"))
	} else {
		b.raw("metadata", e.Metadata)
	}
	b.close()
}
