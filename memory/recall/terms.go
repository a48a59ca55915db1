package recall

// Term is a word of a text that carries meaning, in the forms by which it is compared: as it
// stands, and its stems in English and in the language of the text.
type Term []string

// Terms returns the words of a text that carry meaning, in order.
func Terms(s string) []Term {
	words := wordsOf(s)
	l := languageOf(words)
	if l == nil {
		l = languages[0]
	}
	var out []Term
	for _, w := range words {
		if l.stop[w.text] {
			continue
		}
		t := Term{w.text}
		for _, in := range []*language{languages[0], l} {
			if stem := in.stem(w); stem != w.text {
				t = append(t, stem)
			}
		}
		out = append(out, t)
	}
	return out
}
