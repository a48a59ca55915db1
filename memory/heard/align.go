package heard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Align finds the part of a generated text that the caller heard, given that part as a platform reports it, and gives
// it in the generated text's own characters. ok is false if heard is no part of generated.
//
// Compared are the letters and digits. White space, punctuation, case, accents, typographic quotes and dashes, markdown,
// emoji, XML and SSML tags do not count, and numbers may be written or spelled out in English on either side ("$5" and
// "five dollars", "9:30" and "nine thirty"). Code blocks, [stage directions] and the numbers of a list may be left out.
//
//   - Nothing heard gives "" and true; so does a text without letters, digits or symbols, unless generated has none either.
//   - heard at the beginning of generated gives what ends with its last word. Where heard ends inside a word, that word is
//     cut at the same letter; a number spelled out but not to its end is left out whole.
//   - heard as words in a row further on gives everything up to their end, at the first such place: some platforms report
//     the last utterance only. A single word must occur only once, so that a stray "the" is not taken for evidence.
//   - Punctuation right after the last word belongs to it if heard has it there. If nothing is left to hear, generated
//     is given whole.
//
// The result is a prefix of generated, and aligning it again gives it again. Time is in proportion to the lengths: where very many
// numbers allow very many readings the search for a place ends early, and the answer may be false for text that is a part.
// Invalid UTF-8 is passed over.
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
	if !found || end == 0 { // 0: heard ends inside the first number; it may stand whole further on
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

// silentFrom tells whether nothing that must be heard stands after n bytes of text.
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

// ending gives the punctuation after the last word, without white space.
func (s *speech) ending() string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s.src[s.end[len(s.end)-1]:])
}

// sharedPunctuation gives the length of the beginning of attached up to the last rune that heard has too, in order.
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

// plainPunctuation gives the ASCII form of typographic and full-width punctuation.
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
