package webhook

import "github.com/heardlog/heardlog/internal/event"

// DeadLetter is event 10011: a delivery has failed for good. It goes to the project's other
// endpoints, and is sent under the agent of the lost event.
type DeadLetter struct {
	EndpointID string `json:"endpoint_id"`
	DeliveryID string `json:"delivery_id"`
	EventID    string `json:"event_id"`   // noticeId of what was not delivered
	Type       int    `json:"event_type"` // and its type
	AgentID    string `json:"agent_id"`   // and its agent; "" where it has none
	Attempts   int    `json:"attempts"`
	LastStatus int    `json:"last_status,omitempty"` // of the last attempt; 0 = no answer
	Reason     string `json:"reason"`                // for the operator; holds no secret
	CreatedMS  int64  `json:"created_ms"`            // when that event happened
}

// EventType is event.DeliveryDead.
func (DeadLetter) EventType() int { return event.DeliveryDead }

func (p DeadLetter) encode(b *builder) { b.fields(p) }

// EndpointDisabled is event 10012: an endpoint gets no more events until it is enabled again. It
// goes to the project's other endpoints.
type EndpointDisabled struct {
	EndpointID  string `json:"endpoint_id"`
	URL         string `json:"url"` // without its query and user, which may hold secrets
	Description string `json:"description"`
	Reason      string `json:"reason"` // for the operator; holds no secret
	DisabledMS  int64  `json:"disabled_ms"`
}

// EventType is event.EndpointDisabled.
func (EndpointDisabled) EventType() int { return event.EndpointDisabled }

func (p EndpointDisabled) encode(b *builder) { b.fields(p) }

// UserErased is event 10111: a caller was erased, with all names. It has no agent.
type UserErased struct {
	UserID   string `json:"user_id"`
	Agents   int    `json:"agents"`
	Memories int    `json:"memories"` // messages in the ledgers of others
	Records  int    `json:"records"`  // facts and others
	Aliases  int    `json:"aliases"`
	ErasedMS int64  `json:"erased_ms"`
}

// EventType is event.UserErased.
func (UserErased) EventType() int { return event.UserErased }

func (p UserErased) encode(b *builder) { b.fields(p) }

// KVProvider is event 10121: something happened to the server that keeps keys and values in place
// of the store. It goes to the default project.
type KVProvider struct {
	Provider string `json:"provider"` // redis or memcached
	Hook     string `json:"hook"`     // on_init, on_shutdown, on_error, on_connection_lost or on_connection_restored
	Error    string `json:"error"`    // of the call that failed, "" for other hooks; holds no secret
	AtMS     int64  `json:"at_ms"`
}

// EventType is event.KVProvider.
func (KVProvider) EventType() int { return event.KVProvider }

func (p KVProvider) encode(b *builder) { b.fields(p) }

// Test is event 10021: a test that was requested to see whether an endpoint can be reached. It goes
// to that endpoint alone, whatever its filter.
type Test struct {
	EndpointID string `json:"endpoint_id"`
	Message    string `json:"message"`
}

// EventType is event.Test.
func (Test) EventType() int { return event.Test }

func (p Test) encode(b *builder) { b.fields(p) }

// Fact is an event about a fact: 10101 to 10104, according to Type. Fields that do not apply are
// empty. It holds no text, which would outlive the erasure of the caller; receivers read the fact.
type Fact struct {
	Type         int     `json:"-"`
	UserID       string  `json:"user_id"`
	FactID       string  `json:"fact_id"`
	Kind         string  `json:"kind"`
	Confidence   float64 `json:"confidence"`
	State        string  `json:"state"`
	Reason       string  `json:"reason"`
	Supersedes   string  `json:"supersedes"`
	SupersededBy string  `json:"superseded_by"`
	AgentID      string  `json:"agent_id"` // of the call that proves it
}

// EventType is the fact's Type.
func (p Fact) EventType() int { return p.Type }

func (p Fact) encode(b *builder) { b.fields(p) }
