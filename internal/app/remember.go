package app

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/memory"
)

// newRemember creates what connects calls with the long-term memory of their callers. It asks
// through a.answers, which is created later.
func (a *App) newRemember(ctx context.Context, reg prometheus.Registerer) error {
	key, err := a.store.ServerKey(ctx, "memory fences")
	if err != nil {
		return err
	}
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "heardlog_extractions_total", Help: "Extractions of facts from calls, by outcome: ok, part (of a running call), nothing (was said or may be kept), retried, given_up.",
	}, []string{"outcome"})
	reg.MustRegister(outcomes)
	extractor := remember.Extractions(a.jobs, remember.Extraction{
		Head: a.store.Head,
		Part: func(ctx context.Context, g *memory.Agent, p *job.Progress) (remember.Prompt, bool, error) {
			ask, to, ok, err := a.facts.Part(ctx, g.Project, g.Settings.Scope.UserID, g.ID, readOf(*p), !g.Status.Ended())
			p.UpTo, p.Rev = to.UpTo, to.Rev
			return remember.Prompt(ask), ok, err
		},
		Ask: func(ctx context.Context, g *memory.Agent, model string, p remember.Prompt) (string, error) {
			r, err := a.answers.Ask(ctx, turn.Question{Agent: *g, System: p.System, User: p.User, Model: model, Span: "extract facts"})
			return r.Text, err
		},
		Extract: func(ctx context.Context, g *memory.Agent, answer string, from, to job.Progress) error {
			_, err := a.facts.ExtractPart(ctx, g.Project, g.Settings.Scope.UserID, g.ID, answer, readOf(from), readOf(to))
			return err
		},
		RetryAfter: func(err error) time.Duration { return turn.RetryAfter(err, time.Now()) },
		Count:      func(outcome string) { outcomes.WithLabelValues(outcome).Inc() },
	})
	a.onAgentEnded(extractor.Ended)
	a.onAgentErased(extractor.Forget)
	a.remember = remember.New(remember.Config{
		Calls: a.recall, Facts: rememberedFacts{a}, Patterns: a.patterns.Best, Allowed: a.callers.KeepsFacts, Records: a.store, Heard: a.heardToEnd, Keep: a.service.Agents.KeepKnown, Extractor: extractor,
		Key: key, Now: a.now, OnError: a.problem,
	})
	return nil
}

// readOf returns how far a call was read for facts.
func readOf(p job.Progress) facts.Read { return facts.Read{UpTo: p.UpTo, Rev: p.Rev} }

// heardToEnd reports whether an agent's answer counts, says something, and nothing is known to have
// cut it. An answer that calls tools of the client goes on with the next one and does not count.
func (a *App) heardToEnd(ctx context.Context, g *memory.Agent, seq int64) (bool, error) {
	msgs, err := a.store.Messages(ctx, g.Project, g.ID, memory.MessageQuery{AfterSeq: seq - 1, Limit: 1})
	if err != nil || len(msgs) == 0 {
		return false, err
	}
	m := &msgs[0]
	return m.Seq == seq && m.Role == memory.Assistant && m.Counts() && m.Content != "" && len(m.ToolCalls) == 0 &&
		!m.Interrupted && !m.CutGenerated && m.Failure == nil, nil
}

// rememberedFacts adapts package facts for package remember.
type rememberedFacts struct{ a *App }

// Known implements remember.Facts.
func (f rememberedFacts) Known(ctx context.Context, project, user string, topK, budget int) (k memory.Known, err error) {
	b, err := f.a.facts.Context(ctx, project, user, "", topK, budget)
	if err != nil || b.Text == "" {
		return k, err
	}
	_, k.Text, _ = strings.Cut(b.Text, "\n") // without the heading
	for _, fact := range b.Facts {
		k.IDs = append(k.IDs, fact.ID)
	}
	return k, nil
}

// Recall implements remember.Facts.
func (f rememberedFacts) Recall(ctx context.Context, project, user, words string, limit int) ([]remember.Note, string, error) {
	hits, strength, err := f.a.facts.Recall(ctx, project, user, recall.Query{Text: words, K: limit, Now: f.a.now()}, 0)
	out := make([]remember.Note, len(hits))
	for i, h := range hits {
		out[i] = remember.Note{ID: h.Fact.ID, Content: h.Fact.Content, Line: h.Fact.Line()}
		if src := h.Fact.Source; src != nil {
			out[i].Call, out[i].FromSeq, out[i].ToSeq = src.AgentID, src.FromSeq, src.ToSeq
		}
	}
	return out, strength, err
}

// proofs is how many of the newest messages may prove a fact that a model wants to keep.
const proofs = 8

// Add implements remember.Facts. The quote is what the caller said with the most words of the fact,
// or else last; all of the messages belong to the proof.
func (f rememberedFacts) Add(ctx context.Context, g *memory.Agent, content, kind string) (id, state string, err error) {
	_, msgs, err := f.a.store.Recent(ctx, g.Project, g.ID, proofs, false)
	if err != nil {
		return "", "", err
	}
	var said []*memory.Message // newest first
	for i := range slices.Backward(msgs) {
		if m := &msgs[i]; m.Role == memory.User && m.Content != "" && m.Source != memory.SourceCommand && m.Source != memory.SourceSilence {
			said = append(said, m)
		}
	}
	if len(said) == 0 {
		return "", "", fault.New(fault.Invalid, "the caller has said nothing that proves it")
	}
	last := said[0].Seq
	slices.SortStableFunc(said, func(a, b *memory.Message) int {
		return cmp.Compare(facts.Shared(content, b.Content), facts.Shared(content, a.Content))
	})
	for _, m := range said {
		var fact *facts.Fact
		fact, _, err = f.a.facts.Add(ctx, g.Project, g.Settings.Scope.UserID, facts.New{
			Content: content, Kind: facts.Kind(kind), By: facts.ByTool, Cause: "tool",
			Source: &facts.Source{AgentID: g.ID, FromSeq: msgs[0].Seq, ToSeq: last, Quote: clipRunes(m.Content, facts.MaxContent), Speaker: string(memory.User)},
		})
		if err == nil {
			return fact.ID, string(fact.State), nil
		}
		if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), "source") {
			return "", "", err
		}
	}
	return "", "", err
}

// clipRunes returns the first n characters of a text, cut after a word.
func clipRunes(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	s = string([]rune(s)[:n])
	if i := strings.LastIndexByte(s, ' '); i > 0 {
		s = s[:i]
	}
	return s
}

// Find implements remember.Facts.
func (f rememberedFacts) Find(ctx context.Context, project, user, words string, limit int) ([]remember.Note, error) {
	list, err := f.a.facts.Search(ctx, project, user, facts.Query{Text: words, Words: true, TopK: limit, States: []facts.State{facts.Active, facts.Draft}})
	out := make([]remember.Note, 0, len(list))
	for _, fact := range list {
		out = append(out, remember.Note{ID: fact.ID, Content: fact.Content})
	}
	return out, err
}

// Delete implements remember.Facts.
func (f rememberedFacts) Delete(ctx context.Context, project, user, id string) error {
	return f.a.facts.Delete(ctx, project, user, id)
}
