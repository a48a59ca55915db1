package receive

import (
	"encoding/json"
	"fmt"
)

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
	// EndReason says why the last requested answer is not in Contents, and EndTurnID which turn it
	// belongs to; "" if nothing is missing.
	EndReason string `json:"end_reason"`
	EndTurnID int64  `json:"end_turn_id"`
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
	// user: asr, message, command; assistant: llm, greeting, llm_failure, silence, command
	Source      string `json:"source"`
	Interrupted bool   `json:"interrupted"`
	InterruptMS int64  `json:"interrupt_timestamp"` // Unix ms; only if interrupted, like Original
	Original    string `json:"original"`            // all that the model produced
	// Other holds the keys that the agent's clients added.
	Other map[string]json.RawMessage `json:"-"`
}

// UnmarshalJSON reads the known keys and keeps the others. It compares keys exactly, unlike
// encoding/json: a client may add a key that differs from a known one only by case, and it must not
// replace the known one.
func (m *Metadata) UnmarshalJSON(b []byte) error {
	*m = Metadata{}
	if err := json.Unmarshal(b, &m.Other); err != nil {
		return err
	}
	for k, at := range map[string]any{"source": &m.Source, "interrupted": &m.Interrupted, "interrupt_timestamp": &m.InterruptMS, "original": &m.Original} {
		raw, ok := m.Other[k]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, at); err != nil {
			return fmt.Errorf("metadata.%s: %w", k, err)
		}
		delete(m.Other, k)
	}
	return nil
}

// Expiring is event 104: the agent comes near the longest time that it may run.
type Expiring struct {
	About
	ExpireTS int64  `json:"expire_ts"` // Unix seconds
	Message  string `json:"message"`
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
	TurnID  int64  `json:"turn_id"`
	AgentID string `json:"agent_id"`
	Channel string `json:"channel"`
	Start   struct {
		AtMS int64 `json:"start_at"`
		// voice_input, greeting, silence_timeout, api_speak, api_think
		Type     string          `json:"type"`
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

// Interrupted is event 10001: what is known about an interrupted answer. It comes again, with a
// higher Sequence, when better evidence changes it.
type Interrupted struct {
	About
	TurnID      int64  `json:"turn_id"`
	Seq         int64  `json:"seq"` // with the agent, what names the answer
	State       string `json:"state"`
	Cut         bool   `json:"interrupted"`         // false where it was heard to its end after all
	InterruptMS int64  `json:"interrupt_timestamp"` // Unix ms
	CausedBy    string `json:"caused_by"`
	Heard       string `json:"heard"`
	Sent        string `json:"sent"`
	Generated   string `json:"generated"`
	Complete    bool   `json:"generated_complete"`
	Evidence    struct {
		Method     string `json:"method"`
		Confidence int64  `json:"confidence"` // percent; 0 = it does not say
	} `json:"evidence"`
}

// Messages is event 10002: messages as they are after a change. For each Seq the event with the
// highest Sequence counts.
type Messages struct {
	About
	Messages []struct {
		Seq   int64  `json:"seq"`
		State string `json:"state"`
		Message
	} `json:"messages"`
}

// Scored is event 10003: a score of a call or a turn was set, or set again under its ID.
type Scored struct {
	About
	ScoreID   string          `json:"score_id"`
	ScoreName string          `json:"score_name"`
	Value     json.RawMessage `json:"value"`   // a number, true, false or a string
	TurnID    *int64          `json:"turn_id"` // nil = the whole call
	Comment   string          `json:"comment"`
	Author    string          `json:"author"`
	Source    string          `json:"source"`
}

// DeliveryDead is event 10011: a delivery to another endpoint of the project was given up.
type DeliveryDead struct {
	EndpointID string `json:"endpoint_id"`
	DeliveryID string `json:"delivery_id"`
	EventID    string `json:"event_id"` // noticeId of what was not delivered
	EventType  int    `json:"event_type"`
	AgentID    string `json:"agent_id"`
	Attempts   int    `json:"attempts"`
	LastStatus int    `json:"last_status"` // 0 = no answer
	Reason     string `json:"reason"`
	CreatedMS  int64  `json:"created_ms"`
}

// EndpointDisabled is event 10012: another endpoint of the project gets no more events until it is
// enabled again.
type EndpointDisabled struct {
	EndpointID  string `json:"endpoint_id"`
	URL         string `json:"url"`
	Description string `json:"description"`
	Reason      string `json:"reason"`
	DisabledMS  int64  `json:"disabled_ms"`
}

// UserErased is event 10111: a caller was erased. Erase what you keep of it, too.
type UserErased struct {
	UserID   string `json:"user_id"`
	Agents   int    `json:"agents"`
	Memories int    `json:"memories"` // messages in the ledgers of others
	Records  int    `json:"records"`  // facts and others
	Aliases  int    `json:"aliases"`
	ErasedMS int64  `json:"erased_ms"`
}

// KVProvider is event 10121: something happened to the server that keeps keys and values.
type KVProvider struct {
	Provider string `json:"provider"` // redis or memcached
	Hook     string `json:"hook"`     // on_init, on_shutdown, on_error, on_connection_lost or on_connection_restored
	Error    string `json:"error"`    // "" for hooks that are not failures
	AtMS     int64  `json:"at_ms"`
}

// Test is event 10021, a test that was requested.
type Test struct {
	EndpointID string `json:"endpoint_id"`
	Message    string `json:"message"`
}

// Fact is events 10101 to 10104: a fact about a caller was added, superseded, withdrawn or expired.
// Fields that do not apply are empty.
type Fact struct {
	UserID       string  `json:"user_id"`
	FactID       string  `json:"fact_id"`
	Kind         string  `json:"kind"`
	Confidence   float64 `json:"confidence"` // 0 to 1
	State        string  `json:"state"`
	Reason       string  `json:"reason"`
	Supersedes   string  `json:"supersedes"`
	SupersededBy string  `json:"superseded_by"`
	AgentID      string  `json:"agent_id"` // of the call that proves it
}
