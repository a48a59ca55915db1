package facts

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/recall"
)

// Query selects facts. Zero values select any, but States is the active ones.
type Query struct {
	Topic  string // a whole topic, in any case
	Kind   Kind
	States []State
	// AsOfMS selects what was held to be true at that time, Unix ms, whatever its state is now.
	AsOfMS int64
	// Text is what to search for; every fact has the empty text.
	Text string
	// Words searches for the words of Text instead of Text as a whole: facts with any of them.
	Words bool
	TopK  int // of a search; 0 = all
}

func (q *Query) fits(f *Fact) bool {
	switch {
	case q.Kind != "" && f.Kind != q.Kind:
		return false
	case q.Topic != "" && !slices.ContainsFunc(f.Topics, func(t string) bool { return plain(t) == plain(q.Topic) }):
		return false
	case q.AsOfMS != 0:
		return f.holdsAt(q.AsOfMS)
	case len(q.States) > 0:
		return slices.Contains(q.States, f.State)
	}
	return f.State == Active
}

// Get returns a fact in any state, or fault.NotFound.
func (s *Service) Get(ctx context.Context, project, user, id string) (*Fact, error) {
	c, err := s.current(ctx, project, user)
	if err != nil {
		return nil, err
	}
	defer c.leave()
	if e := c.facts[id]; e != nil {
		return s.faded(e.Fact), nil
	}
	return nil, notFound(id)
}

// List returns facts, the last seen first.
func (s *Service) List(ctx context.Context, project, user string, q Query) ([]*Fact, error) {
	c, err := s.current(ctx, project, user)
	if err != nil {
		return nil, err
	}
	defer c.leave()
	out := s.fade(c.list(q.fits))
	slices.SortStableFunc(out, lastSeen)
	return out, nil
}

func lastSeen(a, b *Fact) int { return cmp.Or(cmp.Compare(b.SeenUS, a.SeenUS), older(b, a)) }

// Search returns the facts with a text in their content or one of their topics, in any case, the
// surest first and the oldest of equals. If there are more than TopK, a search for words keeps
// those that have most of the words, the rarest counting most.
func (s *Service) Search(ctx context.Context, project, user string, q Query) ([]*Fact, error) {
	c, err := s.current(ctx, project, user)
	if err != nil {
		return nil, err
	}
	defer c.leave()
	return search(s.fade(c.list(q.fits)), q), nil
}

func search(list []*Fact, q Query) []*Fact {
	surest := func(a, b *Fact) int { return cmp.Compare(b.Confidence, a.Confidence) }
	if q.Words && strings.TrimSpace(q.Text) != "" {
		scores := wordScores(list, q.Text)
		list = slices.DeleteFunc(list, func(f *Fact) bool { return scores[f.ID] == 0 })
		if q.TopK > 0 && len(list) > q.TopK {
			slices.SortStableFunc(list, func(a, b *Fact) int {
				return cmp.Or(cmp.Compare(scores[b.ID], scores[a.ID]), surest(a, b))
			})
			list = list[:q.TopK]
			slices.SortFunc(list, older)
		}
	} else if !q.Words {
		text := plain(q.Text)
		has := func(s string) bool { return strings.Contains(plain(s), text) }
		list = slices.DeleteFunc(list, func(f *Fact) bool { return !has(f.Content) && !slices.ContainsFunc(f.Topics, has) })
	}
	slices.SortStableFunc(list, surest)
	if q.TopK > 0 {
		list = list[:min(len(list), q.TopK)]
	}
	return list
}

// plain returns a text in a form in which texts that differ in case or in how accents are encoded
// are the same.
func plain(s string) string { return cases.Fold().String(norm.NFC.String(s)) }

// wordScores returns by ID how well facts have the words of a text; 0 is not at all.
func wordScores(list []*Fact, text string) map[string]float64 {
	has := make([]map[string]bool, len(list)) // the forms of each fact's words
	for i, f := range list {
		has[i] = map[string]bool{}
		for _, t := range recall.Terms(f.Content + "\n" + strings.Join(f.Topics, "\n")) {
			for _, form := range t {
				has[i][form] = true
			}
		}
	}
	out := map[string]float64{}
	seen := map[string]bool{}
	for _, term := range recall.Terms(text) {
		if seen[term[0]] {
			continue
		}
		seen[term[0]] = true
		var with []string
		for i, f := range list {
			if slices.ContainsFunc(term, func(form string) bool { return has[i][form] }) {
				with = append(with, f.ID)
			}
		}
		for _, id := range with {
			out[id] += math.Log1p(float64(len(list)) / float64(len(with)))
		}
	}
	return out
}

// Block is what a model is told about a caller.
type Block struct {
	Text  string  // "" without facts
	Facts []*Fact // those of the text, in its order
}

// heading is the first line of a block.
const heading = "## What I remember about you:"

// Context returns the block with the surest topK active facts, or with those that have words of a
// query. budget limits its length in tokens, of recall.BytesPerToken; 0 means no limit. Facts whose
// time has not begun are left out. Without the caller's consent the block is empty.
func (s *Service) Context(ctx context.Context, project, user, query string, topK, budget int) (Block, error) {
	if err := s.allowed(ctx, project, user); fault.Is(err, fault.Forbidden) {
		return Block{}, nil
	} else if err != nil {
		return Block{}, err
	}
	c, err := s.current(ctx, project, user)
	if err != nil {
		return Block{}, err
	}
	now := s.cfg.Now().UnixMilli()
	list := c.list(func(f *Fact) bool {
		return f.State == Active && f.ValidFromMS <= now && strings.TrimSpace(f.Content) != ""
	})
	c.leave()
	list = search(s.fade(list), Query{Text: query, Words: true, TopK: topK})
	var b Block
	left := budget*recall.BytesPerToken - len(heading)
	for _, f := range list {
		line := "\n" + f.Line()
		if left -= len(line); budget > 0 && left < 0 {
			break
		}
		b.Text += line
		b.Facts = append(b.Facts, f)
	}
	if b.Text != "" {
		b.Text = heading + b.Text
	}
	return b, nil
}

// Line returns the fact as a line of a block.
func (f *Fact) Line() string { return "- " + oneLine(f.Content) + " (confidence: " + f.Word() + ")" }

// oneLine keeps a text from adding lines of its own to a block, by whichever character ends one.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}
