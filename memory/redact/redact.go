// Package redact replaces personal data in texts: card numbers, IBANs, telephone numbers, e-mail
// addresses, secrets and what a user's own expressions match. Rules say what, New checks and
// compiles them, and a Redactor applies them. With a Lookup it also replaces names that a detector
// has found. The package is pure: others ask the detector.
//
// A replaced piece becomes its type in brackets, such as "[card]". Replacing twice changes nothing
// more. A nil *Redactor replaces nothing.
package redact

import (
	"cmp"
	"iter"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// The types that Rules may name.
const (
	Card  = "card"  // payment cards of 13 to 19 digits with a known prefix and a right check digit
	IBAN  = "iban"  // with the country's length and right check digits
	Phone = "phone" // with a plus, a leading zero, or in North American groups
	Email = "email"
	// Secret is a password, PIN or code that the words before or after it name as such.
	Secret = "secret"
)

// Types lists the types.
func Types() []string { return []string{Card, IBAN, Phone, Email, Secret} }

// Limits of a user's own expressions.
const (
	MaxOwn     = 16  // expressions of one set of rules
	MaxPattern = 256 // bytes of an expression
	MaxName    = 32  // bytes of its name
	// maxProgram limits the steps of a compiled expression, on which the time of a search depends,
	// and maxPrograms those of all expressions together.
	maxProgram, maxPrograms = 600, 2400
)

// Rules say what is replaced. The zero value replaces nothing.
type Rules struct {
	// Types are the types to replace; see Types.
	Types []string `json:"types,omitempty"`
	// Own are further expressions in RE2's syntax, by the name that replaces a match: "ticket"
	// becomes "[ticket]". A name consists of small letters, digits and dashes.
	Own map[string]string `json:"own,omitempty"`
	// Upstream is what the LLM is given of the running request: "original", the default, or
	// "redacted".
	Upstream string `json:"upstream,omitempty"`
}

// Values of Rules.Upstream.
const (
	Original = "original"
	Redacted = "redacted"
)

// Zero reports whether the rules replace nothing.
func (r Rules) Zero() bool { return len(r.Types) == 0 && len(r.Own) == 0 }

// With returns the rules of both. The LLM is given the redacted text if one of them says so. Where
// both have an expression of one name, that of r is kept and the other gets the name "own".
func (r Rules) With(more Rules) Rules {
	out := Rules{Types: slices.Concat(r.Types, more.Types), Own: maps.Clone(r.Own), Upstream: r.Upstream}
	slices.Sort(out.Types)
	out.Types = slices.Compact(out.Types)
	if more.Upstream == Redacted {
		out.Upstream = Redacted
	}
	for _, name := range slices.Sorted(maps.Keys(more.Own)) {
		pattern := more.Own[name]
		if out.Own == nil {
			out.Own = map[string]string{}
		}
		if was, ok := out.Own[name]; ok && was != pattern {
			pattern = "(?:" + was + ")|(?:" + pattern + ")"
		}
		out.Own[name] = pattern
	}
	return out
}

// Redactor replaces what its rules name. It is immutable and safe for concurrent use.
type Redactor struct {
	types    map[string]bool
	own      []pattern
	pieces   []Piece // see Knowing
	upstream string
	lookup   *Lookup // nil without a detector
	again    bool    // see Again
	unnoted  bool    // see Unasked
}

type pattern struct {
	name string
	re   *regexp.Regexp
}

var ownName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// Check returns fault.Invalid for rules that New would refuse. field names the rules in errors.
func (r Rules) Check(field string) error {
	for i, t := range r.Types {
		if !slices.Contains(Types(), t) {
			return fault.At(fault.Invalid, field+".types", "must hold some of %s; entry %d is %q", strings.Join(Types(), ", "), i+1, clip(t))
		}
	}
	if u := r.Upstream; u != "" && u != Original && u != Redacted {
		return fault.At(fault.Invalid, field+".upstream", "must be %s or %s, not %q", Original, Redacted, clip(u))
	}
	if len(r.Own) > MaxOwn {
		return fault.At(fault.Invalid, field+".own", "has %d expressions; at most %d are allowed", len(r.Own), MaxOwn)
	}
	steps := 0
	for _, name := range slices.Sorted(maps.Keys(r.Own)) {
		at := field + ".own." + clip(name)
		if len(name) > MaxName || !ownName.MatchString(name) || slices.Contains(Types(), name) {
			return fault.At(fault.Invalid, at, "must have a name of 1 to %d small letters, digits and dashes, and none of the names %s", MaxName, strings.Join(Types(), ", "))
		}
		if n := len(r.Own[name]); n == 0 || n > MaxPattern {
			return fault.At(fault.Invalid, at, "must have 1 to %d bytes, not %d", MaxPattern, n)
		}
		re, err := regexp.Compile(r.Own[name])
		if err != nil {
			return fault.At(fault.Invalid, at, "must be a regular expression of RE2: %v", err)
		}
		if tree, err := syntax.Parse(r.Own[name], syntax.Perl); err == nil {
			prog, err := syntax.Compile(tree.Simplify())
			if err != nil || len(prog.Inst) > maxProgram {
				return fault.At(fault.Invalid, at, "must be a simpler expression, with fewer repetitions")
			}
			if steps += len(prog.Inst); steps > maxPrograms {
				return fault.At(fault.Invalid, field+".own", "must be simpler or fewer expressions: together they are too complex")
			}
		}
		if re.MatchString("") {
			return fault.At(fault.Invalid, at, "must not match the empty text")
		}
	}
	return nil
}

// New returns the redactor of rules that Check has accepted, or nil if they replace nothing. It
// panics on an expression that Check refuses.
func New(r Rules) *Redactor {
	if r.Zero() {
		return nil
	}
	out := &Redactor{types: map[string]bool{}, upstream: r.Upstream}
	for _, t := range r.Types {
		out.types[t] = true
	}
	for _, name := range slices.Sorted(maps.Keys(r.Own)) {
		out.own = append(out.own, pattern{name, regexp.MustCompile(r.Own[name])})
	}
	return out
}

// HidesFromUpstream reports whether the LLM is given the redacted text of the running request.
func (r *Redactor) HidesFromUpstream() bool { return r != nil && r.upstream == Redacted }

// span is a piece of a text that is replaced.
type span struct {
	start, end int
	name       string
}

// Text returns a text with the pieces replaced.
func (r *Redactor) Text(s string) string {
	out, _ := r.cut(s, len(s))
	return out
}

// Prefix returns the redacted form of the first n bytes of s, which is a prefix of the redacted
// form of s. A piece that n cuts in two is left out.
func (r *Redactor) Prefix(s string, n int) string {
	out, at := r.cut(s, n)
	return out[:at]
}

// maxPasses limits how often a text is searched. What stands beside a replaced piece may be one by
// itself then.
const maxPasses = 8

// cut returns the redacted form of s, and the length of its part for the first n bytes of s.
func (r *Redactor) cut(s string, n int) (string, int) {
	at := []int{n}
	s = r.Cuts(s, at)
	return s, at[0]
}

// Cuts returns the redacted form of s, and sets each of at, which are lengths of beginnings of s in
// ascending order, to the length that Prefix would return for it.
func (r *Redactor) Cuts(s string, at []int) string {
	for range maxPasses {
		spans := r.spans(s)
		if len(spans) == 0 {
			break
		}
		s = replace(s, at, spans)
	}
	return r.names(s, at)
}

// replace replaces spans of s, and sets at, which ascends, to the new lengths.
func replace(s string, at []int, spans []span) string {
	var b strings.Builder
	last := 0
	for _, p := range spans {
		for ; len(at) > 0 && at[0] < p.end; at = at[1:] {
			at[0] = b.Len() + min(at[0], p.start) - last
		}
		b.WriteString(s[last:p.start])
		b.WriteString("[" + p.name + "]")
		last = p.end
	}
	for i := range at {
		at[i] += b.Len() - last
	}
	b.WriteString(s[last:])
	return b.String()
}

// spans returns what is replaced in s, in order and without overlaps.
func (r *Redactor) spans(s string) []span {
	if r == nil || s == "" {
		return nil
	}
	out := appendPieces(nil, s, r.pieces)
	if r.types[Email] {
		out = appendEmails(out, s)
	}
	if r.types[IBAN] {
		out = appendIBANs(out, s)
	}
	if r.types[Card] || r.types[Phone] || r.types[Secret] {
		tokens := tokenize(s)
		if r.types[Secret] {
			out = appendSecrets(out, s, tokens)
		}
		if r.types[Card] {
			out = appendCards(out, s, tokens)
		}
		if r.types[Phone] {
			out = appendPhones(out, s, tokens)
		}
	}
	for _, p := range r.own {
		for _, m := range p.re.FindAllStringIndex(s, -1) {
			if m[0] < m[1] {
				out = append(out, span{m[0], m[1], p.name})
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	// A stable sort: of two that start together, the one found first gives the name.
	slices.SortStableFunc(out, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	return merge(r.unmasked(out, s))
}

// unmasked removes spans that touch a piece that is replaced already.
func (r *Redactor) unmasked(list []span, s string) []span {
	if !strings.Contains(s, "[") {
		return list
	}
	masks := masks(s) // in order, as list is
	return slices.DeleteFunc(list, func(p span) bool {
		for len(masks) > 0 && masks[0].end <= p.start {
			masks = masks[1:]
		}
		return len(masks) > 0 && masks[0].start < p.end
	})
}

// maskShape matches what may be a replaced piece, by any rules.
var maskShape = regexp.MustCompile(`\[[a-z0-9][a-z0-9-]{0,31}\]`)

// Masks reports whether a text has what may be a replaced piece.
func Masks(s string) bool { return maskShape.MatchString(s) }

func masks(s string) []span {
	var out []span
	for _, m := range maskShape.FindAllStringIndex(s, -1) {
		out = append(out, span{start: m[0], end: m[1]})
	}
	return out
}

// merge joins overlapping spans, which are in order, so that nothing of any is left.
func merge(list []span) []span {
	out := list[:0]
	for _, p := range list {
		if n := len(out); n > 0 && p.start < out[n-1].end {
			out[n-1].end = max(out[n-1].end, p.end)
			continue
		}
		out = append(out, p)
	}
	return out
}

// clip shortens a text for an error.
func clip(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Part returns the redacted form of a text that is the beginning of one of several texts, whose
// redacted forms are wholes. If it ends within something that one of them has replaced, such as a
// number or an address, that is left out.
func (r *Redactor) Part(part string, wholes iter.Seq[string]) string {
	out := r.Text(part)
	if r == nil {
		return out
	}
	for whole := range wholes {
		if strings.HasPrefix(whole, out) {
			return out
		}
	}
	end := -1
	for whole := range wholes {
		if _, ok := Fit(whole, out); ok { // other messages have the rest of a number
			return whole
		}
		same := 0 // how many bytes of both are the same
		for same < min(len(out), len(whole)) && out[same] == whole[same] {
			same++
		}
		for i := range whole {
			if i > same {
				break
			}
			if i > 0 && whole[i-1] == ']' && begins(strings.TrimLeft(out[i:], " "), false, false) {
				end = max(end, i) // a number of which a part was replaced
			}
			if whole[i] == '[' && begins(out[i:], i == 0, r.wordsAt(whole[i:])) {
				end = max(end, i)
			}
		}
	}
	if end >= 0 {
		return out[:end]
	}
	return out
}

// begins reports whether a text may be the beginning of what was replaced: it begins with a number,
// is one in words, which "plus" may precede or, unless only numbers count, is one word. What an own
// expression has replaced may begin with any words.
func begins(s string, number, own bool) bool {
	if own && !number {
		return true
	}
	word, more, _ := strings.Cut(s, " ")
	if strings.ContainsAny(word, "+0123456789") || WithoutNumber(word) != word || more == "" && !number {
		return true
	}
	words := strings.Fields(s)
	if len(words) < 2 {
		return false
	}
	if strings.EqualFold(words[0], "plus") {
		words = words[1:]
	}
	spoken := strings.Join(words[:len(words)-1], " ") // the last word may be cut
	return strings.TrimSpace(WithoutNumber(spoken)) == ""
}

// wordsAt reports whether a redacted text begins with what may have replaced any words: the name of
// an own expression, or of a type that a detector finds.
func (r *Redactor) wordsAt(s string) bool {
	if r.lookup != nil {
		name, _, _ := strings.Cut(s[1:], "]")
		return !slices.Contains(Types(), name)
	}
	return slices.ContainsFunc(r.own, func(p pattern) bool { return strings.HasPrefix(s, "["+p.name+"]") })
}

// WithoutNumber returns a text without the number at its end, which may be a part of a longer one.
func WithoutNumber(s string) string {
	end := strings.TrimRight(s, " .,;:!?-–…")
	tokens := tokenize(end)
	n := len(tokens) - 1
	if n < 0 || tokens[n].end != len(end) {
		return s
	}
	for n > 0 && tokens[n].glued {
		n--
	}
	return strings.TrimSuffix(end[:tokens[n].start], "+")
}
