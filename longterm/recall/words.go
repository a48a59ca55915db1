package recall

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"golang.org/x/text/unicode/norm"

	"github.com/heardlog/heardlog/internal/text"
)

// maxWord is how many bytes of a word are compared; longer words are cut.
const maxWord = 64

// word is one word of a text: lower case and compatibility forms folded, not stemmed.
type word struct {
	text   string
	digits bool // has a digit, so it is never stemmed
	pair   bool // two neighboring characters of a script without spaces, never stemmed
}

// split calls each with the words of a text in order. A word is a run of letters and digits.
// Scripts that do not separate words yield every pair of neighboring characters.
func split(s string, each func(word)) {
	if ascii(s) {
		splitASCII(strings.ToLower(s), each)
		return
	}
	if !norm.NFKC.IsNormalString(s) {
		s = norm.NFKC.String(s)
	}
	s = strings.ToLower(s)
	start, digits := -1, false
	var last rune // the character before of a script without spaces, or 0
	pairs := 0    // of the run of such characters
	flush := func(end int) {
		if start >= 0 {
			w := s[start:end]
			if len(w) > maxWord {
				w = strings.ToValidUTF8(w[:maxWord], "")
			}
			each(word{text: w, digits: digits})
			start, digits = -1, false
		}
	}
	flushLast := func() {
		if last != 0 && pairs == 0 {
			each(word{text: string(last), pair: true})
		}
		last, pairs = 0, 0
	}
	for i, r := range s {
		switch {
		case r >= utf8.RuneSelf && text.Unspaced(r):
			flush(i)
			if last != 0 {
				each(word{text: string([]rune{last, r}), pair: true})
				pairs++
			}
			last = r
		case unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r):
			flushLast()
			if start < 0 {
				start = i
			}
			digits = digits || unicode.IsDigit(r)
		default:
			flush(i)
			flushLast()
		}
	}
	flush(len(s))
	flushLast()
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// splitASCII is split for lower-case ASCII, in a third of the time.
func splitASCII(s string, each func(word)) {
	start, digits := -1, false
	for i := range len(s) + 1 {
		c := byte(' ')
		if i < len(s) {
			c = s[i]
		}
		digit := c >= '0' && c <= '9'
		switch {
		case digit || c >= 'a' && c <= 'z':
			if start < 0 {
				start = i
			}
			digits = digits || digit
		case start >= 0:
			each(word{text: s[start:min(i, start+maxWord)], digits: digits})
			start, digits = -1, false
		}
	}
}

// stem returns the stem of a word in a language.
func (l *language) stem(w word) string {
	if w.digits || w.pair || l.stemmer == nil || len(w.text) < 3 {
		return w.text
	}
	if base, ok := irregular[l.name][w.text]; ok {
		w.text = base
	}
	env := snowballstem.NewEnv(w.text)
	l.stemmer(env)
	if s := env.Current(); s != "" {
		return s
	}
	return w.text
}

// gram is four neighboring characters of a word, packed.
type gram uint64

// eachGram calls each with the grams of a word; a shorter word is one gram.
func eachGram(w string, each func(gram)) {
	var g gram
	n := 0
	for _, r := range w {
		g = g<<16 | gram(r&0xffff)
		if n++; n >= 4 {
			each(g)
		}
	}
	if n > 0 && n < 4 {
		each(g)
	}
}
