package llmadapter

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Normalise gives the words of a text, in lower case and parted by single spaces: what is left when two parties write the
// same speech down. Punctuation, markdown, emoji and tags meant for a voice (<expr/>) are gone. A text without any word
// gives itself, trimmed.
func Normalise(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	words(s, func(word string, _ int) bool {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		lower(&b, word)
		return true
	})
	if b.Len() == 0 {
		return strings.TrimSpace(s)
	}
	return b.String()
}

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

// PrefixOf finds the beginning of generated whose words are those of heard. The last heard word may have been cut off
// within, and the marks that follow the last word belong to it. ok is false when heard has no word, or is no beginning of generated.
func PrefixOf(generated, heard string) (prefix string, ok bool) {
	var want []string
	words(heard, func(w string, _ int) bool {
		var b strings.Builder
		lower(&b, w)
		want = append(want, b.String())
		return true
	})
	if len(want) == 0 {
		return "", false
	}
	end, i, cut := 0, 0, false
	words(generated, func(w string, e int) bool {
		var b strings.Builder
		lower(&b, w)
		switch {
		case b.String() == want[i]:
			end = e
		case i == len(want)-1 && i > 0 && strings.HasPrefix(b.String(), want[i]):
			cut = true // the word was not heard whole: it stays out
		default:
			end = -1
			return false
		}
		i++
		return i < len(want)
	})
	if end < 0 || i < len(want) {
		return "", false
	}
	if !cut {
		end += marks(generated[end:])
	}
	return generated[:end], true
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
