package redact_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/redact"
)

// finds returns what a detector finds in a text: the names, by their types.
func finds(text string, names map[string]string) (out []redact.Found) {
	for name, kind := range names {
		for at := 0; ; {
			i := strings.Index(text[at:], name)
			if i < 0 {
				break
			}
			out = append(out, redact.Found{Start: at + i, End: at + i + len(name), Type: kind})
			at += i + len(name)
		}
	}
	return out
}

// call is a call whose texts are stored one after the other.
type call struct {
	t     *testing.T
	names *redact.Names
	asked []string
	more  redact.Rules
}

// store returns a text as it is stored, in a change of its own. A detector finds the names.
func (c *call) store(text string, names map[string]string) string {
	c.t.Helper()
	l := &redact.Lookup{Pseudonyms: true}
	for range 3 {
		c.t.Helper()
		r := redact.New(c.more).With(l.Begin(c.names).Lookup, "")
		out := r.Text(text)
		missing := l.Missing()
		after, _ := l.End()
		if len(missing) == 0 {
			if again := r.Text(out); again != out {
				c.t.Errorf("%q becomes %q the second time", out, again)
			}
			c.names = after
			return out
		}
		if out != "[withheld]" {
			c.t.Errorf("%q is shown before it is checked", out)
		}
		for _, m := range missing {
			c.asked = append(c.asked, m)
			l.Tell(m, finds(m, names))
		}
	}
	c.t.Fatal("texts were missing again and again")
	return ""
}

// TestNamesOfCall: each name of a call has a number that stays, and is found again.
func TestNamesOfCall(t *testing.T) {
	t.Parallel()
	c := &call{t: t, more: redact.Rules{Types: []string{redact.Card}}}
	person := func(names ...string) map[string]string {
		out := map[string]string{}
		for _, n := range names {
			out[n] = "person"
		}
		return out
	}
	for _, tt := range []struct {
		text  string
		names map[string]string
		want  string
	}{
		{"I am Anna.", person("Anna"), "I am [person-1]."},
		{"Anna Smith, and 4111 1111 1111 1111 is my card", person("Anna Smith"), "[person-1], and [card] is my card"},
		{"ANNA SMITH's, anna-smith, Smith", nil, "[person-1]'s, [person-1], [person-1]"},
		{"Anna Miller is another", person("Anna Miller"), "[person-2] is another"},
		{"anna", nil, "[person-1]"}, // the whole text
		{"a smith works, Smithson too", nil, "a smith works, Smithson too"},
		{"Ask Mrs Jörg-Peter Ödön’s dog 🐕 Ödön", person("Mrs Jörg-Peter Ödön’s"), "Ask [person-3] dog 🐕 [person-3]"},
		{"Mrs is a title", nil, "Mrs is a title"},
		{"New York and Berlin", map[string]string{"New York": "location", "Berlin": "location"}, "[location-1] and [location-2]"},
		{"a new york minute in York", nil, "a [location-1] minute in York"},
		{"York it is", map[string]string{"York": "location"}, "[location-3] it is"},
		{"[person-1] and [card], Zoë", map[string]string{"[person-1] and [card], Zoë": "person"}, "[person-1] [person-4] [card], [person-5]"},
		{"12345 [card] 😀", nil, "12345 [card] 😀"},
		{"王伟来了", person("王伟"), "[person-6]来了"},
	} {
		if got := c.store(tt.text, tt.names); got != tt.want {
			t.Errorf("%q became %q, want %q", tt.text, got, tt.want)
		}
	}
	if slices.ContainsFunc(c.asked, func(s string) bool { return strings.Contains(s, "4111") || strings.HasPrefix(s, "12345") }) {
		t.Errorf("asked about %q", c.asked)
	}
	for _, n := range c.names.List {
		if len(n.Hash) != 16 {
			t.Errorf("%+v", n)
		}
	}
	// Elsewhere the names are known, but new ones have no number and are not kept.
	l := (&redact.Lookup{Pseudonyms: true}).Read(c.names)
	l.Tell("Anna Smith and Bob", finds("Anna Smith and Bob", person("Bob")))
	if got := redact.New(redact.Rules{}).With(l, "").Text("Anna Smith and Bob"); got != "[person-1] and [person]" {
		t.Errorf("outside the call: %q", got)
	}
}

// TestNamesOverlap: what overlaps is replaced once, as a whole.
func TestNamesOverlap(t *testing.T) {
	t.Parallel()
	const text = "call Anna Smith now"
	l := (&redact.Lookup{Forgets: true}).Read(nil)
	l.Tell(text, []redact.Found{{5, 9, "person"}, {5, 15, "person"}, {10, 19, "location"}, {7, 12, "date"}})
	r := redact.New(redact.Rules{}).With(l, "")
	if got := r.Text(text); got != "call [person] [location]" {
		t.Errorf("%q", got)
	}
	for n := range len(text) {
		if got := r.Prefix(text, n); !strings.HasPrefix("call [person] [location]", got) {
			t.Errorf("prefix %d: %q", n, got)
		}
	}
}

// TestNamesInJSON: members keep their names, unless these are names of the call.
func TestNamesInJSON(t *testing.T) {
	t.Parallel()
	l := &redact.Lookup{Pseudonyms: true}
	r := redact.New(redact.Rules{}).With(l.Begin(nil).Lookup, "")
	for _, text := range []string{"Anna Smith", "ok"} {
		l.Tell(text, finds(text, map[string]string{"Anna Smith": "person"}))
	}
	const doc = `{"by":"Anna Smith","city":{"Anna":"ok","n":12}}`
	if got := string(r.JSON([]byte(doc))); got != `{"by":"[person-1]","city":{"[person-1]":"ok","n":12}}` {
		t.Errorf("%s", got)
	}
	if got := l.Missing(); len(got) > 0 {
		t.Errorf("missing %q", got)
	}
	l.Withhold("secret words")
	if got := r.Text("secret words"); got != "[withheld]" || r.Text(got) != got || r.Prefix("secret words", 6) != "" {
		t.Errorf("withheld: %q", got)
	}
}
