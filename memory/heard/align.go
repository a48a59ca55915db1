package heard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Align finds the part of a generated text that the caller heard. heard is that part as a platform
// reports it. Align returns it in the characters of the generated text; ok is false if heard is not
// part of generated.
//
// Only letters and digits are compared. White space, punctuation, case, accents, typographic quotes
// and dashes, markdown, emoji, XML and SSML tags are ignored. Numbers may be digits or English
// words on either side ("$5" and "five dollars", "9:30" and "nine thirty"). Code blocks, [stage
// directions] and the numbers of a list may be missing.
//
//   - If heard is empty, the result is "" and true. So it is for a text without letters, digits or
//     symbols, unless generated has none either.
//   - If generated begins with heard, the result ends with heard's last word. If heard ends inside
//     a word, that word is cut at the same letter; a number whose words are incomplete is left out.
//   - If heard is a run of words further on, the result is everything up to the end of the first
//     such run, because some platforms report the last utterance only. A single word must occur
//     only once, so that a stray "the" is not evidence.
//   - Punctuation directly after the last word is included if heard has it. If nothing audible is
//     left, the result is all of generated.
//
// The result is a prefix of generated, and aligning it again returns it again. The time is
// proportional to the lengths. If very many numbers allow very many readings, the search stops
// early, and ok may be false for a text that is a part. Invalid UTF-8 is skipped.
func Align(generated, heard string) (prefix string, ok bool) {
	if heard == "" {
		return "", true
	}
	h := newSpeech(heard)
	g := newSpeech(generated)
	if h.text == "" {
		if g.text == "" {
			return generated, true
		}
		return "", true
	}
	m := newMatcher(g, h)
	end, found := m.prefix()
	if !found || end == 0 { // 0: heard ends inside the first number; it may occur whole further on
		if at, further := m.run(); further {
			end, found = at, true
		}
	}
	if !found {
		return "", false
	}
	if g.silentFrom(end) {
		return generated, true
	}
	c := g.cutAt(end)
	if c.whole && c.at > 0 {
		c.at += sharedPunctuation(g.attached(c), h.ending())
	}
	return generated[:c.at], true
}

// silentFrom reports whether nothing audible is left after n bytes of text.
func (s *speech) silentFrom(n int32) bool {
	for int(n) < len(s.text) {
		to := n
		for _, k := range s.skipsAt(n) {
			to = max(to, k.to)
		}
		if to == n {
			return false
		}
		n = to
	}
	return true
}

// ending returns the punctuation after the last word, without white space.
func (s *speech) ending() string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s.src[s.end[len(s.end)-1]:])
}

// sharedPunctuation returns the length of the prefix of attached up to the last rune that heard has
// too, in order.
func sharedPunctuation(attached, heard string) int {
	want := []rune(strings.ReplaceAll(heard, "…", "..."))
	n := 0
	for i := 0; i < len(attached) && len(want) > 0; {
		r, size := utf8.DecodeRuneInString(attached[i:])
		i += size
		dots := 1
		if r == '…' {
			r, dots = '.', 3
		}
		for ; dots > 0 && len(want) > 0 && plainPunctuation(want[0]) == plainPunctuation(r); dots-- {
			n, want = i, want[1:]
		}
	}
	return n
}

// plainPunctuation returns the ASCII form of typographic and full-width punctuation.
func plainPunctuation(r rune) rune {
	switch r {
	case '’', '‘', '‛', '′', '`', '´':
		return '\''
	case '“', '”', '„', '«', '»', '″', '「', '」':
		return '"'
	case '–', '—', '−', '‐', '‑':
		return '-'
	case '。', '．', '｡':
		return '.'
	case '、':
		return ','
	}
	if 0xFF01 <= r && r <= 0xFF5E {
		return r - 0xFEE0
	}
	return r
}
