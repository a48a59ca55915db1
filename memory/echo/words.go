package echo

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// lower writes a word in lower case, without apostrophes, which recognizers write in many ways.
func lower(b *strings.Builder, word string) {
	for _, r := range word {
		if r == '\'' || r == '’' {
			continue
		}
		b.WriteRune(unicode.ToLower(r))
	}
}

// words calls f with each word of a text and the offset after it, until f returns false. In
// Chinese, Japanese and Thai, which have no spaces, each letter is a word.
func words(s string, f func(word string, end int) bool) {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '<':
			if end := strings.IndexByte(s[i:min(len(s), i+80)], '>'); end > 1 && (s[i+1] == '/' || unicode.IsLetter(rune(s[i+1]))) {
				n = end + 1
			}
		case unspaced(r):
			if !f(s[i:i+n], i+n) {
				return
			}
		case unicode.IsLetter(r) || unicode.IsNumber(r):
			start := i
			for i < len(s) {
				r, n = utf8.DecodeRuneInString(s[i:])
				if unspaced(r) || !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) && !inWord(s[i:], r, n) {
					break
				}
				i += n
			}
			if !f(s[start:i], i) {
				return
			}
			continue
		}
		i += n
	}
}

// inWord reports whether s begins with an apostrophe inside a word.
func inWord(s string, r rune, n int) bool {
	if r != '\'' && r != '’' {
		return false
	}
	next, _ := utf8.DecodeRuneInString(s[n:])
	return unicode.IsLetter(next)
}

// unspaced reports whether r is of a script without spaces.
func unspaced(r rune) bool {
	return r > 0x0E00 && (unicode.Is(unicode.Han, r) || unicode.Is(unicode.Hiragana, r) || unicode.Is(unicode.Katakana, r) || unicode.Is(unicode.Thai, r))
}
