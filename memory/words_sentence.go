package memory

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// FirstSentenceEnd gives the byte offset right after the first complete sentence of a text that may still be growing, its
// closing quotes and brackets included; -1 while there is none.
//
// A sentence ends with a line break, or with . ! ? … or their like in other scripts once something follows that shows it: white
// space, or, after anything but a point, any text. A point does not end one in a decimal or a name ("3.5", "example.com"), after an
// abbreviation or an initial ("Mr.", "J. Smith"), or after the number of a list; after an ellipsis or "etc." and its like it
// does unless the next word is in lower case. As the text grows the answer goes from -1 to an offset once, and the offset stays.
func FirstSentenceEnd(text string) int {
	said := false // something that can be spoken stands before
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\n':
			if said {
				return i + size
			}
		case said && isTerminator(r):
			end := closingEnd(text, i+size)
			if !utf8.FullRuneInString(text[end:]) {
				return -1 // nothing follows yet, or half a rune
			}
			switch endsSentence(text, i, end) {
			case sentenceEnds:
				return end
			case sentenceOpen:
				return -1 // what comes later decides this one first
			}
			i = end
			continue
		case unicode.IsLetter(r) || unicode.IsNumber(r):
			said = true
		}
		i += size
	}
	return -1
}

func isTerminator(r rune) bool { return strings.ContainsRune(".!?…。！？｡．؟۔।॥։", r) }

// closingEnd gives where the terminators, quotes, brackets and emphasis end that begin at i.
func closingEnd(text string, i int) int {
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !isTerminator(r) && !strings.ContainsRune("\"'”’»)]}*_`」』）】》", r) {
			break
		}
		i += size
	}
	return i
}

// sentenceVerdict is whether a sentence ends at a place.
type sentenceVerdict int

const (
	sentenceGoesOn sentenceVerdict = iota
	sentenceEnds
	sentenceOpen // the text is not long enough to tell
)

func sentenceVerdictOf(ends bool) sentenceVerdict {
	if ends {
		return sentenceEnds
	}
	return sentenceGoesOn
}

// endsSentence tells whether the terminator at i, with closers up to end, ends a sentence. Text follows at end.
func endsSentence(text string, i, end int) sentenceVerdict {
	r, size := utf8.DecodeRuneInString(text[i:])
	following, _ := utf8.DecodeRuneInString(text[end:])
	if following == '\n' || following == '\r' || r != '.' && r != '…' {
		return sentenceEnds
	}
	if !unicode.IsSpace(following) {
		return sentenceVerdictOf(r == '…' && !unicode.IsLower(following) && !unicode.IsNumber(following))
	}
	word := lastWord(text[:i])
	dots := r == '…' || strings.HasPrefix(text[i+size:], ".")
	switch {
	case dots, ambiguousEnd(word): // the case of the next word decides
		next, known := nextWord(text[end:])
		if !known {
			return sentenceOpen
		}
		return sentenceVerdictOf(!unicode.IsLower(next))
	case strings.EqualFold(word, "no"): // No. 5 is a number, No. is an answer
		next, known := nextWord(text[end:])
		if !known {
			return sentenceOpen
		}
		return sentenceVerdictOf(!unicode.IsNumber(next))
	}
	return sentenceVerdictOf(!isAbbreviation(word) && !isInitial(word) && !isListNumber(text[:i], word))
}

// nextWord gives the first rune of the next word, a line break if that comes first, or 0 if neither is near; known is false
// while the text is too short to tell.
func nextWord(text string) (first rune, known bool) {
	const near = 64 // bytes; a longer search for every terminator could take quadratic time
	for i, r := range text {
		if i >= near {
			return 0, true
		}
		if r == '\n' || unicode.IsLetter(r) || unicode.IsNumber(r) {
			return r, true
		}
	}
	return 0, false
}

// lastWord gives the word at the end of text, with the points inside it.
func lastWord(text string) string {
	const longest = 24 // no abbreviation is longer
	i := len(text)
	for i > 0 && len(text)-i < longest {
		r, size := utf8.DecodeLastRuneInString(text[:i])
		if r != '.' && !unicode.IsLetter(r) && !unicode.IsNumber(r) {
			break
		}
		i -= size
	}
	return text[i:]
}

// isAbbreviation tells words whose point never ends a sentence, English ones and the commonest of other languages.
func isAbbreviation(word string) bool {
	switch strings.ToLower(word) {
	case "mr", "mrs", "ms", "mx", "dr", "prof", "st", "mt", "sr", "jr", "rev", "hon", "gen", "col", "capt", "lt", "sgt", "gov", "sen", "rep",
		"vs", "e.g", "i.e", "eg", "ie", "cf", "viz", "approx", "dept", "fig", "vol", "ext", "tel", "al",
		"sra", "srta", "dra", "ud", "uds", "mme", "mlle", "hr", "fr", "frl", "z.b", "d.h", "u.a", "bzw", "ca", "nr", "т.е", "т.д", "г-н":
		return true
	}
	return false
}

// ambiguousEnd tells words whose point may end a sentence or not.
func ambiguousEnd(word string) bool {
	switch strings.ToLower(word) {
	case "etc", "inc", "ltd", "co", "corp", "a.m", "p.m", "u.s", "u.k", "u.s.a", "e.u", "ph.d", "m.d", "b.c", "a.d", "usw":
		return true
	}
	return false
}

// isInitial tells a single capital, as in J. Smith. I is a word.
func isInitial(word string) bool {
	r, size := utf8.DecodeRuneInString(word)
	return size == len(word) && unicode.IsUpper(r) && r != 'I'
}

// isListNumber tells a number that begins its line.
func isListNumber(before, word string) bool {
	if word == "" || len(word) > 3 || strings.Trim(word, "0123456789") != "" {
		return false
	}
	line := before[:len(before)-len(word)]
	return strings.TrimSpace(line[strings.LastIndexByte(line, '\n')+1:]) == ""
}
