package handlers

import (
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/ossa/checkpoint"
)

// checkpointAPI serves the checkpoints of an agent.
type checkpointAPI struct {
	bodies
	checkpoints *checkpoint.Service
}

// checkpointJSON is a checkpoint without its memory.
type checkpointJSON struct {
	ID         int64  `json:"id"`
	CreatedAt  timeMS `json:"created_at"`
	Messages   int    `json:"messages"`
	Bytes      int    `json:"bytes"`
	Compressed bool   `json:"compressed"`
}

func newCheckpointJSON(c *checkpoint.Checkpoint) checkpointJSON {
	return checkpointJSON{ID: c.ID, CreatedAt: timeMS(c.CreatedMS), Messages: c.Messages, Bytes: c.Bytes, Compressed: c.Compressed}
}

// checkpointID returns the number in the path.
func checkpointID(r *http.Request) (int64, error) {
	s := chi.URLParam(r, "checkpoint")
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, fault.At(fault.Invalid, "checkpoint", "must be the number of a checkpoint, not %q", text.Clip(s, 40))
	}
	return n, nil
}

// save serves POST /v1/agents/{id}/checkpoints.
func (a checkpointAPI) save(w http.ResponseWriter, r *http.Request) error {
	if err := a.readNone(w, r); err != nil {
		return err
	}
	c, err := a.checkpoints.Save(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	return encode(w, http.StatusCreated, newCheckpointJSON(&c))
}

// list serves GET /v1/agents/{id}/checkpoints.
func (a checkpointAPI) list(r *http.Request) (any, error) {
	list, err := a.checkpoints.List(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	return map[string]any{"checkpoints": each(list, newCheckpointJSON)}, err
}

// delete serves DELETE /v1/agents/{id}/checkpoints/{checkpoint}. An unknown one is not an error.
func (a checkpointAPI) delete(r *http.Request) error {
	n, err := checkpointID(r)
	if err != nil {
		return err
	}
	return a.checkpoints.Delete(r.Context(), projectOf(r), chi.URLParam(r, "id"), n)
}

// restore serves POST /v1/agents/{id}/checkpoints/{checkpoint}/restore.
func (a checkpointAPI) restore(w http.ResponseWriter, r *http.Request) error {
	n, err := checkpointID(r)
	if err != nil {
		return err
	}
	var in struct {
		Into string `json:"into_agent_id" validate:"max=256"`
	}
	err = a.decodeOptional(w, r, &in)
	if err != nil {
		return err
	}
	id := chi.URLParam(r, "id")
	if in.Into == "" {
		in.Into = id
	}
	messages, err := a.checkpoints.Restore(r.Context(), projectOf(r), id, n, in.Into)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, struct {
		AgentID  string `json:"agent_id"`
		Messages int    `json:"messages"`
	}{in.Into, messages})
}
