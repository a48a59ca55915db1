package handlers

import (
	"context"
	"slices"
	"time"

	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
)

// factHitJSON is a fact that a recall found.
type factHitJSON struct {
	Kind    string        `json:"kind"`
	ID      string        `json:"id"`
	Score   float64       `json:"score"`
	Content string        `json:"content"`
	At      string        `json:"at"`
	Fact    factJSON      `json:"fact"`
	Also    []string      `json:"also,omitempty"` // the turns that prove it
	Explain *recall.Parts `json:"explain,omitempty"`
}

// factsFound is what a recall found among the facts.
type factsFound struct {
	user     string // the caller, by its own name
	consent  caller.Remember
	hits     []facts.Hit
	strength string
	late     bool // the deadline has passed
	err      error
}

// wants reports whether hits of a kind are asked for.
func (in *recallRequest) wants(kind string) bool {
	return len(in.Kinds) == 0 || slices.Contains(in.Kinds, kind)
}

// startFacts begins to search the facts, beside the turns, and returns the function that waits for
// the result.
func (a recallAPI) startFacts(ctx context.Context, project string, in *recallRequest, q *recall.Query, deadline time.Duration) (func() factsFound, error) {
	asOf, err := timeOf("as_of", in.AsOf)
	if err != nil {
		return nil, err
	}
	if a.facts == nil || !in.wants("fact") || in.SessionID != "" || in.Role == string(memory.Assistant) {
		return func() factsFound { return factsFound{strength: recall.None} }, nil
	}
	within, stop := context.WithTimeout(ctx, deadline)
	done := make(chan factsFound, 1)
	go func() {
		var out factsFound
		out.strength = recall.None
		c, err := a.callers.Get(within, project, in.UserID)
		out.user, out.consent = c.User, c.Consent.At(a.now())
		if out.err = err; err == nil && out.consent == caller.All {
			out.hits, out.strength, out.err = a.facts.Recall(within, project, in.UserID, *q, asOf)
		}
		if out.err != nil && within.Err() != nil && ctx.Err() == nil {
			out.late, out.err = true, nil
		}
		done <- out
	}()
	return func() factsFound { defer stop(); return <-done }, nil
}

// strengths orders the strengths.
var strengths = []string{recall.None, recall.Weak, recall.Strong}

// add puts turns and facts, each best first, into the answer. A fact and a turn that proves it are
// one hit, the better of the two.
func (out *recallJSON) add(turns []hitJSON, known *factsFound, in *recallRequest) {
	if known.late {
		out.Degraded = append(out.Degraded, "facts")
	}
	if slices.Index(strengths, known.strength) > slices.Index(strengths, out.Strength) {
		out.Strength = known.strength
	}
	k := valueOr(in.K, defaultHits)
	left := valueOr(in.BudgetTokens, 0) * recall.BytesPerToken
	room := func(n int) bool {
		left -= n
		return in.BudgetTokens == nil || left >= 0 || len(out.Hits) == 0
	}
	list := known.hits
	for len(out.Hits) < k && len(turns)+len(list) > 0 {
		if len(list) == 0 || len(turns) > 0 && turns[0].Score >= list[0].Score {
			t := turns[0]
			turns = turns[1:]
			list = slices.DeleteFunc(list, func(h facts.Hit) bool {
				same := proves(&t, h.Fact)
				if same {
					t.Also = append(t.Also, h.Fact.ID)
				}
				return same
			})
			size := len(t.Content)
			for _, c := range t.Context {
				size += len(c.Content)
			}
			if !room(size) {
				return
			}
			out.Hits = append(out.Hits, t)
			continue
		}
		h := list[0]
		list = list[1:]
		j := newFactHit(known.user, &h, in.Explain)
		turns = slices.DeleteFunc(turns, func(t hitJSON) bool {
			same := proves(&t, h.Fact)
			if same {
				j.Also = append(j.Also, t.ID)
			}
			return same
		})
		if !room(len(h.Fact.Content)) {
			return
		}
		out.Hits = append(out.Hits, j)
	}
}

func newFactHit(user string, h *facts.Hit, explain bool) factHitJSON {
	j := factHitJSON{
		Kind: "fact", ID: h.Fact.ID, Score: shownScore(h.Score), Content: h.Fact.Content, At: shownTime(h.Fact.CreatedUS / 1000),
		Fact: newFactJSON(user, h.Fact),
	}
	if explain {
		j.Explain = &h.Parts
	}
	return j
}

// proves reports whether a turn is of the source of a fact.
func proves(t *hitJSON, f *facts.Fact) bool {
	s := f.Source
	return s != nil && s.AgentID == t.AgentID && t.Seq >= s.FromSeq && t.Seq <= s.ToSeq
}
