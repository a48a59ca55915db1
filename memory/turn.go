package memory

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/heardlog/heardlog/memory/window"
)

// Why an answer in flight is cut. Answer.Err carries one of them, or an error of the upstream.
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
	Plan func(head Head, recent []Message) (Plan, error)
	// ArrivedMS is when the request came, Unix ms.
	ArrivedMS int64
	// Projection is the call's own projection, or "". If the texts change by it or by the agent's
	// View, Plan gets at least the newest Depth messages, up to maxDepth. Older messages would be
	// shown differently than in the previous call, and the prompt caches of providers would not
	// match.
	Projection Projection
	Depth      int
	// Policy is the call's own level of the window policy; nil sets nothing.
	Policy *window.Policy
	// Window, if not nil, sets Context and Window of a turn whose agent has its own policy.
	Window func(ctx context.Context, t *Turn) error
	// Cut is called at most once, with one of the Err values above, when something else cuts this
	// answer, or with the error of Durable. It must not block. The answer still has to be settled.
	Cut func(cause error)
	// Generated returns what has been generated of the answer so far. It decides whether a heard
	// text is part of this answer or of an earlier one. It may be nil. It is called from any
	// goroutine and must not block.
	Generated func() string
}

// maxDepth is the maximum of TurnRequest.Depth.
const maxDepth = 2048

// depth returns how many messages Plan gets.
func (r *TurnRequest) depth(l *LLMSettings) int {
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
	// the Service sets the rest.
	Append []Message
	// Evidence is what the call shows about earlier answers.
	Evidence []Evidence
	// Supersede names (by Seq) stored answers that this call replaces: ghosts.
	Supersede []int64
	// Extend, if not nil, replaces the content of a stored user message with a longer one that
	// begins the same.
	Extend *Extension
	// Overtakes is set if the call brings later words of the caller, from a client that reports
	// what was heard of earlier answers. An answer that is still being generated is then cut and
	// stored first (waiting at most Config.SettleWait), and Plan is called again.
	Overtakes bool
}

// Extension is a user message that came again, longer.
type Extension struct {
	Seq     int64
	Content string
}

// Turn is a turn whose answer is being generated. It must always be settled.
type Turn struct {
	Agent     Agent
	TurnID    int64
	AnswerSeq int64
	UserMS    int64 // timestamp of the message to be answered
	// Context holds the newest messages for the LLM, oldest first, the new ones included: those in
	// context, at most the agent's MaxHistory, without tool results whose call was cut off.
	// Consecutive user messages are not merged yet. The messages are shared with the store: do not
	// change them.
	Context []*Message

	// Summary stands for messages that have left the memory; "" is none.
	Summary string
	// Window is the policy that made Context; nil is the default with the agent's MaxHistory. With
	// a policy Context may have stored system messages, and stand-ins for lost tool results.
	Window *TurnWindow

	// Took is how many answers in flight this call replaced.
	Took int

	kept          func() error // see Durable; nil: it was on disk when Begin returned
	stored, added []Message    // see Recent
	flight        *flight
}

// Recent returns the messages that Plan got, with this call's changes and its new messages, of all
// states. It is for correcting a client's own list. Each call makes a new list.
func (t *Turn) Recent() []Message { return slices.Concat(t.stored, t.added) }

// Release drops Context, Summary and the messages of Recent. Answers may take minutes, and
// thousands of them would keep these in memory.
func (t *Turn) Release() { t.Context, t.stored, t.added, t.Summary = nil, nil, nil, "" }

// Phase is how far an answer in flight has come.
type Phase int32

// The phases.
const (
	Thinking Phase = iota // nothing sent yet
	Speaking              // the first token was sent
)

// Answer is how an answer in flight ended.
type Answer struct {
	Generated string // all that came from the upstream
	Sent      string // what left our socket, cut at whole deltas
	// Complete is set if the upstream finished, so that Generated is all there is.
	Complete  bool
	ToolCalls json.RawMessage
	FinishRsn string
	Usage     json.RawMessage
	Timings   Timings
	// Err is nil for an answer that was delivered whole, one of the Err values if it was cut, and
	// otherwise the upstream's error.
	Err     error
	Failure *Failure // set with an upstream error
	// FailureText is the failure_message that the client was sent instead of the answer, or after
	// it.
	FailureText string
	// Repeats is set if the answer repeats the last message of the call: a platform without a voice
	// of its own asks us to speak the greeting that it has sent. The ledger has these words
	// already, so the answer is stored as superseded, and evidence applies to that message.
	Repeats    bool
	UpstreamID string
	Upstream   string // Message.Upstream
	Filler     string // Message.Filler
}

// Turns is what package turn needs of the Service; it is stated here to show the contract in one
// place.
type Turns interface {
	// Begin stores the call's messages and opens or joins a turn. It returns fault.Stopped if the
	// agent accepts no more messages. The messages may not be on disk yet when Begin returns: the
	// LLM may be called, but nothing may be sent to the client before Durable returns.
	Begin(ctx context.Context, project, agentID string, r TurnRequest) (*Turn, error)
	// Durable waits until what Begin stored is on disk, which takes one commit. After an error the
	// turn does not exist, but must be settled all the same. It may be called often, by any
	// goroutine.
	Durable(t *Turn) error
	// Progress marks the phase of the answer in flight; cheap and not durable.
	Progress(t *Turn, p Phase)
	// Settle stores the answer, durable when it returns, and ends the flight. It fails if Durable
	// does. It does not depend on ctx, and must be called exactly once for each Turn.
	Settle(ctx context.Context, t *Turn, a Answer) (Message, error)
	// Complete adds, after Settle, what a drained upstream produced in full.
	Complete(ctx context.Context, t *Turn, generated string) error
}
