package turn

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
)

// maxHeldBack is how many bytes of a stream are held back at most while its first data is awaited.
const maxHeldBack = 64 << 10

// maxWhole limits an answer in one piece, in bytes.
const maxWhole = 32 << 20

// errNoAnswer is a response in one piece that is not an answer.
var errNoAnswer = fault.New(fault.Upstream, "the LLM answered 200 with something that is not a chat completion")

// errNoWords is a stream that ended without a single chunk.
var errNoWords = fault.New(fault.Upstream, "the LLM's stream ended without an answer")

// awaitData reads a stream up to its first data event and puts back what it read. It fails for an
// error object that comes before any word, if another upstream may do better.
func (a *attempt) awaitData() error {
	var sse llmadapter.SSE
	var first *llmadapter.Record
	event := func(data []byte) {
		if head := (llmadapter.Record{}); first == nil {
			if head.Chunk(data); head.Begun() { // else it only says how the answer is to be spoken
				first = &head
			}
		}
	}
	buf := make([]byte, 0, 1<<10)
	for first == nil && len(buf) < maxHeldBack {
		buf = slices.Grow(buf, 1<<10)
		n, err := a.res.Body.Read(buf[len(buf):cap(buf)])
		sse.Feed(buf[len(buf):len(buf)+n], func(data []byte, _ int) { event(data) })
		buf = buf[:len(buf)+n]
		if err == nil {
			continue
		}
		sse.End(event)
		if first != nil {
			break // the relay meets the same error again
		}
		if context.Cause(a.ctx) == nil && errors.Is(err, io.EOF) {
			return errNoWords
		}
		return llmadapter.ReadFault(a.ctx, err)
	}
	if err := a.errorObject(first); err != nil {
		return err
	}
	a.res.Body = &prefixed{a.res.Body, buf}
	return nil
}

// awaitWhole reads an answer in one piece and puts it back. It fails if it is not an answer, or an
// error object where another upstream may do better.
func (a *attempt) awaitWhole() error {
	body, err := a.readWhole()
	if err != nil {
		return err
	}
	var rec llmadapter.Record
	if !rec.Unary(body) {
		return errNoAnswer
	}
	if err := a.errorObject(&rec); err != nil {
		return err
	}
	a.res.ContentLength = int64(len(body))
	a.res.Body = &prefixed{a.res.Body, body}
	return nil
}

// errorObject returns the error of a record that begins with an error object, if another upstream
// may do better. rec may be nil.
func (a *attempt) errorObject(rec *llmadapter.Record) error {
	if rec == nil || rec.Error == nil || rec.Spoke() {
		return nil
	}
	if err := a.streamFault(rec.Error); troubleAfter2xx(err).FallsOver() {
		return err
	}
	return nil
}

// readWhole reads the response's body.
func (a *attempt) readWhole() ([]byte, error) {
	body, err := readWhole(a.res)
	if err != nil && !fault.Is(err, fault.Upstream) {
		err = llmadapter.ReadFault(a.ctx, err)
	}
	return body, err
}

// readWhole reads a body of at most maxWhole bytes, at once if its length is known.
func readWhole(res *http.Response) ([]byte, error) {
	if res.ContentLength > maxWhole {
		return nil, tooLarge(maxWhole)
	}
	if res.ContentLength >= 0 {
		body := make([]byte, res.ContentLength)
		_, err := io.ReadFull(res.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxWhole+1))
	if err == nil && len(body) > maxWhole {
		return nil, tooLarge(maxWhole)
	}
	return body, err
}

func tooLarge(limit int) error {
	return fault.New(fault.Upstream, "the LLM's answer is larger than %d bytes", limit)
}

// prefixed is a body whose beginning was read before.
type prefixed struct {
	io.ReadCloser
	head []byte
}

// Read implements io.Reader.
func (p *prefixed) Read(b []byte) (int, error) {
	if p.head == nil {
		return p.ReadCloser.Read(b)
	}
	n := copy(b, p.head)
	if p.head = p.head[n:]; len(p.head) == 0 {
		p.head = nil
	}
	return n, nil
}
