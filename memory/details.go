package memory

import (
	"encoding/json"
	"reflect"
)

// Details has what few messages have, in three groups by the question that they answer. It is
// shared by copies of a message: do not change it.
type Details struct {
	Heard
	Made
	Filed
}

// Heard is how it is known what the caller heard of an answer, beside Method, EvidenceMS and
// Confidence of the message itself. Reports of the platform fill it; see WithEvidence.
type Heard struct {
	// InterruptMSFrom and InterruptByFrom are the methods of the evidence for InterruptMS and
	// InterruptBy; empty if the server saw the cut itself. Evidence that is too weak for Content
	// may still be the best for the time and the reason.
	InterruptMSFrom Method `json:"interrupt_ms_from,omitempty"`
	InterruptByFrom Method `json:"interrupt_by_from,omitempty"`
	// PlatformID is the voice platform's ID of the message, if an event of it named one.
	PlatformID string `json:"platform_id,omitempty"`
	// Playback is what reports stated about the playing of the answer; nil without any.
	Playback *Playback `json:"playback,omitempty"`
	// Earlier is the evidence that other evidence has replaced, oldest first, the newest few. An
	// assumption is not evidence. The list is shared: do not change it.
	Earlier []Past `json:"earlier,omitempty"`
	// UnheardTokens is how many tokens of the answer were counted as unheard, the maximum by any
	// evidence so far.
	UnheardTokens int64 `json:"unheard_tokens,omitempty"`
}

// Made is how an answer was made: which model wrote it, from what, and what it cost.
type Made struct {
	// Upstream is the name of the LLM that answered, of several that could.
	Upstream string `json:"upstream,omitempty"`
	// Model is the model that answered, as the upstream names it, or as it was asked for.
	Model string `json:"model,omitempty"`
	// Cost is what the answer cost; nil if its model had no price then. It is shared: do not change
	// it.
	Cost *Cost `json:"cost,omitempty"`
	// Filler is what the agent said itself while the LLM was thinking. It was sent, and is not part
	// of Content, Generated or Sent.
	Filler string `json:"filler,omitempty"`
	// Recalled are the IDs of what long-term memory added to the prompt. The list is shared: do not
	// change it.
	Recalled []string `json:"recalled,omitempty"`
	// Request is what the model was given for the answer; nil if that was not recorded. It is
	// shared: do not change it.
	Request *Request `json:"told,omitempty"`
	// Was are texts that the message had before and that records of requests refer to; see
	// Change.Mark. The list is shared: do not change it.
	Was []string `json:"was,omitempty"`
	// WithThoughts is all that the model produced, if that includes what it thought: Generated,
	// Sent and Content leave thoughts out, since they are not spoken.
	WithThoughts string `json:"with_thoughts,omitempty"`
	// Members are the members of the message as it came that have no field here: a JSON object, or
	// "". Those of an answer, such as reasoning_content, go back to the upstream that wrote it,
	// which Origin names. It is a string, so that no store changes its form.
	Members string `json:"members,omitempty"`
	// Origin identifies the upstream that wrote the answer; "" for messages of others.
	Origin string `json:"origin,omitempty"`
}

// Filed is how a client has filed a message: for whom, how important, and in which form it came.
type Filed struct {
	Scope Scope `json:"scope,omitzero"`
	// Importance is 0 to 1 as set by the client; nil if not set.
	Importance *float64 `json:"importance,omitempty"`
	Category   string   `json:"category,omitempty"`
	// Raw is the message object as received, if our own fields would not reproduce it byte for
	// byte. It is a string, so that no store changes its form.
	Raw string `json:"raw,omitempty"`
	// CopyOf is the Seq of the message that this one is a copy of or a stand-in for, where a trim
	// or a repair rebuilt the memory; 0 for all others. The turn table skips copies.
	CopyOf int64 `json:"copy_of,omitempty"`
	// Item is what the message has as an item under /v1/memories; nil on all others.
	Item *Item `json:"item,omitempty"`
}

// Item has the fields of a message that exist only as an item under /v1/memories. It is nil on a
// message that came in another way and was not changed there.
type Item struct {
	// 32 hex digits; "" is the one derived from its place. Several items may share one.
	ID string `json:"id,omitempty"`
	// As it was given, whether there is such an agent or not.
	AgentID string          `json:"agent_id,omitempty"`
	Extra   json.RawMessage `json:"extra,omitempty"` // object; never matched
	// Of the last change of status, Unix ms; 0 = never.
	UpdatedMS int64 `json:"updated_ms,omitempty"`
	IsError   bool  `json:"is_error,omitempty"` // of a tool's result
}

// Heard returns the message's group of that name; it is zero if the message has none.
func (m *Message) Heard() (h Heard) {
	if m.Details != nil {
		h = m.Details.Heard
	}
	return h
}

// Made returns the message's group of that name; it is zero if the message has none.
func (m *Message) Made() (d Made) {
	if m.Details != nil {
		d = m.Details.Made
	}
	return d
}

// Filed returns the message's group of that name; it is zero if the message has none.
func (m *Message) Filed() (f Filed) {
	if m.Details != nil {
		f = m.Details.Filed
	}
	return f
}

// Amend changes the message's Details: change gets a copy, which replaces it. Details is nil if the
// copy is empty.
func (m *Message) Amend(change func(*Details)) {
	var d Details
	if m.Details != nil {
		d = *m.Details
	}
	change(&d)
	if m.Details = nil; !reflect.ValueOf(&d).Elem().IsZero() {
		m.Details = &d
	}
}

// Produced returns all that the model produced, its thoughts included.
func (m *Message) Produced() string {
	if thoughts := m.Made().WithThoughts; thoughts != "" {
		return thoughts
	}
	return m.Original()
}

// DropTold removes Request and Was, which belong to one place in one ledger.
func (m *Message) DropTold() {
	if made := m.Made(); made.Request != nil || made.Was != nil {
		m.Amend(func(d *Details) { d.Request, d.Was = nil, nil })
	}
}

// DropRequest removes Request.
func (m *Message) DropRequest() {
	if m.Made().Request != nil {
		m.Amend(func(d *Details) { d.Request = nil })
	}
}

// dropRaw removes Raw, which no longer matches the message.
func (m *Message) dropRaw() {
	if m.Filed().Raw != "" {
		m.Amend(func(d *Details) { d.Raw = "" })
	}
}

// DropPlayback removes Playback and Earlier, which hold words of the message.
func (m *Message) DropPlayback() {
	if h := m.Heard(); h.Playback != nil || h.Earlier != nil {
		m.Amend(func(d *Details) { d.Playback, d.Earlier = nil, nil })
	}
}
