package echo_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/echo"
	"github.com/heardlog/heardlog/memory/heard"
)

// rough is a call on a platform whose lists are not in order: turns are dropped, words come late,
// twice, corrected or in front of the answer that they follow. What happened is known.
type rough struct {
	rnd    *rand.Rand
	window int        // messages of a list; 0 is all
	list   []said     // the platform's own history
	next   []func()   // changes of the history after the next request
	ledger []roughRow // what Reconcile has made of the lists
	n      int
	caller []string // all that the caller said
	maybe  []string // words that the platform itself has taken back
	trace  []string
}

// said is a message of the platform's history.
type said struct{ role, text string }

// roughRow is a message of the ledger.
type roughRow struct {
	echo.Known
	gone       bool // superseded
	asked      bool // an answer that the model made
	truth      string
	heard      string // truth is interrupted
	confidence int
}

// The truths beside the outcomes of package echo.
const open = "open" // no list shows what happened

func (c *rough) chance(percent int) bool { return c.rnd.IntN(100) < percent }

// words returns n words, the first of which the call has not used yet.
func (c *rough) words(n int) []string {
	list := strings.Fields("please could order table train ticket monday seven window garden paper doctor number street water coffee morning letter")
	out := make([]string, n)
	for i := range out {
		out[i] = list[c.rnd.IntN(len(list))]
	}
	c.n++
	syllables := []string{"ka", "lo", "mi", "ren", "su", "ta", "vo", "zel"}
	for k := c.n; ; k /= len(syllables) {
		out[0] += syllables[k%len(syllables)]
		if k < len(syllables) {
			break
		}
	}
	return out
}

// sentence writes words as a transcript or a model does.
func sentence(words []string) string {
	s := strings.Join(words, " ")
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// request sends a list, and stores the answer to it, unless that is "".
func (c *rough) request(list []said, answer, truth, heardText string) {
	var in []echo.Message
	for _, m := range list {
		in = append(in, echo.Message{Role: m.role, Text: m.text})
	}
	if c.window > 0 && len(in) > c.window {
		in = in[len(in)-c.window:]
	}
	in = append([]echo.Message{{Role: "system", Text: "Be brief."}}, in...)
	var known []echo.Known
	var at []int
	users := 0
	for i := range c.ledger {
		r := &c.ledger[i]
		if r.Role == "user" {
			users++
		}
		r.First = users < 2
		if !r.gone || r.Ghost {
			known, at = append(known, r.Known), append(at, i)
		}
	}
	if len(known) > 48 {
		known, at = known[len(known)-48:], at[len(at)-48:]
	}
	res := echo.Asked.Reconcile(in, known)
	c.trace = append(c.trace, "list:")
	for i, m := range in[1:] {
		c.trace = append(c.trace, fmt.Sprintf("  %d %s: %s", i+1, m.Role, m.Text))
	}
	c.apply(in, res, at)
	if answer != "" {
		c.trace = append(c.trace, "answer: "+answer+" ("+truth+")")
		c.ledger = append(c.ledger, roughRow{
			Known: echo.Known{Role: "assistant", Text: answer, Original: answer, Provisional: true}, asked: true, truth: truth, heard: heardText,
		})
	}
}

// apply does with the ledger what a plan does.
func (c *rough) apply(in []echo.Message, res echo.Result, at []int) {
	for _, f := range res.Answers {
		r := &c.ledger[at[f.Known]]
		c.trace = append(c.trace, fmt.Sprintf("  -> %q %s %q %d", r.Original, f.Outcome, f.Heard, f.Confidence))
		switch f.Outcome {
		case echo.Unknown:
			continue
		case echo.Full:
			r.Text = r.Original
		case echo.Interrupted:
			r.Text = f.Heard
		case echo.Ghost:
			r.gone, r.Ghost, r.Provisional = true, true, false
			continue
		default:
			r.Text = ""
		}
		r.gone, r.Ghost, r.Provisional, r.confidence = false, false, false, f.Confidence
		r.Unheard = r.Text == ""
		r.Echoed = !r.Unheard
	}
	for _, x := range res.Extend {
		c.trace = append(c.trace, fmt.Sprintf("  -> %q now %q", c.ledger[at[x.Known]].Text, x.Text))
		c.ledger[at[x.Known]].Text, c.ledger[at[x.Known]].Original = x.Text, x.Text
	}
	for _, j := range res.Gone {
		c.trace = append(c.trace, fmt.Sprintf("  -> %q gone", c.ledger[at[j]].Text))
		c.ledger[at[j]].gone = true
	}
	for _, i := range res.New {
		text, ok := res.Part[i]
		if !ok {
			text = in[i].Text
		}
		c.trace = append(c.trace, fmt.Sprintf("  -> new %s %q", in[i].Role, text))
		c.ledger = append(c.ledger, roughRow{Known: echo.Known{Role: in[i].Role, Text: text, Original: text, Aside: in[i].Role == "assistant", Reported: in[i].Role == "assistant"}})
	}
}

// turn plays one turn: the caller's words, the requests for them, and what the platform makes of
// its history.
func (c *rough) turn() {
	words, answer := c.words(2+c.rnd.IntN(6)), c.words(6+c.rnd.IntN(12))
	user := sentence(words)
	text := sentence(answer)
	// Requests whose answers are thrown away.
	switch c.rnd.IntN(10) {
	case 0: // the same again
		c.request(append(slices.Clone(c.list), said{"user", user}), sentence(c.words(8)), string(echo.Ghost), "")
	case 1: // the caller went on
		n := 1 + c.rnd.IntN(len(words)-1)
		c.request(append(slices.Clone(c.list), said{"user", strings.Join(words[:n], " ")}), sentence(c.words(8)), string(echo.Ghost), "")
	case 2: // other words than the recognizer heard first
		first := strings.Join(c.words(1+c.rnd.IntN(2)), " ")
		c.maybe = append(c.maybe, first)
		c.request(append(slices.Clone(c.list), said{"user", first}), sentence(c.words(8)), string(echo.Ghost), "")
	}
	truth, part := string(echo.Full), text
	switch c.rnd.IntN(10) {
	case 0, 1, 2:
		truth = string(echo.Interrupted)
		part = strings.TrimSuffix(strings.Join(strings.Fields(text)[:2+c.rnd.IntN(len(answer)-3)], " "), ".")
	case 3:
		truth, part = string(echo.Unplayed), ""
	}
	asked := append(slices.Clone(c.list), said{"user", user})
	last := len(asked) - 1
	switch c.rnd.IntN(20) {
	case 0: // around the caller's words, for one request
		asked[last].text = "Context: " + strings.Join(c.words(12), " ") + "\n\nThe caller says: " + user
	case 1: // beside them
		asked = slices.Insert(asked, last, said{"assistant", "Retrieved: " + strings.Join(c.words(12), " ")})
	}
	heardText := part
	if truth != string(echo.Interrupted) {
		heardText = ""
	}
	dropped := c.chance(4)
	if dropped { // the turn is in no later list
		c.request(asked, text, open, "")
		c.maybe = append(c.maybe, user)
		return
	}
	c.request(asked, text, truth, heardText)
	c.runNext()
	if c.chance(10) { // the same list once more; the second answer is not played
		c.request(asked, sentence(c.words(8)), "either", "")
		c.ledger[len(c.ledger)-2].truth = "either"
		c.ledger[len(c.ledger)-1].truth = "either"
		c.caller = append(c.caller, user)
		c.list = append(c.list, said{"user", user})
		return
	}
	c.commit(user, words, part, truth)
}

// runNext changes the history as decided before.
func (c *rough) runNext() {
	for _, f := range c.next {
		f()
	}
	c.next = nil
}

// commit adds a turn to the platform's history.
func (c *rough) commit(user string, words []string, part, truth string) {
	if c.chance(5) && len(words) > 2 { // the transcript is corrected after the request
		words = slices.Clone(words)
		words[len(words)-1] = c.words(1)[0]
		user = sentence(words)
	}
	c.caller = append(c.caller, user)
	switch missing := part != "" && c.chance(4); { // the caller's message
	case missing:
	case c.chance(12): // said into the answer, and in front of it
		mhm := strings.Join(c.words(1), " ")
		c.caller = append(c.caller, mhm)
		c.list = append(c.list, said{"user", user}, said{"user", mhm})
	default:
		c.list = append(c.list, said{"user", user})
	}
	if part == "" {
		return
	}
	switch at, whole := len(c.list), part; c.rnd.IntN(12) {
	case 0: // it comes one request late
		c.next = append(c.next, func() { c.list = slices.Insert(c.list, at, said{"assistant", whole}) })
		return
	case 1: // first a part, later all that was heard
		n := len(strings.Fields(part))
		c.list = append(c.list, said{"assistant", strings.Join(strings.Fields(part)[:1+n/2], " ")})
		c.next = append(c.next, func() { c.list[at].text = whole })
		return
	case 2: // first all, later the part that was heard
		all := c.ledger[len(c.ledger)-1].Original
		c.list = append(c.list, said{"assistant", all})
		c.next = append(c.next, func() { c.list[at].text = whole })
		return
	case 3:
		if truth == string(echo.Interrupted) {
			part += []string{" *interrupted by user*", " [interrupted]", " (cut off)", " —", "..."}[c.rnd.IntN(5)]
		}
	case 4:
		part = strings.ToLower(strings.ReplaceAll(part, ".", ""))
	}
	c.list = append(c.list, said{"assistant", part})
}

// roughScore counts what was found against what happened.
type roughScore struct {
	full, falseCut, sure, lost, phantom, unheard, words int
	hit, miss, exact, said                              int
}

// count compares the ledger with the truth and returns the faults.
func (s *roughScore) count(c *rough) (faults []string) {
	bad := func(n *int, format string, args ...any) {
		*n++
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	texts := slices.Concat(c.caller, c.maybe)
	s.said += len(c.ledger)
	for i := range c.ledger {
		r := &c.ledger[i]
		counts := !r.gone && !r.Unheard
		cut := counts && r.Text != r.Original
		switch {
		case r.Role == "user" && !r.gone:
			if at := slices.Index(texts, r.Text); at >= 0 {
				texts = slices.Delete(texts, at, at+1)
			} else {
				bad(&s.phantom, "the caller did not say %q, or not twice", r.Text)
			}
		case !r.asked && !r.gone && r.Role == "assistant":
			bad(&s.phantom, "phantom: %q", r.Text)
		case !r.asked || i == len(c.ledger)-1 || r.truth == open || r.truth == "either":
		case r.truth == string(echo.Full):
			s.full++
			switch {
			case cut:
				bad(&s.falseCut, "heard in full and cut (%d): %q", r.confidence, r.Text)
			case !counts:
				bad(&s.lost, "heard in full and lost (%d): %q", r.confidence, r.Original)
			}
			if (cut || !counts) && r.confidence >= 90 {
				s.sure++
			}
		case r.truth == string(echo.Interrupted):
			switch {
			case !cut:
				bad(&s.miss, "cut and not: %q", r.Original)
			case heard.Normalize(r.Text) == heard.Normalize(r.heard):
				s.exact++
				s.hit++
			default:
				s.hit++
				faults = append(faults, fmt.Sprintf("heard %q, not %q", r.Text, r.heard))
			}
		case counts:
			bad(&s.unheard, "%s and in the history: %q", r.truth, r.Original)
		}
	}
	for _, t := range texts {
		if !slices.Contains(c.maybe, t) {
			bad(&s.words, "the caller's words are lost: %q", t)
		}
	}
	return faults
}

// roughCalls returns how many calls TestRoughCalls plays. HEARDLOG_TEST_CALLS=n sets it.
func roughCalls(t *testing.T) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("HEARDLOG_TEST_CALLS")); err == nil {
		return n
	}
	return 60
}

// TestRoughCalls plays random rough calls and holds the ledger against what happened.
func TestRoughCalls(t *testing.T) {
	t.Parallel()
	var s roughScore
	for seed := range uint64(roughCalls(t)) {
		c := &rough{rnd: rand.New(rand.NewPCG(seed, 1))}
		if c.chance(25) {
			c.window = 8 + c.rnd.IntN(8)
		}
		for range 8 + c.rnd.IntN(8) {
			c.turn()
		}
		c.runNext()
		c.request(append(slices.Clone(c.list), said{"user", "bye"}), "", "", "")
		c.caller = append(c.caller, "bye")
		if faults := s.count(c); len(faults) > 0 && testing.Verbose() {
			t.Logf("seed %d (window %d):\n%s\n%s", seed, c.window, strings.Join(faults, "\n"), strings.Join(c.trace, "\n"))
		}
	}
	f1 := share(2*s.hit, 2*s.hit+s.miss+s.falseCut)
	t.Logf("%+v, F1 %.3f, heard exactly %.3f", s, f1, share(s.exact, s.hit))
	switch {
	case f1 < 0.98 || share(s.exact, s.hit) < 0.98:
		t.Errorf("F1 %.3f, heard exactly %.3f: want at least 0.98", f1, share(s.exact, s.hit))
	case 250*(s.falseCut+s.lost) > s.full || s.sure > 0:
		t.Errorf("%d of %d answers heard in full are cut, %d are lost, %d of these at confidence 90 or more", s.falseCut, s.full, s.lost, s.sure)
	case 100*(s.phantom+s.unheard+s.words) > 2*s.said:
		t.Errorf("of %d messages: %d were never said, %d never played, %d are lost", s.said, s.phantom, s.unheard, s.words)
	}
}

// TestListsAgain sends lists of an orderly call again, at once or up to three turns later. That
// neither loses a message nor doubles one.
func TestListsAgain(t *testing.T) {
	t.Parallel()
	var s roughScore
	for seed := range uint64(roughCalls(t)) {
		c := &rough{rnd: rand.New(rand.NewPCG(seed, 2))}
		var lists [][]said
		for range 10 {
			user, answer := sentence(c.words(4)), sentence(c.words(9))
			c.caller = append(c.caller, user)
			c.list = append(c.list, said{"user", user})
			lists = append(lists, slices.Clone(c.list))
			for c.chance(30) {
				c.request(lists[max(0, len(lists)-1-c.rnd.IntN(4))], sentence(c.words(8)), string(echo.Ghost), "")
			}
			c.request(c.list, answer, string(echo.Full), "")
			c.list = append(c.list, said{"assistant", answer})
		}
		c.request(append(slices.Clone(c.list), said{"user", "bye"}), "", "", "")
		c.caller = append(c.caller, "bye")
		if faults := s.count(c); len(faults) > 0 {
			t.Errorf("seed %d:\n%s\n%s", seed, strings.Join(faults, "\n"), strings.Join(c.trace, "\n"))
		}
	}
}
