package handlers

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// statusClientClosed is the status of a request whose client went away, as in nginx. It appears
// only in logs and metrics.
const statusClientClosed = 499

// statuses maps each code to its HTTP status and to its reason under /v1.
var statuses = map[fault.Code]struct {
	status int
	reason string
}{
	fault.Internal:         {http.StatusInternalServerError, "InternalError"},
	fault.BadRequest:       {http.StatusBadRequest, "InvalidRequestBody"},
	fault.Missing:          {http.StatusBadRequest, "MissingRequiredField"},
	fault.Invalid:          {http.StatusBadRequest, "InvalidFieldValue"},
	fault.Unauthenticated:  {http.StatusUnauthorized, "InvalidPermission"},
	fault.Forbidden:        {http.StatusForbidden, "InvalidPermission"},
	fault.NotFound:         {http.StatusNotFound, "NotFound"},
	fault.PreviousResponse: {http.StatusBadRequest, "InvalidFieldValue"}, // as OpenAI answers it
	fault.SocketAge:        {http.StatusBadRequest, "InvalidFieldValue"},
	fault.SocketLanes:      {http.StatusBadRequest, "InvalidFieldValue"},
	fault.Conflict:         {http.StatusConflict, "Conflict"},
	fault.Held:             {http.StatusConflict, "Conflict"},
	// Not 409, which OpenAI's clients repeat.
	fault.Stopped:           {http.StatusGone, "NotFound"},
	fault.TooLarge:          {http.StatusRequestEntityTooLarge, "InvalidRequestBody"},
	fault.Quota:             {http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded"},
	fault.RateLimited:       {http.StatusTooManyRequests, "ConcurrencyLimitExceeded"},
	fault.Unsupported:       {http.StatusNotImplemented, "NotImplemented"},
	fault.Unavailable:       {http.StatusServiceUnavailable, "ServiceUnavailable"},
	fault.Upstream:          {http.StatusBadGateway, "ServiceUnavailable"},
	fault.UpstreamTruncated: {http.StatusBadGateway, "ServiceUnavailable"},
	fault.UpstreamTimeout:   {http.StatusGatewayTimeout, "OperationTimeout"},
	fault.Canceled:          {statusClientClosed, "OperationTimeout"},
}

// Status returns the HTTP status of a code.
func Status(c fault.Code) int {
	if a, ok := statuses[c]; ok {
		return a.status
	}
	return http.StatusInternalServerError
}

// reasonOf returns the reason of an error on a path. Three words are longer on Agora's paths.
func reasonOf(r *http.Request, c fault.Code) string {
	reason := statuses[c].reason
	switch reason {
	case "NotFound", "Conflict", "OperationTimeout":
		if strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/cn/api/") {
			return "Task" + reason
		}
	}
	return reason
}

// handle answers and logs the error of a handler. Errors before a handler are answered by the
// middleware that finds them.
func handle(style errorStyle, h handlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		answerError(w, r, style, err)
	}
}

// answerError answers an error in the style of the path, and adds it to the request's log line.
func answerError(w http.ResponseWriter, r *http.Request, style errorStyle, err error) {
	info := infoOf(r)
	info.err = err
	e, ok := errors.AsType[*fault.Error](err)
	switch {
	case r.Context().Err() != nil && (!ok || e.Code == fault.Unavailable || e.Code == fault.Internal):
		e = &fault.Error{Code: fault.Canceled, Msg: "the client went away"}
	case !ok || e.Code == fault.Internal:
		e = &fault.Error{Code: fault.Internal, Msg: "internal error; the log has more under this request id"}
	}
	if taken := nameTaken(err); taken != nil {
		detail := "create agent failed, code: 409, msg: task conflict" // as Agora has it
		if ownPath(r) {
			detail = e.Msg + "; agent " + taken.AgentID + " must leave first"
		}
		agoraConflict(w, r, detail, taken)
		return
	}
	// A browser asks its user for a password if the answer to a script has this header, but the
	// server's pages have a form of their own.
	if dest := r.Header.Get("Sec-Fetch-Dest"); e.Code == fault.Unauthenticated && (dest != "empty" || r.URL.Path == mcpPath) {
		w.Header().Set("WWW-Authenticate", cmp.Or(info.challenge, `Basic realm="heardlog", Bearer realm="heardlog"`))
	}
	style(w, r, e)
}

type agoraErrorBody struct {
	Detail string `json:"detail"`
	Reason string `json:"reason"`
	// AgentID and TaskID name the running agent if its name is taken.
	AgentID string `json:"agent_id,omitempty"`
	TaskID  string `json:"taskId,omitempty"`
}

// agoraError writes errors in the form of Agora's paths and of /v1.
func agoraError(w http.ResponseWriter, r *http.Request, e *fault.Error) {
	writeAgoraError(w, Status(e.Code), agoraErrorBody{Detail: e.Msg, Reason: reasonOf(r, e.Code)}, e.Code)
}

// agoraConflict answers a join whose name is taken, with the fields of both versions of Agora's
// documentation.
func agoraConflict(w http.ResponseWriter, r *http.Request, detail string, taken *memory.NameTakenError) {
	writeAgoraError(w, http.StatusConflict, agoraErrorBody{
		Detail: detail, Reason: reasonOf(r, fault.Conflict), AgentID: taken.AgentID, TaskID: taken.AgentID,
	}, fault.Conflict)
}

func writeAgoraError(w http.ResponseWriter, status int, body agoraErrorBody, code fault.Code) {
	b, err := json.Marshal(body)
	if err != nil {
		b = []byte(`{"detail":"internal error","reason":"InternalError"}`)
	}
	errorHeaders(w.Header(), code)
	writeJSON(w, status, append(b, '\n'))
}

// errorHeaders sets the header that says when to retry.
func errorHeaders(h http.Header, code fault.Code) {
	if (code == fault.Unavailable || code == fault.RateLimited) && h.Get("Retry-After") == "" {
		h.Set("Retry-After", strconv.Itoa(1))
	}
}

// nameTaken returns the NameTakenError in err, or nil.
func nameTaken(err error) *memory.NameTakenError {
	taken, _ := errors.AsType[*memory.NameTakenError](err)
	return taken
}

// openAIErrorBody is an error in the form that OpenAI's clients read.
type openAIErrorBody struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	} `json:"error"`
}

// newOpenAIError returns an error in the form that OpenAI's clients read.
func newOpenAIError(e *fault.Error) openAIErrorBody {
	var body openAIErrorBody
	body.Error.Message, body.Error.Code, body.Error.Type = e.Msg, string(e.Code), openAIType(e.Code)
	if e.Field != "" {
		body.Error.Param = &e.Field
	}
	return body
}

// openAIError writes errors in the form of the OpenAI-compatible paths.
func openAIError(w http.ResponseWriter, _ *http.Request, e *fault.Error) {
	b, err := json.Marshal(newOpenAIError(e))
	if err != nil {
		b = []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":"internal"}}`)
	}
	errorHeaders(w.Header(), e.Code)
	writeJSON(w, openAIStatus(e.Code), append(b, '\n'))
}

// openAIStatus is Status for the OpenAI-compatible paths. A conflict is 400 there, because OpenAI's
// clients repeat a 409 and would be refused again.
func openAIStatus(c fault.Code) int {
	if c == fault.Conflict {
		return http.StatusBadRequest
	}
	return Status(c)
}

// openAIType returns the error type that OpenAI's clients know for a code.
func openAIType(c fault.Code) string {
	switch c {
	case fault.Unauthenticated:
		return "authentication_error"
	case fault.Forbidden:
		return "permission_error"
	case fault.RateLimited, fault.Quota:
		return "rate_limit_error"
	case fault.Upstream, fault.UpstreamTruncated, fault.UpstreamTimeout:
		return "upstream_error"
	}
	if Status(c) >= http.StatusInternalServerError {
		return "server_error"
	}
	return "invalid_request_error"
}
