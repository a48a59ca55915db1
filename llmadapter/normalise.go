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
	if n, ok := normaliseASCII(s); ok {
		return n
	}
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

// normaliseASCII is Normalise for the texts that need no tables; ok is false for others. Lists of hundreds of messages are
// compared in front of a caller who waits.
func normaliseASCII(s string) (n string, ok bool) {
	out := make([]byte, 0, len(s))
	gap := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf || c == '<':
			return "", false
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
		case c == '\'' && i > 0 && i+1 < len(s) && !gap && len(out) > 0 && asciiLetter(s[i+1]):
			continue
		default:
			gap = true
			continue
		}
		if gap && len(out) > 0 {
			out = append(out, ' ')
		}
		gap = false
		out = append(out, c)
	}
	if len(out) == 0 {
		return strings.TrimSpace(s), true
	}
	return string(out), true
}

func asciiLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

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
