package echo

import (
	"strings"

	"github.com/heardlog/heardlog/internal/text"
)

// WithoutOpening removes the words of opening from the front of said, in any spelling, and
// returns the rest with its punctuation. If said is only a part of opening, rest is "". ok is
// false if said begins with other words, or has none.
func WithoutOpening(said, opening string) (rest string, ok bool) {
	var want []string
	words(opening, func(w string, _ int) bool {
		want = append(want, foldWord(w))
		return true
	})
	n, cut := 0, -1
	words(said, func(w string, end int) bool {
		if n == len(want) || foldWord(w) != want[n] {
			return false
		}
		n, cut = n+1, end
		return true
	})
	switch {
	case n == 0:
		return "", false
	case n < len(want):
		return "", firstWord(said[cut:]) == ""
	}
	rest = said[cut:]
	return strings.TrimSpace(rest[text.Marks(rest):]), true
}
