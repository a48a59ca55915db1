package redact

import "strings"

// appendPhones appends the telephone numbers of a text.
func appendPhones(out []span, s string, tokens []token) []span {
	for i := 0; i < len(tokens); i++ {
		digits, best := "", -1
		if inNumber(s, tokens[i].start) {
			continue
		}
		for j := i; j < len(tokens) && j < i+maxGroups; j++ {
			t := &tokens[j]
			if t.tight || j > i && (!t.glued || t.plus) {
				break
			}
			if digits += t.digits; len(digits) > 16 {
				break
			}
			if isPhone(s, tokens[i:j+1], digits) && !fraction(s, t.end) && !clock(s, t.end) {
				best = j
			}
		}
		if best < 0 {
			continue
		}
		start := tokens[i].start
		for start > 0 && (s[start-1] == '(' || s[start-1] == '+') {
			start--
		}
		if tokens[i].plus && start == tokens[i].start { // the word
			near := max(0, start-16)
			if at := strings.LastIndex(strings.ToLower(s[near:start]), "plus"); at >= 0 {
				start = near + at
			}
		}
		out = append(out, span{start, tokens[best].end, Phone})
		i = best
	}
	return out
}

// inNumber reports whether a number goes on at start: "123" in "0.123".
func inNumber(s string, start int) bool {
	return start > 1 && (s[start-1] == '.' || s[start-1] == ',') && s[start-2] >= '0' && s[start-2] <= '9'
}

// clock reports whether a time of day ends the text behind end, such as ":30".
func clock(s string, end int) bool {
	return end+1 < len(s) && s[end] == ':' && s[end+1] >= '0' && s[end+1] <= '9'
}

// isPhone reports whether groups of digits, together digits, are a telephone number.
func isPhone(s string, groups []token, digits string) bool {
	n := len(digits)
	switch {
	case groups[0].plus:
		return n >= 7 && n <= 15 && digits[0] != '0'
	case isDate(s, groups):
		return false
	case strings.HasPrefix(digits, "00"):
		return n >= 10 && n <= 16 && digits[2] != '0' && (len(groups) > 1 || n >= 12)
	case digits[0] == '0':
		if len(groups) == 1 {
			return n >= 10 && n <= 12
		}
		return n >= 9 && n <= 12 && (len(groups[0].digits) >= 2 && len(groups[0].digits) <= 6 || groups[0].spoken)
	}
	return northAmerican(groups, digits)
}

// northAmerican reports whether groups are of the form 415 555 0132, with or without a leading 1.
func northAmerican(groups []token, digits string) bool {
	if len(digits) == 11 && digits[0] == '1' && len(groups[0].digits) == 1 {
		groups, digits = groups[1:], digits[1:]
	}
	if len(groups) != 3 || len(digits) != 10 || len(groups[0].digits) != 3 || len(groups[1].digits) != 3 {
		return false
	}
	return digits[0] >= '2' && digits[3] >= '2'
}

// isDate reports whether groups begin with a date, such as 01.02.2026 or 2026-02-01.
func isDate(s string, groups []token) bool {
	if len(groups) < 3 || groups[0].spoken {
		return false
	}
	a, b, c := groups[0].digits, groups[1].digits, groups[2].digits
	sep := s[groups[0].end:groups[1].start]
	if sep != s[groups[1].end:groups[2].start] || sep != "." && sep != "/" && sep != "-" {
		return false
	}
	return len(a) <= 2 && len(b) <= 2 && number(a) <= 31 && number(b) <= 31 && (len(c) == 4 && (c[:2] == "19" || c[:2] == "20") || len(c) == 2)
}
