package memory

import (
	"context"
	"time"
)

// Peers coordinates several processes that serve one store. A store that can be shared implements
// it; nil in Config is for a store of one process. Times are Unix ms of Config.Now, which all
// processes then take from the store. Methods are safe for concurrent use.
type Peers interface {
	// Beat records that this process lives and when its agents were active. It reports whether
	// there are other processes.
	Beat(ctx context.Context, seen []Seen) (others bool, err error)
	// Seen returns what other processes have recorded of an agent; zero times for nothing.
	Seen(ctx context.Context, project, id string) (Seen, error)
	// NewLive is Store.Scan for live agents that were created after the place, and returns the
	// place for the next call; 0 is the start. It may repeat some.
	NewLive(ctx context.Context, after int64, each func(Head) error) (int64, error)
	// Lease makes this process the only one that may do this work for the agent, until the lease
	// expires or is released. ok is false while another process has it.
	Lease(ctx context.Context, project, id string, what Work, lease time.Duration) (release func(), ok bool, err error)
	// Ask sends a question to the other processes and returns the first reply, or an empty one if
	// no process has taken it within a moment. With Tell it does not wait.
	Ask(ctx context.Context, q Question) (Reply, error)
	// Asked returns the questions of other processes of the last seconds; it may repeat some.
	Asked(ctx context.Context) ([]Question, error)
	// Calls receives questions as they are asked, while Notified reports true; Asked returns them
	// too.
	Calls() <-chan Question
	// Notified reports whether notifications of the other processes arrive.
	Notified() bool
	// Take announces that this process handles the question; Reply sends the result.
	Take(ctx context.Context, q Question) error
	Reply(ctx context.Context, q Question, r Reply) error
	// Revisions returns the revisions of agents; -1 for one that is gone.
	Revisions(ctx context.Context, projects, ids []string) ([]int64, error)
}

// Followed may be implemented by Peers that can notify of changes. Without it, the revisions of
// agents that are followed are polled.
type Followed interface {
	// Follow sets which agents are followed here. It is called again and again.
	Follow(ctx context.Context, projects, ids []string) error
	// Changed receives when another process has changed one of them. Changes that are close
	// together may share one.
	Changed() <-chan struct{}
}

// Work is what one process does for an agent at a time.
type Work string

// WorkTimers is what is due by time.
const WorkTimers Work = "timers"

// Seen is when an agent was last asked for, and when something was last said; now for one that is
// followed or being answered.
type Seen struct {
	Project, ID       string
	AskedMS, SpokenMS int64
}

// Question is about the answers of an agent that other processes are generating.
type Question struct {
	No          int64  // set by the store, as is From
	From        string // the process that asks
	Project, ID string
	// Why the answers are to be cut: the text of one of the Err values; "" only asks whether there
	// are any
	Cause string
	// Before limits the question to answers whose place in the ledger was reserved below this Seq:
	// those that the asking process could know of. A question may outlive its process, and must not
	// be taken for one about a later answer.
	Before int64
	TurnID *int64  // nil = any turn
	Heard  *string // only those of which it may be a part
	Tell   bool    // no reply is expected
}

// Reply is what a process has done: the turns of the answers that it has cut and stored, or only
// found.
type Reply struct {
	Turns   []int64
	Phase   Phase
	Foreign bool // the turn's answer was there, and Heard is not a part of it
}

// Phase is how far an answer in flight has come.
type Phase int32

// The phases.
const (
	Thinking Phase = iota // nothing sent yet
	Speaking              // the first token was sent
)
