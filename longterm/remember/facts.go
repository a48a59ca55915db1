package remember

import (
	"context"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/ossa/pattern"
)

// Facts keeps what is known of callers.
type Facts interface {
	// Known returns a text about a caller of at most so many tokens and facts, with the facts' IDs.
	// It returns nothing if the caller does not allow it.
	Known(ctx context.Context, project, user string, topK, budget int) (memory.Known, error)
	// Recall returns the active facts that words ask for, best first, at most limit, and how much
	// of the words they cover: a strength of package recall.
	Recall(ctx context.Context, project, user, words string, limit int) ([]Note, string, error)
	// Add stores a fact that the model of an agent's running call has found in it, and returns its
	// ID and state.
	Add(ctx context.Context, a *memory.Agent, content, kind string) (id, state string, err error)
	// Find returns facts with words of a text.
	Find(ctx context.Context, project, user, words string, limit int) ([]Note, error)
	// Delete erases a fact.
	Delete(ctx context.Context, project, user, id string) error
}

// Known returns what is known of a caller and which patterns were learned, for the settings of an
// agent that is about to be joined. It returns nil if that cannot be said before the deadline, or
// if the settings ask for nothing.
func (s *Service) Known(ctx context.Context, project string, of *memory.Settings) *memory.Known {
	r, user := &of.Memory.Remember, of.Scope.UserID
	personal := r.Inject && user != ""
	if !personal && len(r.Patterns) == 0 {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, Deadline)
	defer stop()
	var k memory.Known
	var err error
	if personal = personal && s.Allowed(ctx, project, user); personal {
		if k, err = s.cfg.Facts.Known(ctx, project, user, r.TopK, r.BudgetTokens); err != nil {
			s.failed(ctx, "find what is known of a caller", err)
			return nil
		}
	}
	if len(r.Patterns) > 0 {
		list, err := s.cfg.Patterns(ctx, project, r.Patterns, r.TopK)
		if err != nil {
			s.failed(ctx, "find learned patterns", err)
			return nil
		}
		learned(&k, list, r.BudgetTokens)
	} else if !personal {
		return nil
	}
	return &k
}

// patternMark begins the IDs of patterns in memory.Known.IDs.
const patternMark = "pattern:"

// learned adds patterns to what is known, best first, as long as they fit a budget in tokens.
func learned(k *memory.Known, list []pattern.Pattern, budget int) {
	left := budget*recall.BytesPerToken - len(k.Text)
	for i := range list {
		line := "- learned from earlier calls (" + list[i].Type + "): " + strings.Join(strings.Fields(list[i].Content), " ")
		if left -= len(line) + 1; left < 0 {
			return
		}
		if k.Text != "" {
			k.Text += "\n"
		}
		k.Text += line
		k.IDs = append(k.IDs, patternMark+list[i].ID)
	}
}

// Introduce returns the block of what was known of an agent's caller, and of the patterns, when the
// call began, the same bytes for the whole call. The first prompt of an agent for which the join
// could not say it decides.
func (s *Service) Introduce(ctx context.Context, a *memory.Agent) (b Block) {
	m, user := &a.Settings.Memory, a.Settings.Scope.UserID
	if !m.Remember.Prompts() || user == "" && len(m.Remember.Patterns) == 0 || m.Known != nil && m.Known.Text == "" {
		return b
	}
	ctx, stop := context.WithTimeout(ctx, Deadline)
	defer stop()
	known := m.Known
	if known == nil {
		k := s.Known(ctx, a.Project, &a.Settings)
		if k == nil {
			return b
		}
		kept, err := s.cfg.Keep(ctx, a.Project, a.ID, *k)
		switch {
		case fault.Is(err, fault.NotFound): // it has ended: nothing depends on the next prompt
			kept = *k
		case err != nil:
			s.failed(ctx, "store what is known of a caller", err)
			return b
		}
		known = &kept
	}
	ofCaller := func(id string) bool { return !strings.HasPrefix(id, patternMark) }
	if known.Text == "" || slices.ContainsFunc(known.IDs, ofCaller) && !s.Allowed(ctx, a.Project, user) {
		return b
	}
	b.Text, b.IDs = fence(s.nonce(a), strings.Split(known.Text, "\n")), known.IDs
	b.Tokens = tokens(len(b.Text))
	return b
}

// Allowed reports whether the facts of a caller may be used. Without a caller, or an answer before
// the deadline, they are not.
func (s *Service) Allowed(ctx context.Context, project, user string) bool {
	if user == "" {
		return false
	}
	ctx, stop := context.WithTimeout(ctx, Deadline)
	defer stop()
	ok, err := s.cfg.Allowed(ctx, project, user)
	if err != nil {
		s.failed(ctx, "read what a caller allows", err)
	}
	return ok && err == nil
}

func (s *Service) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.cfg.OnError(what, err)
	}
}
