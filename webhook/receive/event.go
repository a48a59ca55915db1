package receive

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The types of events.
const (
	TypeJoined           = 101   // Joined
	TypeLeft             = 102   // Left
	TypeHistory          = 103   // History
	TypeExpiring         = 104   // Expiring
	TypeFailed           = 110   // Failed
	TypeMetrics          = 111   // Metrics
	TypeTurns            = 112   // Turns
	TypeInterrupted      = 10001 // Interrupted
	TypeMessage          = 10002 // Messages
	TypeScored           = 10003 // Scored
	TypeDeliveryDead     = 10011 // DeliveryDead
	TypeEndpointDisabled = 10012 // EndpointDisabled
	TypeTest             = 10021 // Test
	TypeFactAdded        = 10101 // Fact
	TypeFactSuperseded   = 10102 // Fact
	TypeFactWithdrawn    = 10103 // Fact
	TypeFactExpired      = 10104 // Fact
	TypeUserErased       = 10111 // UserErased
	TypeKVProvider       = 10121 // KVProvider
)

// Event is one event, read. The envelope is Agora's.
type Event struct {
	ID        string // noticeId: drop a repeat of it
	SID       string // the agent's id
	ProductID int
	Type      int
	At        time.Time // when it happened; the header webhook-timestamp holds when it was sent
	// Data is a Joined, a Left or another of the payload types, according to Type. It is nil for an
	// unknown type and for a thin event. Receivers should ignore types they do not know, because
	// new ones may be added.
	Data any
	// Thin is set if the payload is a reference to the body: the endpoint asked for thin events, or
	// the body is larger than its limit.
	Thin    *Thin
	Payload json.RawMessage // as it came
}

// Decode reads the body of an event that Verify has accepted. It ignores unknown fields, and leaves
// Data nil for an unknown type. It fails if the body is not an event or its payload does not fit
// its type.
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
	case TypeInterrupted:
		e.Data, err = data[Interrupted](in.Payload)
	case TypeMessage:
		e.Data, err = data[Messages](in.Payload)
	case TypeScored:
		e.Data, err = data[Scored](in.Payload)
	case TypeDeliveryDead:
		e.Data, err = data[DeliveryDead](in.Payload)
	case TypeEndpointDisabled:
		e.Data, err = data[EndpointDisabled](in.Payload)
	case TypeTest:
		e.Data, err = data[Test](in.Payload)
	case TypeFactAdded, TypeFactSuperseded, TypeFactWithdrawn, TypeFactExpired:
		e.Data, err = data[Fact](in.Payload)
	case TypeUserErased:
		e.Data, err = data[UserErased](in.Payload)
	case TypeKVProvider:
		e.Data, err = data[KVProvider](in.Payload)
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
