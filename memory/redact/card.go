package redact

// maxGroups limits how many groups of digits one number may have.
const maxGroups = 24

// appendCards appends the card numbers of a text.
func appendCards(out []span, s string, tokens []token) []span {
	for i := 0; i < len(tokens); i++ {
		digits, best := "", -1
		if i > 0 && tokens[i-1].digits == "0" && inNumber(s, tokens[i].start) {
			continue // a fraction
		}
		for j := i; j < len(tokens) && j < i+maxGroups; j++ {
			t := &tokens[j]
			if t.tight && !afterHash(s, t) || j > i && (!t.glued || t.plus) {
				break
			}
			if digits += t.digits; len(digits) > 19 {
				break
			}
			if isCard(digits) && !fraction(s, t.end) {
				best = j
			}
		}
		if best >= 0 {
			out = append(out, span{tokens[i].start, tokens[best].end, Card})
			i = best
		}
	}
	return out
}

// afterHash reports whether a token counts as part of a word only for a number sign before it.
func afterHash(s string, t *token) bool {
	return t.start > 0 && s[t.start-1] == '#'
}

// fraction reports whether a decimal fraction of one or two digits follows, as in a price.
func fraction(s string, end int) bool {
	if end+1 >= len(s) || s[end] != ',' && s[end] != '.' || s[end+1] < '0' || s[end+1] > '9' {
		return false
	}
	n := 1
	for end+1+n < len(s) && s[end+1+n] >= '0' && s[end+1+n] <= '9' {
		n++
	}
	return n <= 2
}

// isCard reports whether digits have the prefix and length of a card scheme and a right check
// digit.
func isCard(d string) bool {
	if len(d) < 13 || len(d) > 19 || !luhn(d) {
		return false
	}
	two, four := number(d[:2]), number(d[:4])
	switch n := len(d); {
	case d[0] == '4':
		return n == 13 || n == 16 || n == 19 // Visa
	case two >= 51 && two <= 55, four >= 2221 && four <= 2720:
		return n == 16 // Mastercard
	case two == 34 || two == 37:
		return n == 15 // American Express
	case two == 36 || two == 38 || two == 39 || four >= 3000 && four <= 3059:
		return n >= 14 // Diners Club
	case four >= 3528 && four <= 3589:
		return n >= 16 // JCB
	case four >= 2200 && four <= 2204:
		return n >= 16 // Mir
	case two == 50 || two >= 56 && two <= 69:
		return n >= 13 // Maestro, Discover, UnionPay, RuPay
	case two == 81 || two == 82:
		return n == 16 // RuPay
	}
	return false
}

func number(d string) int {
	n := 0
	for i := range len(d) {
		n = n*10 + int(d[i]-'0')
	}
	return n
}

// luhn reports whether the last digit is the right check digit (ISO/IEC 7812).
func luhn(d string) bool {
	sum := 0
	for i := range len(d) {
		n := int(d[len(d)-1-i] - '0')
		if i%2 == 1 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}
