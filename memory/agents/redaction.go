package agents

import (
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// Redactor returns what replaces personal data in the agent's texts, by the rules of its project
// and its own. It is nil if there are none.
//
// If the project has a detector, names are replaced in texts that it has checked. Any other text
// becomes "[withheld]": Redact and withNames have texts checked first.
func (s *Messages) Redactor(a *memory.Agent) *redact.Redactor {
	r, upstream := s.patterns(a)
	d := s.detects(a.Project)
	if d == nil {
		return r
	}
	if names := a.Settings.Names; names != nil && names.Lookup != nil {
		return r.With(names.Lookup, upstream)
	}
	return r.With(s.lookup(a.Project, d).Read(a.Settings.Names), upstream)
}

// patterns returns what replaces what rules alone find, nil for nothing, and Rules.Upstream.
func (s *Messages) patterns(a *memory.Agent) (r *redact.Redactor, upstream string) {
	rules := a.Settings.Redact
	if s.cfg.Redact != nil {
		rules = s.cfg.Redact(a.Project).With(rules)
	}
	if rules.Zero() {
		return nil, rules.Upstream
	}
	key, err := json.Marshal(rules)
	if err != nil {
		return redact.New(rules), rules.Upstream // cannot happen
	}
	r, ok := s.redactors.Get(string(key))
	if !ok {
		r = redact.New(rules)
		s.redactors.Set(string(key), r)
	}
	return r, rules.Upstream
}

// maxRedactors limits how many compiled sets of rules are kept.
const maxRedactors = 1000

// showOriginals puts what the call brought into the context as it was said, instead of what is
// stored of it.
func (t *Turn) showOriginals(r *redact.Redactor) {
	for i, m := range t.Context {
		j := slices.IndexFunc(t.added, func(a memory.Message) bool { return a.Seq == m.Seq })
		if j >= 0 && (m.Hidden() || t.added[j].Redacted(r).Content == m.Content) {
			t.Context[i] = &t.added[j]
		}
	}
}

// redactChange replaces personal data in all that a change stores.
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
