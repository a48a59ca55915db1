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
	// Plan looks at the head and the newest messages (some more than the agent's MaxHistory, every role and state, oldest first) and says what the call brings.
	// It is a pure function and may run more than once.
	Plan func(head Head, recent []Message) (Plan, error)
	// ArrivedMS is when the request came, Unix ms.
	ArrivedMS int64
	// Projection is the call's own, "" for none. With it, or with a View of the agent that changes texts, Plan sees at least the newest Depth messages, MaxDepth at
	// most: a message further back would be told in another way than before, and the call would not begin with the bytes of the last.
	Projection Projection
	Depth      int
	// Policy is the call's own level of the window policy; nil says nothing.
	Policy *window.Policy
	// Window, if set, gives the turn its Context and Window if the agent has a policy of its own.
	Window func(ctx context.Context, t *Turn) error
	// Cut is called at most once, with one of the Err values above, when something else cuts this answer, or with what Durable fails with. It must not block;
	// the answer still has to be settled with Turn.Settle.
	Cut func(cause error)
	// Generated gives what has been made of the answer so far, so that who says what was heard of it is told from who speaks of an
	// earlier answer; nil where that cannot be known. It is called from any goroutine and must not block.
	Generated func() string
}

// MaxDepth is how many messages TurnRequest.Depth can ask for.
const MaxDepth = 2048

// depth gives how many messages Plan sees.
func (r *TurnRequest) depth(l *LLMSettings) int {
	n := l.MaxHistory + 16
	if r.Depth > n && l.View.With(r.Projection).Changes() {
		return max(n, min(r.Depth, MaxDepth))
	}
	return n
}

// Plan is what a call for an answer brings to the memory.
type Plan struct {
	// Append holds new messages (user, tool, or an assistant message that the platform added): Role, Content, Source, ID,
	// Timestamp, Metadata, Parts and the tool fields; the rest is set by the Service.
	Append []Message
	// Evidence is what the call tells of earlier answers.
	Evidence []Evidence
	// Supersede names (by Seq) stored answers that this call replaces: ghosts.
	Supersede []int64
	// Extend, if not nil, replaces the content of the stored user message Seq: the same words with more behind them.
	Extend *Extension
	// Overtakes tells that the call brings later words of the caller, by a client that says what became of earlier answers: one that is still being
	// made is cut and awaited (at most Config.SettleWait), and the plan is made anew with it in the ledger.
	Overtakes bool
}

// Extension is a user message that came again, longer.
type Extension struct {
	Seq     int64
	Content string
}

// Turn is a turn whose answer is being made. It must be settled, whatever happens.
type Turn struct {
	Agent     Agent
	TurnID    int64
	AnswerSeq int64
	UserMS    int64 // timestamp of the message to be answered
	// Context holds the newest messages that an LLM may see, oldest first, the new ones included: Message.InContext, cut to the agent's
	// MaxHistory, without tool results whose call was cut off. An unanswered run of user messages is not merged yet. The
	// messages are shared with the store and must not be written to: a copy of them all would cost each call more than its assembly.
	Context []*Message

	// Summary stands for what has left the memory; "" without one.
	Summary string
	// Window is the policy that made Context; nil for the default with the agent's MaxHistory. Context may then hold stored system messages, and stand-ins for
	// results that are lost.
	Window *TurnWindow

	// Took is how many answers in flight this call replaced.
	Took int

	kept          func() error // see Durable; nil: it was on disk when Begin returned
	stored, added []Message    // see Recent
	flight        *flight
}

// Recent gives what Plan saw, with this call's changes made and its new messages behind: all states, for correcting a
// client's own list. It makes a new list on each call.
func (t *Turn) Recent() []Message { return slices.Concat(t.stored, t.added) }

// Release lets go of Context, Summary and what Recent gives: an answer may take minutes, and a thousand of them would hold the
// memory of their questions all that time.
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
	// Complete tells that the upstream finished: Generated is all there is.
	Complete  bool
	ToolCalls json.RawMessage
	FinishRsn string
	Usage     json.RawMessage
	Timings   Timings
	// Err is nil for an answer that was delivered whole; one of the Err values where it was cut; else what broke the upstream.
	Err     error
	Failure *Failure // set with an upstream error
	// FailureText is the failure_message that was given to the client instead of, or behind, the answer.
	FailureText string
	// Repeats tells that the words are those of the message that the call ended in: a platform without a voice of its own gives us the words of a greeting to
	// be voiced (reference/agora-api.md 4.1). The ledger has them already; the answer is kept as superseded, and what evidence says is said of that message.
	Repeats    bool
	UpstreamID string
	Upstream   string // Message.Upstream
	Filler     string // Message.Filler
}

// Turns is what package turn needs of the Service; it is stated here to show the contract in one place.
type Turns interface {
	// Begin writes the call's messages and opens (or joins) a turn. fault.Stopped if the agent takes no more messages. The disk may still be at it when
	// Begin returns: the LLM may be asked meanwhile, but nobody may be given anything before Durable.
	Begin(ctx context.Context, project, agentID string, r TurnRequest) (*Turn, error)
	// Durable waits until what Begin wrote is on disk: a matter of one commit. An error means that the turn never was; it has to be settled all the same. It may
	// be called often, and by any goroutine.
	Durable(t *Turn) error
	// Progress marks the phase of the answer in flight; cheap and not durable.
	Progress(t *Turn, p Phase)
	// Settle stores the answer, durable when it returns, and ends the flight. It fails where Durable does. It works on a context of its own once called and is
	// called exactly once for each Turn.
	Settle(ctx context.Context, t *Turn, a Answer) (Message, error)
	// Complete adds, after Settle, what a drained upstream produced in full.
	Complete(ctx context.Context, t *Turn, generated string) error
}
