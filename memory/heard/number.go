package heard

import (
	"strconv"
	"strings"
)

// The words of English numbers, by value.
func smallNumber(n uint64) string {
	return [...]string{
		"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
		"thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
	}[n]
}

func tens(n uint64) string {
	return [...]string{"", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"}[n]
}

// cardinalWords returns a number in words; with and, the British "one hundred and five". The number
// must be below 10^18.
func cardinalWords(n uint64, and bool) []string {
	if n == 0 {
		return []string{"zero"}
	}
	var out []string
	for _, scale := range [...]struct {
		value uint64
		name  string
	}{{1e15, "quadrillion"}, {1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}, {1e3, "thousand"}} {
		if n >= scale.value {
			out = append(append(out, belowThousand(n/scale.value, and)...), scale.name)
			n %= scale.value
		}
	}
	if n == 0 {
		return out
	}
	if and && len(out) > 0 && n < 100 {
		out = append(out, "and")
	}
	return append(out, belowThousand(n, and)...)
}

func belowThousand(n uint64, and bool) []string {
	var out []string
	if n >= 100 {
		out = append(out, smallNumber(n/100), "hundred")
		n %= 100
		if n > 0 && and {
			out = append(out, "and")
		}
	}
	switch {
	case n >= 20:
		out = append(out, tens(n/10))
		if n%10 > 0 {
			out = append(out, smallNumber(n%10))
		}
	case n > 0:
		out = append(out, smallNumber(n))
	}
	return out
}

// ordinalWord turns the last word of a number into its ordinal: one, first.
func ordinalWord(w string) string {
	switch w {
	case "one":
		return "first"
	case "two":
		return "second"
	case "three":
		return "third"
	case "five":
		return "fifth"
	case "eight":
		return "eighth"
	case "nine":
		return "ninth"
	case "twelve":
		return "twelfth"
	}
	if stem, ok := strings.CutSuffix(w, "y"); ok {
		return stem + "ieth"
	}
	return w + "th"
}

// pluralWord turns the last word of a number into its plural: nineties, hundreds.
func pluralWord(w string) string {
	if stem, ok := strings.CutSuffix(w, "y"); ok {
		return stem + "ies"
	}
	if strings.HasSuffix(w, "x") {
		return w + "es"
	}
	return w + "s"
}

// withLast joins words, the last of them changed.
func withLast(words []string, change func(string) string) string {
	last := len(words) - 1
	return strings.Join(words[:last], "") + change(words[last])
}

// maxCardinal is the maximum of digits of a number that is read as one number, maxDigits of one
// that is read digit by digit.
const (
	maxCardinal = 18
	maxDigits   = 64
)

// counts returns the ways to say a number of things, as lists of words: plain, British, and with
// "a" for "one". digits are ASCII digits.
func counts(digits string) [][]string {
	if len(digits) > maxCardinal {
		return nil
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return nil
	}
	plain := cardinalWords(n, false)
	out := [][]string{plain}
	if british := cardinalWords(n, true); len(british) != len(plain) {
		out = append(out, british)
	}
	if len(plain) > 1 && plain[0] == "one" {
		for _, words := range out {
			out = append(out, append([]string{"a"}, words[1:]...))
		}
	}
	return out
}

// pairs returns the ways to say a number of three or four digits in pairs: nineteen ninety-nine,
// nineteen oh five, four fifteen.
func pairs(digits string) [][]string {
	if len(digits) != 3 && len(digits) != 4 || digits[0] == '0' {
		return nil
	}
	split := len(digits) - 2
	head, _ := strconv.ParseUint(digits[:split], 10, 64)
	rest, _ := strconv.ParseUint(digits[split:], 10, 64)
	first := belowThousand(head, false)
	join := func(more ...string) []string { return append(first[:len(first):len(first)], more...) }
	switch {
	case rest == 0:
		return [][]string{join("hundred")}
	case rest < 10:
		return [][]string{
			join("oh", smallNumber(rest)), join("o", smallNumber(rest)), join("zero", smallNumber(rest)),
			join("hundred", smallNumber(rest)), join("hundred", "and", smallNumber(rest)),
		}
	}
	tail := belowThousand(rest, false)
	return [][]string{
		join(tail...), append(join("hundred"), tail...), append(join("hundred", "and"), tail...),
	}
}

// spelled returns the ways to say a number digit by digit.
func spelled(digits string) []string {
	if len(digits) > maxDigits {
		return nil
	}
	var zero, oh strings.Builder
	for i := range len(digits) {
		d := uint64(digits[i] - '0')
		zero.WriteString(smallNumber(d))
		if d == 0 {
			oh.WriteString("oh")
		} else {
			oh.WriteString(smallNumber(d))
		}
	}
	if strings.Contains(digits, "0") && len(digits) > 1 {
		return []string{zero.String(), oh.String()}
	}
	return []string{zero.String()}
}

// numberReadings returns the ways to say a run of digits on its own.
func numberReadings(digits string) []string {
	out := spelled(digits)
	if digits[0] == '0' && len(digits) > 2 {
		return out
	}
	for _, words := range counts(digits) {
		out = append(out, strings.Join(words, ""))
	}
	for _, words := range pairs(digits) {
		out = append(out, strings.Join(words, ""))
	}
	if len(digits) <= 2 {
		out = append(out, ordinalReadings(digits)...) // May 5, read as May fifth
	}
	return out
}

// ordinalReadings returns the ways to say a number with st, nd, rd or th after it.
func ordinalReadings(digits string) []string {
	var out []string
	for _, words := range counts(digits) {
		out = append(out, withLast(words, ordinalWord))
	}
	return out
}

// pluralReadings returns the ways to say a number with s after it: the 1990s, the 90s.
func pluralReadings(digits string) []string {
	var out []string
	for _, words := range append(counts(digits), pairs(digits)...) {
		out = append(out, withLast(words, pluralWord))
	}
	return out
}

// clockReadings returns the ways to say a time of day, without what follows it, or nil if it is
// none. hour has one or two digits, minute two.
func clockReadings(hour, minute string) []string {
	h, _ := strconv.ParseUint(hour, 10, 64)
	m, _ := strconv.ParseUint(minute, 10, 64)
	if h > 24 || m > 59 {
		return nil
	}
	var out []string
	say := func(hour string) {
		switch {
		case m == 0:
			out = append(out, hour, hour+"oclock", hour+"hundred", hour+"hundredhours", hour+"zerozero")
		case m < 10:
			min := smallNumber(m)
			out = append(out, hour+"oh"+min, hour+"o"+min, hour+"zero"+min, hour+min, min+"past"+hour, min+"minutespast"+hour)
		default:
			min := strings.Join(belowThousand(m, false), "")
			out = append(out, hour+min, min+"past"+hour, min+"minutespast"+hour)
		}
		switch m {
		case 15:
			out = append(out, "quarterpast"+hour, "aquarterpast"+hour)
		case 30:
			out = append(out, "halfpast"+hour)
		}
	}
	say(strings.Join(cardinalWords(h, false), ""))
	if h > 12 {
		say(strings.Join(cardinalWords(h-12, false), ""))
	} else if h == 0 {
		say("twelve")
	}
	if m > 30 {
		next := strings.Join(cardinalWords(h%12+1, false), "")
		left := strings.Join(belowThousand(60-m, false), "")
		out = append(out, left+"to"+next, left+"minutesto"+next)
		if m == 45 {
			out = append(out, "quarterto"+next, "aquarterto"+next)
		}
	}
	return out
}

// fractionReadings returns the ways to say the fractions that have names, or nil.
func fractionReadings(over, under string) []string {
	n, err := strconv.ParseUint(over, 10, 8)
	d, err2 := strconv.ParseUint(under, 10, 8)
	if err != nil || err2 != nil || n == 0 || n > 19 || d < 2 || d > 20 {
		return nil
	}
	one, many := withLast(cardinalWords(d, false), ordinalWord), ""
	many = one + "s"
	if d == 2 {
		one, many = "half", "halves"
	}
	if n > 1 {
		out := []string{smallNumber(n) + many}
		if d == 4 {
			out = append(out, smallNumber(n)+"quarters")
		}
		return out
	}
	out := []string{one, "one" + one, "a" + one, "anda" + one}
	if d == 4 {
		out = append(out, "quarter", "onequarter", "aquarter", "andaquarter")
	}
	return out
}
