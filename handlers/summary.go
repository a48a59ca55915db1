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
	// Call is the summary of the whole call, once it has ended and is summarized.
	Call *callSummary `json:"call,omitempty"`
}

type callSummary struct {
	Summary   string `json:"summary"`
	CreatedAt timeMS `json:"created_at"`
}

func newSummaryBody(s memctx.Summary) summaryBody {
	if s.Text == "" {
		return summaryBody{}
	}
	return summaryBody{Summary: &s.Text, UpdatedAt: timeMS(s.MS), UpToSeq: s.UpTo}
}

func (a contextAPI) summary(r *http.Request) (any, error) {
	project, id := projectOf(r), chi.URLParam(r, "id")
	s, err := a.contexts.Summary(r.Context(), project, id)
	if err != nil {
		return nil, err
	}
	out := newSummaryBody(s)
	if a.callSummary != nil {
		text, ms, err := a.callSummary(r.Context(), project, id)
		if err != nil {
			return nil, err
		}
		if text != "" {
			out.Call = &callSummary{text, timeMS(ms)}
		}
	}
	return out, nil
}

// summaryRequest is a summary to store.
type summaryRequest struct {
	Summary *string `json:"summary"`
	UpToSeq int64   `json:"up_to_seq" validate:"min=0,max=9007199254740992"`
}

// putSummary sets the summary. With up_to_seq, messages up to there leave the memory in the same
// change.
func (a contextAPI) putSummary(r *http.Request, in *summaryRequest) (any, error) {
	switch {
	case in.Summary == nil:
		return nil, fault.At(fault.Missing, "summary", "is required; use DELETE to delete the summary")
	case *in.Summary == "":
		return nil, fault.At(fault.Invalid, "summary", "must not be empty; use DELETE to delete the summary")
	}
	s, err := a.contexts.SetSummary(r.Context(), projectOf(r), chi.URLParam(r, "id"), *in.Summary, in.UpToSeq)
	if err != nil {
		return nil, err
	}
	return newSummaryBody(s), nil
}

func (a contextAPI) deleteSummary(r *http.Request) error {
	_, err := a.contexts.SetSummary(r.Context(), projectOf(r), chi.URLParam(r, "id"), "", 0)
	return err
}
