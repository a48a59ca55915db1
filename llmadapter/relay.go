package llmadapter

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// readBuffer is what is read of an upstream at once; what has arrived together goes on together. A stream begins with
	// firstBuffer, which is enough for one that speaks word by word: a thousand of them wait most of their time.
	readBuffer  = 8 << 10
	firstBuffer = 1 << 10
	// maxHeld is how much of an unfinished event is held back, so that a stream can be ended between events. What is
	// longer goes on in pieces.
	maxHeld = 64 << 10
)

// Grace is how long an upstream may still send after finish_reason, and after [DONE], before its silence counts as the end.
const (
	FinishGrace = 2 * time.Second
	DoneGrace   = 200 * time.Millisecond
)

// StreamWriter is where a stream goes. Write and Flush are called by one goroutine at a time.
type StreamWriter interface {
	io.Writer
	// Flush sends what was written; an error means that it did not reach the socket.
	Flush() error
}

// WriteError is a client that could not be written to: it went away or reads too slowly.
type WriteError struct{ Err error }

// Error gives the text.
func (e *WriteError) Error() string { return "write to the client: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// ErrStream is an error object that the upstream sent inside the stream; Record.Error holds it.
var ErrStream = errors.New("the upstream reported an error inside the stream")

// Relay passes one stream on, byte for byte, and reads it on the side. Nothing is added to it, taken out, split or renamed
// (reference/proxies.md rule 5); what arrived together is written together and flushed at once.
type Relay struct {
	// Out is the client; nil for an answer that nobody listens to, which then counts as sent.
	Out StreamWriter
	Now func() time.Time
	// Alive is told of every data event (not of comments), before it is written; the last one says so with final.
	Alive func(r *Record)
	// Flushed is told after each write that reached the client.
	Flushed func()
	// Ending is called once, when all but [DONE] has been written and flushed, or the stream ended cleanly without it: the
	// answer can be stored before the client is told that it is complete. Its error ends Run in place of [DONE].
	Ending func() error
	// StopOnError makes Run return ErrStream instead of passing on an error object that comes before any word was said.
	StopOnError bool
	// Lock guards Record, where someone else reads it while Run is at work; nil if nobody does.
	Lock sync.Locker

	Record Record

	sse     SSE
	writing bool          // a write is under way that is not in Record yet
	noted   chan struct{} // closed when it is; nil if nobody waits for that
	muted   bool          // nothing is written any more
	ended   bool
	torn    bool // the client has the beginning of an event
}

// buffers has no state but reusable memory.
var buffers = sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }}

// Run relays until the stream ends. nil is a clean end, with or without [DONE]; a *WriteError is a client that went away;
// ErrStream see StopOnError; anything else is what reading failed with, the client having got all that came before.
func (r *Relay) Run(src io.Reader) error {
	buf := make([]byte, firstBuffer)
	var ref *[]byte
	defer func() {
		if ref != nil {
			buffers.Put(ref)
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
			full := held == len(buf)
			held = copy(buf, buf[whole:held])
			switch {
			case full && ref == nil: // a fast stream, or a long event
				ref = buffers.Get().(*[]byte)
				copy(*ref, buf[:held])
				buf = *ref
			case held == len(buf):
				buf = append(buf, make([]byte, len(buf))...)
			}
		}
		if err == io.EOF {
			return r.finish(buf[:held])
		}
		if err != nil {
			return err
		}
	}
}

// read parses what is new in b (from held on), writes what is whole and gives how much that was.
func (r *Relay) read(b []byte, held int) (int, error) {
	last, done, stop := 0, -1, false // last: where the last event ends; done: where [DONE] begins
	data := false
	r.lock()
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
	r.unlock()
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

// finish passes on what an upstream left behind that closed without a blank line.
func (r *Relay) finish(rest []byte) error {
	r.lock()
	r.sse.End(func(ev []byte) { r.Record.Chunk(ev) })
	r.unlock()
	if len(rest) > 0 {
		if err := r.write(rest); err != nil {
			return err
		}
	}
	return r.End()
}

// End calls Ending if it was not called yet, for a stream that ends in another way than by its last byte.
func (r *Relay) End() error {
	if r.ended || r.Ending == nil {
		return nil
	}
	r.ended = true
	return r.Ending()
}

// Mute ends all writing: the client is gone, the rest is only read. A write that is under way may still reach the client, who
// may even have left because of what it said: the channel is closed once Record has its outcome, at once if there is none. It is
// called once, with Lock held.
func (r *Relay) Mute() <-chan struct{} {
	r.muted, r.noted = true, make(chan struct{})
	if !r.writing {
		close(r.noted)
	}
	return r.noted
}

// Torn tells that the client has the beginning of an event without its end.
func (r *Relay) Torn() bool { return r.torn }

func (r *Relay) write(b []byte) error {
	r.lock()
	muted := r.muted
	r.writing = !muted
	r.unlock()
	if muted {
		return nil
	}
	err := r.send(b)
	r.lock()
	if r.writing = false; err == nil {
		r.Record.flushed(r.Now)
	}
	if r.muted {
		close(r.noted)
	}
	r.unlock()
	if err != nil {
		return &WriteError{err}
	}
	if r.Flushed != nil {
		r.Flushed()
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

func (r *Relay) lock() {
	if r.Lock != nil {
		r.Lock.Lock()
	}
}

func (r *Relay) unlock() {
	if r.Lock != nil {
		r.Lock.Unlock()
	}
}
