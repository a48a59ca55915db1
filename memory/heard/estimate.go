package heard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The average speaking rate, in thousandths of a syllable a second: LiveKit's base of 3.83 (reference/platforms.md 1.6).
const speakingRate = 3830

// Estimate gives the part of a generated text that is spoken in the first ms milliseconds of its audio, at 3.83 syllables a second:
// whole words, without the punctuation after the last; all of it when the time is long enough. "" for 0 or less. It
// is an estimate: voices differ by a third, pauses are not known, and syllables are counted by groups of vowels; a
// character of Chinese, Japanese or Korean is one syllable. What a voice does not say (markup, code blocks, stage directions) takes no time.
func Estimate(generated string, ms int64) string {
	if ms <= 0 {
		return ""
	}
	s := newSpeech(generated)
	// In thousandths of a syllable; a text of any length ends long before the product could overflow.
	heard := min(ms, 1<<40) * speakingRate / 1000
	var said int64
	end := int32(0)
	for int(end) < len(s.text) {
		skipped := end
		for _, k := range s.skipsAt(end) {
			skipped = max(skipped, k.to)
		}
		if skipped > end {
			end = skipped
			continue
		}
		to := int32(s.wordEnd(int(end)))
		if said += s.syllables(end, to); said > heard {
			return generated[:s.cutAt(end).at]
		}
		end = to
	}
	return generated
}

// syllables estimates a word's syllables, in thousandths.
func (s *speech) syllables(from, to int32) int64 {
	word := s.text[from:to]
	switch {
	case s.marks[from]&markDigits != 0:
		return 1000 * int64(digitSyllables(s.text[from:s.digitsEnd(from)]))
	case s.marks[from]&markSymbol != 0:
		return s.symbolSyllables(from, word)
	}
	return wordSyllables(word)
}

// symbolSyllables gives the time of a symbol as it is read most often; connectives in numbers count as one syllable.
func (s *speech) symbolSyllables(at int32, word string) int64 {
	switch word {
	case "&", "@", "+":
		return 1000
	case ".":
		if s.insideNumber(at) || at > 0 {
			return 1000
		}
		return 0
	case "-", ":", "/", "#":
		return 0
	}
	return 2000 // percent, dollars, degrees
}

// digitSyllables counts the syllables of a number, read as one number up to four digits and else digit by digit.
func digitSyllables(digits string) int {
	n := 0
	if len(digits) <= 4 && (digits[0] != '0' || len(digits) == 1) {
		for _, w := range counts(digits)[0] {
			n += latinSyllables(w)
		}
		return n
	}
	for i := range len(digits) {
		n += latinSyllables(smallNumber(uint64(digits[i] - '0')))
	}
	return n
}

// wordSyllables estimates the syllables of one folded word, in thousandths, by its script.
func wordSyllables(word string) int64 {
	r, _ := utf8.DecodeRuneInString(word)
	switch {
	case r < utf8.RuneSelf:
		return 1000 * int64(latinSyllables(word))
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
		return 1000 * int64(utf8.RuneCountInString(word))
	case aloneRune(r): // Thai and its neighbours: two or three letters a syllable
		return 400
	case unicode.In(r, unicode.Arabic, unicode.Hebrew): // short vowels are not written
		return max(1000, 500*int64(utf8.RuneCountInString(word)))
	case unicode.In(r, unicode.Greek, unicode.Cyrillic):
		n := 0
		for _, r := range word {
			if strings.ContainsRune("аеиоуыэюяіѵαεηιουω", r) {
				n++
			}
		}
		return 1000 * int64(max(1, n))
	}
	n := 0 // Indic and others: each letter carries a vowel
	for _, r := range word {
		if unicode.IsLetter(r) {
			n++
		}
	}
	return 1000 * int64(max(1, n))
}

// latinSyllables counts groups of vowels; a last e after a consonant is silent unless it follows l. A word without
// vowels is spelled out.
func latinSyllables(word string) int {
	n, letters, inGroup := 0, 0, false
	for _, r := range word {
		letters++
		vowel := strings.ContainsRune("aeiouy", r)
		if vowel && !inGroup {
			n++
		}
		inGroup = vowel
	}
	if n == 0 {
		return letters
	}
	if l := len(word); n > 1 && l > 2 && word[l-1] == 'e' && !strings.ContainsRune("aeiouyl", rune(word[l-2])) {
		n--
	}
	return n
}
