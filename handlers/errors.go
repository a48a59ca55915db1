package handlers

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// statusClientClosed is nginx's status for a client that went away; nobody receives it, logs and metrics show it.
const statusClientClosed = 499

// answers gives each code its HTTP status and Agora's reason (reference/agora-api.md 1.2).
var answers = map[fault.Code]struct {
	status int
	reason string
}{
	fault.Internal:        {http.StatusInternalServerError, "InternalError"},
	fault.BadRequest:      {http.StatusBadRequest, "InvalidRequestBody"},
	fault.Missing:         {http.StatusBadRequest, "MissingRequiredField"},
	fault.Invalid:         {http.StatusBadRequest, "InvalidFieldValue"},
	fault.Unauthenticated: {http.StatusUnauthorized, "InvalidPermission"},
	fault.Forbidden:       {http.StatusForbidden, "InvalidPermission"},
	fault.NotFound:        {http.StatusNotFound, "TaskNotFound"},
	fault.Conflict:        {http.StatusConflict, "TaskConflict"},
	fault.Stopped:         {http.StatusGone, "TaskNotFound"}, // not 409: OpenAI's clients repeat a 409
	fault.TooLarge:        {http.StatusRequestEntityTooLarge, "InvalidRequestBody"},
	fault.Quota:           {http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded"},
	fault.RateLimited:     {http.StatusTooManyRequests, "ConcurrencyLimitExceeded"},
	fault.Unsupported:     {http.StatusNotImplemented, "NotImplemented"},
	fault.Unavailable:     {http.StatusServiceUnavailable, "ServiceUnavailable"},
	fault.Upstream:        {http.StatusBadGateway, "ServiceUnavailable"},
	fault.UpstreamTimeout: {http.StatusGatewayTimeout, "TaskOperationTimeout"},
	fault.Canceled:        {statusClientClosed, "TaskOperationTimeout"},
}

// Status gives the HTTP status of a code.
func Status(c fault.Code) int {
	if a, ok := answers[c]; ok {
		return a.status
	}
	return http.StatusInternalServerError
}

type agoraErrorBody struct {
	Detail string `json:"detail"`
	Reason string `json:"reason"`
	// AgentID and TaskID name the running agent in the refusal of a second one of the same name.
	AgentID string `json:"agent_id,omitempty"`
	TaskID  string `json:"taskId,omitempty"`
}

// agoraError is the error style of Agora's paths and of /v1.
func agoraError(w http.ResponseWriter, e *fault.Error) {
	writeAgoraError(w, Status(e.Code), agoraErrorBody{Detail: e.Msg, Reason: answers[e.Code].reason}, e.Code)
}

// agoraConflict is the answer to a name in use (reference/agora-api.md 1.2: the superset).
func agoraConflict(w http.ResponseWriter, taken *memory.NameTakenError) {
	writeAgoraError(w, http.StatusConflict, agoraErrorBody{
		Detail: "create agent failed, code: 409, msg: task conflict", Reason: "TaskConflict", AgentID: taken.AgentID, TaskID: taken.AgentID,
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

// errorHeaders sets the headers that tell a client when and how to come back.
func errorHeaders(h http.Header, code fault.Code) {
	switch code {
	case fault.Unauthenticated:
		h.Set("WWW-Authenticate", `Basic realm="heardlog", Bearer realm="heardlog"`)
	case fault.Unavailable, fault.RateLimited:
		if h.Get("Retry-After") == "" {
			h.Set("Retry-After", strconv.Itoa(1))
		}
	}
}

// nameTaken gives the refusal of a name in err, or nil.
func nameTaken(err error) *memory.NameTakenError {
	taken, _ := errors.AsType[*memory.NameTakenError](err)
	return taken
}
