package handlers

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// agentIDHeader names the agent of a call to /v1/chat/completions.
const agentIDHeader = "X-Agent-Id"

// chatCompletions answers POST …/chat/completions: the agent's memory in front of its LLM.
func (a *API) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	body, err := a.readBody(w, r)
	if err != nil {
		return err
	}
	req, err := llmadapter.ParseRequest(body)
	if err != nil {
		return err
	}
	id, err := a.agentOfCall(r, req)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r, memory.MaxMessageID) // it becomes the id of the user message as it is
	if err != nil {
		return err
	}
	infoOf(r).agent = id
	call := &turn.Call{
		Project: projectOf(r), AgentID: id, Request: req, Key: key,
		Resends: func() bool { return a.Platforms.Resends(r.Header.Get, req.Member) },
	}
	err = a.Answers.Serve(w, r, call)
	// An agent in the path was made by a join, and one that is gone stays gone: only a name in a header or body makes one.
	if fault.Is(err, fault.NotFound) && a.AutoJoin != nil && chi.URLParam(r, "id") == "" {
		if _, err := a.AutoJoin(r.Context(), projectOf(r), id, memory.Call{}); err != nil {
			if taken := nameTaken(err); taken != nil { // Agora's answer to it has another form
				return fault.At(fault.Conflict, agentIDHeader, "%q is the name of another running agent, %s; use its id", id, taken.AgentID)
			}
			return err
		}
		err = a.Answers.Serve(w, r, call)
	}
	if errors.Is(err, turn.ErrAborted) {
		infoOf(r).err = err
		panic(http.ErrAbortHandler) // the client must not take a broken stream for a whole one
	}
	return err
}

// models answers GET …/models from the upstream: the agent's where the path or a header names one, else the server's.
func (a *API) models(w http.ResponseWriter, r *http.Request) error {
	id := chi.URLParam(r, "id")
	if id == "" {
		id = r.Header.Get(agentIDHeader)
	}
	var llm memory.LLMSettings
	if id != "" {
		var err error
		if llm, err = a.llmOf(r, id); err != nil {
			return err
		}
	}
	return a.Answers.Models(w, r, llm)
}

// agentOfCall finds out which agent a call is for: the path, then the header, then metadata.agent_id of the body, then the platform's own key.
func (a *API) agentOfCall(r *http.Request, req *llmadapter.Request) (string, error) {
	id := chi.URLParam(r, "id")
	if id == "" {
		id = r.Header.Get(agentIDHeader)
	}
	if id == "" {
		id = req.AgentID
	}
	if id == "" {
		key, err := a.keyOfCall(r, req)
		if err != nil {
			return "", err
		}
		return a.agentByKey(r.Context(), projectOf(r), key)
	}
	if !validID(id) {
		return "", fault.New(fault.NotFound, "agent not found")
	}
	return id, nil
}

// openAIErrorBody is the error form that OpenAI's clients read.
type openAIErrorBody struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	} `json:"error"`
}

// openAIError is the error style of the OpenAI-compatible paths.
func openAIError(w http.ResponseWriter, e *fault.Error) {
	var body openAIErrorBody
	body.Error.Message, body.Error.Code, body.Error.Type = e.Msg, string(e.Code), openAIType(e.Code)
	if e.Field != "" {
		body.Error.Param = &e.Field
	}
	b, err := json.Marshal(body)
	if err != nil {
		b = []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":"internal"}}`)
	}
	errorHeaders(w.Header(), e.Code)
	writeJSON(w, openAIStatus(e.Code), append(b, '\n'))
}

// openAIStatus is Status for the OpenAI-compatible paths. OpenAI's clients send again by themselves what was answered with 409, and it would be
// refused again, so that a conflict is a 400 there; its code says what it is.
func openAIStatus(c fault.Code) int {
	if c == fault.Conflict {
		return http.StatusBadRequest
	}
	return Status(c)
}

// openAIType gives the type that OpenAI's clients know for a code.
func openAIType(c fault.Code) string {
	switch c {
	case fault.Unauthenticated:
		return "authentication_error"
	case fault.Forbidden:
		return "permission_error"
	case fault.RateLimited, fault.Quota:
		return "rate_limit_error"
	case fault.Upstream, fault.UpstreamTimeout:
		return "upstream_error"
	}
	if Status(c) >= http.StatusInternalServerError {
		return "server_error"
	}
	return "invalid_request_error"
}
