package facts

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/longterm/recall"
)

// Hit is a fact that a recall found.
type Hit struct {
	Fact  *Fact
	Score float64
	Parts recall.Parts
}

// sureness is what a confidence of 1 adds to a score.
const sureness = .2

// Recall returns the facts that answer a query, best first, scored as turns are, with how much of
// the query they cover. It searches active facts or, with asOfMS, those that were held to be true
// at that time, Unix ms. Of the query, sessions do not apply, Call is that of the source, and times
// are those at which the facts were added.
func (s *Service) Recall(ctx context.Context, project, user string, q recall.Query, asOfMS int64) ([]Hit, string, error) {
	c, err := s.current(ctx, project, user)
	if err != nil {
		return nil, recall.None, err
	}
	defer c.leave()
	c.prepare()
	now, call := s.cfg.Now().UnixMilli(), q.Call
	q.Call, q.Budget, q.Searched = "", 0, func(id string) bool {
		f := c.facts[id].Fact
		switch {
		case call != "" && (f.Source == nil || f.Source.AgentID != call):
			return false
		case asOfMS != 0:
			return f.holdsAt(asOfMS)
		}
		return f.State == Active && f.ValidFromMS <= now
	}
	found, strength := c.index.Search(q)
	// Scores are relative to the best of their kind. A weak one must not pass for a strong turn.
	share := map[string]float64{recall.Strong: 1, recall.Weak: .5}[strength]
	if share == 0 {
		return nil, recall.None, nil
	}
	var out []Hit
	for i := range found {
		h := &found[i]
		f := s.faded(c.facts[h.Call].Fact)
		out = append(out, Hit{Fact: f, Score: share*h.Score + sureness*f.Confidence, Parts: h.Parts})
	}
	slices.SortStableFunc(out, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	return out, strength, nil
}

// prepare brings the index up to date with the facts.
func (c *caller) prepare() {
	if c.index == nil {
		c.index, c.indexed, c.stale = recall.NewIndex(), map[string]int64{}, true
	}
	if !c.stale {
		return
	}
	c.stale = false
	for id := range c.indexed {
		if c.facts[id] == nil {
			c.index.RemoveCall(id)
			delete(c.indexed, id)
		}
	}
	for id, e := range c.facts {
		if c.indexed[id] == e.rev {
			continue
		}
		c.indexed[id] = e.rev
		text := e.Content + "\n" + strings.Join(e.Topics, "\n")
		// Each is a call of its own, so that facts do not count as neighbors.
		c.index.Put(recall.Turn{Call: id, Seq: 1, Role: speakerUser, At: e.CreatedUS / 1000, Text: text, Complete: true})
	}
}
