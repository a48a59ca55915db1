package memory

import (
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory/window"
)

// Limits of texts, in bytes of UTF-8.
const (
	MaxContent = 4 << 20   // of a message; the results of tools may be long
	MaxText    = 256 << 10 // of what an agent says by itself, of memories and of reports
)

// MaxMessageID is how long a client's name for a message may be, in characters.
const MaxMessageID = 128

// Role is the author of a message.
type Role = window.Role

// The roles that the ledger keeps. The system messages of an agent's settings are not in the
// ledger.
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

// Scope is whose a message is, in addition to its agent. A stored one has no AgentID.
type Scope = window.Scope

// Source is how a message came about.
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
	SourceTool       Source = "tool"        // tool: shown only, not stored
)

// Method is how it is known what the caller heard.
type Method string

// The methods, best first.
const (
	// The platform, or the caller of the API, gave the heard text.
	VendorText Method = "vendor_text"
	WordTimes  Method = "word_times" // from the TTS's word times
	AudioMS    Method = "audio_ms"   // from the length of the audio played
	EchoDiff   Method = "echo_diff"  // from the platform's echo of our answer
	// From the time between the first token, or speak, and an interruption that says no more.
	RateEstimate Method = "rate_estimate"
	// From what left our socket before it closed: an upper bound.
	DisconnectOnly Method = "disconnect_only"
	AssumedFull    Method = "assumed_full" // no other evidence
)

// Rank orders the methods: a higher rank replaces a lower one, never the other way. Unknown methods
// have rank 0.
func (m Method) Rank() int {
	switch m {
	case VendorText:
		return 7
	case WordTimes:
		return 6
	case AudioMS:
		return 5
	case EchoDiff:
		return 4
	case RateEstimate:
		return 3
	case DisconnectOnly:
		return 2
	case AssumedFull:
		return 1
	}
	return 0
}

// State is whether a message of the ledger counts.
type State string

// The states. The zero value is a message that counts.
const (
	Final State = ""
	// A ghost: replaced by a later answer to the same user turn; never in history or context.
	Superseded State = "superseded"
	// An answer of which nothing came or nothing was sent; the turn stays open.
	Empty State = "empty"
	// Unplayed is an answer of which the caller heard nothing: the platform's list omitted it
	// although the call went on. Replaced is one in whose place the platform said something else.
	// Neither is in history or context, both close their turn, and better evidence restores them.
	Unplayed State = "unplayed"
	Replaced State = "replaced"
	// Dropped is a message that left the memory for good, by a policy that applies on write or by a
	// trim. It stays in the ledger.
	Dropped State = "dropped"
	// Merged is a message that was merged into an earlier one. It is kept so that its ID stays
	// known.
	Merged State = "merged"
	// Removed is what clearing leaves of a message: its place and its id, without content.
	Removed State = "removed"
)

// Message is one thing that was said in a call, or done for it: words of the caller, an answer of
// the agent, the result of a tool. An answer has three texts, which differ when the caller
// interrupts: Generated is what the model produced, Sent what left this server, and Content what
// the caller heard, as well as that is known; Method and Confidence state how well. Messages stand
// in the agent's ledger in order of Seq and belong to a turn.
//
// Messages are immutable values: the store replaces a message with another one of the same Seq when
// better evidence arrives. Copies share maps, slices and Details; do not change these. A message is
// copied at every step of every turn, so its size matters. A test limits it to 448 bytes; fields
// that few messages need belong in Details.
type Message struct {
	Seq int64 `json:"seq"` // position in the agent's ledger, from 1; may skip
	Rev int64 `json:"rev"` // the agent's revision at this message's last change
	// The client's name for it; unique in the agent; may be empty.
	ID      string `json:"id,omitempty"`
	Role    Role   `json:"role"`
	Content string `json:"content"` // best evidence of what was heard
	TurnID  int64  `json:"turn_id"`

	Timestamp int64  `json:"timestamp"` // Unix ms
	Source    Source `json:"source,omitempty"`
	State     State  `json:"state,omitempty"`
	// Metadata are the client's fields beside our own (source, interrupted, interrupt_timestamp,
	// original).
	Metadata map[string]json.RawMessage `json:"metadata,omitempty"`

	// GivenTurn is set on a new message whose TurnID was set by the client and must be kept.
	GivenTurn bool `json:"-"`
	// Interrupted, InterruptMS and InterruptBy, and what follows them up to Confidence, are set on
	// assistant messages only.
	Interrupted bool `json:"interrupted,omitempty"`
	// CutGenerated is set if Generated may be incomplete: the upstream was cancelled or broke.
	CutGenerated bool `json:"cut_generated,omitempty"`
	// TurnHasUser is set if the turn had a user message, this one included, when this one was
	// stored.
	TurnHasUser bool `json:"turn_has_user,omitempty"`
	// Opens is set if the message was the first of its turn when it was appended.
	Opens bool `json:"opens,omitempty"`

	InterruptMS int64 `json:"interrupt_ms,omitempty"` // Unix ms
	// End.metadata.caused_by of the turn table: start_of_speech, api_speak, api_interrupt,
	// api_leave
	InterruptBy string `json:"interrupt_by,omitempty"`
	// Generated is all the model produced and Sent what left our socket; empty where equal to
	// Content.
	Generated string `json:"generated,omitempty"`
	Sent      string `json:"sent,omitempty"`
	Method    Method `json:"method,omitempty"` // evidence for Content
	// When the cut happened by the evidence, Unix ms; 0 is unknown.
	EvidenceMS int64 `json:"evidence_ms,omitempty"`
	// Confidence is the probability that Content is what was heard, give or take one word, in
	// percent; 0 is unknown.
	Confidence int64 `json:"confidence,omitempty"`

	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`   // assistant: OpenAI tool_calls array
	ToolCallID string          `json:"tool_call_id,omitempty"` // tool
	ToolName   string          `json:"name,omitempty"`
	// Content as an array of parts, where it came as one.
	Parts json.RawMessage `json:"parts,omitempty"`

	// AnswerSeq is the Seq reserved after this message for an answer that is being generated, so
	// that a late answer gets the right place; 0 is none. It is always set on the message with the
	// highest Seq.
	AnswerSeq  int64           `json:"answer_seq,omitempty"`
	Timings    *Timings        `json:"timings,omitempty"` // of an answer that the proxy ran
	Failure    *Failure        `json:"failure,omitempty"`
	FinishRsn  string          `json:"finish_reason,omitempty"`
	Usage      json.RawMessage `json:"usage,omitempty"`
	UpstreamID string          `json:"upstream_id,omitempty"`

	Status MessageStatus `json:"status,omitempty"`
	// Chars is the size of the message in code points; see Size. The Service sets it on every
	// write, so that it is counted once. 0 is not counted yet.
	Chars int64 `json:"chars,omitempty"`
	Marks Marks `json:"marks,omitzero"`
	// Details has what few messages have; nil on all others. Read it with Heard, Made and Filed,
	// and change it with Amend.
	*Details
}

// Timings is what the proxy measured of an answer, in ms from the request's arrival; 0 = not
// measured.
type Timings struct {
	StartMS         int64 `json:"start_ms"` // Unix ms of the request
	FirstTokenMS    int64 `json:"first_token_ms,omitempty"`
	FirstSentenceMS int64 `json:"first_sentence_ms,omitempty"`
	TotalMS         int64 `json:"total_ms,omitempty"`
	// UpstreamFirstByteMS is when the first byte of the upstream's answer arrived: of a stream's
	// data, or of the body.
	UpstreamFirstByteMS int64 `json:"upstream_first_byte_ms,omitempty"`
	// UpstreamBytes is the number of bytes read from the upstream, framing included. It is not a
	// time.
	UpstreamBytes int64 `json:"upstream_bytes,omitempty"`
}

// Failure is why an answer failed.
type Failure struct {
	Reason  string `json:"reason"` // LLM_REQUEST_ERR or INTERNAL_ERR, as in the turn table
	Code    int    `json:"code"`   // HTTP status of the upstream, or the one we answered
	Message string `json:"message"`
	// Error is the fault code, such as upstream_truncated; "" if it is not known.
	Error string `json:"error,omitempty"`
}

// Limited reports whether a finish_reason means that the model did not say all that it would have:
// it reached its limit of tokens, a filter stopped it, or the server gave up (abort, error and the
// like). "" is not known, which counts as all.
func Limited(finish string) bool {
	switch strings.ToLower(finish) {
	case "", "stop", "tool_calls", "function_call", "tool_use", "end_turn", "stop_sequence", "eos", "eos_token", "end_of_turn", "complete", "completed", "finished", "null":
		return false
	}
	return true
}

// Aborted reports whether a finish_reason means that the answer broke off: it was limited, but
// neither by its length nor by a filter.
func Aborted(finish string) bool {
	switch strings.ToLower(finish) {
	case "length", "max_tokens", "max_output_tokens", "model_length", "content_filter", "safety", "refusal", "recitation", "blocklist", "prohibited_content", "spii":
		return false
	}
	return Limited(finish)
}

// Original returns all that the model, or another author, produced.
func (m Message) Original() string {
	if m.Generated != "" {
		return m.Generated
	}
	return m.Content
}

// FindSeq returns the message with a number from a list in order of Seq, nil if it has none.
func FindSeq(list []Message, seq int64) *Message {
	at, found := slices.BinarySearchFunc(list, seq, func(m Message, seq int64) int { return cmp.Compare(m.Seq, seq) })
	if !found {
		return nil
	}
	return &list[at]
}

// Answers iterates over all that the assistant messages of a list produced.
func Answers(msgs []Message) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range msgs {
			if m := &msgs[i]; m.Role == Assistant && !yield(m.Original()) {
				return
			}
		}
	}
}

// SentText returns what left our socket.
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

// Provisional reports whether nothing but our own socket confirms an answer of the model. An echo,
// a report of what was heard or the end of the call settles it, and a second request for the same
// user message replaces it. The end of the call is not checked here.
func (m *Message) Provisional() bool {
	return m.Role == Assistant && (m.Source == SourceLLM || m.Source == SourceGreeting) && m.State == Final &&
		m.Timings != nil && m.Method.Rank() < EchoDiff.Rank()
}

// InHistory reports whether the message is shown in history: user and assistant messages that are
// in memory and are not only tool calls. An answer without words was not heard, so it is in
// neither.
func (m Message) InHistory() bool {
	switch m.Role {
	case User:
		return m.Counts()
	case Assistant:
		return m.Counts() && (m.Content != "" || !m.CallsTool() && (m.Interrupted || len(m.Parts) > 0))
	}
	return false
}

// InContext reports whether the message may be in an LLM call if no policy decides otherwise.
// Policies decide about stored system messages.
func (m Message) InContext() bool {
	return m.InMemory() && m.Role != System && m.Role != Developer
}

// InMemory reports whether the message is in the agent's memory, as far as the message itself
// shows: messages before Settings.Memory.BaseSeq are not.
func (m *Message) InMemory() bool {
	return m.Counts() && (m.Role != Assistant || m.Content != "" || m.CallsTool() || len(m.Parts) > 0)
}

// CallsTool reports whether the message calls a tool, in the older form too, which is a member of
// its own.
func (m *Message) CallsTool() bool {
	return len(m.ToolCalls) > 0 || m.Details != nil && strings.Contains(m.Details.Members, `"function_call":{`)
}

// Counts reports whether the message is final and accepted.
func (m *Message) Counts() bool { return m.State == Final && m.Status == Accepted }

// Merge sets the message's content to text, which includes the words of next, and extends the
// generated and sent texts in the same way.
func (m *Message) Merge(next *Message, text string) {
	separator := text[len(m.Content) : len(text)-len(next.Content)]
	if m.Generated != "" || next.Generated != "" {
		m.Generated = m.Original() + separator + next.Original()
	}
	if m.Sent != "" || next.Sent != "" {
		m.Sent = m.SentText() + separator + next.SentText()
	}
	m.Content = text
	m.dropRaw()
	m.Interrupted = m.Interrupted || next.Interrupted
	if next.Interrupted {
		m.InterruptMS, m.InterruptBy = next.InterruptMS, next.InterruptBy
	}
}
