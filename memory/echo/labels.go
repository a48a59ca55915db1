package echo

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory/heard"
)

// foldWord returns a word in lower case, without apostrophes.
func foldWord(w string) string {
	var b strings.Builder
	lower(&b, w)
	return b.String()
}

// firstWord returns the first word of a text, folded, or "".
func firstWord(s string) string {
	first := ""
	words(s, func(w string, _ int) bool {
		first = foldWord(w)
		return false
	})
	return first
}

// countWords returns the number of words of a text.
func countWords(s string) int {
	n := 0
	words(s, func(string, int) bool {
		n++
		return true
	})
	return n
}

// isDigit reports whether a word begins with a digit.
func isDigit(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsNumber(r)
}

// joinWords joins two pieces of a text. A piece without words is left out.
func joinWords(a, b string) string {
	if b = strings.TrimLeftFunc(b, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(".,;:!?…。、", r) }); firstWord(b) == "" {
		return a
	}
	if b = strings.TrimSpace(b); a == "" {
		return b
	}
	return a + " " + b
}

// maxLabel limits a time or a name in front of a message, in bytes.
const maxLabel = 40

// withoutLabel removes a time or the speaker's name from the front of a text: "[12:03:04] …",
// "(Anna) …", "2026-05-01T10:00:00Z …", "Anna: …".
func withoutLabel(s string) (string, bool) {
	if rest, ok := withoutTime(s); ok {
		return rest, true
	}
	return withoutName(s)
}

// withoutTime removes a time: in brackets, or with seconds.
func withoutTime(s string) (string, bool) {
	s = strings.TrimLeft(s, " \t")
	if s == "" {
		return s, false
	}
	n := 0
	if s[0] == '[' || s[0] == '(' {
		end := strings.IndexAny(s[:min(len(s), maxLabel)], "])")
		if end < 0 || !timeLike(s[1:end]) {
			return s, false
		}
		n = end + 1
	} else {
		for n < min(len(s), maxLabel) && strings.IndexByte("0123456789:-./TZ+", s[n]) >= 0 {
			n++
		}
		if strings.Count(s[:n], ":") < 2 || n < len(s) && s[n] != ' ' {
			return s, false
		}
	}
	rest := strings.TrimLeft(s[n:], " \t-|:")
	return rest, rest != ""
}

// withoutTimes removes times in brackets within a text, which platforms write when they merge
// messages.
func withoutTimes(s string) string {
	for from := 0; ; {
		at := strings.IndexByte(s[from:], '[')
		if at < 0 {
			return s
		}
		at += from
		end := strings.IndexByte(s[at:min(len(s), at+maxLabel)], ']')
		if end < 0 || !timeLike(s[at+1:at+end]) {
			from = at + 1
			continue
		}
		s, from = s[:at]+s[at+end+1:], at
	}
}

// timeLike reports whether s is a time, a date or a number of seconds.
func timeLike(s string) bool {
	if s == "" || s[0] < '0' || s[0] > '9' || !strings.ContainsAny(s, ":-/.") {
		return false
	}
	for i := range len(s) {
		if strings.IndexByte("0123456789:-/., TZAPMapmUC+", s[i]) < 0 {
			return false
		}
	}
	return true
}

// withoutName removes the speaker's name: at most three words and a colon, or a name in brackets.
func withoutName(s string) (string, bool) {
	s = strings.TrimLeft(s, " \t")
	if s == "" {
		return s, false
	}
	if s[0] == '[' || s[0] == '(' {
		if end := strings.IndexAny(s[:min(len(s), maxLabel)], "])"); end > 1 {
			rest := strings.TrimLeft(s[end+1:], " \t:")
			return rest, rest != ""
		}
		return s, false
	}
	at := strings.Index(s[:min(len(s), maxLabel)], ": ")
	if at < 1 || strings.Count(s[:at], " ") > 2 || strings.ContainsAny(s[:at], ".,;!?\n\"") {
		return s, false
	}
	rest := strings.TrimLeft(s[at+1:], " \t")
	return rest, rest != ""
}

// normalizeUser returns the normal form of a user message without the times in front of its lines,
// and the same without the speaker's name.
func normalizeUser(s string) (norm, bare string) {
	if strings.IndexByte(s, '\n') >= 0 {
		lines := strings.Split(s, "\n")
		for i, l := range lines {
			lines[i], _ = withoutTime(l)
		}
		s = strings.Join(lines, "\n")
	} else {
		s, _ = withoutTime(s)
	}
	norm = heard.Normalize(withoutTimes(s))
	if rest, ok := withoutName(s); ok {
		return norm, heard.Normalize(rest)
	}
	return norm, norm
}

// withoutNote removes a note from the end of a text: in brackets, or set in italics as in
// "*interrupted by user*".
func withoutNote(s string) string {
	t := strings.TrimRightFunc(s, unicode.IsSpace)
	if t == "" {
		return s
	}
	var open byte
	switch last := t[len(t)-1]; last {
	case ']':
		open = '['
	case ')':
		open = '('
	case '}':
		open = '{'
	case '>':
		open = '<'
	case '*', '_':
		t, open = strings.TrimRight(t, string(last)), last
	default:
		return s
	}
	at := strings.LastIndexByte(t, open)
	if at < 0 || len(t)-at > maxLabel {
		return s
	}
	return strings.TrimRight(t[:at], "*_")
}

// blank reports whether a text has no letter, digit or symbol, such as an emoji.
func blank(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.S) })
}
