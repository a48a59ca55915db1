package facts

import (
	"regexp"
	"unicode"

	"github.com/heardlog/heardlog/memory/redact"
)

var numbers = redact.New(redact.Rules{Types: []string{redact.Card, redact.IBAN}})

var (
	// A word for a password, what joins it to its value, and a value.
	password = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:pass\s?(?:word|phrase|code)|passwort|kennwort|losung|mot de passe|contraseña|clave secreta|senha|password|parola d'ordine|wachtwoord|lösenord|пароль|密码|パスワード)(?:\s+(?:for|für|to|of|zu|pour|de|del)\s+[\pL\pN.@-]+){0,2}\s*(?:[:=]|\s(?:is|are|ist|lautet|est|es|è|é|war|was)(?:\s|$)|是|は)\s*["'“„«]?\S+`)
	// A word for a code that is valid once, and four to ten digits near it, in either order.
	codeThenDigits = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:pin|tan|otp|cvc|cvv|mfa|2fa|sms|(?:[\pL-]*\s?)?(?:code|código|codice|kod|код)|验证码)(?:[^\pL\pN]|$)(?:[^\pN]{0,40})(\d(?:[\s-]?\d){2,9})(?:\D|$)`)
	digitsThenCode = regexp.MustCompile(`(?i)(?:^|\D)(\d(?:[\s-]?\d){2,9})\s+(?:is|ist|est|es|è|als|as|was)\s+(?:[\pL]+\s){0,3}(?:pin|tan|otp|cvc|cvv|(?:[\pL-]*)(?:code|código|codice))(?:[^\pL]|$)`)
	// Codes that are not secrets.
	openCode = regexp.MustCompile(`(?i)\b(?:post|zip|postal|area|country|dial(?:l?ing)?|discount|promo|coupon|voucher|booking|qr|bar|dress|source|error|product|sort|gate|vor|länder|code\s+review)[\s-]?(?:code|wahl|leit)`)
)

// secretIn returns the kind of secret that one of the texts contains: a card number, an IBAN, a
// password or a code. It returns "" if there is none.
func secretIn(texts ...string) string {
	for _, s := range texts {
		switch {
		case luhnIn(s):
			return "a card number"
		case numbers.Text(s) != s:
			return "a card number or an IBAN"
		case password.MatchString(s):
			return "a password"
		case (codeThenDigits.MatchString(s) || digitsThenCode.MatchString(s)) && !openCode.MatchString(s):
			return "a one-time code or PIN"
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
