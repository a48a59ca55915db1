package memory

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/window"
)

// Status is where an agent stands between join and leave; the numbers are Agora's (reference/agora-api.md section 6).
type Status int

// The statuses. Idle, Starting, Running, Stopping and Recovering count as live: they hold the agent's name and its place in the quota.
const (
	Idle       Status = 0 // saying its farewell
	Starting   Status = 1
	Running    Status = 2
	Stopping   Status = 3 // leave was taken; the final memory is being written
	Stopped    Status = 4
	Recovering Status = 5
	Failed     Status = 6
)

var statusNames = [...]string{"IDLE", "STARTING", "RUNNING", "STOPPING", "STOPPED", "RECOVERING", "FAILED"}

// Statuses is how many there are; they are numbered from 0.
const Statuses = len(statusNames)

// String gives the name used in answers, such as RUNNING.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return "Status(" + strconv.Itoa(int(s)) + ")"
	}
	return statusNames[s]
}

// Ended tells whether the agent is over for good.
func (s Status) Ended() bool { return s == Stopped || s == Failed }

// Active tells whether the agent takes messages and calls.
func (s Status) Active() bool { return s == Idle || s == Starting || s == Running || s == Recovering }

// Messages with which an agent ends (reference/agora-api.md section 5.5, event 102).
const (
	EndOK       = "OK"
	EndIdle     = "Idle for too long"
	EndLifetime = "Task lifetime limit exceeded"
)

// Lifetime is how long an agent may run at most.
const Lifetime = 72 * time.Hour

// ExpiringLead is how long before the end of its lifetime an agent's expiry is announced. Agora does not say when it does so
// (reference/agora-api.md 5.5); an hour is time enough to lead a conversation over to another agent.
const ExpiringLead = time.Hour

// Agent is one running conversation, from join to leave. Values are not changed once handed out: copy, then store.
type Agent struct {
	ID      string
	Project string
	Name    string
	Status  Status
	StartMS int64  // Unix ms of the join
	StopMS  int64  // Unix ms of the end; 0 while live
	Message string // why it ended; EndOK and its like
	Rev     int64  // revision of the last change to the agent itself; see Head.Rev
	// JoinKey is the Idempotency-Key of the join, JoinHash the hash of its body; both may be empty.
	JoinKey, JoinHash string

	Settings Settings
	// Properties is the join's properties object as it came, with everything we do not know. It may hold secrets
	// of other services: it is stored (encrypted where a key is set) and never shown whole.
	Properties json.RawMessage
}

// StartTS gives the start in Unix seconds, the unit of Agora's *_ts fields.
func (a Agent) StartTS() int64 { return a.StartMS / 1000 }

// StopTS gives the end in Unix seconds, 0 while the agent is live.
func (a Agent) StopTS() int64 { return a.StopMS / 1000 }

// Settings is what Heardlog itself reads of the join's properties (reference/agora-api.md section 2). Package codec stores
// it; encoding it in any other way hides its secrets.
type Settings struct {
	Channel string
	Labels  map[string]string
	// IdleTimeoutS ends an agent without activity, in seconds; 0 means the 72 h cap alone. Always set by the Service.
	IdleTimeoutS int
	LLM          LLMSettings
	Silence      Silence
	Farewell     Farewell
	Call         Call // set at the join and never changed
	Filler       Filler
	// WarnedMS is when the end of the agent's lifetime was announced, Unix ms; 0 before. It is no property of the join, and stands here because it
	// changes at most once.
	WarnedMS int64
	// LeaveKey is the Idempotency-Key of the call that made the agent leave; "" for none.
	LeaveKey string
	// Archive is what is known of an agent that runs elsewhere; nil for one that runs here.
	Archive *Archive
	// Scope says whose the agent's messages are that bring no scope of their own.
	Scope Scope
	// Memory is what is kept of the agent's memory beside its messages.
	Memory Memory
}

// Memory is the part of an agent's memory that is no message.
type Memory struct {
	// Policy is the agent's own level of the window policy; nil where it says nothing. It is not changed once set.
	Policy *window.Policy `json:"policy,omitempty"`
	// Summary stands for what has left the memory; "" without one. SummaryMS is when it was set, Unix ms, and SummaryUpTo the Seq of the last message that
	// it tells of, 0 where that is not known.
	Summary     string `json:"summary,omitempty"`
	SummaryMS   int64  `json:"summary_ms,omitempty"`
	SummaryUpTo int64  `json:"summary_up_to,omitempty"`
	// BaseSeq is where the memory begins: messages with a lower Seq are no longer in it. Ledger pages still show them.
	BaseSeq int64 `json:"base_seq,omitempty"`
	// ToolExchange is what a restored snapshot held under tool_exchange, as it came (reference/memory-semantics.md 001-26); "" for none.
	ToolExchange string `json:"tool_exchange,omitempty"`
	// SummaryRev is the revision at which the summary became what it is, and Acts what was done to the whole memory, oldest first, the newest MaxActs: what the
	// live tail tells. The Service keeps both.
	SummaryRev int64       `json:"summary_rev,omitempty"`
	Acts       []MemoryAct `json:"acts,omitempty"`
	// Front counts the beginning of a long memory; nil of others. The Service keeps it.
	Front *Front `json:"front,omitempty"`
	// Inherited is what was taken over from the agent before; nil for nothing.
	Inherited *Inherited `json:"inherited,omitempty"`
	// Working is what the agent says of its working memory.
	Working WorkingSettings `json:"working,omitzero"`
}

// Holds tells whether a message of the agent is part of what it remembers.
func (m *Memory) Holds(msg *Message) bool { return msg.Seq >= m.BaseSeq && msg.InMemory() }

// Since returns the messages, which are in order of Seq, from the start of the memory on.
func (m *Memory) Since(msgs []Message) []Message {
	if m.BaseSeq == 0 {
		return msgs
	}
	at, _ := slices.BinarySearchFunc(msgs, m.BaseSeq, func(msg Message, seq int64) int { return cmp.Compare(msg.Seq, seq) })
	return msgs[at:]
}

// LLMSettings is the agent's properties.llm. A zero field means that the server's default holds.
type LLMSettings struct {
	URL            string
	APIKey         secret.String
	Vendor         string // VendorCustom passes every field on
	Style          string
	Model          string                   // properties.llm.model, or the server's default; params.model wins
	SystemMessages []json.RawMessage        // OpenAI message objects, template variables not yet filled in
	Params         json.RawMessage          `json:",omitempty"` // object flattened into the upstream body; nil for none
	Headers        map[string]secret.String // sent upstream; values may be keys
	MaxHistory     int                      // messages put in front of an LLM call and shown in history; 1 to 1024
	Greeting       string
	GreetingDelay  int // ms, 0 to 5000
	FailureMessage string
	Variables      map[string]string // template_variables
	// Mode is "inject" or "reconcile"; "" decides by the request (DESIGN: the two ways a client talks to the proxy).
	Mode string
	// Duplicates is "supersede" (default) or "join": what becomes of a request that is identical to one still being answered.
	Duplicates string
	// OnDisconnect is "cancel" (default) or "drain": what becomes of the upstream call when the client goes away.
	OnDisconnect string
	// View is how the conversation is shown to the model; nil: what was heard, and the texts as they are.
	View *View `json:",omitempty"`
	// Time limits of a call, ms; 0 = the server's default.
	ConnectTimeoutMS, FirstTokenTimeoutMS, IdleTimeoutMS, TotalTimeoutMS int
	// Upstreams are asked, in this order, when the LLM above fails before the first byte of its answer; at most MaxUpstreams.
	Upstreams []Upstream `json:",omitempty"`
}

// MaxUpstreams is how many upstreams may stand behind the first.
const MaxUpstreams = 8

// Upstream is an LLM to fall back to. It shares the limits, system messages and llm.params of the one in front of it.
type Upstream struct {
	Name    string // told to clients and kept with the answer; never empty, unique in its list
	URL     string
	APIKey  secret.String
	Vendor  string                   // VendorCustom passes every field on, VendorAzure asks as Azure OpenAI wants it
	Model   string                   // in place of any other model, the request's included; "" leaves that alone
	Headers map[string]secret.String // sent to this upstream and no other; values may be keys
}

// VendorAzure is the vendor whose key goes into the header api-key.
const VendorAzure = "azure"

// VendorCustom is the llm.vendor that passes every message field upstream.
const VendorCustom = "custom"

// DefaultMaxHistory is how many messages go in front of an LLM call when the join does not say (reference/agora-api.md 2.1).
const DefaultMaxHistory = 32

// Silence is parameters.silence_config: what the agent does after a silence, once each silence.
type Silence struct {
	TimeoutMS int    // 0 = off, at most 60000
	Action    string // "speak" (default) or "think"
	Content   string
}

// Farewell is parameters.farewell_config.
type Farewell struct {
	Graceful bool
	TimeoutS int // 0 to 120
}

// Filler is filler_words: what is said while the LLM thinks, once an answer. The zero value says nothing.
type Filler struct {
	WaitMS  int      // from the request's arrival, without a first token
	Phrases []string // at most 100
	Shuffle bool     // in a shuffled order instead of theirs
}
