package handlers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	memctx "github.com/heardlog/heardlog/memory/context"
)

// summaryBody is a summary; null for none.
type summaryBody struct {
	Summary   *string `json:"summary"`
	UpdatedAt timeMS  `json:"updated_at,omitempty"`
	UpToSeq   int64   `json:"up_to_seq,omitempty"` // Seq of the last message that it covers
}

func newSummaryBody(s memctx.Summary) summaryBody {
	if s.Text == "" {
		return summaryBody{}
	}
	return summaryBody{&s.Text, timeMS(s.MS), s.UpTo}
}

func (a contextAPI) summary(w http.ResponseWriter, r *http.Request) error {
	s, err := a.memory.Summary(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newSummaryBody(s))
}

// putSummary sets the summary. With up_to_seq, messages up to there leave the memory in the same
// change.
func (a contextAPI) putSummary(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Summary *string `json:"summary"`
		UpToSeq int64   `json:"up_to_seq" validate:"min=0,max=9007199254740992"`
	}](a.bodies, w, r, true)
	switch {
	case err != nil:
		return err
	case in.Summary == nil:
		return fault.At(fault.Missing, "summary", "is required; use DELETE to delete the summary")
	case *in.Summary == "":
		return fault.At(fault.Invalid, "summary", "must not be empty; use DELETE to delete the summary")
	}
	s, err := a.memory.SetSummary(r.Context(), projectOf(r), chi.URLParam(r, "id"), *in.Summary, in.UpToSeq)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newSummaryBody(s))
}

func (a contextAPI) deleteSummary(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.memory.SetSummary(r.Context(), projectOf(r), chi.URLParam(r, "id"), "", 0); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
