package platform

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"

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

// nobodies are the words that take the place of a withheld number, without spaces and punctuation.
// Twilio also sends them as they are dialled on the keys of a telephone: +266696687 is ANONYMOUS.
var nobodies = strings.Fields(`anonymous restricted unavailable unknown private withheld blocked hidden nocallerid callerid
	outofarea anonymouscaller restrictedcaller unavailablecaller unknowncaller privatecaller
	blockedcaller hiddencaller anonymousnumber restrictednumber unavailablenumber unknownnumber
	privatenumber withheldnumber blockednumber hiddennumber nonumber anonym unbekannt anonyme
	inconnu privé masqué anónimo anonimo desconocido privado oculto sconosciuto privato anoniem
	onbekend undefined null none nil nan na notavailable`)

// withheld are the numbers that spell those of these words that carriers send.
var withheld = dialled([]string{"anonymous", "restricted", "unavailable", "unknown", "private", "withheld", "blocked"})

func dialled(words []string) (numbers []string) {
	const keys = "22233344455566677778889999" // of a to z
	for _, w := range words {
		number := []byte{'+'}
		for _, c := range []byte(w) {
			number = append(number, keys[c-'a'])
		}
		numbers = append(numbers, string(number))
	}
	return numbers
}

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

// schemes are those of telephones' addresses.
var schemes = []string{"tel:", "sip:", "sips:", "whatsapp:", "client:"}

// minLong is how many digits after 00 and with it make a telephone number of a name, which may as
// well be the number of a customer.
const minLong = 12

// Name returns the name of a caller as a client gives it. If it is a telephone number that begins
// with +, a scheme, or 00 and is not short, it is returned in E.164. It reports false for what
// platforms send for callers who withhold their number.
func Name(s string) (name string, ok bool) {
	if Withheld(s) {
		return "", false
	}
	at := address(s)
	isScheme := func(scheme string) bool { return len(at) > len(scheme) && strings.EqualFold(at[:len(scheme)], scheme) }
	isLong := strings.HasPrefix(at, "00") && (len(at) >= minLong || strings.ContainsAny(at, " -./("))
	if isLong || strings.HasPrefix(at, "+") || slices.ContainsFunc(schemes, isScheme) {
		if number, ok := Number(s); ok {
			return number, true
		}
	}
	return s, true
}

// subscriber returns the part of a telephone's address that is its number or name: that without
// scheme, host and parameters.
func subscriber(s string) string {
	s = address(s)
	for _, scheme := range schemes {
		if len(s) > len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
			s, _, _ = strings.Cut(s[len(scheme):], "@")
			s, _, _ = strings.Cut(s, ";")
		}
	}
	return s
}

// address returns the address in "Name" <sip:…>, or s, without space around it and without what a
// reader does not see.
func address(s string) string {
	s = width.Fold.String(strings.Map(visible, s))
	if number, ok := strings.CutPrefix(s, "%2B"); ok { // escaped twice
		s = "+" + number
	}
	if i, j := strings.IndexByte(s, '<'), strings.LastIndexByte(s, '>'); i >= 0 && j > i {
		s = s[i+1 : j]
	}
	return strings.TrimSpace(s)
}

func visible(c rune) rune {
	if unicode.Is(unicode.Cf, c) {
		return -1
	}
	return c
}

// isTemplate reports whether a text is a variable that was to be replaced by a name, such as
// {{customer.number}} or ${From}.
func isTemplate(s string) bool {
	return strings.Contains(s, "{{") && strings.Contains(s, "}}") ||
		strings.HasSuffix(s, "}") && strings.HasPrefix(strings.TrimLeft(s, "$#%"), "{") && !strings.Contains(s, `"`)
}

// Withheld reports whether a platform sends the name or number for callers who withhold theirs, or
// for want of one: a word such as "Private Number", the number that spells it, one digit
// repeated, a variable that was not replaced, or punctuation alone.
func Withheld(s string) bool {
	s, _, _ = strings.Cut(subscriber(s), ";")
	s = strings.TrimSuffix(s, "@anonymous.invalid") // RFC 3323
	if isTemplate(s) {
		return true
	}
	if number, ok := Number(s); ok {
		s = number
	}
	word := strings.Map(func(c rune) rune {
		if strings.ContainsRune(" -_.,/()[]<>\"'+?*", c) {
			return -1
		}
		return unicode.ToLower(c)
	}, s)
	repeated := strings.HasPrefix(s, "+") && len(word) >= 7 && unicode.IsDigit(rune(word[0])) && strings.Trim(word, word[:1]) == ""
	return word == "" && s != "" || repeated || slices.Contains(nobodies, word) || slices.Contains(withheld, s)
}
