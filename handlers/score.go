package handlers

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// scoreRequest is a score of a call or a turn, as a client gives it.
type scoreRequest struct {
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Value   json.RawMessage `json:"value"`
	TurnID  *int64          `json:"turn_id,omitempty"`
	Comment string          `json:"comment,omitempty"`
	Author  string          `json:"author,omitempty"`
	Source  string          `json:"source,omitempty"`
}

// scoreJSON is a score as it is stored.
type scoreJSON struct {
	scoreRequest
	UpdatedAt string `json:"updated_at"`
}

func newScoreJSON(s *memory.Score) scoreJSON {
	return scoreJSON{scoreRequest{s.ID, s.Name, s.Value, s.Turn, s.Comment, s.Author, s.Source}, shownTime(s.UpdatedMS)}
}

// setScore serves POST /v1/agents/{id}/scores.
func (a agentAPI) setScore(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[scoreRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	score, created, err := a.memory.Agents.SetScore(r.Context(), projectOf(r), chi.URLParam(r, "id"), memory.Score{
		ID: in.ID, Name: strings.TrimSpace(in.Name), Value: in.Value, Turn: in.TurnID, Comment: in.Comment, Author: in.Author, Source: in.Source,
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return encode(w, status, newScoreJSON(&score))
}

// scores serves GET /v1/agents/{id}/scores.
func (a agentAPI) scores(r *http.Request) (any, error) {
	h, err := a.memory.Messages.Head(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	return struct {
		Scores []scoreJSON `json:"scores"`
	}{each(h.Agent.Settings.Scores, newScoreJSON)}, nil
}

// deleteScore serves DELETE /v1/agents/{id}/scores/{score}.
func (a agentAPI) deleteScore(r *http.Request) error {
	return a.memory.Agents.DeleteScore(r.Context(), projectOf(r), chi.URLParam(r, "id"), pathName(r, "score"))
}

// scoreParam begins the parameters that name a score: score.resolved=true.
const scoreParam = "score."

// scoreParams reads the scores that a call must have.
func scoreParams(v url.Values) (map[string]string, error) {
	out := map[string]string{}
	for param, values := range v {
		name, ok := namedIn(param, scoreParam)
		if !ok {
			continue
		}
		value := values[0]
		// A number has one form in the tags, and several in queries: 0.50 and 0.5.
		if s := (memory.Score{Value: json.RawMessage(value)}); value != "" && !strings.HasPrefix(value, `"`) {
			if number, _, err := s.Parse(); err == nil {
				value = number
			}
		}
		switch {
		case name == "":
			return nil, fault.At(fault.Invalid, param, "must name a score, as in %sresolved=true", scoreParam)
		case len(name) > memory.MaxTag, len(value) > memory.MaxScoreValue:
			return nil, fault.At(fault.Invalid, text.Clip(param, 80), "must have at most %d bytes", memory.MaxScoreValue)
		}
		out[name] = value
	}
	if len(out) > maxFindLabels {
		return nil, fault.At(fault.Invalid, scoreParam, "may be given for %d scores, not %d", maxFindLabels, len(out))
	}
	return out, nil
}
