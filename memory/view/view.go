// Package view decides how the model is shown its own earlier answers: what was heard of them, with
// or without a note on the rest, or all that was generated (Projection), and whether texts have the
// time and the speaker in front. View has all of these settings; its methods are pure.
package view

import (
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/heard"
)

// Projection is which of the truths about its earlier answers the model is shown. Projections
// differ only in answers that were cut or not heard. docs/guides/projections.md shows them side by
// side.
type Projection string

// The projections. The zero value is HeardOnly.
const (
	HeardOnly   Projection = "heard_only"   // what was heard, nothing else
	HeardMarked Projection = "heard_marked" // what was heard, and a marker where it was cut
	// What was heard, and a note with what was not heard.
	HeardAndUnsaid Projection = "heard_and_unsaid"
	// All that the model produced, as if all of it had been heard.
	GeneratedWhole Projection = "generated"
)

// Projections returns all projections, the default first.
func Projections() []Projection {
	return []Projection{HeardOnly, HeardMarked, HeardAndUnsaid, GeneratedWhole}
}

// Parse returns the projection of a name; "" is HeardOnly. It returns fault.Invalid with
// the field and the names allowed.
func Parse(field, name string) (Projection, error) {
	if name == "" {
		return HeardOnly, nil
	}
	names := make([]string, 0, 4)
	for _, p := range Projections() {
		if string(p) == name {
			return p, nil
		}
		names = append(names, string(p))
	}
	return "", fault.At(fault.Invalid, field, "%q is not one of %s", text.Clip(name, 60), strings.Join(names, ", "))
}

// Words are the words that projections add to what was heard. An empty one has its default. Names
// in double braces are replaced: {{unsaid}} with what was not heard, {{heard}} with what was.
type Words struct {
	Marker string `json:"marker,omitempty"` // follows what was heard
	Unsaid string `json:"unsaid,omitempty"` // the note with {{unsaid}}, which it must hold
	// Follows a tool's result that was put back; may have both names.
	Tool     string `json:"tool,omitempty"`
	NoResult string `json:"no_result,omitempty"` // the result of a call without a known one
	// Replaces {{heard}} or {{unsaid}} if there is no such text.
	Nothing string `json:"nothing,omitempty"`
}

// Bounds of Words, in bytes of UTF-8.
const (
	MaxMarker = 256
	maxNote   = 1024
	// MaxUnsaid limits the unheard text that a note quotes: an answer may have 4 MiB, and the note
	// is sent with every call.
	MaxUnsaid = 4000
)

// defaultWords returns the default words.
func defaultWords() Words {
	return Words{
		Marker:   "[cut off here]",
		Unsaid:   "[not heard by the caller: {{unsaid}}]",
		Tool:     "[carried out already, do not repeat it; heard by the caller: {{heard}}; not heard: {{unsaid}}]",
		NoResult: "[no result is known; the call may have been carried out, so check before repeating it]",
		Nothing:  "nothing",
	}
}

// Or returns the words, with those of d where w has none.
func (w Words) Or(d Words) Words {
	for _, f := range []struct{ own, def *string }{
		{&w.Marker, &d.Marker}, {&w.Unsaid, &d.Unsaid}, {&w.Tool, &d.Tool}, {&w.NoResult, &d.NoResult}, {&w.Nothing, &d.Nothing},
	} {
		if *f.own == "" {
			*f.own = *f.def
		}
	}
	return w
}

// Check returns fault.Invalid if words exceed their limits. field is the path of the object that
// has them.
func (w Words) Check(field string) error {
	for _, f := range []struct {
		name, words string
		most        int
	}{
		{"marker", w.Marker, MaxMarker}, {"nothing", w.Nothing, MaxMarker},
		{"unsaid", w.Unsaid, maxNote}, {"tool", w.Tool, maxNote}, {"no_result", w.NoResult, maxNote},
	} {
		if _, err := text.CleanKey(field+"."+f.name, f.words, f.most); err != nil {
			return err
		}
		if f.words != "" && strings.TrimSpace(f.words) == "" {
			return fault.At(fault.Invalid, field+"."+f.name, "is blank; leave it out to have the default")
		}
	}
	if w.Unsaid != "" && !strings.Contains(text.Fill(w.Unsaid, map[string]string{"unsaid": "\x00"}), "\x00") {
		return fault.At(fault.Invalid, field+".unsaid", "does not hold {{unsaid}}, which is replaced by what was not heard")
	}
	return nil
}

// View is how an agent's conversation is shown to the model: the projection, its words, and
// prefixes of the texts. A nil View shows what was heard and the texts as they are. Its methods are
// pure, so a list that only grew begins with the same bytes, as the prompt caches of providers
// need.
type View struct {
	Projection Projection       `json:"projection,omitempty"`
	Words      Words            `json:"words,omitzero"`
	Timestamp  *TimestampPrefix `json:"timestamp,omitempty"`
	Speaker    *SpeakerPrefix   `json:"speaker,omitempty"`
}

// With returns the view with another projection; "" changes nothing.
func (v *View) With(p Projection) *View {
	if p == "" || p == v.Kind() {
		return v
	}
	var out View
	if v != nil {
		out = *v
	}
	out.Projection = p
	return &out
}

// Kind returns the projection, with the default for a nil View.
func (v *View) Kind() Projection {
	if v == nil || v.Projection == "" {
		return HeardOnly
	}
	return v.Projection
}

// Projects reports whether answers may differ from what was heard of them.
func (v *View) Projects() bool { return v.Kind() != HeardOnly }

// ShowsUnheard reports whether an answer of which nothing was heard is shown: as a note by
// HeardAndUnsaid, as a whole by GeneratedWhole.
func (v *View) ShowsUnheard() bool {
	p := v.Kind()
	return p == HeardAndUnsaid || p == GeneratedWhole
}

// Changes reports whether texts may differ from what was heard.
func (v *View) Changes() bool { return v.Projects() || v.Prefixes() }

// Answer is what is known of an answer of the model.
type Answer struct {
	Generated string // all of it
	Heard     string // the heard part
	// Cut is set if less was heard than was generated.
	Cut bool
}

// Text returns what the model is shown of an answer. heard is the heard part as the caller words
// it; Answer.Heard is that of the ledger.
func (v *View) Text(a Answer, heard string) string {
	p := v.Kind()
	if p == HeardOnly || !a.Cut {
		return heard
	}
	w := v.words()
	if p == GeneratedWhole {
		return a.Generated
	}
	if strings.TrimSpace(heard) == "" && p == HeardMarked {
		return heard // nothing for a marker to follow
	}
	note := w.Marker
	if p == HeardAndUnsaid {
		if unsaid := a.unsaid(); unsaid != "" {
			note = text.Fill(w.Unsaid, map[string]string{"unsaid": unsaid})
		}
	}
	if heard = strings.TrimRight(heard, " \t\r\n"); heard == "" {
		return note
	}
	return heard + " " + note
}

func (v *View) words() Words {
	if v == nil {
		return defaultWords()
	}
	return v.Words.Or(defaultWords())
}

// ToolNote returns the words that follow a tool's result that is put back. a is what was said about
// the result; the zero Answer if nothing was.
func (v *View) ToolNote(a Answer) string {
	w := v.words()
	vars := map[string]string{"heard": w.Nothing, "unsaid": w.Nothing}
	if heard := strings.TrimSpace(a.Heard); heard != "" {
		vars["heard"] = quoted(heard)
	}
	if unsaid := a.unsaid(); unsaid != "" {
		vars["unsaid"] = unsaid
	}
	return text.Fill(w.Tool, vars)
}

// NoResult returns the result of a call without a known one.
func (v *View) NoResult() string { return v.words().NoResult }

// unsaid returns what was not heard of an answer, as a note quotes it, or "" if unknown.
func (a Answer) unsaid() string {
	rest, ok := strings.CutPrefix(a.Generated, a.Heard)
	if !ok { // a platform's own account, whose spelling need not be ours
		prefix, _ := heard.Align(a.Generated, a.Heard)
		rest = a.Generated[len(prefix):]
	}
	if rest = strings.TrimSpace(rest); rest == "" {
		return ""
	}
	return quoted(rest)
}

// quoted returns a text in quotes, cut to what a note may have.
func quoted(s string) string {
	if len(s) > MaxUnsaid {
		end := MaxUnsaid
		for !utf8.RuneStart(s[end]) {
			end--
		}
		if at := strings.LastIndexAny(s[:end], " \n\t"); at > end-80 {
			end = at
		}
		s = s[:end] + "…"
	}
	return `"` + s + `"`
}
