package heard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// speakingRate is the average rate in thousandths of a syllable per second. 3.83 is the base that
// LiveKit's agents use to time transcripts.
const speakingRate = 3830

// Estimate returns the part of a generated text that is spoken in the first ms milliseconds of its
// audio, at 3.83 syllables a second: whole words, without the punctuation after the last. It
// returns all of the text if the time is long enough, and "" for 0 or less.
//
// Voices differ by a third, pauses are unknown, and syllables are counted by groups of vowels; a
// character of Chinese, Japanese or Korean is one syllable. What a voice does not say (markup, code
// blocks, stage directions) takes no time.
func Estimate(generated string, ms int64) string {
	if ms <= 0 {
		return ""
	}
	s := newSpeech(generated)
	// In thousandths of a syllable; a text of any length ends long before the product could
	// overflow.
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

// symbolSyllables returns the duration of a symbol in its usual reading. Connectives in numbers are
// one syllable.
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

// digitSyllables counts the syllables of a number: read as one number up to four digits, else digit
// by digit.
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

// latinSyllables counts groups of vowels. A final e after a consonant is silent unless the
// consonant is l. A word without vowels is spelled out.
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
