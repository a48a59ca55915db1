package heard

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Align finds the part of a generated text that the caller heard. heard is that part as a platform
// reports it. Align returns it in the characters of the generated text; ok is false if heard is not
// part of generated.
//
// Only letters and digits are compared. White space, punctuation, case, accents, typographic quotes
// and dashes, markdown, emoji, XML and SSML tags are ignored, and so are <think> blocks and a note
// at the end of heard that says that it was cut. Code blocks, [stage directions] and the numbers of
// a list may be missing.
//
// Either text may be written as a voice says it: numbers, dates, times, sums of money, units,
// symbols, addresses and abbreviations, in the languages of the tables in languages. What these do
// not know is compared word by word: other words between two runs of equal words are taken for the
// spoken form of what is written there, and nearly all plain words must agree.
//
//   - If heard is empty, the result is "" and true. So it is for a text without letters, digits or
//     symbols, unless generated has none either.
//   - If generated begins with heard, the result ends with heard's last word. If heard ends inside
//     a word, that word is cut at the same letter. A written form, such as 9:30 or km/h, is left
//     out if it was heard in part.
//   - If heard is a run of words further on, the result is everything up to the end of the first
//     such run, because some platforms report the last utterance only. A single word must occur
//     only once, so that a stray "the" is not evidence.
//   - Punctuation directly after the last word is included if heard has it. If nothing audible is
//     left, the result is all of generated.
//
// The result is a prefix of generated, and aligning it again returns it again. The time is
// proportional to the lengths, with a limit on the work for words that differ. If very many numbers
// allow very many readings, the search stops early, and ok may be false for a text that is a part.
// Invalid UTF-8 is skipped.
func Align(generated, heard string) (prefix string, ok bool) {
	return align(generated, heard, true)
}

// AlignExact is Align without the comparison word by word: all of heard must be the words of
// generated, or what the tables know to be said for them.
func AlignExact(generated, heard string) (prefix string, ok bool) {
	return align(generated, heard, false)
}

func align(generated, heard string, loose bool) (prefix string, ok bool) {
	if heard == "" {
		return "", true
	}
	g := newSpeech(generated)
	end, h, ok := int32(0), (*speech)(nil), false
	said := heard
	for {
		if h = newSpeech(said); h.text == "" {
			if g.text == "" {
				return generated, true
			}
			return "", true
		}
		end, ok = find(g, h)
		bare := WithoutNote(said)
		if ok || bare == said {
			break
		}
		said = bare
	}
	if !ok && loose {
		r := respoken{g: g, h: h}
		end, ok = r.align()
	}
	if !ok {
		return "", false
	}
	if rest := g.behind(end); g.silentFrom(end) || rest != "" && newSpeech(WithoutNote(rest)).text == "" {
		return generated, true
	}
	end = g.wholeForm(end, h)
	c := g.cutAt(end)
	if c.whole && c.at > 0 {
		n := sharedPunctuation(g.attached(c), h.ending())
		if n == 0 && strings.HasPrefix(generated[c.at:], ".") && g.abbreviation(end, h) {
			n = 1
		}
		c.at += n
	}
	return generated[:c.at], true
}

// abbreviation reports whether the word before a place is an abbreviation that was said in full.
func (s *speech) abbreviation(n int32, heard *speech) bool {
	from := s.formStart(n)
	word := s.text[from:n]
	return !strings.HasSuffix(heard.text, word) && slices.ContainsFunc(s.langs, func(l *language) bool { return l.words[word] != nil })
}

// find returns where h is heard in g: at its beginning, or as a run further on.
func find(g, h *speech) (end int32, ok bool) {
	if strings.HasPrefix(g.text, h.text) {
		return int32(len(h.text)), true
	}
	var langs []*language
	langs, g.sure = spokenIn(g.src, h.src)
	g.read(langs)
	h.read(langs)
	m := newMatcher(g, h)
	end, ok = m.prefix()
	if !ok || end == 0 { // 0: h ends inside the first number; it may occur whole further on
		if at, further := m.run(); further {
			return at, true
		}
	}
	return end, ok
}

// behind returns the source behind n bytes of text.
func (s *speech) behind(n int32) string { return s.src[s.cutAt(n).at:] }

// wholeForm moves a place back to the beginning of a written form, such as 9:30 or km/h, if it is
// inside one and the form was not heard letter by letter.
func (s *speech) wholeForm(n int32, heard *speech) int32 {
	if int(n) >= len(s.text) || n == 0 || s.marks[n]&markWord == 0 || !s.together(n) {
		return n
	}
	from := s.formStart(n)
	if strings.HasSuffix(heard.text, s.text[from:n]) {
		return n
	}
	return from
}

// formStart returns where the word, or the form of several words, begins that ends at a place.
func (s *speech) formStart(n int32) int32 {
	from := n - 1
	for from > 0 && (s.marks[from]&markWord == 0 || s.together(from)) {
		from--
	}
	return from
}

// together reports whether the words on both sides of a place are one written form.
func (s *speech) together(n int32) bool {
	if n == 0 || s.text[n] >= utf8.RuneSelf || s.text[n-1] >= utf8.RuneSelf {
		return false
	}
	return s.end[n-1] == s.start[n] && (s.marks[n]&(markSymbol|markDigits) != 0 || s.marks[n-1]&markSymbol != 0 || '0' <= s.text[n-1] && s.text[n-1] <= '9')
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
