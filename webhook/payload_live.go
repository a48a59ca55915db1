package webhook

import (
	"encoding/json"

	"github.com/heardlog/heardlog/internal/event"
)

// Expiring is event 104: the agent's lifetime is nearly over.
type Expiring struct {
	About
	ExpireMS int64 // when it is over. Ours, not Agora's
}

// ExpiringMessage is the text that Agora's event 104 carries, although the event is only a warning.
const ExpiringMessage = "Task exceeded maximum lifetime"

// EventType is event.Expiring.
func (Expiring) EventType() int { return event.Expiring }

func (p Expiring) encode(b *builder) {
	p.head(b, seconds)
	b.num("expire_ts", p.ExpireMS/seconds)
	b.str("message", ExpiringMessage)
	p.tail(b)
}

// Metrics is event 111: how long the turns of an agent that ended took to answer.
type Metrics struct {
	About
	StopMS int64
	Turns  []TurnMetrics // those of which something was measured, in order
}

// TurnMetrics is one turn of event 111, in ms; 0 = not measured and left out. Agora's asr_ttlw and
// tts_ttfb are never set, because a proxy of the LLM sees neither.
type TurnMetrics struct {
	TurnID int64 `json:"turn_id"`
	TTFBMS int64 `json:"llm_ttfb,omitempty"` // from the request to the first token
	TTFSMS int64 `json:"llm_ttfs,omitempty"` // from the request to the end of the first sentence
}

// EventType is event.Metrics.
func (Metrics) EventType() int { return event.Metrics }

func (p Metrics) encode(b *builder) {
	p.head(b, seconds)
	b.num("stop_ts", p.StopMS/seconds)
	turns := p.Turns
	if turns == nil {
		turns = []TurnMetrics{}
	}
	b.value("metrics", turns)
	p.tail(b)
}

// Interrupted is event 10001: what is known about an interrupted answer. It is sent again, with a
// higher Sequence, whenever better evidence changes its content. The one with the highest Sequence
// counts.
type Interrupted struct {
	About
	TurnID int64
	Seq    int64 // the answer's place in the ledger: with the agent, what names it
	// State is final; unplayed or replaced for an answer that was not heard; superseded for one
	// that another answer to the same words replaced.
	State string
	// Cut is false where later evidence says that the answer was heard to its end after all.
	Cut        bool
	AtMS       int64  // when it was cut; 0 with Cut false
	CausedBy   string // as end.metadata of the turn table has it; "" with Cut false
	Heard      string // best evidence
	Sent       string // what left our socket
	Generated  string // all that the model produced
	Complete   bool   // Generated is known to be all
	Method     string // how Heard is known
	Confidence int64  // in percent; 0 = the evidence does not say
}

// EventType is event.Interrupted.
func (Interrupted) EventType() int { return event.Interrupted }

func (p Interrupted) encode(b *builder) {
	p.head(b, seconds)
	b.num("turn_id", p.TurnID)
	b.num("seq", p.Seq)
	b.str("state", p.State)
	b.value("interrupted", p.Cut)
	if p.Cut {
		b.num("interrupt_timestamp", p.AtMS)
		b.str("caused_by", p.CausedBy)
	}
	b.str("heard", p.Heard)
	b.str("sent", p.Sent)
	b.str("generated", p.Generated)
	b.value("generated_complete", p.Complete)
	b.key("evidence")
	b.open()
	b.str("method", p.Method)
	if p.Confidence != 0 {
		b.num("confidence", p.Confidence)
	}
	b.close()
	p.tail(b)
}

// Scored is event 10003: a score of a call or a turn was set, or set again under its ID.
type Scored struct {
	About
	ScoreID, ScoreName      string
	Value                   json.RawMessage // a number, true, false or a string
	TurnID                  *int64          // nil for the whole call
	Comment, Author, Source string          // left out if empty
}

// EventType is event.Scored.
func (Scored) EventType() int { return event.Scored }

func (p Scored) encode(b *builder) {
	p.head(b, seconds)
	b.str("score_id", p.ScoreID)
	b.str("score_name", p.ScoreName)
	b.value("value", p.Value)
	if p.TurnID != nil {
		b.num("turn_id", *p.TurnID)
	}
	for _, f := range [][2]string{{"comment", p.Comment}, {"author", p.Author}, {"source", p.Source}} {
		if f[1] != "" {
			b.str(f[0], f[1])
		}
	}
	p.tail(b)
}

// Messages is event 10002: messages of the history as they are after one change. A message is sent
// when it is stored, and again, with the same seq, when its words or its state change. For each seq
// the event with the highest Sequence counts.
type Messages struct {
	About
	// objects in history form with seq and state in front, ordered by seq; at least one
	Messages []json.RawMessage
}

// EventType is event.Message.
func (Messages) EventType() int { return event.Message }

func (p Messages) encode(b *builder) {
	p.head(b, seconds)
	b.list("messages", p.Messages)
	p.tail(b)
}
