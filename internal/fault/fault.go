// Package fault is the error vocabulary of Heardlog: every error that may reach a caller carries
// one of its codes.
//
// An Error has two texts. Msg is written for the caller and may be shown; Err is the cause and goes
// only to the log.
package fault

import (
	"context"
	"errors"
	"fmt"
)

// Code classifies an error independently of any transport. Codes are API: new ones may be added,
// none may be renamed.
type Code string

// The codes. Package handlers maps each to an HTTP status and to a reason of Agora's API.
const (
	// Internal is anything unforeseen; its text is never shown to a caller.
	Internal Code = "internal"
	// BadRequest is a body or query that cannot be read at all: not JSON, too deep, not UTF-8.
	BadRequest Code = "bad_request"
	// Missing is a required field that is not there.
	Missing Code = "missing"
	// Invalid is a field whose value is not allowed.
	Invalid Code = "invalid"
	// Unauthenticated is a missing or wrong credential.
	Unauthenticated Code = "unauthenticated"
	// Forbidden is a right credential without the permission.
	Forbidden Code = "forbidden"
	// NotFound is a thing that does not exist, or belongs to another project.
	NotFound Code = "not_found"
	// PreviousResponse is a previous_response_id that names no response of the agent.
	PreviousResponse Code = "previous_response_not_found"
	// SocketAge is a response that is wanted on a WebSocket which is too old for another.
	SocketAge Code = "websocket_connection_limit_reached"
	// SocketLanes is a stream_id that is one more than a WebSocket may have.
	SocketLanes Code = "websocket_stream_limit_reached"
	// Conflict means that the current state forbids the call: a name in use, an ID with other
	// content, an interruption of a user message.
	Conflict Code = "conflict"
	// Held means that a legal hold forbids to erase something; the text names the hold.
	Held Code = "held"
	// Stopped is an agent that takes no more messages; the text says when and why it stopped.
	Stopped Code = "stopped"
	// TooLarge is a body over its limit.
	TooLarge Code = "too_large"
	// Quota means that a limit on a number of things is reached, such as running agents or messages
	// of one agent.
	Quota Code = "quota"
	// RateLimited is a limit on calls in time.
	RateLimited Code = "rate_limited"
	// Unsupported is something the path or method does not do.
	Unsupported Code = "unsupported"
	// Unavailable is a full queue, a failing store or a server that is going down; try again.
	Unavailable Code = "unavailable"
	// Upstream is an LLM that could not be reached, refused, or did not answer with an answer.
	Upstream Code = "upstream"
	// UpstreamTruncated is an LLM whose answer broke off before its end.
	UpstreamTruncated Code = "upstream_truncated"
	// UpstreamTimeout is an LLM that did not answer in time.
	UpstreamTimeout Code = "upstream_timeout"
	// Canceled means that the caller left before the answer.
	Canceled Code = "canceled"
)

// Codes lists every code; tests use it to prove that each has a status.
func Codes() []Code {
	return []Code{
		Internal, BadRequest, Missing, Invalid, Unauthenticated, Forbidden, NotFound, PreviousResponse, Conflict, Held, Stopped, TooLarge,
		Quota, RateLimited, Unsupported, Unavailable, Upstream, UpstreamTruncated, UpstreamTimeout, Canceled,
	}
}

// Error is an error with a code.
type Error struct {
	Code  Code
	Field string // path of the field at fault, as the caller wrote it; may be empty
	Msg   string // safe to show a caller
	Err   error  // cause, for the log only; may be nil
	// Reported is set if the log has told the operator of the cause already, in a line of its own.
	Reported bool
}

// Error returns the text for logs: message and cause.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Msg + ": " + e.Err.Error()
	}
	return e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New makes an error whose text may be shown to a caller.
func New(code Code, format string, args ...any) error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// At is New for an error in one field of the caller's input; the text begins with the field's path.
func At(code Code, field, format string, args ...any) error {
	return &Error{Code: code, Field: field, Msg: field + ": " + fmt.Sprintf(format, args...)}
}

// Wrap adds a code and a text for the caller to a cause. The cause stays in the log.
func Wrap(code Code, err error, msg string) error {
	return &Error{Code: code, Msg: msg, Err: err}
}

// CodeOf returns the first code in the chain of err, Internal if there is none, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool { return CodeOf(err) == code }

// Reported reports whether the log has told the operator of the cause of err in a line of its own.
func Reported(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Reported
}

// Ended returns the cause of a context that is done, with a code: Unavailable if a store did not
// answer before the deadline, Canceled if the call was given up.
func Ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if _, ok := errors.AsType[*Error](cause); ok {
		return cause
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return Wrap(Unavailable, cause, "the store did not answer in time")
	}
	return Wrap(Canceled, cause, "the call was given up")
}
