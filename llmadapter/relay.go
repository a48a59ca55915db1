package llmadapter

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// readBuffer is how much of a response is read at once. Data that arrives together is passed on
	// together. A stream begins with firstBuffer, which is enough for single words and saves
	// memory. One that fills it continues with a buffer of readBuffer.
	readBuffer  = 8 << 10
	firstBuffer = 1 << 10
	// maxHeld is how much of an unfinished event is held back, so that a stream can be ended
	// between events. Longer events are passed on in pieces.
	maxHeld = 64 << 10
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

// Relay passes on one stream, byte for byte, and reads it on the side. It adds, removes and changes
// nothing but errors (see CleanError). What arrives together is written together and flushed at
// once.
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

	sse     SSE
	writing bool          // a write is in progress that is not in Record yet
	noted   chan struct{} // closed when it is; see Mute
	muted   bool          // nothing is written any more
	ended   bool
	torn    bool // the client has only a part of an event
}

// Run relays until the stream ends. It returns nil for a regular end, with [DONE], finish_reason or
// an error object, *WriteError if the client went away, ErrStream as StopOnError says, an error of
// Ending, ErrTruncated, or else the error of reading. With the last two the client has all whole
// events that were read before.
func (r *Relay) Run(src io.Reader) error {
	buf := make([]byte, firstBuffer)
	var large *[readBuffer]byte // of readBuffers; nil while buf is small
	defer func() {
		if large != nil {
			readBuffers.Put(large)
		}
	}()
	held := 0 // bytes at the start of buf that are not written yet
	for {
		n, err := src.Read(buf[held:])
		if n > 0 {
			whole, werr := r.read(buf[:held+n], held)
			if werr != nil {
				return werr
			}
			held += n
			if held-whole >= maxHeld {
				if werr := r.write(buf[:held]); werr != nil {
					return werr
				}
				whole, r.torn = held, true
			} else if whole > 0 {
				r.torn = false
			}
			full, rest := held == len(buf), buf[whole:held]
			switch {
			case full && large == nil: // a fast stream, or a long event
				large = readBuffers.Get().(*[readBuffer]byte)
				buf = large[:]
			case len(rest) == len(buf): // a longer event
				buf = make([]byte, 2*len(buf))
			}
			held = copy(buf, rest)
		}
		if err == io.EOF {
			return r.finish(buf[:held])
		}
		if err != nil {
			return err
		}
	}
}

// readBuffers holds buffers of streams that have ended.
var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// read parses what is new in b, from held on, and writes what is complete. It returns how much that
// was.
func (r *Relay) read(b []byte, held int) (int, error) {
	// The end of the last event, the start of [DONE], and whether to stop.
	last, done, stop := 0, -1, false
	data := false
	r.Mu.Lock()
	whole := r.sse.Feed(b[held:], func(ev []byte, end int) {
		if stop {
			return
		}
		data = true
		spoke, finished := r.Record.spoke, r.Record.Done
		r.Record.Chunk(ev)
		if r.StopOnError && r.Record.Error != nil && !spoke {
			stop = true
			return
		}
		if r.Record.Done && !finished {
			done = last
		}
		last = held + end
	})
	r.Mu.Unlock()
	if data && r.Alive != nil {
		r.Alive(&r.Record)
	}
	if stop {
		return 0, ErrStream
	}
	if whole == 0 {
		return 0, nil
	}
	whole += held
	if done < 0 {
		return whole, r.write(b[:whole])
	}
	if done > 0 {
		if err := r.write(b[:done]); err != nil {
			return 0, err
		}
	}
	if err := r.End(); err != nil {
		return 0, err
	}
	return whole, r.write(b[done:whole])
}

// finish passes on the rest of a stream that ended without a blank line, unless the answer is
// truncated: the client must not take a part of an event for one.
func (r *Relay) finish(rest []byte) error {
	r.Mu.Lock()
	r.sse.End(r.Record.Tail)
	ended := r.Record.Ended() || r.Record.Error != nil
	r.Mu.Unlock()
	if !ended {
		return ErrTruncated
	}
	if len(rest) > 0 {
		if err := r.write(rest); err != nil {
			return err
		}
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

// Torn reports whether the client has the beginning of an event without its end.
func (r *Relay) Torn() bool { return r.torn }

// write sends b and notes in Record that it was sent, unless the relay is muted.
func (r *Relay) write(b []byte) error {
	r.Mu.Lock()
	muted, failed := r.muted, r.Record.Error != nil
	r.writing = !muted
	r.Mu.Unlock()
	if muted {
		return nil
	}
	if failed && r.CleanError != nil {
		b = r.CleanError(b)
	}
	err := r.send(b)
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

// send writes b to the client, if there is one.
func (r *Relay) send(b []byte) error {
	if r.Out == nil {
		return nil
	}
	if _, err := r.Out.Write(b); err != nil {
		return err
	}
	return r.Out.Flush()
}
