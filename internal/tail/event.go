package tail

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// Kinds is a set of kinds of events, as bits.
type Kinds int

// The kinds of events. kindNames has their names in the same order.
const (
	kindMessage Kinds = 1 << iota
	kindAgent
	kindInterrupted
	kindEvidence
	kindTurn
	kindSpeak
	kindSummary
	kindMemory
	kindState
	allKinds = 1<<iota - 1
)

var kindNames = []string{"message", "agent", "interrupted", "evidence", "turn", "speak", "summary", "memory", "state"}

// ParseKinds reads a filter: one or more lists of names, separated by commas. No name at all means
// every kind. It fails with fault.Invalid.
func ParseKinds(lists []string) (Kinds, error) {
	var kinds Kinds
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name == "" {
				continue
			}
			i := slices.Index(kindNames, name)
			if i < 0 {
				return 0, fault.At(fault.Invalid, "types", "must be one of %s, not %q", strings.Join(kindNames, ", "), text.Clip(name, 60))
			}
			kinds |= 1 << i
		}
	}
	if kinds == 0 {
		kinds = allKinds
	}
	return kinds, nil
}

// name returns the name of a single kind.
func (k Kinds) name() string {
	i := 0
	for ; k > 1; k >>= 1 {
		i++
	}
	return kindNames[i]
}

// event is one event as it is sent to every reader. Its bytes are never changed.
type event struct {
	at    position
	kind  Kinds
	bytes []byte
}

// frame returns an event in the form of a server-sent event. Without a position it has no ID.
func frame(name string, at *position, data []byte) []byte {
	// A line break in JSON that a client wrote would end the data.
	if bytes.ContainsAny(data, "\r\n") {
		var flat bytes.Buffer
		if json.Compact(&flat, data) == nil {
			data = flat.Bytes()
		}
	}
	b := make([]byte, 0, len(name)+len(data)+64)
	b = append(append(append(b, "event: "...), name...), '\n')
	if at != nil {
		b = append(at.appendID(append(b, "id: "...)), '\n')
	}
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}

// frameOf returns v as a server-sent event without an ID. It returns nil if v cannot be encoded.
func frameOf(name string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return frame(name, nil, data)
}

// messageRef names the message that an event is about.
type messageRef struct {
	Seq    int64  `json:"seq"`
	ID     string `json:"id,omitempty"`
	TurnID int64  `json:"turn_id"`
}

type turnEvent struct {
	Phase string `json:"phase"` // opened, closed, renumbered
	messageRef
	Failed bool `json:"failed,omitempty"`
}

type speakEvent struct {
	Kind string `json:"kind"` // greeting, silence, speak, filler
	messageRef
	Text string `json:"text"`
}

type interruptedEvent struct {
	messageRef
	CausedBy string `json:"caused_by,omitempty"`
	TS       int64  `json:"interrupt_timestamp"` // Unix ms
	Heard    string `json:"heard"`
}

type evidenceEvent struct {
	messageRef
	Method     string `json:"method"`
	State      string `json:"state"`
	Heard      string `json:"heard"`
	At         int64  `json:"at,omitempty"` // Unix ms
	Confidence int64  `json:"confidence,omitempty"`
}

type summaryEvent struct {
	Set     bool   `json:"set"`
	Summary string `json:"summary,omitempty"`
	TS      int64  `json:"timestamp,omitempty"` // Unix ms
	UpToSeq int64  `json:"up_to_seq,omitempty"`
}

type memoryEvent struct {
	Action  string `json:"action"`
	Seq     int64  `json:"seq,omitempty"`
	ID      string `json:"id,omitempty"`
	FromSeq int64  `json:"from_seq,omitempty"`
	Count   *int   `json:"count,omitempty"`
}

type stateEvent struct {
	State  string `json:"state"` // listening, thinking, speaking
	TurnID *int64 `json:"turn_id,omitempty"`
}

type droppedEvent struct {
	Reason string `json:"reason"`
}

type agentEvent struct {
	AgentID string `json:"agent_id"`
	Status  string `json:"status"`
	Message string `json:"message"`
	StartTS int64  `json:"start_ts"` // Unix seconds
	StopTS  int64  `json:"stop_ts"`
}

func newAgentEvent(a *memory.Agent) agentEvent {
	return agentEvent{AgentID: a.ID, Status: a.Status.String(), Message: a.Message, StartTS: a.StartTS(), StopTS: a.StopTS()}
}
