package agents

import (
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// Redactor returns what replaces personal data in the agent's texts, by the rules of its project
// and its own. It is nil if there are none.
func (s *Messages) Redactor(a *memory.Agent) *redact.Redactor {
	rules := a.Settings.Redact
	if s.cfg.Redact != nil {
		rules = s.cfg.Redact(a.Project).With(rules)
	}
	if rules.Zero() {
		return nil
	}
	key, err := json.Marshal(rules)
	if err != nil {
		return redact.New(rules) // cannot happen
	}
	r, ok := s.redactors.Get(string(key))
	if !ok {
		r = redact.New(rules)
		s.redactors.Set(string(key), r)
	}
	return r
}

// maxRedactors limits how many compiled sets of rules are kept.
const maxRedactors = 1000

// showOriginals puts what the call brought into the context as it was said, instead of what is
// stored of it.
func (t *Turn) showOriginals(r *redact.Redactor) {
	for i, m := range t.Context {
		j := slices.IndexFunc(t.added, func(a memory.Message) bool { return a.Seq == m.Seq })
		if j >= 0 && (m.Paused() || t.added[j].Redacted(r).Content == m.Content) {
			t.Context[i] = &t.added[j]
		}
	}
}

// redact replaces personal data in all that a change stores.
func redactChange(c *memory.Change, r *redact.Redactor) {
	if r == nil {
		return
	}
	for _, list := range [2]*[]memory.Message{&c.Append, &c.Replace} {
		*list = slices.Clone(*list) // the decision may have kept it
		for i := range *list {
			(*list)[i] = (*list)[i].Redacted(r)
		}
	}
	if c.Agent != nil {
		a := c.Agent.Redacted(r)
		c.Agent = &a
	}
}
