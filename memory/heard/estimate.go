package heard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Voice is how answers are spoken. The zero Voice guesses the language of each text and speaks at
// the usual rate of that language.
type Voice struct {
	Language string  // BCP 47 tag, such as "en" or "pt-BR"; only the first part counts
	Rate     float64 // syllables per second, pauses included; 0 = usual
}

// Rates outside these limits are mistakes of a clock.
const (
	minRate = 1
	maxRate = 15
)

// Estimate returns the part of a generated text that is spoken in the first ms milliseconds of its
// audio: whole words, without the punctuation after the last. It returns all of the text if the
// time is long enough, and "" for 0 or less.
//
// Voices differ by a third, pauses are unknown, and syllables are counted by groups of vowels. A
// character of Chinese or Korean is one syllable, one of Japanese is one or two. What a voice does
// not say (markup, code blocks, stage directions) takes no time.
func (v Voice) Estimate(generated string, ms int64) string {
	if ms <= 0 {
		return ""
	}
	s := newSpeech(generated)
	lang := v.language(generated)
	rate := v.Rate
	if !(minRate <= rate && rate <= maxRate) {
		rate = usualRate(lang)
	}
	// In thousandths of a syllable, like said. A text of any length ends long before 1<<40 ms.
	time := int64(float64(min(ms, 1<<40)) * rate)
	var said int64
	for end := range s.spoken {
		to := int32(s.wordEnd(int(end)))
		if said += s.syllables(end, to, lang); said > time {
			return generated[:s.cutAt(end).at]
		}
	}
	return generated
}

// Estimate is Voice.Estimate of the zero Voice.
func Estimate(generated string, ms int64) string { return Voice{}.Estimate(generated, ms) }

// Measure returns the rate at which a text was spoken in ms milliseconds, in syllables per second,
// for Voice.Rate. It returns 0 if the text or the time is too short to tell, or if the rate is
// beyond any voice.
func (v Voice) Measure(said string, ms int64) float64 {
	s := newSpeech(said)
	lang := v.language(said)
	var n int64
	for at := range s.spoken {
		n += s.syllables(at, int32(s.wordEnd(int(at))), lang)
	}
	if n < 4000 || ms < 1000 {
		return 0
	}
	rate := float64(n) / float64(ms)
	if rate < minRate || rate > maxRate {
		return 0
	}
	return rate
}

// language returns the voice's language, or else that of the text, as a code of two or three
// letters; "" if it is unknown.
func (v Voice) language(text string) string {
	if v.Language == "" {
		return guessLanguage(text)
	}
	code, _, _ := strings.Cut(strings.ToLower(v.Language), "-")
	return code
}

// usualRate returns the usual rate of voices, in syllables per second. That of English, 3.83, is
// the base that LiveKit's agents use to time transcripts. Others are in proportion to how fast the
// languages are spoken (Pellegrino, Coupé and Marsico, "Across-Language Perspective on Speech
// Information Rate", Language 87, 2011; for languages that are not in it, a related one).
func usualRate(lang string) float64 {
	switch lang {
	case "ja", "es":
		return 4.85
	case "fr", "pt", "ko", "tr":
		return 4.4
	case "it", "ru", "pl", "hi", "ar", "el":
		return 4.3
	case "de", "nl":
		return 3.7
	case "zh", "yue", "vi", "th":
		return 3.2
	}
	return 3.83
}

// spoken calls f with the start of each word that a voice says, until f returns false.
func (s *speech) spoken(f func(at int32) bool) {
	for at := int32(0); int(at) < len(s.text); {
		to := at
		for _, k := range s.skipsAt(at) {
			to = max(to, k.to)
		}
		if to > at {
			at = to
			continue
		}
		if !f(at) {
			return
		}
		at = int32(s.wordEnd(int(at)))
	}
}

// syllables estimates a word's syllables, in thousandths.
func (s *speech) syllables(from, to int32, lang string) int64 {
	word := s.text[from:to]
	switch {
	case s.marks[from]&markDigits != 0:
		return 1000 * int64(digitSyllables(s.text[from:s.digitsEnd(from)]))
	case s.marks[from]&markSymbol != 0:
		return s.symbolSyllables(from, word)
	}
	return wordSyllables(word, lang)
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
	if len(digits) > 4 || digits[0] == '0' {
		return len(digits) + 1
	}
	n := 0
	for i, c := range digits {
		if c != '0' {
			n += min(len(digits)-i, 3) // one, twenty, two hundred, two thousand
		}
	}
	return n
}

// wordSyllables estimates the syllables of one folded word, in thousandths, by its script.
func wordSyllables(word, lang string) int64 {
	r, _ := utf8.DecodeRuneInString(word)
	switch {
	case r < utf8.RuneSelf:
		n := latinSyllables(word)
		if n > 1 && lang != "" && lang != "en" && lang != "fr" && silentE(word) {
			n++
		}
		return 1000 * int64(n)
	case strings.ContainsRune("ゃゅょャュョぁぃぅぇぉァィゥェォ", r):
		return 0 // with the kana before
	case lang == "ja" && unicode.Is(unicode.Han, r):
		return 1800
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

// latinSyllables counts groups of vowels, with a silent e at the end left out. A word without
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
	if n > 1 && silentE(word) {
		n--
	}
	return n
}

// silentE reports whether a word ends with an e after a consonant other than l.
func silentE(word string) bool {
	l := len(word)
	return l > 2 && word[l-1] == 'e' && !strings.ContainsRune("aeiouyl", rune(word[l-2]))
}
