package handlers

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/platform"
)

// proxyAPI serves chat completions and what else goes to an upstream.
type proxyAPI struct {
	bodies
	memory    *memory.Service
	turns     *turn.Runner
	platforms *platform.Set
	noKey     string // NoKeyRefuse or NoKeyWords
	autoJoin  func(ctx context.Context, project, id string, call memory.Call) (string, error)
	allowed   []string        // paths that are sent on
	own       map[string]bool // first names of our own paths under /v1, which never are
}

// agentIDHeader names the agent of a call to /v1/chat/completions.
const agentIDHeader = "X-Agent-Id"

// chat answers a chat completion: it puts the agent's memory in front of the request and sends it
// to the agent's LLM.
func (a *proxyAPI) chat(w http.ResponseWriter, r *http.Request) error {
	body, err := a.read(w, r)
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
	key, err := idempotencyKey(r, memory.MaxMessageID) // becomes the ID of the user message
	if err != nil {
		return err
	}
	infoOf(r).agent = id
	call := &turn.Call{
		Project: projectOf(r), AgentID: id, Request: req, Key: key,
		Resends: func() bool { return a.platforms.Resends(r.Header.Get, req.Member) },
	}
	err = a.turns.Serve(w, r, call)
	// Only an agent that a header or the body names is created. One in the path was joined before,
	// and has ended or been erased.
	if fault.Is(err, fault.NotFound) && a.autoJoin != nil && chi.URLParam(r, "id") == "" {
		if _, err := a.autoJoin(r.Context(), projectOf(r), id, memory.Call{}); err != nil {
			if taken := nameTaken(err); taken != nil { // answered in OpenAI's form, not in Agora's
				return fault.At(fault.Conflict, agentIDHeader, "%q is the name of another running agent, %s; use its id", id, taken.AgentID)
			}
			return err
		}
		err = a.turns.Serve(w, r, call)
	}
	if errors.Is(err, turn.ErrAborted) {
		infoOf(r).err = err
		panic(http.ErrAbortHandler) // the client must not take a broken stream for a complete one
	}
	return err
}

// models lists the models of the upstream: that of the agent in the path or header, or the
// server's.
func (a *proxyAPI) models(w http.ResponseWriter, r *http.Request) error {
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
	return a.turns.Models(w, r, llm)
}

// agentOfCall returns the agent of a call, found by the path, then the header, then
// metadata.agent_id, then the platform's key.
func (a *proxyAPI) agentOfCall(r *http.Request, req *llmadapter.Request) (string, error) {
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
	if !input.AgentID(id) {
		return "", fault.New(fault.NotFound, "agent not found")
	}
	return id, nil
}
