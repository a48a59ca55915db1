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
