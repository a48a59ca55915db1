package echo

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// lower writes a word in lower case, without apostrophes, which recognisers write in many ways.
func lower(b *strings.Builder, word string) {
	for _, r := range word {
		if r == '\'' || r == '’' {
			continue
		}
		b.WriteRune(unicode.ToLower(r))
	}
}

// words calls f with each word of a text and the offset behind it, until f returns false. Chinese, Japanese and Thai have
// no spaces: there each letter counts as a word.
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

// inWord tells whether an apostrophe at the start of s stands inside a word.
func inWord(s string, r rune, n int) bool {
	if r != '\'' && r != '’' {
		return false
	}
	next, _ := utf8.DecodeRuneInString(s[n:])
	return unicode.IsLetter(next)
}

func unspaced(r rune) bool {
	return r > 0x0E00 && (unicode.Is(unicode.Han, r) || unicode.Is(unicode.Hiragana, r) || unicode.Is(unicode.Katakana, r) || unicode.Is(unicode.Thai, r))
}

// marks gives the length of the punctuation that closes a word.
func marks(s string) int {
	n := 0
	for _, r := range s {
		if !unicode.IsPunct(r) || strings.ContainsRune("([{<«“‘¿¡", r) {
			break
		}
		n += utf8.RuneLen(r)
	}
	return n
}
