package receive

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The types of events.
const (
	TypeJoined           = 101
	TypeLeft             = 102
	TypeHistory          = 103
	TypeExpiring         = 104
	TypeFailed           = 110
	TypeMetrics          = 111
	TypeTurns            = 112
	TypeInterrupted      = 10001
	TypeMessage          = 10002
	TypeDeliveryDead     = 10011
	TypeEndpointDisabled = 10012
	TypeTest             = 10021
)

// Event is one event, read. The envelope is Agora's.
type Event struct {
	ID        string // noticeId: drop a repeat of it
	SID       string // the agent's id
	ProductID int
	Type      int
	At        time.Time // when it happened; when it was sent stands in the header webhook-timestamp
	// Data is a Joined, Left, History, Expiring, Failed, Metrics or Turns; nil for a type that has no Go type here, and for a thin event. Receivers
	// pass over what they do not know: new types may come.
	Data any
	// Thin is set where the payload is a reference to the body instead of the body: the endpoint asked for that, or the body is over its limit.
	Thin    *Thin
	Payload json.RawMessage // as it came
}

// About is what every payload of an agent says of it.
type About struct {
	AgentID string            `json:"agent_id"`
	Name    string            `json:"name"`
	Channel string            `json:"channel"`
	StartTS int64             `json:"start_ts"` // Unix seconds, in Turns milliseconds
	Labels  map[string]string `json:"labels"`
	// Sequence grows with each of the agent's events and may skip: events may come in any order.
	Sequence int64 `json:"sequence"`
}

// Joined is event 101: an agent started.
type Joined struct{ About }

// Left is event 102: it ended.
type Left struct {
	About
	StopTS  int64  `json:"stop_ts"` // Unix seconds
	Status  string `json:"status"`  // STOPPED or FAILED
	Message string `json:"message"` // why
}

// History is event 103: the whole memory of an agent that ended, oldest message first.
type History struct {
	About
	StopTS   int64     `json:"stop_ts"` // Unix seconds
	Contents []Message `json:"contents"`
}

// Message is one message of the memory.
type Message struct {
	Role      string   `json:"role"`    // user or assistant
	Content   string   `json:"content"` // of an interrupted answer what the caller heard of it
	TurnID    int64    `json:"turn_id"`
	Timestamp int64    `json:"timestamp"` // Unix ms
	Metadata  Metadata `json:"metadata"`
}

// Metadata is what is known of a message.
type Metadata struct {
	Source      string `json:"source"` // asr, message, command; llm, greeting, llm_failure, silence, command
	Interrupted bool   `json:"interrupted"`
	InterruptMS int64  `json:"interrupt_timestamp"` // Unix ms; only where interrupted, as Original is
	Original    string `json:"original"`            // all that the model produced
	// Other holds the keys that the agent's clients added.
	Other map[string]json.RawMessage `json:"-"`
}

// UnmarshalJSON reads the known keys and keeps the others.
func (m *Metadata) UnmarshalJSON(b []byte) error {
	type plain Metadata
	if err := json.Unmarshal(b, (*plain)(m)); err != nil {
		return err
	}
	m.Other = nil
	if err := json.Unmarshal(b, &m.Other); err != nil {
		return err
	}
	for _, k := range []string{"source", "interrupted", "interrupt_timestamp", "original"} {
		delete(m.Other, k)
	}
	return nil
}

// Expiring is event 104: the agent comes near the longest time that it may run.
type Expiring struct {
	About
	Message string `json:"message"`
}

// Failed is event 110: something that a turn needed failed.
type Failed struct {
	About
	TurnID int64     `json:"turn_id"`
	Errors []Failure `json:"errors"`
}

// Failure is one entry of Failed.
type Failure struct {
	Module  string `json:"module"` // llm, …
	TurnID  int64  `json:"turn_id"`
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Metrics is event 111: what was measured of an agent's turns, ms by name.
type Metrics struct {
	About
	StopTS  int64                `json:"stop_ts"` // Unix seconds
	Metrics []map[string]float64 `json:"metrics"` // each with turn_id
}

// Turns is event 112: the turn table of an agent that ended. Its times are Unix ms.
type Turns struct {
	About
	StopTS         int64  `json:"stop_ts"`
	TotalTurnCount int    `json:"total_turn_count"`
	IsTruncated    bool   `json:"is_truncated"`
	Turns          []Turn `json:"turns"`
}

// Turn is one turn.
type Turn struct {
	TurnID int64 `json:"turn_id"`
	Start  struct {
		AtMS     int64           `json:"start_at"`
		Type     string          `json:"type"` // voice_input, greeting, silence_timeout, api_speak, api_think
		Metadata json.RawMessage `json:"metadata"`
	} `json:"start"`
	End *struct { // nil for a turn that has no end
		AtMS     int64           `json:"end_at"`
		Type     string          `json:"type"` // ok, interrupted, ignored, error
		Metadata json.RawMessage `json:"metadata"`
	} `json:"end"`
	Metrics struct {
		E2EMS      int64            `json:"e2e_latency_ms"`
		SegmentsMS map[string]int64 `json:"segmented_latency_ms"`
	} `json:"metrics"`
}

// Decode reads the body of an event that Verify has let pass. Fields that it does not know it ignores, and a type that it does not know has no Data. It
// fails for a body that is no event, or whose payload is not what its type has.
func Decode(body []byte) (Event, error) {
	var in struct {
		SID       string          `json:"sid"`
		NoticeID  string          `json:"noticeId"`
		ProductID int             `json:"productId"`
		EventType int             `json:"eventType"`
		NotifyMS  int64           `json:"notifyMs"`
		Payload   json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Event{}, fmt.Errorf("the body is not a webhook event: %w", err)
	}
	if in.NoticeID == "" || in.EventType == 0 {
		return Event{}, errors.New("the body is not a webhook event: noticeId or eventType is missing")
	}
	e := Event{ID: in.NoticeID, SID: in.SID, ProductID: in.ProductID, Type: in.EventType, At: time.UnixMilli(in.NotifyMS), Payload: in.Payload}
	var thin Thin
	if json.Unmarshal(in.Payload, &thin) == nil && thin.IsThin {
		e.Thin = &thin
		return e, nil
	}
	var err error
	switch in.EventType {
	case TypeJoined:
		e.Data, err = data[Joined](in.Payload)
	case TypeLeft:
		e.Data, err = data[Left](in.Payload)
	case TypeHistory:
		e.Data, err = data[History](in.Payload)
	case TypeExpiring:
		e.Data, err = data[Expiring](in.Payload)
	case TypeFailed:
		e.Data, err = data[Failed](in.Payload)
	case TypeMetrics:
		e.Data, err = data[Metrics](in.Payload)
	case TypeTurns:
		e.Data, err = data[Turns](in.Payload)
	}
	if err != nil {
		return Event{}, fmt.Errorf("the payload of event type %d cannot be read: %w", in.EventType, err)
	}
	return e, nil
}

func data[T any](payload json.RawMessage) (any, error) {
	var v T
	err := json.Unmarshal(payload, &v)
	return v, err
}
