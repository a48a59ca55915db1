package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/platform"
)

// leave ends the agent in the path, which is named by its id or by a key. An id never has a colon,
// and a key always has one.
func (a agentAPI) leave(w http.ResponseWriter, r *http.Request) error {
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	id := chi.URLParam(r, "id")
	if plain, err := url.PathUnescape(id); err == nil && strings.Contains(plain, ":") {
		agent, err := a.byKeys(r.Context(), projectOf(r), plain)
		if err != nil {
			return err
		}
		return a.leaveOnce(w, r, agent.ID, key)
	}
	if !input.AgentID(id) {
		return notAnAgent(id)
	}
	if err := a.memory.Agents.Leave(r.Context(), projectOf(r), id, key); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK) // empty; one client repeats the call after a 204
	return nil
}

// leaveCall ends the agent that a header or the body names, in the ways in which a chat request
// names its agent.
func (a agentAPI) leaveCall(w http.ResponseWriter, r *http.Request) error {
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if len(bytes.TrimSpace(body)) > 0 { // a header may say it all
		if err := json.Unmarshal(body, &members); err != nil {
			return input.Error(err)
		}
	}
	id := r.Header.Get(agentIDHeader)
	if id == "" {
		var metadata struct {
			AgentID string `json:"agent_id"`
		}
		_ = json.Unmarshal(members["metadata"], &metadata) // anything else names no agent
		id = metadata.AgentID
	}
	if id == "" {
		k, ok := a.platforms.Key(projectOf(r), r.Header.Get, func(name string) []byte { return members[name] })
		if !ok {
			return fault.At(fault.Missing, agentIDHeader, "is required: the call names no agent; use /v1/agents/{id}/leave, or metadata.agent_id in the body, or a key that GET /v1/profiles lists")
		}
		agent, err := a.byKeys(r.Context(), projectOf(r), k.Text)
		if err != nil {
			return err
		}
		id = agent.ID
	}
	if !input.AgentID(id) {
		return notAnAgent(id)
	}
	return a.leaveOnce(w, r, id, key)
}

// byKeys returns the agent that has a key, given as people write it or as an agent shows it: the
// value of a key that names a person is shown as its hash.
func (a agentAPI) byKeys(ctx context.Context, project, key string) (memory.Agent, error) {
	agent, err := a.memory.Agents.ByKey(ctx, project, key)
	if !fault.Is(err, fault.NotFound) {
		return agent, err
	}
	if k, ok := platform.ParseKey(key); ok {
		agent, err = a.memory.Agents.ByKey(ctx, project, k.Text)
	}
	if fault.Is(err, fault.NotFound) {
		return agent, unknownKey(text.Clip(key, 160))
	}
	return agent, err
}

// leaveOnce ends an agent. One that has left already stays as it is: platforms repeat what they
// send.
func (a agentAPI) leaveOnce(w http.ResponseWriter, r *http.Request, id, key string) error {
	infoOf(r).agent = id
	err := a.memory.Agents.Leave(r.Context(), projectOf(r), id, key)
	if fault.Is(err, fault.NotFound) {
		if agent, e := a.memory.Agents.Agent(r.Context(), projectOf(r), id); e == nil && !agent.Archived() {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
