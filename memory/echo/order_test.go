package echo_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory/echo"
)

// TestOrderOfSentences: the sentences of an answer in another order are the answer, or its
// beginning. Other sentences are not.
func TestOrderOfSentences(t *testing.T) {
	t.Parallel()
	const (
		one   = "Your train leaves at nine."
		two   = "It goes from platform four!"
		three = "Shall I book a seat for you?"
	)
	all := strings.Join([]string{one, two, three}, " ")
	heard := []string{"new user: b", "heard all of 1"}
	replaced := func(text string) []string { return []string{"new assistant: " + text, "new user: b", "replaced 1"} }
	for name, tt := range map[string]struct {
		answer, echo string
		want         []string
	}{
		"the second first":         {all, two + " " + one + " " + three, heard},
		"the third first":          {all, three + " " + one + " " + two, heard},
		"the last two":             {all, one + " " + three + " " + two, heard},
		"backwards":                {all, three + " " + two + " " + one, heard},
		"rotated":                  {all, two + " " + three + " " + one, heard},
		"two":                      {one + " " + two, two + " " + one, heard},
		"two short ones":           {"Yes. It does.", "It does. Yes.", heard},
		"one after another line":   {one + "\n" + two + "\n" + three, two + "\n" + one + "\n" + three, heard},
		"lines became one":         {one + "\n\n" + two + "\n" + three, three + " " + one + " " + two, heard},
		"lines without marks":      {"the first\nthe second\nthe third", "the third\nthe first\nthe second", heard},
		"in capitals":              {all, strings.ToUpper(two) + " " + one + " " + three, heard},
		"without the last mark":    {all, strings.TrimRight(two, "!") + ". " + three + " " + strings.TrimRight(one, "."), heard},
		"in bold":                  {"**Nine it is.** " + two, two + " Nine it is.", heard},
		"the same twice":           {"Yes. " + one + " Yes. " + two, "Yes. Yes. " + one + " " + two, heard},
		"the same three times":     {"Ha. Ha. " + one + " Ha.", one + " Ha. Ha. Ha.", heard},
		"with an abbreviation":     {"Dr. Smith is in. " + two, two + " Dr. Smith is in.", heard},
		"the abbreviation in full": {"Dr. Smith is in. " + two, two + " Doctor Smith is in.", heard},
		"e.g. in the middle":       {"Take some fruit, e.g. apples. " + two, two + " Take some fruit, e.g. apples.", heard},
		"a number as it is spoken": {"It leaves at 9:30 on Monday. " + two + " Fine?", "Fine? " + two + " It leaves at nine thirty on Monday.", heard},
		"money as it is spoken":    {"That is $5. " + two, two + " That is five dollars.", heard},
		"a word misspelled":        {"Mr. Meyerson will call you back tomorrow. " + two, two + " Mr. Meyersen will call you back tomorrow.", heard},
		"in Chinese":               {"火车九点开。四号站台。要订座吗？", "四号站台。火车九点开。要订座吗？", heard},
		"in Hindi":                 {"ट्रेन नौ बजे जाती है। प्लेटफ़ॉर्म चार से।", "प्लेटफ़ॉर्म चार से। ट्रेन नौ बजे जाती है।", heard},
		"the first two":            {all, two + " " + one, []string{"new user: b", "heard of 1: " + one + " " + two}},
		"cut in the third":         {all, two + " " + one + " Shall I book", []string{"new user: b", "heard of 1: " + one + " " + two + " Shall I book"}},
		"cut in the second":        {all, strings.TrimSuffix(two, " four!") + "\n" + one, []string{"new user: b", "heard of 1: " + one + " It goes from platform"}},
		"of another answer":        {all, "We open at ten. Ask my colleague. Goodbye then.", replaced("We open at ten. Ask my colleague. Goodbye then.")},
		"joined without spaces":    {all, two + three + one, heard},
		"initials":                 {"Dr. J. R. Smith is in. " + two, two + " Doctor J R Smith is in.", heard},
		"with a note":              {all, two + " " + one + " [interrupted]", []string{"new user: b", "heard of 1: " + one + " " + two}},
		"the last two backwards":   {all, three + " " + two, replaced(three + " " + two)},
		"all but a word":           {"Sure. " + all, three + " " + two, replaced(three + " " + two)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := incoming(t, "u: a", "a: "+tt.echo, "u: b")
			got := echo.Asked.Reconcile(in, known(t, "u: a", "a? "+tt.answer))
			if diff := cmp.Diff(tt.want, show(in, got)); diff != "" {
				t.Error(diff)
			}
			for _, f := range got.Answers {
				if f.Outcome == echo.Full && f.Confidence < 70 {
					t.Errorf("heard with a confidence of %d", f.Confidence)
				}
			}
		})
	}
}

// TestOrderOfAnswers: the order of sentences changes nothing about which answer a text is, and
// where it is.
func TestOrderOfAnswers(t *testing.T) {
	t.Parallel()
	type list = []string
	for name, tt := range map[string]struct{ in, known, want list }{
		"two answers swapped":       {list{"u: a", "a: Two trains. They are late.", "u: b", "a: One bus. It is full.", "u: c"}, list{"u: a", "a? One bus. It is full.", "u: b", "a? Two trains. They are late."}, list{"new user: c", "heard all of 1", "heard all of 3"}},
		"their sentences, too":      {list{"u: a", "a: They are late. Two trains.", "u: b", "a: It is full. One bus.", "u: c"}, list{"u: a", "a? One bus. It is full.", "u: b", "a? Two trains. They are late."}, list{"new user: c", "heard all of 1", "heard all of 3"}},
		"the caller repeats a word": {list{"u: yes", "a: It is full. One bus.", "u: yes", "a: They are late. Two trains.", "u: yes"}, list{"u: yes", "a? One bus. It is full.", "u: yes", "a? Two trains. They are late."}, list{"new user: yes", "heard all of 1", "heard all of 3"}},
		"behind later words":        {list{"u: a", "u: b", "a: It is full. One bus.", "u: c"}, list{"u: a", "a? One bus. It is full.", "u: b"}, list{"new user: c", "heard all of 1"}},
		"known to be heard":         {list{"u: a", "a: It is full. One bus.", "u: c"}, list{"u: a", "a: One bus. It is full."}, list{"new user: c"}},
		"a message each":            {list{"u: a", "a: It is full today.", "a: One bus leaves now.", "u: c"}, list{"u: a", "a? One bus leaves now. It is full today."}, list{"new user: c", "heard all of 1"}},
		"at the end of the list":    {list{"u: a", "a: It is full. One bus."}, list{"u: a", "a? One bus. It is full."}, list{"heard all of 1"}},
		"after a window":            {list{"a: It is full. One bus leaves now.", "u: yes please"}, list{"u: yes", "a? One bus leaves now. It is full."}, list{"new user: yes please", "heard all of 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := incoming(t, tt.in...)
			if diff := cmp.Diff(tt.want, show(in, echo.Asked.Reconcile(in, known(t, tt.known...)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
