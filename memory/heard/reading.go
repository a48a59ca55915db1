package heard

import (
	"strings"
)

// hasReading reports whether a word has other readings, given the word before it.
func hasReading(prev, word string) bool {
	switch word {
	case "and":
		switch prev {
		case "hundred", "thousand", "million", "billion":
			return true
		}
		return false
	case "mr", "mrs", "ms", "dr", "st", "vs", "etc", "ok", "okay":
		return true
	}
	return false
}

// wordReadings returns the other readings of a word; "" leaves it out.
func wordReadings(word string) []string {
	switch word {
	case "and": // one hundred (and) five
		return []string{""}
	case "mr":
		return []string{"mister"}
	case "mrs":
		return []string{"missus", "missis"}
	case "ms":
		return []string{"miss", "miz"}
	case "dr":
		return []string{"doctor", "drive"}
	case "st":
		return []string{"saint", "street"}
	case "vs":
		return []string{"versus"}
	case "etc":
		return []string{"etcetera"}
	case "ok":
		return []string{"okay"}
	case "okay":
		return []string{"ok"}
	}
	return nil
}

// symbolReadings returns the ways to say a symbol; "" leaves it out.
func symbolReadings(r rune) []string {
	switch r {
	case '&':
		return []string{"", "and", "ampersand"}
	case '%':
		return []string{"", "percent", "percentage", "percentsign"}
	case '@':
		return []string{"", "at", "atsign"}
	case '+':
		return []string{"", "plus"}
	case '°':
		return []string{"", "degrees", "degree"}
	case '.':
		return []string{"", "dot", "point", "zeropoint"}
	case ':':
		return []string{"", "to", "colon"}
	case '/':
		return []string{"", "slash", "over", "outof", "of", "per"}
	case '-':
		return []string{"", "to", "through", "minus", "negative", "dash", "hyphen"}
	case '#':
		return []string{"", "number", "hash", "hashtag", "pound"}
	case '½':
		return []string{"", "half", "onehalf", "ahalf", "andahalf", "andonehalf"}
	case '¼':
		return []string{"", "quarter", "onequarter", "aquarter", "andaquarter", "onefourth", "afourth"}
	case '¾':
		return []string{"", "threequarters", "andthreequarters", "threefourths"}
	}
	if one, many, _, _ := currencyNames(r); one != "" {
		return []string{"", many, one}
	}
	return []string{""}
}

// currencyNames returns the names of a currency and its hundredth, singular and plural; "" if r is
// not a currency.
func currencyNames(r rune) (one, many, cent, cents string) {
	switch r {
	case '$':
		return "dollar", "dollars", "cent", "cents"
	case '€':
		return "euro", "euros", "cent", "cents"
	case '£':
		return "pound", "pounds", "penny", "pence"
	case '¥':
		return "yen", "yen", "", ""
	case '₹':
		return "rupee", "rupees", "paisa", "paise"
	}
	return "", "", "", ""
}

// money is how a currency is called.
type money struct{ one, many, cent, cents string }

// magnitude returns the word for a short or long magnitude after a number, or "".
func magnitude(word string) string {
	switch word {
	case "hundred", "thousand", "million", "billion", "trillion":
		return word
	case "k":
		return "thousand"
	case "m", "mn", "mio":
		return "million"
	case "b", "bn":
		return "billion"
	case "tn":
		return "trillion"
	}
	return ""
}

// digitsEnd returns where the run of digits that starts at n ends.
func (s *speech) digitsEnd(n int32) int32 {
	e := n
	for int(e) < len(s.text) && '0' <= s.text[e] && s.text[e] <= '9' && (e == n || s.marks[e]&markDigits == 0) {
		e++
	}
	return e
}

// wordAfter returns the word that starts at n if in the source it directly follows what is before
// it.
func (s *speech) wordAfter(n int32) string {
	if int(n) >= len(s.text) || s.end[n-1] != s.start[n] {
		return ""
	}
	return s.text[n:s.wordEnd(int(n))]
}

// connected reports whether the symbol c is at n with digits after it, and where these start and
// end.
func (s *speech) connected(n int32, c byte) (from, to int32, ok bool) {
	if int(n)+1 >= len(s.text) || s.text[n] != c || s.marks[n]&markSymbol == 0 || s.marks[n+1]&markDigits == 0 {
		return 0, 0, false
	}
	return n + 1, s.digitsEnd(n + 1), true
}

// numberChoices adds the ways to say the number whose digits start at n, alone and with what is
// joined to it.
func (s *speech) numberChoices(out []choice, n int32) []choice {
	e := s.digitsEnd(n)
	digits := s.text[n:e]
	add := func(to int32, texts ...string) {
		for _, text := range texts {
			out = append(out, choice{text, to})
		}
	}
	add(e, numberReadings(digits)...)
	switch word := s.wordAfter(e); word {
	case "st", "nd", "rd", "th":
		add(e+2, ordinalReadings(digits)...)
	case "s":
		add(e+1, pluralReadings(digits)...)
	default:
		if name := magnitude(word); name != "" {
			for _, words := range counts(digits) {
				add(e+int32(len(word)), strings.Join(words, "")+name)
			}
		}
	}
	if from, to, ok := s.connected(e, ':'); ok && to-from == 2 && e-n <= 2 {
		add(to, clockReadings(digits, s.text[from:to])...)
	}
	if from, to, ok := s.connected(e, '/'); ok {
		add(to, fractionReadings(digits, s.text[from:to])...)
	}
	if from, to, ok := s.connected(e, '.'); ok && s.text[from:to] == "5" {
		for _, words := range counts(digits) {
			add(to, strings.Join(words, "")+"andahalf")
		}
	}
	return out
}

// moneyChoices adds the ways to say the amount whose digits start at n after a currency: $5, $5.50,
// $5 million.
func (s *speech) moneyChoices(out []choice, n int32, m money) []choice {
	if int(n) >= len(s.text) || s.marks[n]&markDigits == 0 {
		return out
	}
	e := s.digitsEnd(n)
	whole := counts(s.text[n:e])
	name := m.many
	if s.text[n:e] == "1" {
		name = m.one
		whole = append(whole, []string{"a"})
	}
	from, to, broken := s.connected(e, '.')
	for _, words := range whole {
		amount := strings.Join(words, "")
		if !broken {
			out = append(out, choice{amount + name, e})
			out = s.magnitudeChoices(out, e, amount, m)
			continue
		}
		for _, part := range spelled(s.text[from:to]) {
			out = append(out, choice{amount + "point" + part + m.many, to})
			out = s.magnitudeChoices(out, to, amount+"point"+part, m)
		}
		if to-from == 2 {
			for _, text := range centReadings(amount, name, s.text[from:to], m) {
				out = append(out, choice{text, to})
			}
		}
	}
	return out
}

// magnitudeChoices adds an amount with the magnitude at n, if there is one: five million dollars.
func (s *speech) magnitudeChoices(out []choice, n int32, amount string, m money) []choice {
	if int(n) >= len(s.text) {
		return out
	}
	to := s.wordEnd(int(n))
	if name := magnitude(s.text[n:to]); name != "" {
		out = append(out, choice{amount + name + m.many, int32(to)}, choice{amount + name, int32(to)})
	}
	return out
}

// centReadings returns the ways to say an amount with two digits after the point.
func centReadings(amount, name, digits string, m money) []string {
	if digits == "00" {
		return []string{amount + name}
	}
	words := counts(digits)
	if len(words) == 0 {
		return nil
	}
	cents := strings.Join(words[0], "")
	unit := m.cents
	if digits == "01" {
		unit = m.cent
	}
	out := []string{amount + name + "and" + cents + unit, amount + name + cents + unit, amount + name + cents, amount + name + "and" + cents, amount + cents}
	if digits[0] == '0' {
		out = append(out, amount+"oh"+cents, amount+name+"oh"+cents)
	}
	if amount == "zero" {
		out = append(out, cents+unit)
	}
	return out
}
