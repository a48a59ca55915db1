package llmadapter

import (
	"errors"
	"io"
	"sync"
	"time"
)

// How long an upstream may be silent after finish_reason, and after [DONE], before the stream is
// ended.
const (
	FinishGrace = 2 * time.Second
	DoneGrace   = 200 * time.Millisecond
)

// StreamWriter is the destination of a stream. One goroutine at a time calls Write and Flush.
type StreamWriter interface {
	io.Writer
	// Flush sends what was written. An error means that it did not reach the socket.
	Flush() error
}

// WriteError is a failure to write to the client: it went away or reads too slowly.
type WriteError struct{ Err error }

// Error returns the text of the cause.
func (e *WriteError) Error() string { return "write to the client: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// ErrStream means that the upstream sent an error object inside the stream; Record.Error holds it.
var ErrStream = errors.New("the upstream reported an error inside the stream")

// ErrTruncated means that the stream ended before the upstream marked the end of the answer.
var ErrTruncated = errors.New("the stream ended without finish_reason and without [DONE]")

// Relay passes on the events of one stream, byte for byte, and records them. It adds, removes and
// changes nothing but errors (see CleanError). What arrives together is written together and
// flushed at once.
type Relay struct {
	// Out is the client. Without one, all that is read counts as sent.
	Out StreamWriter
	Now func() time.Time
	// Alive is called after data events (not comments) were read, before they are written.
	Alive func(r *Record)
	// Ending is called once, when all but [DONE] has been written and flushed, or the stream ended
	// without it after a finish_reason or an error object: the answer can be stored before the
	// client learns that it is complete. An error of Ending ends Run, without [DONE].
	Ending func() error
	// StopOnError makes Run return ErrStream instead of passing on an error object that comes
	// before any word.
	StopOnError bool
	// CleanError, if set, replaces what is passed on once an error object was read.
	CleanError func([]byte) []byte

	// Mu guards Record, which other goroutines may read during Run.
	Mu     sync.Mutex
	Record Record

	writing bool          // a write is in progress that is not in Record yet
	noted   chan struct{} // closed when it is; see Mute
	muted   bool          // nothing is written any more
	ended   bool
}

// Run relays until the stream ends. It returns nil for a regular end, with [DONE], finish_reason or
// an error object, *WriteError if the client went away, ErrStream as StopOnError says, an error of
// Ending, ErrTruncated, or else the error of reading. With the last two the client has all whole
// events that were read before.
func (r *Relay) Run(src Source) error {
	for {
		events, err := src.Next()
		if werr := r.pass(events); werr != nil {
			return werr
		}
		switch {
		case err == io.EOF: //nolint:errorlint // the end itself, not an end within something
			return r.finish()
		case err != nil:
			return err
		}
	}
}

// pass records events that came together, and writes them. What is torn is not written unless the
// answer has ended: the client must not take a part of an event for one.
func (r *Relay) pass(events []Event) error {
	data, stop := false, false
	done := len(events) // the index of [DONE]
	r.Mu.Lock()
	for i := range events {
		e := &events[i]
		data = data || e.Data != nil
		spoke, finished := r.Record.spoke, r.Record.Done
		r.Record.Chunk(e.Data)
		if stop = r.StopOnError && r.Record.Error != nil && !spoke; stop {
			break
		}
		if r.Record.Done && !finished {
			done = i
		}
		if e.Torn && !r.ending() {
			events = events[:i]
			done = min(done, i)
		}
	}
	r.Mu.Unlock()
	if data && r.Alive != nil {
		r.Alive(&r.Record)
	}
	if stop {
		return ErrStream
	}
	if err := r.write(events[:done]); err != nil || done == len(events) {
		return err
	}
	if err := r.End(); err != nil {
		return err
	}
	return r.write(events[done:])
}

// ending reports whether the upstream has said how the answer ended. Mu is held.
func (r *Relay) ending() bool { return r.Record.Ended() || r.Record.Error != nil }

// finish ends a stream that was read to its end.
func (r *Relay) finish() error {
	r.Mu.Lock()
	ended := r.ending()
	r.Mu.Unlock()
	if !ended {
		return ErrTruncated
	}
	return r.End()
}

// End calls Ending if it was not called yet. It is for streams that do not end with their last
// byte.
func (r *Relay) End() error {
	if r.ended || r.Ending == nil {
		return nil
	}
	r.ended = true
	return r.Ending()
}

// Mute ends all writing: the client is gone, and the rest is only read. A write in progress may
// still reach the client; the returned channel is closed once Record includes it. Mute is called
// once, with Mu held.
func (r *Relay) Mute() <-chan struct{} {
	r.muted, r.noted = true, make(chan struct{})
	if !r.writing {
		close(r.noted)
	}
	return r.noted
}

// write sends events and notes in Record that they were sent, unless the relay is muted.
func (r *Relay) write(events []Event) error {
	if len(events) == 0 {
		return nil
	}
	r.Mu.Lock()
	muted, failed := r.muted, r.Record.Error != nil
	r.writing = !muted
	r.Mu.Unlock()
	if muted {
		return nil
	}
	err := r.send(events, failed && r.CleanError != nil)
	r.Mu.Lock()
	if r.writing = false; err == nil {
		r.Record.flushed(r.Now)
	}
	if r.muted {
		close(r.noted)
	}
	r.Mu.Unlock()
	if err != nil {
		return &WriteError{err}
	}
	return nil
}

// send writes events to the client, if there is one.
func (r *Relay) send(events []Event, clean bool) error {
	if r.Out == nil {
		return nil
	}
	for i := range events {
		b := events[i].Raw
		if clean {
			b = r.CleanError(b)
		}
		if _, err := r.Out.Write(b); err != nil {
			return err
		}
	}
	return r.Out.Flush()
}
