package echo_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/echo"
)

// TestPaused: what was said while nothing was stored is recognized by its place, and never new.
func TestPaused(t *testing.T) {
	t.Parallel()
	u, a := "user", "assistant"
	said := func(role, text string) echo.Message { return echo.Message{Role: role, Text: text} }
	kept := func(role, text string) echo.Known {
		return echo.Known{Role: role, Text: text, Original: text, Provisional: role == a, Paused: text == "[paused]"}
	}
	clear := []echo.Known{kept(u, "Hello."), kept(a, "Your card number, please.")}
	begin := []echo.Message{said(u, "Hello."), said(a, "Your card number, please.")}
	hidden := append(slices.Clone(clear), kept(u, "[paused]"), kept(a, "[paused]"))
	number, back := said(u, "4111 1111"), said(a, "I have 4111 1111, right?")
	for name, c := range map[string]struct {
		in    []echo.Message
		known []echo.Known
		want  []int
	}{
		"a new question":            {append(slices.Clone(begin), number, back, said(u, "Yes.")), hidden, []int{4}},
		"the same question again":   {append(slices.Clone(begin), number), hidden, nil},
		"its answer was not heard":  {append(slices.Clone(begin), number, said(u, "Yes.")), hidden, []int{3}},
		"two after the answer":      {append(slices.Clone(begin), number, back, said(u, "Yes."), said(u, "It is.")), hidden, []int{4, 5}},
		"the answer split":          {append(slices.Clone(begin), number, said(a, "I have 4111"), said(u, "mhm"), said(a, "1111, right?"), said(u, "Yes.")), hidden, []int{6}},
		"the number in two parts":   {append(slices.Clone(begin), said(u, "4111"), said(u, "1111"), back, said(u, "Yes.")), hidden, []int{5}},
		"without the beginning":     {[]echo.Message{number, back, said(u, "Yes.")}, hidden, []int{2}},
		"with instructions between": {append([]echo.Message{said("system", "Be brief.")}, append(slices.Clone(begin), number, said("system", "x"), back, said(u, "Yes."))...), hidden, []int{6}},
		"later words after it": {append(slices.Clone(begin), number, back, said(u, "Yes."), said(a, "Thank you."), said(u, "Bye.")),
			append(slices.Clone(hidden), kept(u, "Yes."), kept(a, "Thank you.")), []int{6}},
		"words between that are unknown": {append(slices.Clone(begin), number, back, said(u, "and 1111"), said(u, "Yes."), said(a, "Thank you."), said(u, "Bye.")),
			append(slices.Clone(hidden), kept(u, "Yes."), kept(a, "Thank you.")), []int{7}},
		"paused from the start": {[]echo.Message{number, back, said(u, "Yes.")}, []echo.Known{kept(u, "[paused]"), kept(a, "[paused]")}, []int{2}},
		"several turns": {append(slices.Clone(begin), number, back, said(u, "No, 4222."), said(a, "4222?"), said(u, "Yes.")),
			append(slices.Clone(hidden), kept(u, "[paused]"), kept(a, "[paused]")), []int{6}},
	} {
		got := echo.Asked.Reconcile(c.in, c.known)
		if !slices.Equal(got.New, c.want) || len(got.Extend)+len(got.Gone)+len(got.Part) > 0 {
			t.Errorf("%s: new are %v, want %v; %+v", name, got.New, c.want, got)
		}
		for _, f := range got.Answers {
			if c.known[f.Known].Paused && f.Outcome == echo.Interrupted {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// TestPausedNeverNew: in random conversations, with cut and unheard answers, lists that lost their
// beginning, and words that are said again and again, nothing said in a pause is new.
func TestPausedNeverNew(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	words := strings.Fields("yes no fine card number please thanks train nine platform two hello again what when")
	text := func(most int) string {
		list := make([]string, 1+r.IntN(most))
		for i := range list {
			list[i] = words[r.IntN(len(words))]
		}
		return strings.Join(list, " ") + "."
	}
	lost := 0
	const runs = 3000
	for n := range runs {
		var in []echo.Message
		var known []echo.Known
		var secret []bool // of each message of the list
		turns := 2 + r.IntN(8)
		from := r.IntN(turns)
		to := from + 1 + r.IntN(3)
		for turn := range turns {
			paused := turn >= from && turn < to
			question, answer := text(5), text(12)
			store := func(role, text string) {
				if paused {
					text = "[paused]"
				}
				known = append(known, echo.Known{Role: role, Text: text, Original: text, Paused: paused, Provisional: role == "assistant"})
			}
			store("user", question)
			store("assistant", answer)
			in, secret = append(in, echo.Message{Role: "user", Text: question}), append(secret, paused)
			if heard := strings.Fields(answer)[:r.IntN(1+len(strings.Fields(answer)))]; len(heard) > 0 {
				in, secret = append(in, echo.Message{Role: "assistant", Text: strings.Join(heard, " ")}), append(secret, paused)
			}
		}
		in, secret = append(in, echo.Message{Role: "user", Text: "Something new."}), append(secret, false)
		cut := r.IntN(min(3, len(in)-1))
		in, secret = in[cut:], secret[cut:]
		got := echo.Asked.Reconcile(in, known)
		if slices.ContainsFunc(got.New, func(i int) bool { return secret[i] }) {
			t.Fatalf("run %d: new are %v of %+v\nknown: %+v", n, got.New, in, known)
		}
		for i, text := range got.Part {
			if secret[i] {
				t.Fatalf("run %d: part %q of %+v", n, text, in)
			}
		}
		for _, x := range got.Extend {
			if i := slices.IndexFunc(in, func(m echo.Message) bool { return m.Text == x.Text }); i >= 0 && secret[i] {
				t.Fatalf("run %d: %q of a pause replaces %q", n, x.Text, known[x.Known].Text)
			}
		}
		if !slices.Contains(got.New, len(in)-1) {
			lost++
		}
	}
	if lost > runs/20 {
		t.Errorf("of %d new questions %d were taken for older ones", runs, lost)
	}
}
