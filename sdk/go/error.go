package heardlog

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// Error is a call that the server refused, or that did not reach it.
type Error struct {
	Detail    string // what is wrong, in words; it holds no secret
	Status    int    // HTTP status, 0 if there was no answer
	Reason    string // one of a few words that never change, such as InvalidFieldValue
	Field     string // the field at fault, such as messages[0].role; may be empty
	RequestID string // under which the server's log has the call; may be empty
	AgentID   string // the running agent that has the name, if a name is taken
	Err       error  // the cause on this side; may be nil
}

// Error returns the detail with the status, the reason and the ID of the request.
func (e *Error) Error() string {
	var notes []string
	if e.Status != 0 {
		notes = append(notes, fmt.Sprint(e.Status))
	}
	if e.Reason != "" {
		notes = append(notes, e.Reason)
	}
	if e.RequestID != "" {
		notes = append(notes, "request "+e.RequestID)
	}
	text := e.Detail
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause on this side.
func (e *Error) Unwrap() error { return e.Err }

// field matches the field with which the server's texts begin.
var field = regexp.MustCompile(`^([A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\]|\[[\w-]+\])*): `)

// errorOf returns the error in an answer, in the server's own form or in OpenAI's.
func errorOf(res *http.Response, answer []byte) *Error {
	e := &Error{Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id")}
	var body struct {
		Detail  string `json:"detail"`
		Reason  string `json:"reason"`
		AgentID string `json:"agent_id"`
		Error   *struct {
			Message string `json:"message"`
			Code    string `json:"code"`
			Param   string `json:"param"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(answer, &body); {
	case err == nil && body.Error != nil && body.Error.Message != "":
		e.Detail, e.Reason, e.Field = body.Error.Message, body.Error.Code, body.Error.Param
	case err == nil && body.Detail != "":
		e.Detail, e.Reason, e.AgentID = body.Detail, body.Reason, body.AgentID
		if m := field.FindStringSubmatch(body.Detail); m != nil && res.StatusCode < 500 {
			e.Field = m[1]
		}
	default:
		e.Detail = "the server answered " + res.Status
	}
	return e
}
