package vector

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/heardlog/heardlog/internal/text"
)

// maxWord is how many bytes of a word are compared; longer words are cut.
const maxWord = 64

// eachWord calls each with the words of a text: runs of the letters a to z and digits, in lower
// case. Other Latin letters separate words. Of other scripts a run of letters is a word, and where
// a script does not separate words, each pair of neighbors.
func eachWord(s string, each func(string)) {
	s = strings.ToLower(norm.NFC.String(s))
	start, class := 0, apart
	var before rune // the character before of a script without spaces, or 0
	flush := func(end int) {
		if class == latin || class == other {
			w := s[start:end]
			if len(w) > maxWord {
				w = strings.ToValidUTF8(w[:maxWord], "")
			}
			each(w)
		}
	}
	for i, r := range s {
		c := classOf(r)
		if c == unspaced {
			if before != 0 {
				each(string([]rune{before, r}))
			} else if next, _ := utf8.DecodeRuneInString(s[i+utf8.RuneLen(r):]); classOf(next) != unspaced {
				each(string(r))
			}
			before = r
		} else {
			before = 0
		}
		if c != class {
			flush(i)
			start, class = i, c
		}
	}
	flush(len(s))
}

// class is how a character belongs to words.
type class int

const (
	apart class = iota // it separates words
	latin
	other
	unspaced
)

func classOf(r rune) class {
	switch {
	case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
		return latin
	case r < utf8.RuneSelf || unicode.Is(unicode.Latin, r):
		return apart
	case text.Unspaced(r):
		return unspaced
	case unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r):
		return other
	}
	return apart
}
