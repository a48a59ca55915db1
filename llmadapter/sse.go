package llmadapter

import "bytes"

// MaxEvent limits the data of an event that is read, in bytes: the first ones of a larger event. It
// has room for the JSON around a text of MaxAnswer bytes.
const MaxEvent = MaxAnswer + 64<<10

// SSE parses server-sent events from pieces of a stream. It accepts what real servers send: LF,
// CRLF and CR, comments, data of several lines, no space after the colon, a byte order mark, and no
// blank line at the end. The zero value is ready to use.
type SSE struct {
	line    []byte // the beginning of an unfinished line
	lineLen int    // length of the unfinished line, including what was cut
	data    []byte // the data of the event so far
	hasData bool   // the event has a data field
	cr      bool   // the last byte was a CR; an LF after it belongs to it
	begun   bool   // the first line was read
}

// Feed parses the next bytes. It calls event with the data of each event that they complete, which
// is valid until event returns, and with the offset after the event in b. Feed returns the largest
// offset in b that does not split an event, or 0: after the bytes before it something else may be
// written.
func (p *SSE) Feed(b []byte, event func(data []byte, end int)) (whole int) {
	i := 0
	if p.cr && len(b) > 0 {
		p.cr = false
		if b[0] == '\n' {
			i = 1
			if p.idle() {
				whole = 1
			}
		}
	}
	for i < len(b) {
		end, next := lineEnd(b, i)
		if end < 0 {
			p.keep(b[i:])
			break
		}
		p.cr = next == len(b) && b[next-1] == '\r'
		line := b[i:end]
		if p.lineLen > 0 {
			p.keep(line)
			line = p.line
		}
		if p.take(line, p.lineLen > 0 || len(line) > 0) {
			event(p.data, next)
			p.clear()
		}
		p.line, p.lineLen = p.line[:0], 0
		i = next
		if p.idle() {
			whole = i
		}
	}
	return whole
}

// End parses the rest of a stream that ended without a blank line.
func (p *SSE) End(event func(data []byte)) {
	if p.lineLen > 0 {
		p.take(p.line, true)
		p.line, p.lineLen = p.line[:0], 0
	}
	if p.take(nil, false) {
		event(p.data)
		p.clear()
	}
}

// idle reports whether no event has begun.
func (p *SSE) idle() bool { return !p.hasData }

// maxLine limits the unfinished line and the data before it, which together fill an event. It has
// room for what precedes the data in the line.
const maxLine = MaxEvent + 16

// keep stores an unfinished line, up to maxLine.
func (p *SSE) keep(b []byte) {
	p.lineLen += len(b)
	p.line = append(p.line, b[:min(len(b), max(0, maxLine-len(p.line)-len(p.data)))]...)
}

// take parses one line without its end, and reports whether it completes an event. some is false
// for a blank line.
func (p *SSE) take(line []byte, some bool) bool {
	if !p.begun {
		p.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		some = len(line) > 0
	}
	if !some {
		return p.hasData
	}
	if !bytes.HasPrefix(line, []byte("data")) {
		return false
	}
	v := line[4:]
	switch {
	case len(v) == 0: // "data" alone is a field with an empty value
	case v[0] != ':':
		return false // another field whose name begins with data
	default:
		v = bytes.TrimPrefix(v[1:], []byte(" "))
	}
	if p.hasData && len(p.data) < MaxEvent {
		p.data = append(p.data, '\n')
	}
	p.hasData = true
	p.data = append(p.data, v[:min(len(v), max(0, MaxEvent-len(p.data)))]...)
	return false
}

// clear removes the event. It frees the memory of a large one, since a stream may live long.
func (p *SSE) clear() {
	p.hasData, p.data = false, p.data[:0]
	if cap(p.data) > 64<<10 {
		p.data = nil
	}
	if cap(p.line) > 64<<10 {
		p.line = nil
	}
}

// lineEnd returns the end of the line that begins at i and the start of the next, or -1 if the line
// is not complete.
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
