package redact_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/redact"
)

// spread returns the lines of a dialogue as they are stored, if those before n are stored already.
func spread(r *redact.Redactor, lines []redact.Line, n int) []string {
	out := make([]string, len(lines))
	pieces := r.Spread(lines)
	for i, l := range lines {
		if out[i] = l.Text; pieces != nil {
			out[i] = r.Knowing(pieces[i]).Text(l.Text)
		} else if i >= n {
			out[i] = r.Text(l.Text)
		}
	}
	return out
}

// TestSpread runs the dialogues of testdata/spread.txt. A line is "C: said" or "A: said", the
// caller's or the agent's, with " => stored" behind it where pieces are replaced.
func TestSpread(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/spread.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []redact.Line
	var want []string
	dialogues, name := 0, ""
	check := func() {
		if len(lines) == 0 {
			return
		}
		dialogues++
		said := make([]string, len(lines))
		for i, l := range lines {
			said[i] = l.Text
		}
		r := all()
		// All at once, and one after the other as a ledger gets them.
		got := spread(r, lines, 0)
		var stored []redact.Line
		for n, l := range lines {
			stored = append(stored, l)
			for i, s := range spread(r, stored, n) {
				stored[i].Text = s
			}
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %q became %q, want %q", name, said[i], got[i], want[i])
			}
			if stored[i].Text != want[i] {
				t.Errorf("%s, one by one: %q became %q, want %q", name, said[i], stored[i].Text, want[i])
			}
			if _, ok := redact.Fit(want[i], said[i]); !ok {
				t.Errorf("%s: %q does not fit %q", name, said[i], want[i])
			}
		}
		lines, want = nil, nil
	}
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if comment, ok := strings.CutPrefix(line, "#"); ok {
			check()
			name = strings.TrimSpace(comment)
			continue
		}
		if strings.TrimSpace(line) == "" {
			check()
			continue
		}
		speaker, text, _ := strings.Cut(line, ": ")
		text, stored, changed := strings.Cut(text, " => ")
		if !changed {
			stored = text
		}
		lines = append(lines, redact.Line{Speaker: speaker, Text: text})
		want = append(want, stored)
	}
	check()
	if dialogues < 60 {
		t.Errorf("%d dialogues", dialogues)
	}
}

// TestSpreadLimits: parts that are far from each other, of other speakers or too many are not
// joined, and a type that no rule names is not looked for.
func TestSpreadLimits(t *testing.T) {
	t.Parallel()
	first, last := redact.Line{Speaker: "C", Text: "4111 1111", AtMS: 1000}, redact.Line{Speaker: "C", Text: "1111 1111", AtMS: 1000}
	within := func(edit func(*redact.Line), between ...redact.Line) []redact.Line {
		last := last
		if edit != nil {
			edit(&last)
		}
		return append(append([]redact.Line{first}, between...), last)
	}
	agent := make([]redact.Line, redact.MaxLines)
	for i := range agent {
		agent[i] = redact.Line{Speaker: "A", Text: "yes"}
	}
	for name, tt := range map[string]struct {
		lines []redact.Line
		found bool
	}{
		"together":          {within(nil), true},
		"two minutes later": {within(func(l *redact.Line) { l.AtMS += 120_000 }), true},
		"even later":        {within(func(l *redact.Line) { l.AtMS += 120_001 }), false},
		"no time":           {within(func(l *redact.Line) { l.AtMS = 0 }), true},
		"another speaker":   {within(func(l *redact.Line) { l.Speaker = "A" }), false},
		"near":              {within(nil, agent[:redact.MaxLines-1]...), true},
		"far":               {within(nil, agent...), false},
		"many asides":       {within(nil, redact.Line{Speaker: "C", Text: "hold on"}, redact.Line{Speaker: "C", Text: "wait"}, redact.Line{Speaker: "C", Text: "sorry"}), false},
		"other words":       {within(nil, redact.Line{Speaker: "C", Text: "I would like to know something else first."}), false},
		"behind many words": {append(within(nil)[:1:1], redact.Line{Speaker: "C", Text: "1111 1111 " + strings.Repeat("and a lot more ", 1000)}), true},
		"one line":          {[]redact.Line{{Speaker: "C", Text: "4111 1111 1111 1111"}}, false},
	} {
		if got := all().Spread(tt.lines); (got != nil) != tt.found {
			t.Errorf("%s: %v", name, got)
		}
	}
	var none *redact.Redactor
	if none.Spread(within(nil)) != nil || none.Continues("1111") || none.Knowing([]redact.Piece{{Text: "1", Name: "card"}}) != nil || none.SpreadFrom(nil, within(nil)) != nil {
		t.Error("no rules find something")
	}
	for _, types := range [][]string{{redact.Phone}, {redact.Email}} {
		if r := redact.New(redact.Rules{Types: types}); r.Spread(within(nil)) != nil {
			t.Errorf("%v finds a card", types)
		}
	}
}

// TestFit: a stored text is only recognized in what it can have been.
func TestFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		stored, said string
		ok           bool
	}{
		{"My card is [card]", "My card is four one one one", true},
		{"My card is [card]", "My card is 4111", true},
		{"My card is [card]", "My card is here", false},
		{"My card is [card]", "My card is ", false},
		{"My card is [card]", "My cart is 4111", false},
		{"[card], thanks", "1111, thanks", true},
		{"[card], thanks", "1111, please", false},
		{"[card] and [phone]", "[card] and 0171", true},
		{"[card] and [phone]", "4111 and 0171", true},
		{"[card] and [phone]", "4111 or 0171", false},
		{"[email]", "jane dot doe", true},
		{"[iban]", "DE89 3704", true},
		{"[card]", strings.Repeat("1", 161), false},
		{"as it is", "as it is", true},
		{"[laughs]", "[laughs]", true},
	} {
		if _, ok := redact.Fit(tt.stored, tt.said); ok != tt.ok {
			t.Errorf("%q and %q: %v", tt.stored, tt.said, ok)
		}
	}
}

// BenchmarkSpreadLong is what 100 messages of a megabyte together cost that are made of pieces of
// numbers alone.
func BenchmarkSpreadLong(b *testing.B) {
	for _, piece := range []string{"4111 ", "one ", "+49 171 ", "DE89 ", "um ", "at ", "a dot ", "0", "my pin is ", "]", "٤", "\xff"} {
		b.Run(strings.TrimSpace(piece), func(b *testing.B) {
			var lines []redact.Line
			for range 50 {
				lines = append(lines, redact.Line{Speaker: "C", Text: strings.Repeat(piece, 20_000/len(piece))}, redact.Line{Speaker: "C", Text: strings.TrimSpace(piece)})
			}
			for b.Loop() {
				all().Spread(lines)
			}
		})
	}
}

func FuzzSpread(f *testing.F) {
	f.Add("4111 1111", "1111, and then?", "1111 1111")
	f.Add("jane dot", "at example", "dot com")
	f.Add("um \xff+49 171", "(", "\u0664 234 5678")
	r := all()
	f.Fuzz(func(t *testing.T, a, b, c string) {
		lines := []redact.Line{{Speaker: "C", Text: a}, {Speaker: "A", Text: b}, {Speaker: "C", Text: c}}
		for i, pieces := range r.Spread(lines) {
			with := r.Knowing(pieces)
			out := with.Text(lines[i].Text)
			if again := with.Text(out); again != out {
				t.Errorf("%q became %q, then %q", lines[i].Text, out, again)
			}
		}
	})
}

// BenchmarkContinues is what an append without a number costs more.
func BenchmarkContinues(b *testing.B) {
	r := all()
	for b.Loop() {
		r.Continues("Yes, I would like to book two seats for the 14th of May, please.")
	}
}
