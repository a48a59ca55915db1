package redact

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a number in a text: digits in a row, or a spoken digit.
type token struct {
	start, end int
	digits     string
	spoken     bool
	plus       bool // a plus stands before it
	open       bool // an opening bracket stands before it
	// glued is set if the token continues the one before it: only one separator, or a few of which
	// the first is a comma, stand between them.
	glued bool
	// tight is set if it belongs to a longer word, such as the digits of "A4711".
	tight bool
}

// digitWords are the spoken digits, and what is spoken like one, in several languages.
var digitWords = map[string]string{
	"zero": "0", "oh": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "niner": "9",
	"ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13", "fourteen": "14", "fifteen": "15", "sixteen": "16", "seventeen": "17", "eighteen": "18", "nineteen": "19",
	"twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80", "ninety": "90",
	"null": "0", "eins": "1", "zwei": "2", "zwo": "2", "drei": "3", "vier": "4", "fünf": "5", "sechs": "6", "sieben": "7", "acht": "8", "neun": "9",
	"zéro": "0", "un": "1", "deux": "2", "trois": "3", "quatre": "4", "cinq": "5", "sept": "7", "huit": "8", "neuf": "9",
	"cero": "0", "uno": "1", "dos": "2", "tres": "3", "cuatro": "4", "cinco": "5", "seis": "6", "siete": "7", "ocho": "8", "nueve": "9",
	"due": "2", "tre": "3", "quattro": "4", "cinque": "5", "sei": "6", "sette": "7", "otto": "8", "nove": "9",
	"um": "1", "dois": "2", "três": "3", "quatro": "4", "sete": "7", "oito": "8",
	"nul": "0", "een": "1", "één": "1", "twee": "2", "drie": "3", "vijf": "5", "zes": "6", "zeven": "7", "negen": "9",
}

// timesOf are words before a digit that is said once for several.
var timesOf = map[string]int{"double": 2, "triple": 3, "doppel": 2, "doble": 2, "doppio": 2}

// tokenize returns the numbers of a text. It is linear in its length.
func tokenize(s string) []token {
	var out []token
	times, from := 1, 0 // of a repeat word before the next number
	plus := false       // the word "plus" stands before it
	for i := 0; i < len(s); {
		c, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case isDigit(c):
			end := i
			for end < len(s) && s[end] >= '0' && s[end] <= '9' {
				end++
			}
			if end == i { // a digit of another script
				end = i + size
			}
			t := token{start: i, end: end, digits: digitsOf(s[i:end]), plus: plus}
			before, _ := utf8.DecodeLastRuneInString(s[:i])
			after, _ := utf8.DecodeRuneInString(s[end:])
			t.tight = i > 0 && (unicode.IsLetter(before) || before == '_' || before == '#') || end < len(s) && (unicode.IsLetter(after) || after == '_')
			t.look(s, before)
			out = add(out, t, s)
			i, times, plus = end, 1, false
		case unicode.IsLetter(c):
			end := i
			for end < len(s) {
				c, size := utf8.DecodeRuneInString(s[end:])
				if !unicode.IsLetter(c) && !unicode.Is(unicode.Mn, c) {
					break
				}
				end += size
			}
			word := strings.ToLower(s[i:end])
			if digits, ok := digitWords[word]; ok {
				t := token{start: i, end: end, digits: digits, spoken: true, plus: plus}
				if times > 1 {
					t.start, t.digits = from, strings.Repeat(digits, times)
				}
				out = addSpoken(out, t, s)
				times, plus = 1, false
			} else {
				plus = word == "plus"
				if times, from = timesOf[word], i; times == 0 {
					times = 1
				}
			}
			i = end
		default:
			i += size
		}
	}
	return out
}

// look sets what stands before the token's digits.
func (t *token) look(s string, before rune) {
	switch before {
	case '+', '＋':
		c, _ := utf8.DecodeLastRuneInString(strings.TrimRight(s[:t.start], "+＋"))
		t.plus = !unicode.IsLetter(c) && !unicode.IsDigit(c)
	case '(':
		t.open = true
		t.plus = t.plus || strings.HasSuffix(s[:t.start], "+(")
	}
}

func isDigit(c rune) bool { return c >= '0' && c <= '9' || c > 127 && unicode.IsDigit(c) }

// digitsOf returns a run of digits in ASCII. A digit of another script has its value at the end of
// its block of ten.
func digitsOf(s string) string {
	if s[0] < utf8.RuneSelf {
		return s
	}
	c, _ := utf8.DecodeRuneInString(s)
	zero := c
	for n := 0; n < 9 && unicode.IsDigit(zero-1); n++ {
		zero--
	}
	return string('0' + (c-zero)%10)
}

// add appends a token and sets whether it continues the one before it.
func add(list []token, t token, s string) []token {
	if n := len(list); n > 0 {
		last := &list[n-1]
		between := s[last.end:t.start]
		if between == "" && !t.spoken && !last.spoken { // digits of another script
			if last.end = t.end; len(last.digits) < 32 { // else it is too long for any number
				last.digits += t.digits
			}
			last.tight = last.tight || t.tight
			return list
		}
		t.glued = glues(between)
	}
	return append(list, t)
}

// addSpoken is add for a spoken number: "forty one" is 41.
func addSpoken(list []token, t token, s string) []token {
	if n := len(list); n > 0 && len(t.digits) == 1 && t.digits != "0" {
		last := &list[n-1]
		if last.spoken && len(last.digits) == 2 && last.digits[1] == '0' && last.digits != "10" && last.digits != "00" && glues(s[last.end:t.start]) {
			last.end, last.digits = t.end, last.digits[:1]+t.digits
			return list
		}
	}
	return add(list, t, s)
}

// glues reports whether a text between two numbers only separates groups of one number.
func glues(between string) bool {
	switch between {
	case " ", "-", ".", "/", "\u00a0", "\u2009", "\u202f", "\u2011", "\u2013", ", ", " - ", "  ", ") ", ")", " (", "(", ")-", "-(", ") - ", " / ", ",", "\n", "... ", ". ":
		return true
	}
	return false
}
