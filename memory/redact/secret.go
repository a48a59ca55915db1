package redact

import (
	"regexp"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/secret"
)

// passwordWords is a word for a password.
const passwordWords = `(?:pass\s?(?:word|phrase|code)|(?:secret|code)\s?word|(?:security|secret) question|passwort|kennwort|geheimwort|losung|sicherheitsfrage|` +
	`mot de passe|mot secret|contraseña|clave secreta|palabra secreta|senha|parola d'ordine|parola segreta|wachtwoord|geheim woord|lösenord|пароль)`

var (
	// Most texts have no such word, and the other expressions take several times as long.
	hasPassword = regexp.MustCompile(`(?i)` + passwordWords + `|密码|パスワード`)
	// A word for a password, what joins it to its value, and the value. Without a joining word, as
	// speech recognition writes it, the value has a digit.
	password = regexp.MustCompile(`(?i)(?:(?:^|[^\pL])` + passwordWords + `|密码|パスワード)` +
		`(?:(?:\s+(?:for|für|to|of|zu|pour|de|del)\s+[\pL\pN.@-]+){0,2}\s*(?:[:=]|\s(?:is|are|ist|lautet|heißt|est|es|è|é|war|was|equals|(?:used to|will|should|would) be)(?:\s|$)|['’]s\s|是|は)\s*(?:(?:still|now|just|noch|immer noch)\s+)?["'“„«]?([^\s"'”“»]+)|\s+([^\s\d]*\d\S*))`)
	// The same with the value first, which has a digit, or a digit behind letters before a comma.
	isPassword = regexp.MustCompile(`(?i)(?:([^\s\d"'“„«]*\d[^\s,"'”“»]*)["'”“»]?\s+(?:is|as|ist|als|est|comme|es|como|è|come|war|was)|(\pL{2,}\d[^\s,]*),)\s+` +
		`(?:the|my|our|your|his|her|das|mein|unser|mon|le|la|mi|mia)\s+(?:\pL+\s)?` + passwordWords + `(?:[^\pL]|$)`)
	// A word for a code that only its owner knows.
	code = regexp.MustCompile(`(?i)(?:(?:^|[^\pL])((?:pin|(?-i:TAN)|otp|cvc|cvv|mfa|2fa|clave|ssn|social security(?: number)?|[\pL-]*(?:code|código|codice|kod|код)))(?:s|[^\pL\pN]|$)|(验证码))`)
	// Codes that are not secrets.
	openCode = regexp.MustCompile(`(?i)\b(?:post|zip|postal|area|country|dial(?:l?ing)?|discount|promo|coupon|voucher|booking|qr|bar|dress|source|error|product|sort|vor|länder)[\s-]?(?:code|wahl|leit)|\bcode\s+(?:review|name|of\s+conduct)`)
	// What stands behind a code that comes before the word for it.
	isCode = regexp.MustCompile(`(?i)\s+(?:is|ist|est|es|è|als|as|was)\s+(?:\pL+\s){0,3}(?:pin|(?-i:TAN)|otp|cvc|cvv|[\pL-]*(?:code|código|codice))(?:[^\pL]|$)`)
	// What stands between the word for a code and a year.
	inYear = regexp.MustCompile(`(?i)\s(?:in|since|im|seit|en|depuis|desde|nel|dal)\s+$`)
)

// plain are words that stand after "the password is" and are not the password.
var plain = strings.Fields(`a an the my your our his her their not no wrong right correct incorrect invalid valid
	required needed missing reset changed expired forgotten lost known unknown safe secure
	strong weak too very on in at for still now already what that this there working nicht
	falsch richtig vergessen abgelaufen zurückgesetzt ein eine der die das mein meine noch`)

// maxToCode is how far a code may be from the word for it, in bytes.
const maxToCode = 40

// appendSecrets appends passwords, PINs and codes that are named as such. The numbers of the text
// are its tokens, so that codes may be spoken. It is linear in the length of the text.
func appendSecrets(out []span, s string, tokens []token) []span {
	if hasPassword.MatchString(s) {
		out = appendPasswords(out, s)
	}
	for _, m := range secret.Shapes(s) {
		out = append(out, span{m[0], m[1], Secret})
	}
	open, next := openCode.FindAllStringIndex(s, -1), 0
	for _, m := range code.FindAllStringSubmatchIndex(s, -1) {
		start, end := max(m[2], m[4]), max(m[3], m[5])
		for len(open) > 0 && open[0][1] <= start {
			open = open[1:]
		}
		if len(open) > 0 && open[0][0] < end {
			continue
		}
		for next < len(tokens) && tokens[next].start < end {
			next++
		}
		if next < len(tokens) && names(s[end:tokens[next].start], tokens[next].digits) {
			out = appendCode(out, s, tokens[next:])
		}
	}
	next = 0
	for _, m := range isCode.FindAllStringIndex(s, -1) {
		for next < len(tokens) && tokens[next].end < m[0] {
			next++
		}
		if next == len(tokens) || tokens[next].end != m[0] || openCode.MatchString(s[m[0]:m[1]]) {
			continue
		}
		first := next
		for first > 0 && next-first < maxCode && joined(s, tokens, first) {
			first--
		}
		out = appendCode(out, s, tokens[first:next+1])
	}
	return out
}

func appendPasswords(out []span, s string) []span {
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
	for _, m := range isPassword.FindAllStringSubmatchIndex(s, -1) {
		out = append(out, span{max(m[2], m[4]), max(m[3], m[5]), Secret})
	}
	return out
}

// names reports whether the text between the word for a code and a number says that the number is
// the code.
func names(between, digits string) bool {
	isYear := len(digits) == 4 && (digits[:2] == "19" || digits[:2] == "20")
	return len(between) <= maxToCode && !strings.ContainsAny(between, "[]?!\n") && !strings.Contains(between, ". ") &&
		!openCode.MatchString(between) && !(isYear && inYear.MatchString(between))
}

// How many digits a code has.
const minCode, maxCode = 3, 10

// joined reports whether a token goes on with the code of the one before it.
func joined(s string, tokens []token, i int) bool {
	return tokens[i].glued && !strings.Contains(s[tokens[i-1].end:tokens[i].start], ",")
}

// appendCode appends the code that the first of the tokens begins, if it is one.
func appendCode(out []span, s string, tokens []token) []span {
	digits, end := 0, 0
	for i, t := range tokens {
		if i > 0 && !joined(s, tokens, i) || digits+len(t.digits) > maxCode {
			break
		}
		if t.spoken && strings.Trim(t.digits, t.digits[:1]) != "" { // ten, twenty-one: a time or a number of things
			break
		}
		digits, end = digits+len(t.digits), t.end
	}
	if digits < minCode {
		return out
	}
	return append(out, span{tokens[0].start, end, Secret})
}
