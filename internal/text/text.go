// Package text has what clients' texts need everywhere: Clean repairs them, CleanKey and ValidName
// check keys and names, Fill puts values into a template, and AppendJSON encodes a text.
package text

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
)

// Clean returns s as it may be stored: valid UTF-8 of at most maxBytes, without NUL.
//
// Invalid UTF-8 is repaired, because callers cannot help what encoders and cuts produce: each
// broken sequence becomes one U+FFFD, and so does a lone surrogate written as three bytes (WTF-8).
// A pair of surrogates written so (CESU-8) becomes the character that it means. NUL becomes U+FFFD,
// too, because some stores and clients end a text there. A text that is too long after the repair
// is refused: fault.Invalid, with the field's name and what is allowed.
func Clean(field, s string, maxBytes int) (string, error) {
	if !utf8.ValidString(s) {
		s = repairUTF8(s)
	}
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) > maxBytes {
		return "", fault.At(fault.Invalid, field, "is %d bytes long, allowed are at most %d", len(s), maxBytes)
	}
	return s, nil
}

// CleanKey is Clean for a key, or for a setting: NUL is refused, so that two keys do not become
// one.
func CleanKey(field, s string, maxBytes int) (string, error) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return "", fault.At(fault.Invalid, field, "must not contain NUL (U+0000), found at byte %d; every other character is allowed", i)
	}
	return Clean(field, s, maxBytes)
}

// repairUTF8 replaces what is not UTF-8.
func repairUTF8(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			r, size = brokenRune(s[i:])
		}
		b.WriteRune(r)
		i += size
	}
	return b.String()
}

// brokenRune returns the replacement of the invalid sequence at the start of s, and its length.
func brokenRune(s string) (rune, int) {
	if high, ok := surrogate(s); ok {
		if low, ok := surrogate(s[3:]); ok {
			if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
				return r, 6
			}
		}
		return utf8.RuneError, 3
	}
	// The longest beginning of a valid sequence counts as one (Unicode standard, table 3-8), so a
	// cut character is one U+FFFD.
	n := 1
	for n < len(s) && n < 4 && !utf8.FullRuneInString(s[:n]) && s[n]&0xC0 == 0x80 {
		n++
	}
	if n > 1 && utf8.FullRuneInString(s[:n]) { // the last byte made it invalid
		n--
	}
	return utf8.RuneError, n
}

// surrogate reads a surrogate written as three bytes.
func surrogate(s string) (rune, bool) {
	if len(s) < 3 || s[0] != 0xED || s[1] < 0xA0 || s[1] > 0xBF || s[2]&0xC0 != 0x80 {
		return 0, false
	}
	return rune(s[0]&0x0F)<<12 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), true
}

// ValidName checks a name from a client, such as a message's ID: 1 to maxChars characters, letters
// of any script, digits, punctuation, symbols and inner spaces; no control or invisible characters,
// no space at either end. It returns fault.Invalid with the field and what is allowed.
func ValidName(field, s string, maxChars int) error {
	if n := utf8.RuneCountInString(s); n < 1 || n > maxChars {
		return fault.At(fault.Invalid, field, "has %d characters, allowed are 1 to %d", n, maxChars)
	}
	if !utf8.ValidString(s) {
		return fault.At(fault.Invalid, field, "is not valid UTF-8; allowed are printable characters")
	}
	if s[0] == ' ' || s[len(s)-1] == ' ' {
		return fault.At(fault.Invalid, field, "must not begin or end with a space")
	}
	for i, r := range s {
		if !unicode.IsPrint(r) {
			return fault.At(fault.Invalid, field, "contains %U at byte %d, which is not printable; allowed are letters, digits, punctuation and inner spaces", r, i)
		}
	}
	return nil
}

// ValidID checks an ID that is part of a URL path: as ValidName does, and it refuses "." and "..".
func ValidID(field, s string, maxChars int) error {
	if s == "." || s == ".." {
		return fault.At(fault.Invalid, field, "%q cannot be an ID: URL paths drop \".\" and \"..\"", s)
	}
	return ValidName(field, s, maxChars)
}

// Unspaced reports whether a character belongs to a script that does not separate words.
func Unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// Clip shortens s to at most n bytes, at a character, for an error message.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// SentenceEnds are the marks that end sentences.
const SentenceEnds = ".?!…。？！।؟"

// Sentences iterates over the sentences of a text, trimmed: it splits behind the marks that end
// sentences, and at line breaks.
func Sentences(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		from, end := 0, 0
		add := func(to int) bool {
			part := strings.TrimSpace(s[from:to])
			from = to
			return part == "" || yield(part)
		}
		for at, r := range s {
			switch {
			case at < end:
			case r == '\n':
				if !add(at) {
					return
				}
			case strings.ContainsRune(SentenceEnds, r):
				end = at + Marks(s[at:])
				before, _ := utf8.DecodeLastRuneInString(s[:at])
				behind, _ := utf8.DecodeRuneInString(s[end:])
				next, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
				spaced := unicode.IsSpace(behind) && (r != '.' || !unicode.IsLower(next))
				joined := unicode.IsLower(before) && unicode.IsUpper(behind)
				if (spaced || joined || strings.ContainsRune("。？！", r)) && !add(end) {
					return
				}
			}
		}
		add(len(s))
	}
}

// Marks returns the length of the punctuation after a word at the beginning of s.
func Marks(s string) int {
	n := 0
	for _, r := range s {
		if !unicode.IsPunct(r) || strings.ContainsRune("([{<«“‘¿¡", r) {
			break
		}
		n += utf8.RuneLen(r)
	}
	return n
}
