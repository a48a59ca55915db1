// Package job runs the work that no caller waits for: the summary of a call that has ended, the
// import of a document, the erasure of what was kept long enough. What has to be done is a job of a
// Kind; a Queue runs the jobs of one kind and a Runner all queues. A job that fails is tried again
// after a pause that grows, one that panics takes nothing else down, no project can take all
// places, and each result is counted and logged, and lists say what waits and what failed. Jobs
// that must not be lost are records in the store: they survive the process, and of several servers
// that share the store one does the job.
package job

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// Key names a job among those of its kind.
type Key struct {
	Project string // whose work it is; "" = the server's own
	ID      string // "" for the only job of a project
}

// recordID is the ID of the record of a job.
func (k Key) recordID() string { return k.Project + "/" + k.ID }

// Kind is one sort of work. Name and Do are required.
type Kind struct {
	// Name is the kind's name in the store, the metrics, the log and lists; it must not change.
	Name string
	// Do does a job. It may be called again for a job that it has done, on another server too. Its
	// context ends after Timeout, when the server stops, and when the job is dropped.
	Do func(ctx context.Context, k Key) (Result, error)
	// Due is asked before the job is claimed; unless ready is true, its result stands for that of
	// Do. nil means that a job is ready when its time has come.
	Due func(ctx context.Context, k Key) (ready bool, r Result, err error)
	// Find adds jobs whose subjects are stored elsewhere, such as calls that are to be erased. It
	// is called when the Runner starts and after each Every, and again as soon as what it added is
	// done if it says that there is more. add reports whether the job is new.
	Find  func(ctx context.Context, add func(k Key) bool) (more bool, err error)
	Every time.Duration
	// Stored keeps jobs in the store until they are done; Put adds them.
	Stored bool
	// Claimed claims jobs that are not Stored while they are done, so that servers that share the
	// store do not do the same at the same time.
	Claimed bool
	// Places is how many jobs run at a time on this server; 0 = 4. One project gets at most half of
	// them, but at least one.
	Places int
	// Timeout is how long Do may take; 0 = 1 minute.
	Timeout time.Duration
	// A job that failed runs again after First; the pause doubles with each failure in a row up to
	// Longest, and half of it is random, so that jobs that failed together are spread. 0 = 10
	// seconds and 30 minutes. RetryAfter returns how long the upstream that failed with err asks to
	// be left alone, and may be nil.
	First, Longest time.Duration
	RetryAfter     func(err error) time.Duration
	// Tries is the number of failures in a row after which a job is not tried again; 0 = no limit.
	// Final reports whether trying again cannot help after an error, and may be nil.
	Tries int
	Final func(err error) bool
	// Count gets the outcome of each run, for metrics of the kind's own; it may be nil.
	Count func(outcome string)
	// Frequent results, and Part, are logged at level debug unless they are failures.
	Frequent bool
}

// One is a Find for a single job.
func One(_ context.Context, add func(Key) bool) (more bool, err error) {
	add(Key{})
	return false, nil
}

// Outcomes of runs. Kinds may have others.
const (
	OK      = "ok"
	Nothing = "nothing"  // there was nothing to do
	Part    = "part"     // a part of it is done; the rest comes later
	Retried = "retried"  // it failed and is tried again
	GivenUp = "given_up" // it failed and is not tried again
)

// Result is what became of a job. The zero value says that it is done, and was not worth a word.
type Result struct {
	Outcome string // "" is neither counted nor logged
	// Again keeps the job, which runs again after a time. Jobs of others that are due come first.
	Again bool
	After time.Duration
	// Progress is stored with a Stored job that runs again; nil leaves it as it was. With it, an
	// error is logged and does not count as a failure in a row: After stands.
	Progress *Progress
}

// Done is the result of a job that is done.
func Done(outcome string) Result { return Result{Outcome: outcome} }

// Again is the result of a job that runs again after a time, because there is more to do or because
// it is too early.
func Again(after time.Duration) Result { return Result{Again: true, After: after} }

// State is how a job is.
type State string

// The states of jobs.
const (
	Waiting  State = "waiting"  // for its time or a place
	Running  State = "running"  // here or on another server
	Retrying State = "retrying" // it has failed, and waits for the next try
	Failed   State = "failed"   // it was given up
)

// States lists them.
var States = []State{Waiting, Running, Retrying, Failed}

// ParseState returns the state with a name, "" for "". It fails with fault.Invalid, which names the
// field.
func ParseState(field, name string) (State, error) {
	if s := State(name); s == "" || slices.Contains(States, s) {
		return s, nil
	}
	return "", fault.At(fault.Invalid, field, "must be waiting, running, retrying or failed, not %q", name)
}

// Info describes a job.
type Info struct {
	Kind string
	Key
	State   State
	SinceMS int64  // Unix ms: when it was added; 0 = unknown
	DueMS   int64  // Unix ms: not before; of a failed one when it was given up
	Tries   int    // that failed in a row
	Error   string // of the last try that failed, as the API shows it; at most MaxError bytes
}

// MaxError is how much is kept of an error, in bytes.
const MaxError = 500

// KeepFailed is how long jobs that were given up are listed.
const KeepFailed = 7 * 24 * time.Hour

// MaxFailed is how many of them are listed for each kind; more push out the oldest.
const MaxFailed = 1000

const (
	// claimFor is how long a claim lasts unless it is renewed, and so how long a job waits whose
	// server has ended in the middle of it.
	claimFor = time.Minute
	// lookEvery is how often jobs of other servers are looked for.
	lookEvery = 30 * time.Second
	// claimAgain is when a job that another server does is checked again, at the latest.
	claimAgain = 5 * time.Second
	// storeFor is how long the end of a job may take to be stored.
	storeFor = 10 * time.Second
)

// withDefaults returns the kind with its zero values replaced.
func (k Kind) withDefaults() Kind {
	k.Places = cmp.Or(k.Places, 4)
	k.Timeout = cmp.Or(k.Timeout, time.Minute)
	k.First, k.Longest = cmp.Or(k.First, 10*time.Second), cmp.Or(k.Longest, 30*time.Minute)
	return k
}

// final reports whether no further try can mend an error after so many.
func (k *Kind) final(err error, tries int) bool {
	return k.Tries > 0 && tries >= k.Tries || k.Final != nil && k.Final(err)
}
