package facts

import (
	"strings"
	"unicode"

	"github.com/heardlog/heardlog/memory/redact"
)

var secrets = redact.New(redact.Rules{Types: []string{redact.Card, redact.IBAN, redact.Secret}})

// secretIn returns the kind of secret that one of the texts contains: a card number, an IBAN, a
// password or a code. It returns "" if there is none.
func secretIn(texts ...string) string {
	for _, s := range texts {
		if clean := secrets.Text(s); luhnIn(s) || clean != s {
			if strings.Contains(clean, "["+redact.Secret+"]") {
				return "a password, a PIN or a one-time code"
			}
			return "a card number or an IBAN"
		}
	}
	return ""
}

// luhnIn reports whether a text has 13 to 19 digits, with single separators, whose check digit is
// that of card numbers.
func luhnIn(s string) bool {
	var digits []byte
	gap := 0
	done := func() bool {
		ok := len(digits) >= 13 && len(digits) <= 19 && luhn(digits)
		digits = digits[:0]
		return ok
	}
	for _, r := range s {
		switch {
		case r >= '0' && r <= '9':
			digits, gap = append(digits, byte(r-'0')), 0
		case len(digits) > 0 && gap == 0 && (r == ' ' || r == '-' || r == '.' || unicode.IsSpace(r)):
			gap = 1
		default:
			if done() {
				return true
			}
		}
	}
	return done()
}

func luhn(digits []byte) bool {
	sum := 0
	for i, d := range digits {
		n := int(d)
		if (len(digits)-i)%2 == 0 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}
