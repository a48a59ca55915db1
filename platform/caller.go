package platform

import (
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// callerPaths are where platforms put the number of the caller into a chat request: Vapi, Retell,
// ElevenLabs with its dynamic variables in the extra body, Telnyx, and metadata that a worker on
// Twilio or LiveKit adds.
var callerPaths = [][]string{
	{"call", "customer", "number"}, {"customer", "number"}, {"call", "from_number"}, {"metadata", "from_number"},
	{"elevenlabs_extra_body", "system__caller_id"}, {"elevenlabs_extra_body", "caller_id"}, {"metadata", "telnyx_end_user_target"},
	{"metadata", "caller_id"}, {"metadata", "From"}, {"metadata", "from"}, {"metadata", "sip.phoneNumber"},
}

// withheld are the numbers that carriers send for callers who withhold theirs: ANONYMOUS,
// RESTRICTED and UNAVAILABLE on the keys of a telephone.
var withheld = []string{"+266696687", "+7378742833", "+86282452253"}

// nobodies are the words that take the place of a withheld number.
var nobodies = []string{"anonymous", "restricted", "unavailable", "unknown", "private", "withheld", "blocked", "no-caller-id"}

// Caller returns the number of the caller that a platform sends with a chat request, in E.164, or
// "". If one of the places says that the number is withheld, there is none. member returns the JSON
// of a member of the body, or nothing.
func Caller(member func(string) []byte) string {
	for _, path := range callerPaths {
		sent := peek.At(member(path[0]), path[1:]...).Text()
		if Withheld(sent) {
			return ""
		}
		if number, ok := Number(sent); ok {
			return number
		}
	}
	return ""
}

// Number returns a telephone number in E.164, such as +4930123456. It reports false if s is not a
// number with its country: one that begins with + or 00, with or without a scheme (tel:, sip:,
// whatsapp:), spaces and punctuation. The national zero in +49 (0)30 is left out.
func Number(s string) (string, bool) {
	s = subscriber(s)
	if strings.HasPrefix(s, "00") {
		s = "+" + s[2:]
	}
	if !strings.HasPrefix(s, "+") || len(s) > 40 {
		return "", false
	}
	number := []byte{'+'}
	for _, c := range strings.Replace(s[1:], "(0)", "", 1) {
		switch {
		case c >= '0' && c <= '9':
			number = append(number, byte(c))
		case !strings.ContainsRune(" -./()\u00a0\u2010\u2011", c):
			return "", false
		}
	}
	if len(number) < 8 || len(number) > 16 || number[1] == '0' {
		return "", false
	}
	return string(number), true
}

// subscriber returns the part of a telephone's address that is its number or name: that without
// scheme, host and parameters.
func subscriber(s string) string {
	s = strings.TrimSpace(s)
	for _, scheme := range []string{"tel:", "sip:", "sips:", "whatsapp:"} {
		if len(s) > len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
			s, _, _ = strings.Cut(s[len(scheme):], "@")
			s, _, _ = strings.Cut(s, ";")
		}
	}
	return s
}

// Withheld reports whether a platform sends the name or number for callers who withhold theirs.
func Withheld(s string) bool {
	s = subscriber(s)
	number, _ := Number(s)
	return slices.Contains(withheld, number) || slices.Contains(nobodies, strings.ToLower(s))
}
