package agents

import (
	"context"
	"crypto/sha256"
	"errors"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// Detector finds names and the like in texts. Its methods are safe for concurrent use.
type Detector interface {
	// Rules returns how the texts of a project are checked, nil if they are not.
	Rules(project string) *DetectorRules
	// Find returns what it finds in each of the texts, and an error if it has not checked all of
	// them within its deadline.
	Find(ctx context.Context, project string, texts []string) ([][]redact.Found, error)
	// Unchecked is called with the number of texts that were not checked, and what became of them.
	Unchecked(project string, texts int, result Uncheck, err error)
}

// Uncheck is what became of texts that could not be checked.
type Uncheck string

// The values of Uncheck.
const (
	UncheckedStored   Uncheck = "stored"   // as they are
	UncheckedWithheld Uncheck = "withheld" // stored as "[withheld]"
	UncheckedRefused  Uncheck = "refused"
)

// DetectorRules say how the texts of a project are checked.
type DetectorRules struct {
	// Open has texts stored as they are if they cannot be checked. Otherwise they are not stored.
	Open bool
	// Pseudonyms numbers the names of a call: "[person-1]".
	Pseudonyms bool
	// Forgets keeps no names: the project's texts are not those of calls.
	Forgets bool
}

// errUnchecked ends a decision whose texts have to be checked first.
var errUnchecked = errors.New("texts have to be checked for names first")

// maxChecks limits how often a change is decided again because it then has other texts.
const maxChecks = 8

// maxFound limits the memory for what was found in texts, in bytes.
const maxFound = 8 << 20

// findings are what was found in a text.
type findings struct{ found []redact.Found }

// foundKey names a text of a project.
func foundKey(project, text string) [sha256.Size]byte {
	return sha256.Sum256([]byte(project + "\x00" + text))
}

// detects returns how the texts of a project are checked, nil if they are not.
func (s *Messages) detects(project string) *DetectorRules {
	if s.cfg.Detector == nil {
		return nil
	}
	return s.cfg.Detector.Rules(project)
}

// lookup returns a lookup for texts of a project.
func (s *Messages) lookup(project string, d *DetectorRules) *redact.Lookup {
	return &redact.Lookup{
		Pseudonyms: d.Pseudonyms, Forgets: d.Forgets,
		Cached: func(text string) ([]redact.Found, bool) {
			f, ok := s.found.Get(foundKey(project, text))
			if !ok {
				return nil, false
			}
			return f.found, true
		},
	}
}

type withholdKey struct{}

// Withholding returns the context of a change about what has been said already. A text of it that
// cannot be checked is stored as "[withheld]". Other changes fail then.
func Withholding(ctx context.Context) context.Context {
	return context.WithValue(ctx, withholdKey{}, true)
}

// checked runs write until it does not fail with errUnchecked any more, and has the detector check
// the texts of which nothing is known in between. l is nil if no detector is set for the project.
func (s *Messages) checked(ctx context.Context, project string, write func(l *redact.Lookup) error) error {
	d := s.detects(project)
	if d == nil {
		return write(nil)
	}
	l := s.lookup(project, d)
	for n := 1; ; n++ {
		err := write(l)
		if !errors.Is(err, errUnchecked) {
			return err
		}
		if err := s.check(ctx, project, d, l, n); err != nil {
			return err
		}
	}
}

// Redact runs fn, with what replaces personal data in texts of an agent that are stored outside its
// ledger, or of a project if only that is set. It may run more than once; what it sets at last
// counts. It fails with fault.Unavailable if the texts cannot be checked.
func (s *Messages) Redact(ctx context.Context, a *memory.Agent, fn func(*redact.Redactor)) error {
	return s.checked(ctx, a.Project, func(l *redact.Lookup) error {
		if l == nil {
			fn(s.Redactor(a))
			return nil
		}
		r, upstream := s.patterns(a)
		fn(r.With(l.Read(a.Settings.Names), upstream))
		return unchecked(l)
	})
}

// unchecked returns errUnchecked if there are texts to check.
func unchecked(l *redact.Lookup) error {
	if len(l.Missing()) > 0 {
		return errUnchecked
	}
	return nil
}

// check has the texts checked that a lookup does not know. n is how often that was done for the
// change.
func (s *Messages) check(ctx context.Context, project string, d *DetectorRules, l *redact.Lookup, n int) error {
	texts := l.Missing()
	found, err := s.cfg.Detector.Find(ctx, project, texts)
	switch {
	case err == nil && n < maxChecks:
		for i, text := range texts {
			l.Tell(text, found[i])
			s.found.Set(foundKey(project, text), &findings{found[i]})
		}
		return nil
	case ctx.Err() != nil:
		return fault.Ended(ctx)
	case err == nil:
		err = errUnchecked
	}
	result := UncheckedRefused
	if d.Open {
		result = UncheckedStored
	} else if withhold, _ := ctx.Value(withholdKey{}).(bool); withhold {
		result = UncheckedWithheld
	}
	s.cfg.Detector.Unchecked(project, len(texts), result, err)
	for _, text := range texts {
		switch result {
		case UncheckedStored:
			l.Tell(text, nil)
		case UncheckedWithheld:
			l.Withhold(text)
		case UncheckedRefused:
			return fault.Wrap(fault.Unavailable, err, "the detector of names has not checked the texts; nothing was stored; try again")
		}
	}
	return nil
}

// withNames returns a decision whose texts are replaced with a lookup, and which stores the names
// that it adds. It fails with errUnchecked if texts have to be checked.
func withNames(l *redact.Lookup, decide memory.Decision) memory.Decision {
	if l == nil {
		return decide
	}
	return func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		a := *h.Agent
		a.Settings.Names = l.Begin(h.Agent.Settings.Names)
		c, err := decide(namedView{view, &a})
		names, added := l.End()
		if missing := unchecked(l); missing != nil {
			return memory.Change{}, missing
		}
		if err != nil {
			return memory.Change{}, err
		}
		switch {
		case c.Agent != nil:
			a = *c.Agent
		case added && !c.Empty():
			a = *h.Agent
			a.Rev = h.Rev + 1
		default:
			return c, nil
		}
		a.Settings.Names = names
		c.Agent = &a
		return c, nil
	}
}

// namedView is a view of an agent for a decision with a lookup.
type namedView struct {
	memory.AgentView
	agent *memory.Agent
}

// Head implements memory.AgentView.
func (v namedView) Head() memory.Head {
	h := v.AgentView.Head()
	h.Agent = v.agent
	return h
}

// plain applies a decision, without what withEffects adds.
func (s *Messages) plain(ctx context.Context, project, id string, decide memory.Decision) error {
	return s.checked(ctx, project, func(l *redact.Lookup) error {
		return s.cfg.Ledger.Update(ctx, project, id, withNames(l, decide))
	})
}
