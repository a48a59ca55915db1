package memory

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// Status is the state of an agent between join and leave. The numbers are those of Agora's API.
type Status int

// The statuses. Idle, Starting, Running, Stopping and Recovering are live: they hold the agent's
// name and count towards the limit of agents.
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

// String returns the name used in answers, such as RUNNING.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return "Status(" + strconv.Itoa(int(s)) + ")"
	}
	return statusNames[s]
}

// Ended reports whether the agent has ended.
func (s Status) Ended() bool { return s == Stopped || s == Failed }

// Active reports whether the agent accepts messages and calls.
func (s Status) Active() bool { return s == Idle || s == Starting || s == Running || s == Recovering }

// Messages with which an agent ends, as in Agora's event 102.
const (
	EndOK       = "OK"
	EndIdle     = "Idle for too long"
	EndLifetime = "Task lifetime limit exceeded"
)

// Lifetime is how long an agent may run at most.
const Lifetime = 72 * time.Hour

// ExpiringLead is how long before the end of its lifetime the expiry of an agent is announced.
// Agora does not document its own lead time. An hour is enough to move a conversation to another
// agent.
const ExpiringLead = time.Hour

// Agent is one conversation with a caller, from join to leave: one call. A voice platform starts it
// with settings for its answers: which model to ask, what to greet with, how long
// to wait in a silence, what to remember of the caller. While it is live, its name and keys are its
// own. It ends when the platform says so, when it has been idle, or after three days. Values are
// immutable once returned: copy, then store.
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
	// Properties is the properties object of the join as received, with all unknown fields. It may
	// contain secrets of other services: it is stored (encrypted if a key is set) and never shown
	// whole.
	Properties json.RawMessage
	// Cold is the place of the messages in an archive, nil if they are in the store.
	Cold *Cold
}

// Ref returns the name of the agent.
func (a *Agent) Ref() Ref { return Ref{a.Project, a.ID} }

// StartTS returns the start in Unix seconds, the unit of Agora's *_ts fields.
func (a Agent) StartTS() int64 { return a.StartMS / 1000 }

// StopTS returns the end in Unix seconds, or 0 while the agent is live.
func (a Agent) StopTS() int64 { return a.StopMS / 1000 }

// MaxLabels is how many labels an agent may have.
const MaxLabels = 128

// Settings are the properties of the join that Heardlog itself uses. Package codec stores them; any
// other encoding hides the secrets.
type Settings struct {
	Channel string
	Labels  map[string]string
	// IdleTimeoutS ends an agent after this many seconds without activity; 0 leaves only the limit
	// of 72 hours. The Service always sets it.
	IdleTimeoutS int
	LLM          LLMSettings
	Silence      Silence
	Farewell     Farewell
	Call         Call // set at the join and never changed
	Filler       Filler
	// WarnedMS is when the end of the agent's lifetime was announced, Unix ms; 0 before that. It is
	// not a property of the join.
	WarnedMS int64
	// LeaveKey is the Idempotency-Key of the call that ended the agent, or "".
	LeaveKey string
	// Archive holds the facts about an agent that runs elsewhere; nil for one that runs here.
	Archive *Archive
	// Redact is what is replaced in the texts, beside the rules of the project.
	Redact redact.Rules
	// Names are the names that a detector has found in the texts, nil for none.
	Names *redact.Names
	// PausedUntilMS is when the latest pause ends or ended, Unix ms; see agents.Agents.Pause.
	PausedUntilMS int64
	// Scope is the scope of messages that have none of their own.
	Scope Scope
	// Memory is what is kept of the agent's memory beside its messages.
	Memory Memory
	// Scores are the verdicts on the call and its turns, in the order in which they came. The list
	// is shared: do not change it.
	Scores []Score
	// Checks are the names of the checks that have found something in a call that has ended. The
	// list is shared: do not change it.
	Checks []string
}

// Memory is the part of an agent's memory that is not a message.
type Memory struct {
	// Policy is the agent's own level of the window policy; nil sets nothing. It is immutable once
	// set.
	Policy *window.Policy `json:"policy,omitempty"`
	// Summary stands for messages that have left the memory; "" is none. SummaryMS is when it was
	// set, Unix ms. SummaryUpTo is the Seq of the last message that it covers, 0 if unknown.
	Summary     string `json:"summary,omitempty"`
	SummaryMS   int64  `json:"summary_ms,omitempty"`
	SummaryUpTo int64  `json:"summary_up_to,omitempty"`
	// BaseSeq is the start of the memory: messages with a lower Seq are no longer in it. Pages of
	// the ledger still show them.
	BaseSeq int64 `json:"base_seq,omitempty"`
	// ToolExchange is the tool_exchange of a restored snapshot, as received; "" is none.
	ToolExchange string `json:"tool_exchange,omitempty"`
	// SummaryRev is the revision at which the summary last changed. Acts are the operations on the
	// whole memory, oldest first, the newest maxActs. Both are for live tails; the Service sets
	// them.
	SummaryRev int64       `json:"summary_rev,omitempty"`
	Acts       []MemoryAct `json:"acts,omitempty"`
	// Instructions are the Seqs of the newest MaxInstructions system and developer messages in the
	// memory, ascending. With fewer, these are all. The list is immutable once set.
	// ConversationFrom, unless 0, is a Seq before which the memory holds nothing else, apart from
	// answers of which nothing was heard. Both are kept so that little of a long memory is read.
	Instructions     []int64 `json:"instructions,omitempty"`
	ConversationFrom int64   `json:"from,omitempty"`
	// Removed is how many messages of the ledger were cleared, if it is the one that keeps a
	// project's items.
	Removed int64 `json:"removed,omitempty"`
	// Inherited is what was taken over from the agent before; nil for nothing.
	Inherited *Inherited `json:"inherited,omitempty"`
	// Working are the settings of the agent's working memory.
	Working WorkingSettings `json:"working,omitzero"`
	// Remember are the settings of the caller's long-term memory.
	Remember Remember `json:"remember,omitzero"`
	// Model is the name of the memory model that the settings came from; "" for none. MaxSessions
	// is how many agents with it may be live in the project; 0 = no limit of its own.
	Model       string `json:"model,omitempty"`
	MaxSessions int    `json:"max_sessions,omitempty"`
	// Checkpoints is how often the memory is saved.
	Checkpoints Checkpoints `json:"checkpoints,omitzero"`
	// Kept is what happens to the conversation after its end.
	Kept Kept `json:"kept,omitzero"`
	// Known is what the prompts have of the caller; nil before the first that may have it. It is
	// immutable.
	Known *Known `json:"known,omitempty"`
}

// WorkingSettings is what an agent's settings say about its working memory (package kv). Zero
// values say nothing.
type WorkingSettings struct {
	Off       bool `json:"off,omitempty"`
	MaxSizeMB int  `json:"max_size_mb,omitempty"` // the server's limit holds beside it
	TTL       int  `json:"ttl,omitempty"`         // seconds that an entry lives if the call does not say
	GC        GC   `json:"gc,omitzero"`
}

// GC is how keys make room for others (package kv). The zero value evicts none.
type GC struct {
	Strategy      string `json:"strategy,omitempty"` // lru, lfu, ttl, size_based or hybrid
	EverySeconds  int    `json:"every_seconds,omitempty"`
	MaxPercent    int    `json:"max_percent,omitempty"`    // of the limit: where it begins
	TargetPercent int    `json:"target_percent,omitempty"` // where it ends
}

// Checkpoints is how often an agent's memory is saved (package checkpoint). Without EverySeconds it
// is saved on demand only.
type Checkpoints struct {
	EverySeconds int  `json:"every_seconds,omitempty"`
	Max          int  `json:"max,omitempty"` // how many are kept; 0 = the default
	Plain        bool `json:"plain,omitempty"`
}

// Kept is what happens to a conversation after its end. The zero value leaves that to the server.
type Kept struct {
	Days      int  `json:"days,omitempty"` // until it is erased; 0 = as long as the server keeps it
	Unindexed bool `json:"unindexed,omitempty"`
	Summarize bool `json:"summarize,omitempty"` // as a whole, in the background
}

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
	Model          string            // properties.llm.model, or the server's default; params.model wins
	SystemMessages []json.RawMessage // OpenAI message objects, template variables not yet filled in
	// Object flattened into the upstream body; nil for none.
	Params         json.RawMessage          `json:",omitempty"`
	Headers        map[string]secret.String // sent upstream; values may be keys
	MaxHistory     int                      // messages put in front of an LLM call and shown in history; 1 to 1024
	Greeting       string
	GreetingDelay  int // ms, 0 to 5000
	FailureMessage string
	Variables      map[string]string // template_variables
	// Mode is "inject" or "reconcile"; "" decides by the request.
	Mode string
	// Duplicates is how to handle a request that is identical to one still being answered:
	// "supersede" (the default) or "join".
	Duplicates string
	// OnQuestion is what a new question does to an answer that is still being sent to a client that
	// sends only what is new: "cut" (the default) or "keep".
	OnQuestion string
	// OnDisconnect is what happens to the upstream call when the client disconnects: "cancel" (the
	// default) or "drain".
	OnDisconnect string
	// View is how the conversation is shown to the model. If nil, the model gets what was heard,
	// and texts as they are.
	View *view.View `json:",omitempty"`
	// Members are the members of clients' messages that go upstream beside those that always do;
	// nil means the default list.
	Members []string `json:",omitzero"`
	// Thoughts says which answers' thoughts go back to the LLM: "calls" (the default) are those
	// with tool calls, "all" or "never".
	Thoughts string `json:",omitempty"`
	// Shape says which lists the LLM accepts: "as_is" (the default), "one_system" or "alternate".
	Shape string `json:",omitempty"`
	// Cache says how prompts are marked for the LLM's prompt cache: "off" (the default), "openai"
	// or "anthropic".
	Cache string `json:",omitempty"`
	// Time limits of a call, ms; 0 = the server's default.
	ConnectTimeoutMS, FirstTokenTimeoutMS, IdleTimeoutMS, TotalTimeoutMS int
	// Upstreams are tried in this order when the LLM above fails before the first byte of its
	// answer; at most 8.
	Upstreams []Upstream `json:",omitempty"`
	// Realtime is the server of the agent's speech-to-speech model; nil is the server's own. Of its
	// fields only URL, APIKey and Headers are used.
	Realtime *Upstream `json:",omitempty"`
}

// Upstream is an LLM to fall back to. It shares the limits, system messages and llm.params of the
// first one.
type Upstream struct {
	Name    string // shown to clients and stored with the answer; not empty, unique in its list
	URL     string
	APIKey  secret.String
	Vendor  string                   // VendorCustom passes every field on, VendorAzure uses the form of Azure OpenAI
	Model   string                   // in place of any other model, the request's included; "" leaves that alone
	Headers map[string]secret.String // sent to this upstream and no other; values may be keys
	// Thoughts, Shape and Cache are as in LLMSettings; "" is the first upstream's Thoughts and
	// Shape, and no Cache.
	Thoughts string `json:",omitempty"`
	Shape    string `json:",omitempty"`
	Cache    string `json:",omitempty"`
}

// VendorAzure is the vendor whose key goes into the header api-key.
const VendorAzure = "azure"

// VendorCustom is the llm.vendor that passes every message field upstream.
const VendorCustom = "custom"

// DefaultMaxHistory is how many messages an LLM call gets unless the join sets a number; it is
// Agora's default.
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

// Filler is filler_words: words that the agent speaks while the LLM is thinking, once per answer.
// The zero value has none.
type Filler struct {
	WaitMS  int      // from the request's arrival, without a first token
	Phrases []string // at most 100
	Shuffle bool     // in a shuffled order instead of theirs
}

// maxSystem limits the system messages of an agent together, with their variables filled in, in
// bytes.
const maxSystem = 1 << 20

// Fill puts the template variables into a text.
func (l LLMSettings) Fill(s string) string { return text.Fill(s, l.Variables) }

// CheckTemplates refuses settings whose texts are too long with their variables filled in: a short
// text can name a long value many times.
func (s Settings) CheckTemplates() error {
	l := s.LLM
	for _, t := range []struct{ field, text string }{
		{"properties.llm.greeting_message", l.Greeting},
		{"properties.llm.failure_message", l.FailureMessage},
		{"properties.parameters.silence_config.content", s.Silence.Content},
	} {
		if n := text.FilledLen(t.text, l.Variables); n > MaxText {
			return fault.At(fault.Invalid, t.field, "is %d bytes long with its variables filled in; at most %d are allowed", n, MaxText)
		}
	}
	total := 0
	for _, m := range l.SystemMessages {
		total += text.FilledLen(string(m), l.Variables)
	}
	if total > maxSystem {
		return fault.At(fault.Invalid, "properties.llm.system_messages", "are %d bytes long with their variables filled in; at most %d are allowed", total, maxSystem)
	}
	return nil
}

// MustBeActive returns an error with the code unless the agent accepts messages. The text has when
// and why it ended.
func (a Agent) MustBeActive(code fault.Code) error {
	if a.Archived() {
		where := "runs at Agora"
		if a.Settings.Archive.Hosted != nil {
			where = "ran at " + a.Home()
		}
		return fault.New(code, "agent %s %s; only its record is here", a.ID, where)
	}
	if a.Status.Active() {
		return nil
	}
	if !a.Status.Ended() {
		return fault.New(code, "agent %s is stopping", a.ID)
	}
	why := a.Message
	if why == "" {
		why = "no reason recorded"
	}
	return fault.New(code, "agent %s stopped at %s (%s); start a new one", a.ID, time.UnixMilli(a.StopMS).UTC().Format(time.RFC3339), why)
}
