package redact

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	// A word for a password, what joins it to its value, and the value. Without a joining word, as
	// speech recognition writes it, the value has a digit.
	password = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:pass\s?(?:word|phrase|code)|passwort|kennwort|losung|mot de passe|contraseña|clave secreta|senha|parola d'ordine|wachtwoord|lösenord|пароль|密码|パスワード)` +
		`(?:(?:\s+(?:for|für|to|of|zu|pour|de|del)\s+[\pL\pN.@-]+){0,2}\s*(?:[:=]|\s(?:is|are|ist|lautet|est|es|è|é|war|was)(?:\s|$)|是|は)\s*["'“„«]?([^\s"'”“»]+)|\s+([^\s\d]*\d\S*))`)
	// A word for a code that only its owner knows.
	code = regexp.MustCompile(`(?i)(?:^|[^\pL])(pin|tan|otp|cvc|cvv|mfa|2fa|sms|[\pL-]*(?:code|código|codice|kod|код)|验证码)(?:s|[^\pL\pN]|$)`)
	// Codes that are not secrets.
	openCode = regexp.MustCompile(`(?i)\b(?:post|zip|postal|area|country|dial(?:l?ing)?|discount|promo|coupon|voucher|booking|qr|bar|dress|source|error|product|sort|gate|vor|länder)[\s-]?(?:code|wahl|leit)|\bcode\s+(?:review|name|of\s+conduct)`)
	// What may stand between a code and the word for it, when the code comes first.
	isCode = regexp.MustCompile(`(?i)^\s+(?:is|ist|est|es|è|als|as|was)\s+(?:\pL+\s){0,3}(?:pin|tan|otp|cvc|cvv|[\pL-]*(?:code|código|codice))(?:[^\pL]|$)`)
)

// plain are words that stand after "the password is" and are not the password.
var plain = strings.Fields(`a an the my your our his her their not no wrong right correct incorrect invalid valid required needed missing reset changed expired
	forgotten lost known unknown safe secure strong weak too very on in at for still now already what that this there still working
	nicht falsch richtig vergessen abgelaufen zurückgesetzt ein eine der die das mein meine noch`)

// maxToCode is how far a code may be from the word for it, in bytes.
const maxToCode = 40

// appendSecrets appends passwords, PINs and codes that are named as such. The numbers of the text
// are its tokens, so that codes may be spoken.
func appendSecrets(out []span, s string, tokens []token) []span {
	for _, m := range password.FindAllStringSubmatchIndex(s, -1) {
		start, end := m[2], m[3]
		if start < 0 {
			start, end = m[4], m[5]
		}
		value := strings.TrimRight(s[start:end], ".,;:!?")
		if value != "" && !slices.Contains(plain, strings.ToLower(value)) {
			out = append(out, span{start, start + len(value), Secret})
		}
	}
	open := openCode.FindAllStringIndex(s, -1)
	for _, m := range code.FindAllStringSubmatchIndex(s, -1) {
		if slices.ContainsFunc(open, func(o []int) bool { return o[0] < m[3] && m[2] < o[1] }) {
			continue
		}
		if i := slices.IndexFunc(tokens, func(t token) bool { return t.start >= m[3] }); i >= 0 && tokens[i].start-m[3] <= maxToCode {
			out = appendCode(out, tokens[i:])
		}
	}
	for i := range tokens {
		if i == 0 || !tokens[i].glued {
			if end := codeEnd(tokens[i:]); end > 0 && isCode.MatchString(s[end:min(len(s), end+2*maxToCode)]) && !openCode.MatchString(s[end:]) {
				out = append(out, span{tokens[i].start, end, Secret})
			}
		}
	}
	return out
}

// appendCode appends the code that the first of the tokens begins, if it is one.
func appendCode(out []span, tokens []token) []span {
	if end := codeEnd(tokens); end > 0 {
		out = append(out, span{tokens[0].start, end, Secret})
	}
	return out
}

// codeEnd returns where the number ends that the first of the tokens begins, or 0 if it cannot be a
// code: one of 3 to 10 digits, or at least 4 if all are spoken.
func codeEnd(tokens []token) int {
	digits, end, least := 0, 0, 4
	for i, t := range tokens {
		if i > 0 && !t.glued {
			break
		}
		if !t.spoken {
			least = 3
		}
		digits, end = digits+utf8.RuneCountInString(t.digits), t.end
	}
	if digits < least || digits > 10 {
		return 0
	}
	return end
}
