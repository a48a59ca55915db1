package text

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendJSON appends s as a JSON string, with invalid UTF-8 replaced by U+FFFD. Text without
// anything to escape is copied.
func AppendJSON(dst []byte, s string) []byte {
	if plain(s) {
		return append(append(append(dst, '"'), s...), '"')
	}
	dst, _ = jsontext.AppendQuote(dst, s) // the error only reports that something was replaced
	return dst
}

// plain reports whether s is ASCII without anything to escape. It checks eight bytes at a time:
// histories and prompts have thousands.
func plain(s string) bool {
	const (
		low  = 0x0101010101010101
		high = 0x8080808080808080
	)
	i := 0
	for ; i+8 <= len(s); i += 8 {
		p := s[i : i+8]
		w := uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 | uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
		// A byte below n borrows into its high bit in w - n*low, and so does 0, which a quote or
		// backslash becomes by xor.
		quote, slash := w^('"'*low), w^('\\'*low)
		if (w|(w-0x20*low)|(quote-low)|(slash-low))&high != 0 {
			return false
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
