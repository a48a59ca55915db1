package llmadapter

import (
	"bytes"
	"io"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
)

// MaxEvent limits one event of a stream, in bytes. It has room for a picture or a sound that an LLM
// sends in one piece.
const MaxEvent = 32 << 20

// errLongEvent is what a stream with a longer event ends with.
var errLongEvent = fault.New(fault.Upstream, "the LLM sent an event of more than %d bytes", MaxEvent)

const (
	// readBuffer is how much of a stream is read at once. Data that arrives together is passed on
	// together. A stream begins with firstBuffer, which is enough for single words and saves
	// memory.
	readBuffer  = 8 << 10
	firstBuffer = 1 << 10
	// keptBuffer limits the buffer that a stream keeps once a long event has been passed on.
	keptBuffer = 64 << 10
)

// Event is one event of a stream, or what stands between two of them.
type Event struct {
	Raw  []byte // as it came, with its blank line; empty for nothing to be passed on
	Data []byte // nil if it has none: a comment
	Torn bool   // the stream ended within it; Data is set if it is whole all the same
}

// Source is a stream of events, or a stage of one. Next returns those that came together, perhaps
// together with an error; io.EOF is the stream's end. They are valid until the next call.
type Source interface {
	Next() ([]Event, error)
}

// Events divides a stream into server-sent events as the HTML standard defines them. It accepts
// what real servers send: LF, CRLF and CR, comments, data of several lines, no space after the
// colon, a byte order mark, and no blank line at the end.
type Events struct {
	src io.Reader // nil if Feed is used
	buf []byte    // what was read, without the events that Next has returned
	err error     // of reading

	from int // where in buf the event begins that is not complete
	// What follows counts from there.
	line, seen int    // where its last line begins, and how far that was searched for its end
	data       span   // its data, if it has one line of it
	lines      []byte // its data, if it has several lines of it
	hasData    bool
	hasField   bool // a line other than a comment was read

	cr     bool // the last byte was a CR; an LF after it belongs to it
	inside bool // the first line was read
	ready  []Event
	given  bool // Next has returned ready
}

type span struct{ from, to int }

// NewEvents returns the events of a stream.
func NewEvents(src io.Reader) *Events { return &Events{src: src} }

// Next implements Source. An event of more than MaxEvent bytes ends the stream with an error.
func (e *Events) Next() ([]Event, error) {
	e.forget()
	for len(e.ready) == 0 && e.err == nil {
		e.read()
	}
	e.given = true
	return e.ready, e.err
}

// Peek reads more of the stream, and returns all that Next will return.
func (e *Events) Peek() ([]Event, error) {
	e.forget()
	if e.err == nil {
		e.read()
	}
	return e.ready, e.err
}

// Feed returns the events that b completes, of a stream that is not read but arrives.
func (e *Events) Feed(b []byte) []Event {
	e.forget()
	e.buf = append(e.buf, b...)
	e.frame()
	e.given = true
	return e.ready
}

// End returns the last event of a stream that arrived, if it has no blank line after it.
func (e *Events) End() []Event {
	e.forget()
	e.end()
	return e.ready
}

// forget makes room for what comes after the events that were returned.
func (e *Events) forget() {
	if !e.given {
		return
	}
	e.given, e.ready = false, e.ready[:0]
	rest := e.buf[e.from:]
	fast := len(e.buf) == cap(e.buf) && cap(e.buf) < readBuffer
	if (fast || cap(e.buf) > keptBuffer) && len(rest) < readBuffer {
		e.buf = make([]byte, readBuffer)
	}
	e.buf, e.from = e.buf[:copy(e.buf[:cap(e.buf)], rest)], 0
}

// read reads once.
func (e *Events) read() {
	if len(e.buf) == cap(e.buf) {
		e.buf = append(make([]byte, 0, max(firstBuffer, 2*cap(e.buf))), e.buf...)
	}
	n, err := e.src.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf = e.buf[:len(e.buf)+n]
	e.frame()
	switch {
	case len(e.buf)-e.from > MaxEvent:
		e.err = errLongEvent
	case err == io.EOF: //nolint:errorlint // the end itself, not an end within something
		e.end()
		e.err = err
	default:
		e.err = err
	}
}

// frame finds the events in what was read.
func (e *Events) frame() {
	for {
		b := e.buf[e.from:]
		if e.cr && e.line < len(b) {
			if e.cr = false; b[e.line] == '\n' {
				e.line++
			}
		}
		end, next := lineEnd(b, max(e.line, e.seen))
		if end < 0 {
			e.seen = len(b)
			return
		}
		e.cr = next == len(b) && b[next-1] == '\r'
		from := e.line
		e.line = next
		switch line := e.trim(b[from:end]); {
		case len(line) == 0, line[0] == ':' && !e.hasField:
			e.add(Event{Raw: b[:next:next]})
		default:
			e.field(line, end)
		}
	}
}

// trim returns a line without the byte order mark that a stream may begin with.
func (e *Events) trim(line []byte) []byte {
	if !e.inside {
		e.inside = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	return line
}

// field reads a line that ends at an offset.
func (e *Events) field(line []byte, end int) {
	e.hasField = true
	v, ok := bytes.CutPrefix(line, []byte("data"))
	switch {
	case !ok, len(v) > 0 && v[0] != ':': // another field, perhaps one whose name begins with data
		return
	case len(v) > 0:
		v = bytes.TrimPrefix(v[1:], []byte(" "))
	}
	if e.hasData {
		if e.lines == nil {
			e.lines = bytes.Clone(e.buf[e.from+e.data.from : e.from+e.data.to])
		}
		e.lines = append(append(e.lines, '\n'), v...)
		return
	}
	e.hasData, e.data = true, span{end - len(v), end}
}

// add adds an event with the data that was read.
func (e *Events) add(ev Event) {
	switch {
	case e.lines != nil:
		ev.Data = e.lines
	case e.hasData:
		ev.Data = ev.Raw[e.data.from:e.data.to:e.data.to]
	}
	e.ready = append(e.ready, ev)
	e.from += len(ev.Raw)
	e.line, e.seen, e.lines, e.hasData, e.hasField = 0, 0, nil, false, false
}

// end adds the rest of a stream that has ended. Its data counts if it is whole: the stream may have
// broken off within it.
func (e *Events) end() {
	rest := e.buf[e.from:]
	if len(rest) == 0 {
		return
	}
	if e.line < len(rest) {
		e.field(e.trim(rest[e.line:]), len(rest))
	}
	e.add(Event{Raw: rest, Torn: true})
	last := &e.ready[len(e.ready)-1]
	if len(last.Data) > 0 && last.Data[0] == '{' && !peek.Valid(last.Data) {
		last.Data = nil
	}
}

// lineEnd returns the end of the line in which i stands and the start of the next, or -1 if it is
// not complete.
func lineEnd(b []byte, i int) (end, next int) {
	rest := b[i:]
	n := bytes.IndexByte(rest, '\n')
	if n >= 0 {
		rest = rest[:n]
	}
	if r := bytes.IndexByte(rest, '\r'); r >= 0 {
		if n >= 0 && r == n-1 {
			return i + r, i + n + 1
		}
		return i + r, i + r + 1
	}
	if n < 0 {
		return -1, -1
	}
	return i + n, i + n + 1
}
