package memory

import (
	"encoding/json"

	"github.com/heardlog/heardlog/memory/window"
)

// Role is the author of a message.
type Role = window.Role

// The roles that the ledger keeps. The system messages of an agent's settings are not in the ledger.
const (
	User      = window.User
	Assistant = window.Assistant
	Tool      = window.Tool // not in history
	// System and Developer are instructions that a client appended. They are never in history; the
	// policy decides whether they are in the context.
	System    = window.System
	Developer = window.Developer
)

// MessageStatus is whether a message is accepted, a draft or discarded.
type MessageStatus = window.Status

// The statuses. Drafts and discarded messages are neither in history nor in the context.
const (
	Accepted  MessageStatus = "" // as stored; window.Accepted is its name in the API
	Draft                   = window.Draft
	Discarded               = window.Discard
)

// Scope says whose a message is, beside its agent (reference/memory-semantics.md 003-5). An empty id is one that was not given.
type Scope struct {
	UserID    string `json:"user_id,omitempty"`
	SessionID string `json:"session_id,omitempty"`
	TaskID    string `json:"task_id,omitempty"`
}

// Source is how a message came about (reference/agora-api.md section 3).
type Source string

// The sources.
const (
	SourceASR        Source = "asr"         // user: speech
	SourceMessage    Source = "message"     // user: text or picture sent by the client
	SourceCommand    Source = "command"     // user: think; assistant: speak
	SourceLLM        Source = "llm"         // assistant: the model's reply
	SourceGreeting   Source = "greeting"    // assistant
	SourceLLMFailure Source = "llm_failure" // assistant: failure_message
	SourceSilence    Source = "silence"     // assistant: silence_config, action speak
)

// Method is how we know what the caller heard.
type Method string

// The methods, best first (DESIGN, section 2).
const (
	VendorText     Method = "vendor_text"     // the platform, or the caller of the API, gave the heard text
	WordTimes      Method = "word_times"      // from the TTS's word times
	AudioMS        Method = "audio_ms"        // from the length of the audio played
	EchoDiff       Method = "echo_diff"       // from the platform's echo of our answer
	DisconnectOnly Method = "disconnect_only" // from what left our socket before it closed: an upper bound
	AssumedFull    Method = "assumed_full"    // nothing says otherwise
)

// Rank orders the methods: a higher rank replaces a lower one, never the other way. Unknown methods rank 0.
func (m Method) Rank() int {
	switch m {
	case VendorText:
		return 6
	case WordTimes:
		return 5
	case AudioMS:
		return 4
	case EchoDiff:
		return 3
	case DisconnectOnly:
		return 2
	case AssumedFull:
		return 1
	}
	return 0
}

// State says whether a ledger message counts.
type State string

// The states. The zero value is a message that counts.
const (
	Final      State = ""
	Superseded State = "superseded" // a ghost: replaced by a later answer to the same user turn; never in history or context
	Empty      State = "empty"      // an answer of which nothing came or nothing was sent; the turn stays open
	// Unplayed is an answer that the caller never heard a word of: the platform's own list left it out though the call went on. Replaced is one in whose
	// place the platform said something else. Neither is in history or context, both close their turn, and better evidence brings them back.
	Unplayed State = "unplayed"
	Replaced State = "replaced"
	// Dropped is a message that was cut from the memory for good: by a policy that cuts when it writes, or by a trim. It stays in the ledger.
	Dropped State = "dropped"
	// Merged is one whose words went into an earlier message. It is kept so that its id stays known.
	Merged State = "merged"
	// Removed is what clearing leaves of a message: its place and its id, without content.
	Removed State = "removed"
)

// Message is one entry of an agent's ledger. Messages are immutable values: the store replaces one by another with the
// same Seq when better evidence comes, and hands out copies that share maps, slices and what is Rare, which nobody writes to.
//
// It is copied at every step of every turn, so that its size is felt: 448 bytes, which a test holds it to. What few messages have belongs into Rare.
type Message struct {
	Seq     int64  `json:"seq"`          // position in the agent's ledger, from 1; may skip
	Rev     int64  `json:"rev"`          // the agent's revision at this message's last change
	ID      string `json:"id,omitempty"` // the client's name for it; unique in the agent; may be empty
	Role    Role   `json:"role"`
	Content string `json:"content"` // best evidence of what was heard
	TurnID  int64  `json:"turn_id"`

	Timestamp int64  `json:"timestamp"` // Unix ms
	Source    Source `json:"source,omitempty"`
	State     State  `json:"state,omitempty"`
	// Metadata is what the client sent beside our own keys (source, interrupted, interrupt_timestamp, original).
	Metadata map[string]json.RawMessage `json:"metadata,omitempty"`

	// GivenTurn tells, of a message not yet stored, that TurnID was given by the client and is to be kept.
	GivenTurn bool `json:"-"`
	// Interrupted, InterruptMS and InterruptBy are set on assistant messages only, and so is what follows them up to Confidence.
	Interrupted bool `json:"interrupted,omitempty"`
	// CutGenerated tells that Generated is not known to be complete: the upstream was cancelled or broke.
	CutGenerated bool `json:"cut_generated,omitempty"`
	// TurnHasUser tells that the turn held a user message when this one was stored (itself included).
	TurnHasUser bool `json:"turn_has_user,omitempty"`
	// Opens tells that the message was the first of its turn when it was appended.
	Opens bool `json:"opens,omitempty"`

	InterruptMS int64  `json:"interrupt_ms,omitempty"` // Unix ms
	InterruptBy string `json:"interrupt_by,omitempty"` // end.metadata.caused_by of the turn table: start_of_speech, api_speak, api_interrupt, api_leave
	// Generated is all the model produced and Sent what left our socket; empty where equal to Content.
	Generated  string `json:"generated,omitempty"`
	Sent       string `json:"sent,omitempty"`
	Method     Method `json:"method,omitempty"`      // evidence for Content
	EvidenceMS int64  `json:"evidence_ms,omitempty"` // Unix ms that the evidence speaks of, 0 if it does not say
	// Confidence is how sure the evidence is of itself, in percent; 0 where it does not say.
	Confidence int64 `json:"confidence,omitempty"`

	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`   // assistant: OpenAI tool_calls array
	ToolCallID string          `json:"tool_call_id,omitempty"` // tool
	ToolName   string          `json:"name,omitempty"`
	Parts      json.RawMessage `json:"parts,omitempty"` // content as an array of parts, where it came as one

	// AnswerSeq is the Seq kept free behind this message for an answer that is being made, so that a late answer stands
	// where it belongs; 0 = none. It is always set on the message with the highest Seq.
	AnswerSeq  int64           `json:"answer_seq,omitempty"`
	Timings    *Timings        `json:"timings,omitempty"` // of an answer that the proxy ran
	Failure    *Failure        `json:"failure,omitempty"`
	FinishRsn  string          `json:"finish_reason,omitempty"`
	Usage      json.RawMessage `json:"usage,omitempty"`
	UpstreamID string          `json:"upstream_id,omitempty"`

	Status MessageStatus `json:"status,omitempty"`
	// Chars is how much the message counts, in code points, as reference/memory-semantics.md 001-3 counts it; see Size. The Service sets it on whatever it
	// writes, so that nothing is counted twice. 0 also in messages stored before it was kept.
	Chars int64 `json:"chars,omitempty"`
	Marks Marks `json:"marks,omitzero"`
	// Rare is what few messages have; nil on all others. It is read by the methods of the same names and changed by Amend.
	*Rare
}

// Rare is what few messages have, apart from the others so that these need not carry its room. It is shared by copies of a message, and never written to.
type Rare struct {
	// InterruptMSFrom and InterruptByFrom are the methods of the evidence that InterruptMS and InterruptBy are from; empty where we saw the cut ourselves. Evidence
	// that is too weak for Content may still know best when and why, and the order in which it comes must not matter.
	InterruptMSFrom Method `json:"interrupt_ms_from,omitempty"`
	InterruptByFrom Method `json:"interrupt_by_from,omitempty"`
	// Playback is what single reports told of the answer's being played; nil without any.
	Playback *Playback `json:"playback,omitempty"`
	// UnheardTokens is how many tokens of the answer have been counted as unheard: the most that any evidence so far said.
	UnheardTokens int64 `json:"unheard_tokens,omitempty"`
	// Upstream is the name of the LLM that answered, of several that could.
	Upstream string `json:"upstream,omitempty"`
	// Filler is what we said ourselves while the LLM was thinking. It was sent, and is no part of Content, Generated or Sent.
	Filler string `json:"filler,omitempty"`
	Scope  Scope  `json:"scope,omitzero"`
	// Importance is 0 to 1 as the client said; nil where it did not.
	Importance *float64 `json:"importance,omitempty"`
	Category   string   `json:"category,omitempty"`
	// Raw is the message object as it was given, where our own fields would not give it back byte for byte. It is text and not JSON within JSON,
	// so that no store can set it in another way.
	Raw string `json:"raw,omitempty"`
	// CopyOf is the Seq of the message that this one is a copy of, or stands in behind, where a trim or a repair made the memory begin anew; 0 of all others. The turn table
	// does not tell of it a second time.
	CopyOf int64 `json:"copy_of,omitempty"`
	// Item is what the message has as an item under /v1/memories; nil on all others.
	Item *Item `json:"item,omitempty"`
}

// Timings is what the proxy measured of an answer, in ms from the request's arrival; 0 = not measured.
type Timings struct {
	StartMS         int64 `json:"start_ms"` // Unix ms of the request
	FirstTokenMS    int64 `json:"first_token_ms,omitempty"`
	FirstSentenceMS int64 `json:"first_sentence_ms,omitempty"`
	TotalMS         int64 `json:"total_ms,omitempty"`
	// UpstreamFirstByteMS is when the first byte of the upstream's answer came: of a stream's data, of a whole answer's body.
	UpstreamFirstByteMS int64 `json:"upstream_first_byte_ms,omitempty"`
	// UpstreamBytes is how many bytes of the answer were read of the upstream, its framing included. It is no time.
	UpstreamBytes int64 `json:"upstream_bytes,omitempty"`
}

// Failure is why an answer failed.
type Failure struct {
	Reason  string `json:"reason"` // LLM_REQUEST_ERR or INTERNAL_ERR (reference/agora-api.md 1.9)
	Code    int    `json:"code"`   // HTTP status of the upstream, or the one we answered
	Message string `json:"message"`
}

// Original gives all that the model (or whoever wrote the message) produced.
func (m Message) Original() string {
	if m.Generated != "" {
		return m.Generated
	}
	return m.Content
}

// SentText gives what left our socket.
func (m Message) SentText() string {
	if m.Sent != "" {
		return m.Sent
	}
	return m.defaultSent()
}

// defaultSent returns what left our socket if Sent is empty.
func (m *Message) defaultSent() string {
	if m.Method == DisconnectOnly {
		return m.Content
	}
	return m.Original()
}

// Provisional tells whether an answer of the model has nothing but our own socket to speak for it: an echo, a report of what was heard or the end of the call
// settles it, and a second request for the same user message replaces it (DESIGN, section 6). The end of the call is not looked at.
func (m *Message) Provisional() bool {
	return m.Role == Assistant && m.Source == SourceLLM && m.State == Final && m.Timings != nil && m.Method.Rank() < EchoDiff.Rank()
}

// InHistory tells whether the message is shown in history: user and assistant messages that count and are not bare tool calls.
func (m Message) InHistory() bool {
	switch m.Role {
	case User:
		return m.counts()
	case Assistant:
		return m.counts() && (len(m.ToolCalls) == 0 || m.Content != "")
	}
	return false
}

// InContext tells whether the message may go in front of an LLM call where no policy says otherwise. That of stored system messages is the policy's to say.
func (m Message) InContext() bool {
	return m.InMemory() && m.Role != System && m.Role != Developer
}

// InMemory tells whether the message is part of what an agent remembers, as far as the message itself can tell: those before Settings.Memory.BaseSeq are not.
func (m *Message) InMemory() bool {
	return m.counts() && (m.Role != Assistant || m.Content != "" || len(m.ToolCalls) > 0 || len(m.Parts) > 0)
}

// counts tells whether the message is one that was said and stands.
func (m *Message) counts() bool { return m.State == Final && m.Status == Accepted }
