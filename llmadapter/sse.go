package llmadapter

import "bytes"

// MaxEvent is how many bytes of data one event may hold for us to read it. A larger event is passed on like any other;
// only the side parse skips it.
const MaxEvent = 4 << 20

// SSE reads server-sent events from bytes as they come, split anywhere. It takes what real servers send: LF, CRLF and CR,
// comments, data of many lines, no space behind the colon, a byte order mark, no blank line at the end. The zero value is
// ready to use.
type SSE struct {
	line    []byte // what is there of an unfinished line
	lineLen int    // how long the unfinished line is, what was not kept included
	data    []byte // the data of the event so far
	hasData bool   // the event has a data field
	skip    bool   // the event is too large to be read
	cr      bool   // the last byte was a CR, so that an LF belongs to it
	begun   bool   // the first line was seen
}

// Feed reads the next bytes and calls event with the data of each event that they complete, and with the offset in b just
// behind it. The data is valid until event returns. It gives the offset behind the last byte of b up to which no event is
// cut: what stands before it can go on to a client that may then be told something else; 0 if there is no such place.
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

// End reads what an upstream left that closed without a blank line.
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

// idle tells whether nothing of an event's data is pending, and no line is.
func (p *SSE) idle() bool { return !p.hasData && !p.skip }

// keep holds an unfinished line, within MaxEvent.
func (p *SSE) keep(b []byte) {
	p.lineLen += len(b)
	if p.skip {
		return
	}
	if len(p.line)+len(p.data)+len(b) > MaxEvent {
		p.skip, p.line, p.data = true, nil, nil
		return
	}
	p.line = append(p.line, b...)
}

// take reads one line without its end and tells whether it completes an event. some is false for a blank line.
func (p *SSE) take(line []byte, some bool) bool {
	if !p.begun {
		p.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		some = len(line) > 0
	}
	if !some {
		if p.skip || !p.hasData {
			p.clear()
			return false
		}
		return true
	}
	if p.skip || !bytes.HasPrefix(line, []byte("data")) {
		return false
	}
	v := line[4:]
	switch {
	case len(v) == 0: // "data" alone is a field with an empty value
	case v[0] != ':':
		return false // another field whose name begins alike
	default:
		v = bytes.TrimPrefix(v[1:], []byte(" "))
	}
	if p.hasData {
		p.data = append(p.data, '\n')
	}
	p.hasData = true
	if len(p.data)+len(v) > MaxEvent {
		p.skip, p.data = true, nil
		return false
	}
	p.data = append(p.data, v...)
	return false
}

// clear forgets the event; a large one's memory goes back, since a stream may live long.
func (p *SSE) clear() {
	p.hasData, p.skip, p.data = false, false, p.data[:0]
	if cap(p.data) > 64<<10 {
		p.data = nil
	}
	if cap(p.line) > 64<<10 {
		p.line = nil
	}
}

// lineEnd finds the end of the line that begins at i: where it ends and where the next begins; -1 if it is not there yet.
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
