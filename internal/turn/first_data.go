package turn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
)

// maxHeldBack is how many bytes of events are held back at most while a stream's answer is awaited.
const maxHeldBack = 64 << 10

// maxWhole limits an answer in one piece, in bytes.
const maxWhole = 32 << 20

// noAnswer returns the error for a 200 in one piece that is not an answer: JSON that broke off, or
// anything else.
func noAnswer(body []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) && !json.Valid(body) {
		return fault.Wrap(fault.UpstreamTruncated, io.ErrUnexpectedEOF, "the LLM broke off its answer")
	}
	return fault.New(fault.Upstream, "the LLM answered 200 with something that is not a chat completion")
}

// errNoWords is an answer without words, tool calls and thoughts.
var errNoWords = fault.New(fault.Upstream, "the LLM's answer is empty")

// awaitData waits until a stream's answer begins. It fails for an answer that ends without words,
// and for an error object that comes before any word if another upstream may do better.
func (a *attempt) awaitData() error {
	var head llmadapter.Record
	for read, held := 0, 0; !head.Begun() && held < maxHeldBack; {
		events, err := a.events.Peek()
		for _, e := range events[read:] {
			held += len(e.Raw)
			head.Chunk(e.Data)
		}
		switch read = len(events); {
		case err == nil || head.Begun(): // the relay meets the same error again
		case context.Cause(a.ctx) == nil && errors.Is(err, io.EOF):
			return errNoWords
		default:
			return llmadapter.ReadFault(a.ctx, err)
		}
	}
	return a.refused(&head)
}

// awaitWhole reads an answer in one piece and puts it back. It fails if it is not an answer or
// empty, or for an error object where another upstream may do better.
func (a *attempt) awaitWhole() error {
	var rec llmadapter.Record
	body, err := a.readUnary(&rec)
	if err != nil {
		return err
	}
	if err := a.refused(&rec); err != nil {
		return err
	}
	a.res.ContentLength = int64(len(body))
	a.res.Body = putBack(body, a.res.Body)
	return nil
}

// refused returns the error of an answer that ended before it began: with an error object, if
// another upstream may do better, or without words.
func (a *attempt) refused(rec *llmadapter.Record) error {
	switch {
	case !rec.Empty():
		return nil
	case rec.Error == nil && rec.Ended():
		return errNoWords
	case rec.Error == nil:
		return nil
	}
	if err := a.streamFault(rec.Error); troubleAfter2xx(err).FallsOver() {
		return err
	}
	return nil
}

// readUnary reads an answer in one piece into rec.
func (a *attempt) readUnary(rec *llmadapter.Record) ([]byte, error) {
	body, err := a.readWhole()
	if err == nil && !rec.Unary(body) {
		err = noAnswer(body)
	}
	return body, err
}

// readWhole reads the response's body.
func (a *attempt) readWhole() ([]byte, error) {
	body, err := readWhole(a.res)
	if err != nil && !fault.Is(err, fault.Upstream) {
		err = llmadapter.ReadFault(a.ctx, err)
	}
	return body, err
}

// readWhole reads a body of at most maxWhole bytes.
func readWhole(res *http.Response) ([]byte, error) {
	if n := res.ContentLength; n > 0 && n <= knownWhole {
		body := make([]byte, n)
		read, err := io.ReadFull(res.Body, body)
		return body[:read], err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxWhole+1))
	if err == nil && len(body) > maxWhole {
		return nil, tooLarge(maxWhole)
	}
	return body, err
}

// knownWhole is the longest body for which memory is taken before it is read.
const knownWhole = 64 << 10

func tooLarge(limit int) error {
	return fault.New(fault.Upstream, "the LLM's answer is larger than %d bytes", limit)
}

// putBack returns a body whose beginning was read before.
func putBack(head []byte, body io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), body), body}
}
