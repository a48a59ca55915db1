package pg

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// odd is the start of a stored text that encodes one that a text column cannot hold.
const odd = "\x01b64:"

// Stored returns the form of s that a text column takes: PostgreSQL refuses NUL and invalid UTF-8.
// Equal texts have equal forms.
func Stored(s string) string {
	if strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) && !strings.HasPrefix(s, odd) {
		return s
	}
	return odd + base64.RawStdEncoding.EncodeToString([]byte(s))
}

// Shown returns the text that Stored was given.
func Shown(s string) string {
	rest, ok := strings.CutPrefix(s, odd)
	if !ok {
		return s
	}
	b, err := base64.RawStdEncoding.DecodeString(rest)
	if err != nil {
		return s
	}
	return string(b)
}

// StoredAll is Stored for each text of a list.
func StoredAll(list []string) []string {
	return Column(list, func(text *string) string { return Stored(*text) })
}

// Show decodes texts from their stored form.
func Show(texts ...*string) {
	for _, t := range texts {
		*t = Shown(*t)
	}
}
