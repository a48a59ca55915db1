package agents

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// Why an open answer is cut. Answer.Err carries one of them, or an error of the upstream.
var (
	ErrInterrupted = errors.New("interrupted by a call to interrupt")
	ErrBargeIn     = errors.New("interrupted by the caller, as the platform says")
	ErrSpeak       = errors.New("interrupted by speak")
	ErrThink       = errors.New("interrupted by think")
	ErrLeave       = errors.New("the agent was asked to leave")
	ErrSuperseded  = errors.New("replaced by a later request for the same user turn")
	ErrClientGone  = errors.New("the client went away")
	ErrOvertaken   = errors.New("overtaken by a request with later words of the caller")
)

// TurnRequest is one call for an answer.
type TurnRequest struct {
	// Plan returns what the call brings, given the head and the newest messages: some more than the
	// agent's MaxHistory, of every role and state, oldest first. It must be pure, and may be called
	// more than once.
	Plan func(head memory.Head, recent []memory.Message) (Plan, error)
	// ArrivedMS is when the request came, Unix ms.
	ArrivedMS int64
	// Projection is the call's own projection, or "". If the texts change by it or by the agent's
	// View, Plan gets at least the newest Depth messages, up to maxDepth. Older messages would be
	// shown differently than in the previous call, and the prompt caches of providers would not
	// match.
	Projection view.Projection
	Depth      int
	// Policy is the call's own level of the window policy; nil sets nothing.
	Policy *window.Policy
	// User, if not empty, becomes the user in the scope of an agent that has none.
	User string
	// Window, if not nil, sets Context and Window of a turn whose agent, or whose request, has its
	// own policy.
	Window Window
	// Cut is called at most once, with one of the Err values above, when something else cuts this
	// answer, or with the error of Durable. It must not block. The answer still has to be settled.
	Cut func(cause error)
	// Generated returns what has been generated of the answer so far. It decides whether a heard
	// text is part of this answer or of an earlier one. It may be nil. It is called from any
	// goroutine and must not block.
	Generated func() string
}

// Window builds the context of a turn by the agent's policy and the request's, which may be nil.
type Window func(ctx context.Context, t *Turn, request *window.Policy) error

// maxDepth is the maximum of TurnRequest.Depth.
const maxDepth = 2048

// depth returns how many messages Plan gets.
func (r *TurnRequest) depth(l *memory.LLMSettings) int {
	n := l.MaxHistory + 16
	if r.Depth > n && l.View.With(r.Projection).Changes() {
		return max(n, min(r.Depth, maxDepth))
	}
	return n
}

// Plan is what a call for an answer brings to the memory.
type Plan struct {
	// Append are new messages: from the user, a tool, or an assistant message that the platform
	// added. They have Role, Content, Source, ID, Timestamp, Metadata, Parts and the tool fields;
	// Begin sets the rest.
	Append []memory.Message
	// Evidence is what the call shows about earlier answers.
	Evidence []memory.Evidence
	// Supersede names (by Seq) stored messages that do not count: answers that this call replaces
	// (ghosts), the words of a request that a later one has again, and words that the platform has
	// taken back.
	Supersede []int64
	// Extend replaces the content of stored user messages with newer transcripts.
	Extend []Extension
	// Results replace the contents of stored tool messages, which only said that the tool was
	// running.
	Results []Extension
	// PlatformIDs has new values of Heard.PlatformID for stored messages, by Seq.
	PlatformIDs map[int64]string
	// Before has, for messages of Append (by index) that were heard before a stored answer, the Seq
	// of that answer. They are stored before it if there is a place.
	Before map[int]int64
	// Resent is set if the call holds the platform's whole list. A place is then kept free before
	// the answer, for what the next list may show to have introduced it.
	Resent bool
	// Overtakes is set if the call brings later words of the caller that cut what is being said. An
	// answer that is still being generated is then cut and stored first (waiting at most
	// Config.SettleWait), and Plan is called again.
	Overtakes bool
	// Unsolicited is set if the call asks the agent to speak without new words of the caller. The
	// answer gets a turn of its own, and is the greeting if nothing was said before.
	Unsolicited bool
}

// Extension is a stored message that came again, longer or corrected. The first text of a user
// message is kept in its metadata as first_transcript, unless the new one only continues it.
type Extension struct {
	Seq     int64
	Content string
}

// Turn is one exchange while its answer is being generated: what the caller said, what the model is
// given of the call, and the place that the ledger keeps for the answer. Begin returns it as soon
// as the caller's words are on their way to the disk, so that the model can begin. It must always
// be settled, whatever becomes of the answer.
type Turn struct {
	Agent     memory.Agent
	TurnID    int64
	AnswerSeq int64 // 0 if the ledger was empty: the answer then takes the next place when it ends
	UserMS    int64 // timestamp of the message to be answered
	// Context holds the newest messages for the LLM, oldest first, the new ones included: those in
	// context, at most the agent's MaxHistory, without tool results whose call was cut off.
	// Consecutive user messages are not merged yet. The messages are shared with the store: do not
	// change them.
	Context []*memory.Message

	// Summary stands for messages that have left the memory; "" is none.
	Summary string
	// Window is the policy that made Context; nil is the default with the agent's MaxHistory. With
	// a policy Context may have stored system messages, and stand-ins for lost tool results.
	Window *TurnWindow

	// Unsolicited is set as in Plan. Greeting is set if nothing was said before this answer.
	Unsolicited, Greeting bool

	// Replaced is how many open answers this call replaced.
	Replaced int

	durable       func() error     // see Durable; nil: it was on disk when Begin returned
	stored, added []memory.Message // see Recent
	answer        *openAnswer
	paused        bool // its question was not stored
}

// Recent returns the messages that Plan got, with this call's changes and its new messages, of all
// states. It is for correcting a client's own list. Each call makes a new list.
func (t *Turn) Recent() []memory.Message { return slices.Concat(t.stored, t.added) }

// Ledger returns the messages of Context and Recent themselves, which must not be changed.
func (t *Turn) Ledger() []*memory.Message {
	out := make([]*memory.Message, 0, len(t.stored)+len(t.added))
	for _, m := range t.Context {
		if len(t.stored) > 0 && m.Seq < t.stored[0].Seq {
			out = append(out, m)
		}
	}
	for _, list := range [][]memory.Message{t.stored, t.added} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	return out
}

// Known reports to a redactor the messages that were stored before the call, so that no detector
// checks them again.
func (t *Turn) Known(r *redact.Redactor) {
	if !r.Detects() {
		return
	}
	r = r.Again()
	for _, m := range t.Ledger() {
		if !slices.ContainsFunc(t.added, func(a memory.Message) bool { return a.Seq == m.Seq }) {
			m.Redacted(r)
		}
	}
	r.Text(t.Summary)
}

// Added returns the messages that this call brought.
func (t *Turn) Added() []memory.Message { return t.added }

// Release drops Context, Summary and the messages of Recent. Answers may take minutes, and
// thousands of them would keep these in memory.
func (t *Turn) Release() { t.Context, t.stored, t.added, t.Summary = nil, nil, nil, "" }

// Answer is how an open answer ended.
type Answer struct {
	Generated string // all words that came from the upstream
	// WithThoughts is all that came from the upstream, if the model also wrote what it thought.
	WithThoughts string
	Sent         string // what left our socket, cut at whole deltas
	// Complete is set if the upstream finished, so that Generated is all there is.
	Complete  bool
	ToolCalls json.RawMessage
	Members   string // Made.Members
	Origin    string // Made.Origin
	FinishRsn string
	Usage     json.RawMessage
	Timings   memory.Timings
	// Err is nil for an answer that was delivered whole, one of the Err values if it was cut, and
	// otherwise the upstream's error.
	Err     error
	Failure *memory.Failure // set with an upstream error
	// FailureText is the failure_message that the client was sent instead of the answer, or after
	// it.
	FailureText string
	// Repeats is set if the answer repeats the last message of the call: a platform without a voice
	// of its own asks us to speak the greeting that it has sent. The ledger has these words
	// already, so the answer is stored as superseded, and evidence applies to that message.
	Repeats    bool
	UpstreamID string
	Upstream   string // Made.Upstream
	Model      string // Made.Model
	Cost       *memory.Cost
	Filler     string // Made.Filler
	Recalled   []string
	Request    *memory.Request
}
