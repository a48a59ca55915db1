package llmadapter

import (
	"bufio"
	"errors"
	"io"
)

// What may stand around the data of a chunked body: extensions of one chunk, and the trailer; in bytes.
const (
	maxChunkLine = 4 << 10
	maxTrailer   = 8 << 10
)

var errChunked = errors.New("the answer's chunked encoding is malformed")

// chunked reads a body in chunks (RFC 9112, 7.1). Unlike net/http's it needs no buffer between two chunks, and takes all that has come in
// one Read. The trailer is passed over.
type chunked struct {
	head *bufio.Reader // what was read together with the head; nil once that is over
	in   *inflow
	at   chunkPart
	left uint64 // of the chunk
	line int    // bytes of the line, or of the trailer, so far
	text bool   // the trailer's line is not empty
}

// chunkPart is where in the encoding the next byte stands.
type chunkPart int

const (
	chunkSize chunkPart = iota
	chunkExtension
	chunkSizeEnd // the line feed behind the size
	chunkData
	chunkDataCR
	chunkDataLF
	chunkTrailer
	chunkOver
)

// Read implements io.Reader. It waits only for the first byte.
func (c *chunked) Read(p []byte) (int, error) {
	n := 0
	for c.at != chunkOver && n < len(p) {
		b, err := c.peek(n == 0)
		if err != nil {
			return n, noEOF(err)
		}
		if len(b) == 0 {
			return n, nil
		}
		if c.at == chunkData {
			k := copy(p[n:], b[:min(uint64(len(b)), c.left)])
			n += k
			if c.left -= uint64(k); c.left == 0 {
				c.at = chunkDataCR
			}
			c.took(k)
			continue
		}
		k, err := c.around(b)
		c.took(k)
		if err != nil {
			return n, err
		}
	}
	if c.at == chunkOver {
		return n, io.EOF
	}
	return n, nil
}

// around reads what stands between data, and gives how much of b that was.
func (c *chunked) around(b []byte) (int, error) {
	for i, ch := range b {
		if c.at == chunkData || c.at == chunkOver {
			return i, nil
		}
		if !c.step(ch) {
			return i, errChunked
		}
	}
	return len(b), nil
}

// step takes one byte that is no data; false if it cannot stand there.
func (c *chunked) step(ch byte) bool {
	switch c.at {
	case chunkSize:
		return c.digit(ch)
	case chunkExtension:
		c.line++
		if ch == '\n' {
			c.sized()
		}
		return c.line <= maxChunkLine
	case chunkSizeEnd:
		c.sized()
		return ch == '\n'
	case chunkDataCR:
		c.at = chunkDataLF
		return ch == '\r'
	case chunkDataLF:
		c.at = chunkSize
		return ch == '\n'
	default: // the trailer ends with an empty line
		c.line++
		switch {
		case ch != '\n':
			c.text = c.text || ch != '\r'
		case c.text:
			c.text = false
		default:
			c.at = chunkOver
		}
		return c.line <= maxTrailer
	}
}

// digit takes a byte of the size, or what ends it.
func (c *chunked) digit(ch byte) bool {
	v := -1
	switch {
	case ch >= '0' && ch <= '9':
		v = int(ch - '0')
	case ch >= 'a' && ch <= 'f':
		v = int(ch-'a') + 10
	case ch >= 'A' && ch <= 'F':
		v = int(ch-'A') + 10
	}
	switch {
	case v >= 0:
		c.line++
		c.left = c.left<<4 | uint64(v)
		return c.line <= 15 // more is no size
	case c.line == 0:
		return false // no size at all
	case ch == '\r':
		c.at = chunkSizeEnd
	case ch == '\n':
		c.sized()
	case ch == ';' || ch == ' ' || ch == '\t':
		c.at = chunkExtension
	default:
		return false
	}
	return true
}

// sized ends the line of a size.
func (c *chunked) sized() {
	c.at, c.line = chunkData, 0
	if c.left == 0 {
		c.at = chunkTrailer
	}
}

// peek gives what has come, and waits for it if it may.
func (c *chunked) peek(wait bool) ([]byte, error) {
	if c.head != nil {
		if n := c.head.Buffered(); n > 0 {
			return c.head.Peek(n)
		}
		free(c.head)
		c.head = nil
	}
	if len(c.in.rest) == 0 {
		if !wait {
			return nil, nil
		}
		if err := c.in.fill(); err != nil {
			return nil, err
		}
	}
	return c.in.rest, nil
}

func (c *chunked) took(n int) {
	if c.head != nil {
		_, _ = c.head.Discard(n) // it has them
		return
	}
	c.in.took(n)
}

// free gives a reader back to heads.
func free(br *bufio.Reader) {
	br.Reset(nil)
	heads.Put(br)
}
