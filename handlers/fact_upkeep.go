package handlers

import (
	"context"
	"net/http"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
)

// act serves a change of one fact that takes nothing but a cause.
func (a factAPI) act(do func(ctx context.Context, project, user, id, cause string) (*facts.Fact, error)) handlerFunc {
	return mayTake(a.bodies, func(r *http.Request, in *factCause) (any, error) {
		return a.one(r, func(ctx context.Context, project, user, id string) (*facts.Fact, error) {
			return do(ctx, project, user, id, in.Cause)
		})
	})
}

// decayRequest lowers a confidence.
type decayRequest struct {
	Factor *float64 `json:"factor"`
	factCause
}

func (a factAPI) decay(r *http.Request, in *decayRequest) (any, error) {
	return a.one(r, func(ctx context.Context, project, user, id string) (*facts.Fact, error) {
		return a.facts.Decay(ctx, project, user, id, valueOr(in.Factor, facts.DefaultFactor), in.Cause)
	})
}

// decayAllRequest lowers the confidence of all facts of a caller.
type decayAllRequest struct {
	Factor    *float64 `json:"factor"`
	DropBelow float64  `json:"drop_below"`
	DryRun    bool     `json:"dry_run"`
	factCause
}

// decayedJSON is what a decay of all facts did or would do.
type decayedJSON struct {
	Decayed int        `json:"decayed"` // facts that stay
	Dropped []factJSON `json:"dropped"` // facts that were deleted
	DryRun  bool       `json:"dry_run"`
}

func (a factAPI) decayAll(r *http.Request, in *decayAllRequest) (any, error) {
	user, err := a.shownTo(r)
	if err != nil {
		return nil, err
	}
	kept, dropped, err := a.facts.DecayAll(r.Context(), projectOf(r), user, valueOr(in.Factor, facts.DefaultFactor), in.DropBelow, in.DryRun, in.Cause)
	if err != nil {
		return nil, err
	}
	return decayedJSON{Decayed: len(kept), Dropped: newFactsJSON(user, dropped), DryRun: in.DryRun}, nil
}

// searchFactsRequest is a search.
type searchFactsRequest struct {
	Query string   `json:"query"`
	TopK  *int     `json:"top_k" validate:"omitempty,gte=1,lte=1000"`
	Match string   `json:"match" validate:"omitempty,oneof=substring words"`
	Topic string   `json:"topic"`
	Kind  string   `json:"kind"`
	State []string `json:"state" validate:"max=5"`
	AsOf  string   `json:"as_of"`
}

type factsFoundJSON struct {
	Facts   []factJSON `json:"facts"`
	Consent string     `json:"consent,omitempty"` // as in factListJSON
}

func (a factAPI) search(r *http.Request, in *searchFactsRequest) (any, error) {
	user, consent, err := a.reader(r)
	if err != nil {
		return nil, err
	}
	if err := checkQuery(in.Query); err != nil {
		return nil, err
	}
	q := facts.Query{Text: in.Query, Words: in.Match == words, TopK: valueOr(in.TopK, defaultTopFacts), Topic: in.Topic}
	if q.AsOfMS, err = timeOf("as_of", in.AsOf); err != nil {
		return nil, err
	}
	if err := selectFacts(&q, in.Kind, in.State); err != nil {
		return nil, err
	}
	if consent != caller.All {
		return factsFoundJSON{Facts: []factJSON{}, Consent: string(consent)}, nil
	}
	list, err := a.facts.Search(r.Context(), projectOf(r), user, q)
	if err != nil {
		return nil, err
	}
	return factsFoundJSON{Facts: newFactsJSON(user, list)}, nil
}

// blockJSON is what a model is told about a caller.
type blockJSON struct {
	Block   string     `json:"block"`
	Facts   []factJSON `json:"facts"`
	Consent string     `json:"consent,omitempty"` // as in factListJSON
}

func (a factAPI) context(r *http.Request) (any, error) {
	user, consent, err := a.reader(r)
	if err != nil {
		return nil, err
	}
	v := r.URL.Query()
	topK, err := intParam(v, "top_k", defaultBlock, 1, maxBlock)
	if err != nil {
		return nil, err
	}
	budget, err := intParam(v, "budget_tokens", 0, 1, maxBlockBudget)
	if err != nil {
		return nil, err
	}
	if err := checkQuery(v.Get("query")); err != nil {
		return nil, err
	}
	if consent != caller.All {
		return blockJSON{Facts: []factJSON{}, Consent: string(consent)}, nil
	}
	b, err := a.facts.Context(r.Context(), projectOf(r), user, v.Get("query"), topK, budget)
	if err != nil {
		return nil, err
	}
	return blockJSON{Block: b.Text, Facts: newFactsJSON(user, b.Facts)}, nil
}

// extractRequest is a model's answer with facts.
type extractRequest struct {
	AgentID string  `json:"agent_id" validate:"max=256"`
	Answer  *string `json:"answer"`
}

// rejectionJSON is an entry that was not stored.
type rejectionJSON struct {
	Index   int    `json:"index"`
	Reason  string `json:"reason"`
	Detail  string `json:"detail"`
	Content string `json:"content"`
}

// extractedJSON is what an extraction stored. Without an answer it has what to ask a model.
type extractedJSON struct {
	Facts    []factJSON          `json:"facts"`
	Rejected []rejectionJSON     `json:"rejected"`
	Prompt   []promptMessageJSON `json:"prompt,omitempty"`
}

type promptMessageJSON struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (a factAPI) extract(r *http.Request, in *extractRequest) (any, error) {
	user, err := a.user(r)
	if err != nil {
		return nil, err
	}
	out := extractedJSON{Facts: []factJSON{}, Rejected: []rejectionJSON{}}
	if in.Answer == nil {
		if in.AgentID == "" {
			return nil, fault.At(fault.Missing, "answer", "is required: what a model answered; or agent_id alone, for what to ask it")
		}
		p, _, err := a.facts.Prompt(r.Context(), projectOf(r), user, in.AgentID)
		if err != nil {
			return nil, err
		}
		if p.System != "" {
			out.Prompt = []promptMessageJSON{{"system", p.System}, {"user", p.User}}
		}
		return out, nil
	}
	x, err := a.facts.Extract(r.Context(), projectOf(r), user, in.AgentID, *in.Answer)
	if err != nil {
		return nil, err
	}
	out.Facts = newFactsJSON(user, x.Facts)
	for _, j := range x.Rejected {
		out.Rejected = append(out.Rejected, rejectionJSON(j))
	}
	return out, nil
}
