package redact

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of an address, in bytes (RFC 5321).
const (
	maxLocal  = 64
	maxDomain = 255
)

// appendEmails appends the e-mail addresses of a text, written and spoken.
func appendEmails(out []span, s string) []span {
	for i := 0; i < len(s); i++ {
		if s[i] != '@' {
			continue
		}
		start, end := i, i+1
		for start > 0 && i-start < maxLocal {
			c, size := utf8.DecodeLastRuneInString(s[:start])
			if !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("!#$%&'*+/=?^_{|}~.-", c) {
				break
			}
			start -= size
		}
		for end < len(s) && end-i < maxDomain {
			c, size := utf8.DecodeRuneInString(s[end:])
			if !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '-' && c != '.' {
				break
			}
			end += size
		}
		domain := strings.TrimRight(s[i+1:end], ".-")
		if dot := strings.LastIndexByte(domain, '.'); start < i && dot > 0 && utf8.RuneCountInString(domain[dot+1:]) >= 2 {
			out = append(out, span{start, i + 1 + len(domain), Email})
			i += len(domain)
		}
	}
	return appendSpokenEmails(out, s)
}

var (
	atWords    = []string{"at", "ät", "arroba", "arobase", "chiocciola"}
	dotWords   = []string{"dot", "punkt", "point", "punto", "ponto"}
	joinWords  = append([]string{"underscore", "dash", "minus"}, dotWords...)
	topDomains = []string{"com", "net", "org", "info", "biz", "edu", "gov", "app", "dev"} // and those of two letters
)

// appendSpokenEmails appends addresses of the form "jane dot doe at example dot com".
func appendSpokenEmails(out []span, s string) []span {
	found := false
	for _, at := range atWords {
		found = found || strings.Contains(s, " "+at+" ")
	}
	if !found && strings.ToLower(s) == s {
		return out
	}
	words := wordsOf(s)
	for i := 1; i < len(words); i++ {
		if !slices.Contains(atWords, words[i].name) {
			continue
		}
		first := i - 1
		for n := 0; n < 5 && first >= 2 && slices.Contains(joinWords, words[first-1].name); n++ {
			first -= 2
		}
		last := i + 1
		for n := 0; n < 4 && last+2 < len(words) && slices.Contains(dotWords, words[last+1].name); n++ {
			last += 2
		}
		if last == i+1 || last >= len(words) {
			continue
		}
		if top := words[last].name; len(top) == 2 || slices.Contains(topDomains, top) {
			out = append(out, span{words[first].start, words[last].end, Email})
			i = last
		}
	}
	return out
}

// wordsOf returns the words of a text, in small letters as their names.
func wordsOf(s string) []span { return firstWords(s, len(s)) }

// firstWords returns the first n words of a text as wordsOf does.
func firstWords(s string, n int) []span {
	var out []span
	start := -1
	for i, c := range s {
		word := unicode.IsLetter(c) || unicode.IsDigit(c) || c == '_' || c == '-'
		if word && start < 0 {
			start = i
		}
		if !word && start >= 0 {
			out, start = append(out, span{start, i, strings.ToLower(s[start:i])}), -1
			if len(out) == n {
				return out
			}
		}
	}
	if start >= 0 {
		out = append(out, span{start, len(s), strings.ToLower(s[start:])})
	}
	return out
}
