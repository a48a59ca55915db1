package handlers

import (
	"bytes"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

type pauseRequest struct {
	MaxSeconds *int64 `json:"max_seconds"`
}

// pauseAnswer is the answer of pause and resume.
type pauseAnswer struct {
	AgentID     string `json:"agent_id"`
	PausedUntil string `json:"paused_until,omitempty"`
}

// pause stops the storing of what is said for a time.
func (a agentAPI) pause(w http.ResponseWriter, r *http.Request) error {
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	var in pauseRequest
	if len(bytes.TrimSpace(body)) > 0 {
		if err := a.unmarshalAs(w, r, body, &in); err != nil {
			return err
		}
	}
	d := agents.DefaultPause
	if n := in.MaxSeconds; n != nil {
		if most := int64(agents.MaxPause / time.Second); *n < 1 || *n > most {
			return fault.At(fault.Invalid, "max_seconds", "must be 1 to %d, not %d", most, *n)
		}
		d = time.Duration(*n) * time.Second
	}
	agent, err := a.memory.Agents.Pause(r.Context(), projectOf(r), chi.URLParam(r, "id"), d)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, pauseAnswer{agent.ID, a.pausedUntil(&agent)})
}

// resume stores what is said from now on.
func (a agentAPI) resume(r *http.Request) (any, error) {
	agent, err := a.memory.Agents.Resume(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	return pauseAnswer{agent.ID, a.pausedUntil(&agent)}, nil
}

// pausedUntil returns when the agent's pause ends, or "".
func (a agentAPI) pausedUntil(agent *memory.Agent) string {
	until := a.memory.Messages.PausedUntil(agent)
	if until == 0 {
		return ""
	}
	return time.UnixMilli(until).UTC().Format("2006-01-02T15:04:05.000Z")
}
