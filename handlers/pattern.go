package handlers

import (
	"net/http"
	"time"

	"github.com/heardlog/heardlog/ossa/pattern"
)

// patternAPI serves learned patterns.
type patternAPI struct {
	bodies
	patterns *pattern.Service
	now      func() time.Time
}

// patternRequest is a pattern to store.
type patternRequest struct {
	Type         string   `json:"type" validate:"required"`
	Content      string   `json:"content" validate:"required"`
	Weight       *float64 `json:"weight"`
	HalfLifeDays *int     `json:"half_life_days"`
}

// patternJSON is a pattern in answers.
type patternJSON struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Content      string  `json:"content"`
	Weight       float64 `json:"weight"`
	HalfLifeDays int     `json:"half_life_days"`
	Good         int     `json:"good"`
	Bad          int     `json:"bad"`
	CreatedAt    string  `json:"created_at"`
	UpdatedAt    string  `json:"updated_at"`
}

func (a patternAPI) show(p *pattern.Pattern) patternJSON {
	return patternJSON{p.ID, p.Type, p.Content, p.WeightAt(a.now()), p.HalfLifeDays, p.Good, p.Bad, shownTime(p.CreatedMS), shownTime(p.UpdatedMS)}
}

// put serves PUT /v1/patterns/{id}.
func (a patternAPI) put(r *http.Request, in *patternRequest) (any, error) {
	return shown(a.show)(a.patterns.Put(r.Context(), projectOf(r), pathName(r, "id"), pattern.Settings{
		Type: in.Type, Content: in.Content, Weight: in.Weight, HalfLifeDays: in.HalfLifeDays,
	}))
}

// get serves GET /v1/patterns/{id}.
func (a patternAPI) get(r *http.Request) (any, error) {
	return shown(a.show)(a.patterns.Get(r.Context(), projectOf(r), pathName(r, "id")))
}

// delete serves DELETE /v1/patterns/{id}.
func (a patternAPI) delete(r *http.Request) error {
	return a.patterns.Delete(r.Context(), projectOf(r), pathName(r, "id"))
}

// list serves GET /v1/patterns.
func (a patternAPI) list(r *http.Request) (any, error) {
	list, err := a.patterns.List(r.Context(), projectOf(r), r.URL.Query().Get("type"))
	return struct {
		Patterns []patternJSON `json:"patterns"`
	}{each(list, a.show)}, err
}

// feedbackRequest is a report on a pattern.
type feedbackRequest struct {
	Outcome string `json:"outcome" validate:"required,oneof=good bad"`
}

// feedback serves POST /v1/patterns/{id}/feedback.
func (a patternAPI) feedback(r *http.Request, in *feedbackRequest) (any, error) {
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return nil, err
	}
	m, err := a.patterns.Feedback(r.Context(), projectOf(r), pathName(r, "id"), in.Outcome, key)
	return struct {
		Pattern   patternJSON `json:"pattern"`
		OldWeight float64     `json:"old_weight"`
		NewWeight float64     `json:"new_weight"`
		Why       string      `json:"why"`
	}{a.show(&m.Pattern), m.Old, m.New, m.Why}, err
}
