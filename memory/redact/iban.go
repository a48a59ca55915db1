package redact

import "strings"

// ibanLengths are the lengths of IBANs by country, in characters.
var ibanLengths = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29, "BY": 28, "CH": 21, "CR": 22,
	"CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22,
	"GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30,
	"KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20,
	"MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22,
	"RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26,
	"UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
}

// appendIBANs appends the IBANs of a text, with single spaces or dashes anywhere in them.
func appendIBANs(out []span, s string) []span {
	for i := 0; i < len(s); i++ {
		if letter(s[i]) == 0 || i > 0 && alnum(s[i-1]) {
			continue
		}
		if end := ibanEnd(s, i); end > 0 {
			out = append(out, span{i, end, IBAN})
			i = end - 1
		}
	}
	return out
}

// ibanEnd returns the end of the IBAN that starts at i, or 0.
func ibanEnd(s string, i int) int {
	var b [34]byte
	n, length, digits := 0, 0, 0
	for at := i; at < len(s); {
		c := s[at]
		switch {
		case c >= '0' && c <= '9':
			digits++
		case letter(c) != 0:
			c = letter(c)
		default:
			if at += separator(s[at:]); at == len(s) || !alnum(s[at]) {
				return 0
			}
			continue
		}
		b[n] = c
		n++
		at++
		switch {
		case n == 2:
			if length = ibanLengths[string(b[:2])]; length == 0 {
				return 0
			}
		case n == 4 && (b[2] > '9' || b[3] > '9'):
			return 0
		case n == length && length > 0:
			// Words that follow each other by chance have fewer digits.
			if at < len(s) && alnum(s[at]) || digits < n/2 || !mod97(b[:n]) {
				return 0
			}
			return at
		}
	}
	return 0
}

// separator returns the length of one separator at the beginning of s, at least 1.
func separator(s string) int {
	for _, sep := range []string{"\u00a0", "\u202f", ", "} {
		if strings.HasPrefix(s, sep) {
			return len(sep)
		}
	}
	if s[0] == ' ' || s[0] == '-' {
		return 1
	}
	return len(s) // none
}

// letter returns a letter in upper case, or 0.
func letter(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c
	case c >= 'a' && c <= 'z':
		return c - 'a' + 'A'
	}
	return 0
}

func alnum(c byte) bool { return letter(c) != 0 || c >= '0' && c <= '9' || c >= 0x80 }

// mod97 reports whether the check digits are right (ISO 7064).
func mod97(b []byte) bool {
	n := 0
	for i := range b {
		c := b[(i+4)%len(b)]
		if c <= '9' {
			n = (n*10 + int(c-'0')) % 97
		} else {
			n = (n*100 + int(c-'A') + 10) % 97
		}
	}
	return n == 1
}
