package heard

import (
	"strings"
	"unicode/utf8"
)

// Normalize returns the words of a text in the form in which Align compares them, separated by
// single spaces. Two texts that differ only in what a voice does not say (case, accents,
// punctuation, markup, emoji) have the same normal form. A text without words is returned as it is,
// trimmed.
func Normalize(text string) string {
	if n, ok := normalizeASCII(text); ok {
		return n
	}
	s := newSpeech(text)
	var b strings.Builder
	b.Grow(len(s.text) + len(s.text)/4)
	for at := 0; at < len(s.text); {
		end := s.wordEnd(at)
		if s.marks[at]&markSymbol == 0 {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(s.text[at:end])
		}
		at = end
	}
	if b.Len() == 0 {
		return strings.TrimSpace(text)
	}
	return b.String()
}

// normalizeASCII is Normalize for plain prose: ASCII letters, digits, white space and common
// punctuation. It reports false for texts that need the scanner. Long lists of messages are
// compared while the caller waits, and nearly all of them are plain prose.
func normalizeASCII(text string) (string, bool) {
	out := make([]byte, 0, len(text))
	gap := false // a word ended before the current byte
	digits := false
	for i := range len(text) {
		c := text[i]
		digit := '0' <= c && c <= '9'
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case 'a' <= c && c <= 'z', digit:
		case c == '\'' && !gap && i > 0 && asciiLetter(text[i-1]) && i+1 < len(text) && asciiLetter(text[i+1]):
			continue
		case c >= utf8.RuneSelf, strings.IndexByte(" \n\t.,;?!'\"()", c) < 0, c == ',' && digits:
			return "", false
		default:
			gap = true
			continue
		}
		if (gap || digit != digits) && len(out) > 0 {
			out = append(out, ' ')
		}
		gap, digits = false, digit
		out = append(out, c)
	}
	if len(out) == 0 {
		return strings.TrimSpace(text), true
	}
	return string(out), true
}

func asciiLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
