package webhook

import "github.com/heardlog/heardlog/internal/event"

// DeadLetter is event 10011: a delivery has failed for good. It goes to the project's other
// endpoints, and is sent under the agent of the lost event.
type DeadLetter struct {
	EndpointID string
	DeliveryID string
	EventID    string // noticeId of what was not delivered
	Type       int    // and its type
	AgentID    string // and its agent; "" where it has none
	Attempts   int
	LastStatus int    // of the last attempt; 0 = no answer, and left out
	Reason     string // for the operator; holds no secret
	CreatedMS  int64  // when that event happened
}

// EventType is event.DeliveryDead.
func (DeadLetter) EventType() int { return event.DeliveryDead }

func (p DeadLetter) encode(b *builder) {
	b.str("endpoint_id", p.EndpointID)
	b.str("delivery_id", p.DeliveryID)
	b.str("event_id", p.EventID)
	b.num("event_type", int64(p.Type))
	b.str("agent_id", p.AgentID)
	b.num("attempts", int64(p.Attempts))
	if p.LastStatus != 0 {
		b.num("last_status", int64(p.LastStatus))
	}
	b.str("reason", p.Reason)
	b.num("created_ms", p.CreatedMS)
}

func (DeadLetter) size() int { return 0 }

// EndpointDisabled is event 10012: an endpoint gets no more events until it is enabled again. It
// goes to the project's other endpoints.
type EndpointDisabled struct {
	EndpointID  string
	URL         string // without its query and user, which may hold secrets
	Description string
	Reason      string // for the operator; holds no secret
	DisabledMS  int64
}

// EventType is event.EndpointDisabled.
func (EndpointDisabled) EventType() int { return event.EndpointDisabled }

func (p EndpointDisabled) encode(b *builder) {
	b.str("endpoint_id", p.EndpointID)
	b.str("url", p.URL)
	b.str("description", p.Description)
	b.str("reason", p.Reason)
	b.num("disabled_ms", p.DisabledMS)
}

func (EndpointDisabled) size() int { return 0 }

// Test is event 10021: a test that was requested to see whether an endpoint can be reached. It goes
// to that endpoint alone, whatever its filter.
type Test struct {
	EndpointID string
	Message    string
}

// EventType is event.Test.
func (Test) EventType() int { return event.Test }

func (p Test) encode(b *builder) {
	b.str("endpoint_id", p.EndpointID)
	b.str("message", p.Message)
}

func (Test) size() int { return 0 }
