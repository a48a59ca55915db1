package memory

import (
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/heard"
)

// Projection says which of the truths about its earlier answers the model is told. Only answers that were cut or not heard differ
// between them: everything else goes up as it stands. docs/guides/projections.md shows them side by side.
type Projection string

// The projections. The zero value is HeardOnly.
const (
	HeardOnly      Projection = "heard_only"       // what was heard, nothing else
	HeardMarked    Projection = "heard_marked"     // what was heard, and a marker where it was cut
	HeardAndUnsaid Projection = "heard_and_unsaid" // what was heard, and a note with what was not said
	GeneratedWhole Projection = "generated"        // all that the model produced, as if all of it had been heard
)

// Projections gives all of them, the default first.
func Projections() []Projection {
	return []Projection{HeardOnly, HeardMarked, HeardAndUnsaid, GeneratedWhole}
}

// ParseProjection reads the name of a projection; "" is HeardOnly. It fails with fault.Invalid, naming the field and the names allowed.
func ParseProjection(field, name string) (Projection, error) {
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
	return "", fault.At(fault.Invalid, field, "%q is not one of %s", clip(name, 60), strings.Join(names, ", "))
}

// Words are the words that projections put around what was heard. An empty one takes its default. Names in double braces are replaced:
// {{unsaid}} by what was not heard, {{heard}} by what was.
type Words struct {
	Marker   string `json:"marker,omitempty"`    // stands behind what was heard
	Unsaid   string `json:"unsaid,omitempty"`    // the note with {{unsaid}}, which it must hold
	Tool     string `json:"tool,omitempty"`      // stands below a tool's result that was put back; may hold both names
	NoResult string `json:"no_result,omitempty"` // the result of a call whose own is not known
	Nothing  string `json:"nothing,omitempty"`   // what {{heard}} or {{unsaid}} says where there is no such text
}

// Bounds of Words, in bytes of UTF-8.
const (
	MaxMarker = 256
	MaxNote   = 1024
	// MaxUnsaid is how much of an unheard text a note quotes: an answer may be 4 MiB long, and a note goes up with every call.
	MaxUnsaid = 4000
)

// DefaultWords are the words where none are set. They stand in brackets, say what happened and name nobody.
func DefaultWords() Words {
	return Words{
		Marker:   "[cut off here]",
		Unsaid:   "[not heard by the caller: {{unsaid}}]",
		Tool:     "[carried out already, do not repeat it; heard by the caller: {{heard}}; not heard: {{unsaid}}]",
		NoResult: "[no result is known; the call may have been carried out, so check before repeating it]",
		Nothing:  "nothing",
	}
}

// Or gives the words with those of d where w has none.
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

// Check wants words within their bounds; field is the path of the object that holds them. fault.Invalid otherwise.
func (w Words) Check(field string) error {
	for _, f := range []struct {
		name, text string
		most       int
	}{
		{"marker", w.Marker, MaxMarker}, {"nothing", w.Nothing, MaxMarker},
		{"unsaid", w.Unsaid, MaxNote}, {"tool", w.Tool, MaxNote}, {"no_result", w.NoResult, MaxNote},
	} {
		if _, err := CleanText(field+"."+f.name, f.text, f.most); err != nil {
			return err
		}
		if f.text != "" && strings.TrimSpace(f.text) == "" {
			return fault.At(fault.Invalid, field+"."+f.name, "is blank; leave it out to have the default")
		}
	}
	if w.Unsaid != "" && !strings.Contains(FillTemplate(w.Unsaid, map[string]string{"unsaid": "\x00"}), "\x00") {
		return fault.At(fault.Invalid, field+".unsaid", "does not hold {{unsaid}}, which is replaced by what was not heard")
	}
	return nil
}

// View is how an agent's conversation is shown to the model: what projection, in which words, and what goes into the texts beside. A nil
// View shows what was heard and the texts as they are. Its methods are pure: the same message always gives the same text, so that
// a list that only grew begins with the same bytes, for which providers keep their prompt caches.
type View struct {
	Projection Projection       `json:"projection,omitempty"`
	Words      Words            `json:"words,omitzero"`
	Timestamp  *TimestampPrefix `json:"timestamp,omitempty"`
	Speaker    *SpeakerPrefix   `json:"speaker,omitempty"`
}

// With gives the view with another projection; "" changes nothing.
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

// Projects tells whether answers may differ from what was heard of them.
func (v *View) Projects() bool { return v.Kind() != HeardOnly }

// Changes tells whether texts may be told in another way than they were heard.
func (v *View) Changes() bool { return v.Projects() || v.Prefixes() }

// Shows tells whether the message may go in front of an LLM call. Beyond Message.InContext, an answer of which nothing was heard is
// told where its words are: in HeardAndUnsaid as a note, in GeneratedWhole as a whole. One that never left the server (Empty), a ghost (Superseded) and one
// in whose place the platform said something else (Replaced) are told nowhere.
func (v *View) Shows(m *Message) bool {
	if m.InContext() {
		return true
	}
	p := v.Kind()
	return (p == HeardAndUnsaid || p == GeneratedWhole) && m.Role == Assistant && m.Status == Accepted && (m.State == Final || m.State == Unplayed) && m.Original() != ""
}

// WasCut tells whether less was heard of an answer than was made of it, or is known to have been. What was said in place of a failed
// answer counts as heard.
func (m *Message) WasCut() bool {
	if m.Role != Assistant || m.Source == SourceLLMFailure {
		return false
	}
	return m.Interrupted || m.Generated != "" && m.Generated != m.Content || m.Failure != nil && m.CutGenerated
}

// Content gives what the model is told of a message; heard is what was heard of it, as the caller of this knows it: for a message of
// the ledger its Content.
func (v *View) Content(m *Message, heard string) string {
	p := v.Kind()
	if p == HeardOnly || !m.WasCut() {
		return heard
	}
	w := v.words()
	if p == GeneratedWhole {
		return m.Original()
	}
	if strings.TrimSpace(heard) == "" && p == HeardMarked {
		return heard // nothing that a marker could stand behind
	}
	note := w.Marker
	if p == HeardAndUnsaid {
		if unsaid := m.unsaid(); unsaid != "" {
			note = FillTemplate(w.Unsaid, map[string]string{"unsaid": unsaid})
		}
	}
	if heard = strings.TrimRight(heard, " \t\r\n"); heard == "" {
		return note
	}
	return heard + " " + note
}

func (v *View) words() Words {
	if v == nil {
		return DefaultWords()
	}
	return v.Words.Or(DefaultWords())
}

// ToolNote gives the words below a tool's result that is put back. answer is what was said about the result, nil where nothing was.
func (v *View) ToolNote(answer *Message) string {
	w := v.words()
	vars := map[string]string{"heard": w.Nothing, "unsaid": w.Nothing}
	if answer != nil {
		if heard := strings.TrimSpace(answer.Content); heard != "" {
			vars["heard"] = quoted(heard)
		}
		if unsaid := answer.unsaid(); unsaid != "" {
			vars["unsaid"] = unsaid
		}
	}
	return FillTemplate(w.Tool, vars)
}

// NoResult gives the result of a call of which no other is known.
func (v *View) NoResult() string { return v.words().NoResult }

// unsaid gives what was not heard of an answer, as a note quotes it; "" where nothing is known of it.
func (m *Message) unsaid() string {
	whole := m.Original()
	rest, ok := strings.CutPrefix(whole, m.Content)
	if !ok { // a platform's own account, whose spelling need not be ours
		prefix, _ := heard.Align(whole, m.Content)
		rest = whole[len(prefix):]
	}
	if rest = strings.TrimSpace(rest); rest == "" {
		return ""
	}
	return quoted(rest)
}

// quoted gives a text in quotes, cut to what a note may hold.
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

// ContextAs gives Context as far as the view shows it. It is Context itself unless the view shows more.
func (t *Turn) ContextAs(v *View) []*Message {
	if p := v.Kind(); t.Window != nil || p != HeardAndUnsaid && p != GeneratedWhole {
		return t.Context
	}
	return newestOf(ByTurn(t.Agent.Settings.Memory.Since(t.Recent())), t.Agent.Settings.LLM.MaxHistory, v.Shows)
}
