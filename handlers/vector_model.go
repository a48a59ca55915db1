package handlers

import (
	"net/http"

	"github.com/heardlog/heardlog/longterm/vector"
)

// modelJSON is a model that makes embeddings, or made some before.
type modelJSON struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Dimensions int    `json:"dimensions"`
	Current    bool   `json:"current"`
	SinceAt    string `json:"since_at"`
}

// models serves GET /v1/embeddings/models.
func (a vectorAPI) models(r *http.Request) (any, error) {
	list, err := a.vectors.Models(r.Context())
	return struct {
		Models []modelJSON `json:"models"`
	}{each(list, func(m *vector.Model) modelJSON {
		return modelJSON{ID: m.ID, Name: m.Name, Dimensions: m.Dimensions, Current: m.Current, SinceAt: shownTime(m.SinceMS)}
	})}, err
}

// rebuildRequest names the collection whose embeddings are made again.
type rebuildRequest struct {
	Collection string `json:"collection" validate:"required"`
	UserID     string `json:"user_id"`
}

// rebuild serves POST /v1/embeddings/rebuild.
func (a vectorAPI) rebuild(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[rebuildRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	n, err := a.vectors.Rebuild(r.Context(), vector.Collection{Project: projectOf(r), Name: in.Collection, User: inE164(in.UserID)})
	if err != nil {
		return err
	}
	return encode(w, http.StatusAccepted, struct {
		Documents int `json:"documents"`
	}{n})
}
