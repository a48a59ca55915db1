package turn

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// Reasons of a failed turn, as Agora's Conversational AI names them.
const (
	reasonLLM      = "LLM_REQUEST_ERR"
	reasonInternal = "INTERNAL_ERR"
)

// errClientLeft is what Serve returns for a client that went away.
func errClientLeft() error { return fault.New(fault.Canceled, "the client went away") }

// broke ends a call whose response failed with err.
func (x *exchange) broke(a *attempt, err error) error {
	a.failed(err)
	return x.fail(err)
}

// fail ends a call whose answer is not complete. It returns what the handler has to answer, or nil
// if the client has been answered.
func (x *exchange) fail(err error) error {
	x.client.endFiller()
	switch {
	case x.answer.isDrained(): // what the client was sent is stored
		return errClientLeft()
	case wasCut(err):
		return x.cut(err)
	case errors.Is(err, agents.ErrClientGone):
		_ = x.settle(agents.ErrClientGone, nil, "")
		return errClientLeft()
	case errors.Is(err, errShutdown):
		_ = x.settle(err, nil, "")
		return err
	}
	f := failureOf(err)
	if text := x.failureText(); text != "" && !x.answer.spoke() {
		return x.sayFailure(err, f, text)
	}
	_ = x.settle(err, f, "")
	switch {
	case x.client == nil:
		return err
	case x.client.begun:
		x.client.breakStream(err)
		return errors.Join(ErrAborted, err)
	}
	if up, ok := errors.AsType[*llmadapter.UpstreamError](err); ok {
		x.client.passError(up)
		return nil
	}
	return err
}

// cut ends a call that was cut on purpose.
func (x *exchange) cut(err error) error {
	_ = x.settle(err, nil, "")
	switch {
	case x.client == nil:
		return err
	case x.client.stream:
		x.client.endStream()
		return nil
	}
	return fault.New(fault.Conflict, "the answer was cut before it was complete: %s", err)
}

// failureText returns what the agent says when its LLM fails, or "".
func (x *exchange) failureText() string {
	return text.Fill(x.llm.FailureMessage, x.llm.Variables)
}

// sayFailure answers with the agent's failure message, as if the model had said it.
func (x *exchange) sayFailure(err error, f *memory.Failure, text string) error {
	c := x.client
	if c != nil && c.stream {
		if werr := c.say(text); werr != nil {
			c.done()
			_ = x.settle(agents.ErrClientGone, f, "")
			return errClientLeft()
		}
		_ = x.settle(err, f, text)
		c.endStream()
		return nil
	}
	_ = x.settle(err, f, text)
	if c == nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.writeBody(http.StatusOK, c.completion(text))
	return nil
}

// failureOf returns the record of what went wrong. Its text holds no secrets, since webhooks carry
// it.
func failureOf(err error) *memory.Failure {
	f := &memory.Failure{Reason: reasonLLM, Code: http.StatusBadGateway, Message: "the LLM failed", Error: string(fault.CodeOf(err))}
	if up, ok := errors.AsType[*llmadapter.UpstreamError](err); ok {
		f.Code, f.Message, f.Error = up.Status, up.Text, string(fault.Upstream)
		return f
	}
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		f.Reason = reasonInternal
		return f
	}
	f.Message = e.Msg
	switch e.Code {
	case fault.UpstreamTruncated:
	case fault.UpstreamTimeout:
		f.Code = http.StatusGatewayTimeout
	case fault.Upstream:
		if s, ok := errors.AsType[*statusError](err); ok {
			f.Code = s.status
		}
	default:
		f.Reason, f.Code = reasonInternal, http.StatusInternalServerError
	}
	return f
}

// statusError is the status that an error object inside a response names.
type statusError struct{ status int }

// Error returns the status.
func (e *statusError) Error() string { return "status " + strconv.Itoa(e.status) }

// fallsOver reports whether another upstream may do better.
func (e *statusError) fallsOver() bool {
	return e.status == http.StatusTooManyRequests || e.status >= http.StatusInternalServerError
}
