package turn

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
)

// maxWhole is how large an answer in one piece may be.
const maxWhole = 32 << 20

// errNoAnswer is an answer in one piece that is none.
var errNoAnswer = fault.New(fault.Upstream, "the LLM answered 200 with something that is no chat completion")

// relayWhole passes on an answer that comes in one piece, unchanged. It is stored before the client gets it.
func (x *exchange) relayWhole(a *attempt) error {
	res := a.res
	body, err := readWhole(res)
	if err != nil {
		if fault.Is(err, fault.Upstream) {
			return x.fail(err)
		}
		return x.fail(llmadapter.ReadFault(a.ctx, err))
	}
	x.mu.Lock()
	rec := &x.relay.Record
	isAnswer := rec.Unary(body)
	broken := rec.Error
	drained := x.drained
	x.mu.Unlock()
	switch {
	case !isAnswer:
		x.unanswered(errNoAnswer)
	case broken != nil:
		x.unanswered(x.streamFault(broken))
	default:
		x.answered(a)
	}
	if drained {
		return fault.New(fault.Canceled, "the client went away")
	}
	if !isAnswer {
		return x.fail(errNoAnswer)
	}
	if broken != nil && x.failureText() != "" {
		return x.fail(x.streamFault(broken))
	}
	x.mu.Lock()
	if !x.settling { // else the client went away while we read
		rec.Delivered(x.cfg.Now())
	}
	x.mu.Unlock()
	if err := x.settleEnd(); err != nil {
		return x.failStored(err)
	}
	if x.w == nil {
		return nil
	}
	if x.filler.end(); x.out != nil { // a filler has begun a stream
		return x.wholeAsStream()
	}
	h := x.w.Header()
	if typ := res.Header.Get("Content-Type"); typ != "" {
		h.Set("Content-Type", typ)
	}
	rateLimits(h, res.Header)
	x.writeBody(body)
	return nil
}

// wholeAsStream gives an answer that came in one piece, although a stream was asked for, to a client whose stream has begun. A tool call has no such form.
func (x *exchange) wholeAsStream() error {
	rec := &x.relay.Record
	if rec.Calls() {
		err := fault.New(fault.Upstream, "the LLM called a tool without a stream, behind a filler")
		x.breakStream(err)
		return errors.Join(ErrAborted, err)
	}
	_ = x.inject(x.event(rec.Generated(), "")) // one who is gone does not need it
	x.endStream()
	return nil
}

// readWhole reads the body at once where its length is known.
func readWhole(res *http.Response) ([]byte, error) {
	if res.ContentLength > maxWhole {
		return nil, tooLarge()
	}
	if res.ContentLength >= 0 {
		body := make([]byte, res.ContentLength)
		_, err := io.ReadFull(res.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxWhole+1))
	if err == nil && len(body) > maxWhole {
		return nil, tooLarge()
	}
	return body, err
}

func tooLarge() error {
	return fault.New(fault.Upstream, "the LLM's answer is larger than %d bytes", maxWhole)
}

// writeWhole answers with JSON of our own.
func (x *exchange) writeWhole(body []byte) {
	x.w.Header().Set("Content-Type", "application/json")
	x.writeBody(body)
}

func (x *exchange) writeBody(body []byte) {
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.share.answer(http.StatusOK, x.w.Header(), body)
	x.timing.set(x.w.Header())
	x.w.WriteHeader(http.StatusOK)
	writeAll(x.w, body, x.cfg.WriteTimeout)
}

// writeAll writes what is left of an answer, for as long as one write to a client may take: a reader that stalls does not hold us for ever.
func writeAll(w http.ResponseWriter, body []byte, timeout time.Duration) {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(timeout)) // every connection of net/http takes one
	_, _ = w.Write(body)                             // a client that is gone cannot be told
	_ = rc.SetWriteDeadline(time.Time{})
}
