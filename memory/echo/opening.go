package echo

import "strings"

// WithoutOpening removes the words of opening from the front of a text, in any spelling, and
// returns the rest with its punctuation. If the text is only a part of opening, rest is "". ok is
// false if the text begins with other words, or has none.
func WithoutOpening(text, opening string) (rest string, ok bool) {
	var want []string
	words(opening, func(w string, _ int) bool {
		want = append(want, foldWord(w))
		return true
	})
	n, cut := 0, -1
	words(text, func(w string, end int) bool {
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
		return "", firstWord(text[cut:]) == ""
	}
	rest = text[cut:]
	return strings.TrimSpace(rest[marks(rest):]), true
}
