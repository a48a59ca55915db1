package echo

import "strings"

// WithoutOpening takes the words of opening off the front of a text, however they are written, and gives what follows them, with its own punctuation. A
// text that ends within them is nothing but a part of them: rest is "" then. ok is false where the text begins otherwise, or has no words.
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
