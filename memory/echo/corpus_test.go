package echo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/echo"
	"github.com/heardlog/heardlog/memory/heard"
)

// The corpus in testdata/corpus holds pairs of a ledger and the list that a platform re-sent after
// it, labelled by hand with what happened in the call. Texts and calls are invented.

// Limits for the whole corpus, as the code meets them today. Raise them when it does better; lower
// them only for harder cases, never for a change of the code.
const (
	minCases       = 480
	minPerPlatform = 9
	minPrecision   = 0.98
	minF1          = 0.98
	minRecall      = 0.98
	minHeardExact  = 0.95
	maxFalseCuts   = 0 // answers called interrupted that were not
	maxWrongCases  = 0 // cases with any difference from their label
)

// corpusPlatforms are the platforms of the reference; each must have cases.
var corpusPlatforms = []string{
	"agora", "elevenlabs", "livekit", "openai-realtime", "openai-sdk", "pipecat", "retell", "telnyx", "ten", "textbot", "twilio", "vapi",
}

// corpusCase is one ledger, one incoming list, and what the list says of the ledger.
type corpusCase struct {
	Name     string          `json:"name"`
	Platform string          `json:"platform"`
	About    string          `json:"about"` // why it is labelled so
	Ledger   []corpusEntry   `json:"ledger"`
	Incoming json.RawMessage `json:"incoming"` // OpenAI chat messages as the platform sends them
	Want     corpusWant      `json:"want"`
}

// corpusEntry is a message of the ledger. Text is a user's or a tool's, Generated an assistant's.
type corpusEntry struct {
	Role      string `json:"role"`
	Text      string `json:"text,omitempty"`
	Generated string `json:"generated,omitempty"`
	// What left the socket, where that was less or the client went away.
	Sent *string `json:"sent,omitempty"`
	// What is known of it already; absent = Generated.
	Heard  *string       `json:"heard,omitempty"`
	Method memory.Method `json:"method,omitempty"`
	Source string        `json:"source,omitempty"` // llm, greeting, silence or command
	// A ghost already: in the ledger, but not in the history.
	Superseded bool            `json:"superseded,omitempty"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

// corpusAnswer is the label of one answer: full, interrupted (up to Heard), unplayed, replaced (the
// platform said something else in its place), ghost (its user message is asked again) or unknown
// (the list does not show).
type corpusAnswer struct {
	Ledger  int    `json:"ledger"`
	Outcome string `json:"outcome"`
	Heard   string `json:"heard,omitempty"`
}

// corpusWant is the label of a case. Answers has each answer of ours in the ledger that is not
// settled, in order.
type corpusWant struct {
	Answers []corpusAnswer `json:"answers"`
	New     []int          `json:"new"` // incoming messages that the ledger lacks
	// Rest is the platform's own text in an incoming message that holds an answer of ours too.
	Rest   []corpusRest  `json:"rest,omitempty"`
	Extend *corpusExtend `json:"extend,omitempty"`
}

type corpusRest struct {
	Incoming int    `json:"incoming"`
	Text     string `json:"text"`
}

// corpusExtend is a user message of the ledger that came again with other words behind it.
type corpusExtend struct {
	Ledger int    `json:"ledger"`
	Text   string `json:"text"`
}

// provisional reports whether an answer is not settled: it was sent, but not confirmed.
func (e *corpusEntry) provisional() bool {
	return e.Role == "assistant" && e.Source != "command" && !e.Superseded && e.Method.Rank() < memory.EchoDiff.Rank()
}

// reconcileCorpus runs Reconcile on a case and returns its result in the form of the labels. No
// other function of the corpus calls Reconcile.
func reconcileCorpus(t *testing.T, c *corpusCase) corpusWant {
	t.Helper()
	in := parse(t, `{"messages":`+string(c.Incoming)+`}`)
	var known []echo.Known
	var at []int // index into the ledger of each known message
	for i := range c.Ledger {
		e := &c.Ledger[i]
		if e.Superseded {
			continue
		}
		k := echo.Known{Role: e.Role, Text: e.Text + e.Generated, Original: e.Text + e.Generated, Provisional: e.provisional(), Aside: e.Role == "assistant" && e.Source != "llm"}
		if e.Heard != nil {
			k.Text = *e.Heard
		}
		if e.ToolCallID != "" {
			k.CallIDs = []string{e.ToolCallID}
		} else {
			k.CallIDs, k.ToolCalls = llmadapter.CallIDs(e.ToolCalls), e.ToolCalls
		}
		known, at = append(known, k), append(at, i)
	}
	r := echo.Asked.Reconcile(in, known)
	outcome, heard := map[int]string{}, map[int]string{}
	for _, f := range r.Answers {
		i := at[f.Known]
		outcome[i], heard[i] = string(f.Outcome), f.Heard
		if e := &c.Ledger[i]; f.Outcome == echo.Full && e.Sent != nil && *e.Sent == e.Generated {
			// The client left before the model's last word.
			outcome[i], heard[i] = "interrupted", e.Generated
		}
	}
	var got corpusWant
	for _, i := range r.New {
		if text, ok := r.Part[i]; ok { // the labels name what is new in a part only as Rest
			got.Rest = append(got.Rest, corpusRest{Incoming: i, Text: text})
		} else {
			got.New = append(got.New, i)
		}
	}
	for _, a := range c.Want.Answers {
		o := outcome[a.Ledger]
		if o == "" {
			o = "unknown"
		}
		got.Answers = append(got.Answers, corpusAnswer{Ledger: a.Ledger, Outcome: o, Heard: heard[a.Ledger]})
	}
	// An outcome for an answer that is settled, or that the case says nothing about, is a fault as
	// well.
	for i, o := range outcome {
		labelled := slices.ContainsFunc(c.Want.Answers, func(a corpusAnswer) bool { return a.Ledger == i })
		if !labelled && c.Ledger[i].Generated != "" && o != "unknown" {
			got.Answers = append(got.Answers, corpusAnswer{Ledger: i, Outcome: o, Heard: heard[i]})
		}
	}
	for _, x := range r.Extend { // a case labels one at most
		got.Extend = &corpusExtend{Ledger: at[x.Known], Text: x.Text}
	}
	return got
}

// corpusScore counts what came out against what was labelled.
type corpusScore struct {
	cases, wrongCases     int
	hit, miss, falseCut   int // of "interrupted"
	near, exact           int // heard texts within one word and to the letter, of hit+miss
	wrong                 map[string]int
	wrongNew, wrongExtend int
}

func (s *corpusScore) add(c *corpusCase, got corpusWant) (diff string) {
	s.cases++
	for i, w := range c.Want.Answers {
		g := &got.Answers[i]
		cut, called := w.Outcome == "interrupted", g.Outcome == "interrupted"
		switch {
		case cut && called:
			s.hit++
			switch n := wordsBetween(w.Heard, g.Heard); {
			case n == 0:
				s.exact, s.near = s.exact+1, s.near+1
				g.Heard = w.Heard // punctuation makes no difference
			case n == 1:
				s.near++
				g.Heard = w.Heard
			}
		case cut:
			s.miss++
		case called:
			s.falseCut++
		}
		if w.Outcome != g.Outcome {
			s.wrong[w.Outcome+" called "+g.Outcome]++
		}
	}
	if !slices.Equal(c.Want.New, got.New) {
		s.wrongNew++
	}
	if w := c.Want.Extend; w != nil && got.Extend == nil && heard.Normalize(w.Text) == heard.Normalize(c.Ledger[w.Ledger].Text) {
		// The same words: whether case and full stop are taken over is a matter of taste.
		got.Extend = w
	}
	if !cmp.Equal(c.Want.Extend, got.Extend) {
		s.wrongExtend++
	}
	for _, g := range got.Answers[len(c.Want.Answers):] {
		s.wrong["settled called "+g.Outcome]++
		if g.Outcome == "interrupted" {
			s.falseCut++
		}
	}
	diff = cmp.Diff(c.Want, got, cmpopts.EquateEmpty())
	if diff != "" {
		s.wrongCases++
	}
	return diff
}

func (s *corpusScore) sum(o *corpusScore) {
	s.cases += o.cases
	s.wrongCases += o.wrongCases
	s.hit += o.hit
	s.miss += o.miss
	s.falseCut += o.falseCut
	s.near += o.near
	s.exact += o.exact
	s.wrongNew += o.wrongNew
	s.wrongExtend += o.wrongExtend
	for k, n := range o.wrong {
		s.wrong[k] += n
	}
}

// share is n of all, 1 where there is nothing to count.
func share(n, all int) float64 {
	if all == 0 {
		return 1
	}
	return float64(n) / float64(all)
}

func (s *corpusScore) precision() float64  { return share(s.hit, s.hit+s.falseCut) }
func (s *corpusScore) recall() float64     { return share(s.hit, s.hit+s.miss) }
func (s *corpusScore) heardExact() float64 { return share(s.near, s.hit+s.miss) }
func (s *corpusScore) f1() float64         { return share(2*s.hit, 2*s.hit+s.miss+s.falseCut) }

func (s *corpusScore) row(w io.Writer, name string) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%d\t%d\t%d\t\n", name, s.cases, s.wrongCases, s.hit+s.miss, s.precision(),
		s.recall(), s.f1(), s.heardExact(), share(s.exact, s.hit+s.miss), s.falseCut, s.wrongNew, s.wrongExtend)
}

// TestCorpus prints how often Reconcile finds what happened, and fails if it does worse than
// before. With -v it prints each case that differs from its label.
func TestCorpus(t *testing.T) {
	t.Parallel()
	all := corpusScore{wrong: map[string]int{}}
	by := map[string]*corpusScore{}
	open := openCases(t)
	for _, c := range loadCorpus(t) {
		if open[c.Name] {
			var s corpusScore
			s.wrong = map[string]int{}
			if diff := s.add(c, reconcileCorpus(t, c)); diff == "" {
				t.Errorf("%s is as labelled now: remove it from testdata/corpus/open.txt", c.Name)
			}
			delete(open, c.Name)
			continue
		}
		if by[c.Platform] == nil {
			by[c.Platform] = &corpusScore{wrong: map[string]int{}}
		}
		if diff := by[c.Platform].add(c, reconcileCorpus(t, c)); diff != "" && testing.Verbose() {
			t.Logf("%s (%s)\n-labelled +reconciled\n%s", c.Name, c.About, diff)
		}
	}
	for name := range open {
		t.Errorf("testdata/corpus/open.txt names %s, which is no case", name)
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "platform\tcases\twrong\tcut\tprecision\trecall\tF1\theard±1\theard=\tfalse cuts\twrong new\twrong extend\t")
	for _, p := range corpusPlatforms {
		if s := by[p]; s != nil {
			s.row(w, p)
			all.sum(s)
		}
	}
	all.row(w, "all")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, k := range slices.Sorted(maps.Keys(all.wrong)) {
		fmt.Fprintf(&out, "%4d %s\n", all.wrong[k], k)
	}
	t.Log("\n" + out.String())
	if all.precision() < minPrecision || all.recall() < minRecall || all.f1() < minF1 || all.heardExact() < minHeardExact {
		t.Errorf("interrupted: precision %.3f (at least %v), recall %.3f (%v), F1 %.3f (%v), heard within one word %.3f (%v)",
			all.precision(), minPrecision, all.recall(), minRecall, all.f1(), minF1, all.heardExact(), minHeardExact)
	}
	if all.falseCut > maxFalseCuts || all.wrongCases > maxWrongCases {
		t.Errorf("%d answers wrongly called interrupted (at most %d), %d cases not as labelled (at most %d)", all.falseCut, maxFalseCuts, all.wrongCases, maxWrongCases)
	}
}

// openCases returns the names of cases that are known to come out otherwise than labelled. A case
// that comes out as labelled must leave the list.
func openCases(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("testdata/corpus/open.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range strings.Fields(string(b)) {
		names[name] = true
	}
	return names
}

// loadCorpus reads every case; a member that is not known is an error.
func loadCorpus(t *testing.T) []*corpusCase {
	t.Helper()
	files, err := filepath.Glob("testdata/corpus/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no corpus: ", err)
	}
	var all []*corpusCase
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		var cases []*corpusCase
		if err := d.Decode(&cases); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, cases...)
	}
	return all
}

// TestCorpusFormat checks the labels against the texts that they speak of.
func TestCorpusFormat(t *testing.T) {
	t.Parallel()
	cases := loadCorpus(t)
	if len(cases) < minCases {
		t.Errorf("%d cases, want at least %d", len(cases), minCases)
	}
	names, platforms := map[string]bool{}, map[string]int{}
	for _, c := range cases {
		if names[c.Name] {
			t.Errorf("%s: twice", c.Name)
		}
		names[c.Name] = true
		platforms[c.Platform]++
		for _, problem := range checkCorpusCase(t, c) {
			t.Errorf("%s: %s", c.Name, problem)
		}
	}
	for _, p := range corpusPlatforms {
		if platforms[p] < minPerPlatform {
			t.Errorf("%s: %d cases, want at least %d", p, platforms[p], minPerPlatform)
		}
	}
}

// checkCorpusCase returns the mistakes in a case's form.
func checkCorpusCase(t *testing.T, c *corpusCase) (problems []string) {
	t.Helper()
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !slices.Contains(corpusPlatforms, c.Platform) || !strings.HasPrefix(c.Name, c.Platform+"/") {
		bad("platform %q is unknown or does not begin the name", c.Platform)
	}
	if len(c.About) < 20 {
		bad("about says nothing")
	}
	in := parse(t, `{"messages":`+string(c.Incoming)+`}`)
	var want, have []int
	for i := range c.Ledger {
		e := &c.Ledger[i]
		if problem := e.check(); problem != "" {
			bad("ledger %d: %s", i, problem)
		}
		if e.provisional() && e.Generated != "" {
			want = append(want, i)
		}
	}
	replaced := false
	for _, a := range c.Want.Answers {
		have = append(have, a.Ledger)
		if a.Ledger >= 0 && a.Ledger < len(c.Ledger) {
			if problem := a.check(&c.Ledger[a.Ledger]); problem != "" {
				bad("answer %d: %s", a.Ledger, problem)
			}
		}
		replaced = replaced || a.Outcome == "replaced"
	}
	if !slices.Equal(have, want) {
		bad("answers %v are labelled, those not settled are %v", have, want)
	}
	last, said := -1, len(c.Want.Rest) > 0
	for _, i := range c.Want.New {
		if i <= last || i >= len(in) || in[i].IsSystem() {
			bad("new %d is out of range, out of order or a system message", i)
			return problems
		}
		last, said = i, said || in[i].Role == "assistant"
	}
	if replaced && !said {
		bad("an answer is replaced, but nothing is there in its place")
	}
	for _, r := range c.Want.Rest {
		if r.Incoming < 0 || r.Incoming >= len(in) || in[r.Incoming].Role != "assistant" || r.Text == "" || !strings.Contains(in[r.Incoming].Text, r.Text) {
			bad("rest %q is no part of answer %d", r.Text, r.Incoming)
		}
	}
	if x := c.Want.Extend; x != nil {
		ours := x.Ledger >= 0 && x.Ledger < len(c.Ledger) && c.Ledger[x.Ledger].Role == "user" && c.Ledger[x.Ledger].Text != x.Text
		theirs := slices.ContainsFunc(in, func(m echo.Message) bool { return m.Role == "user" && m.Text == x.Text })
		if !ours || !theirs {
			bad("extend: %q is no incoming user message, or %d no other one of the ledger", x.Text, x.Ledger)
		}
	}
	return problems
}

func (e *corpusEntry) check() string {
	assistant := e.Role == "assistant"
	switch {
	case e.Role != "user" && e.Role != "assistant" && e.Role != "tool":
		return "unknown role " + e.Role
	case assistant != (e.Source != "" && e.Method != ""):
		return "source and method belong to answers, and every answer has them"
	case assistant && (e.Text != "" || e.Generated == "" && e.ToolCalls == nil), !assistant && (e.Generated != "" || e.Text == ""):
		return "an answer has generated text or tool calls, every other message text"
	case assistant && e.Method.Rank() < memory.AssumedFull.Rank():
		return "unknown method " + string(e.Method)
	case (e.Role == "tool") != (e.ToolCallID != ""):
		return "tool_call_id belongs to tool messages"
	case (e.Method == memory.DisconnectOnly) != (e.Sent != nil):
		return "sent belongs to disconnect_only"
	case e.Sent != nil && !strings.HasPrefix(e.Generated, *e.Sent), e.Heard != nil && !strings.HasPrefix(e.Generated, *e.Heard):
		return "sent or heard is no beginning of generated"
	}
	return ""
}

// check returns what is wrong with the label of an answer e, or "".
func (a *corpusAnswer) check(e *corpusEntry) string {
	if !slices.Contains([]string{"full", "interrupted", "unplayed", "replaced", "unknown", "ghost"}, a.Outcome) {
		return "unknown outcome " + a.Outcome
	}
	if (a.Outcome == "interrupted") != (a.Heard != "") {
		return "heard belongs to interrupted answers"
	}
	if a.Heard == "" {
		return ""
	}
	rest, ok := strings.CutPrefix(e.Generated, a.Heard)
	if !ok {
		return "heard is no beginning of generated"
	}
	if e.Sent != nil && len(a.Heard) > len(*e.Sent) {
		return "more was heard than sent"
	}
	if wordsBetween(a.Heard, e.Generated) == 0 && (e.Sent == nil || *e.Sent != e.Generated) {
		return "all was heard of an interrupted answer"
	}
	before, _ := utf8.DecodeLastRuneInString(a.Heard)
	after, _ := utf8.DecodeRuneInString(rest)
	if inWord(before) && inWord(after) && !noSpaces(before) && !noSpaces(after) {
		return "heard ends inside a word"
	}
	return ""
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }

// noSpaces reports whether r is of a script without spaces between words.
func noSpaces(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai)
}

// wordsBetween returns by how many words two beginnings of one text differ, or a huge number if
// they are not of one text. In scripts without spaces, three characters or less count as a word.
func wordsBetween(a, b string) int {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutPrefix(b, a)
	if !ok {
		return 1 << 20
	}
	n, run, open := 0, 0, false
	for _, r := range rest {
		switch {
		case noSpaces(r):
			if run%3 == 0 {
				n++
			}
			run, open = run+1, false
		case !inWord(r):
			// An apostrophe, a point or a hyphen does not begin a new word; white space does.
			open = open && !unicode.IsSpace(r)
			run = 0
		case !open:
			n, open, run = n+1, true, 0
		}
	}
	return n
}

// TestCorpusCheck breaks a good case in each way that the format check must see.
func TestCorpusCheck(t *testing.T) {
	t.Parallel()
	good := func() *corpusCase {
		return &corpusCase{
			Name: "vapi/x", Platform: "vapi", About: "a case that is as it should be",
			Ledger: []corpusEntry{
				{Role: "user", Text: "Hello"},
				{Role: "assistant", Generated: "Good morning, shop", Method: memory.AssumedFull, Source: "llm"},
			},
			Incoming: json.RawMessage(`[{"role":"user","content":"Hello"},{"role":"assistant","content":"Good"},{"role":"user","content":"Hi"}]`),
			Want:     corpusWant{Answers: []corpusAnswer{{Ledger: 1, Outcome: "interrupted", Heard: "Good"}}, New: []int{2}},
		}
	}
	if problems := checkCorpusCase(t, good()); problems != nil {
		t.Fatal(problems)
	}
	for name, bend := range map[string]func(c *corpusCase){
		"platform":            func(c *corpusCase) { c.Platform = "fax" },
		"no reason":           func(c *corpusCase) { c.About = "so" },
		"label missing":       func(c *corpusCase) { c.Want.Answers = nil },
		"label of a user":     func(c *corpusCase) { c.Want.Answers[0].Ledger = 0 },
		"outcome":             func(c *corpusCase) { c.Want.Answers[0] = corpusAnswer{Ledger: 1, Outcome: "lost"} },
		"heard of a full one": func(c *corpusCase) { c.Want.Answers[0].Outcome = "full" },
		"heard inside a word": func(c *corpusCase) { c.Want.Answers[0].Heard = "Good mor" },
		"heard otherwise":     func(c *corpusCase) { c.Want.Answers[0].Heard = "Nice" },
		"all heard":           func(c *corpusCase) { c.Want.Answers[0].Heard = "Good morning, shop" },
		"replaced by nothing": func(c *corpusCase) { c.Want.Answers[0] = corpusAnswer{Ledger: 1, Outcome: "replaced"} },
		"new out of range":    func(c *corpusCase) { c.Want.New = []int{3} },
		"new out of order":    func(c *corpusCase) { c.Want.New = []int{2, 1} },
		"rest":                func(c *corpusCase) { c.Want.Rest = []corpusRest{{Incoming: 1, Text: "evening"}} },
		"extend":              func(c *corpusCase) { c.Want.Extend = &corpusExtend{Ledger: 0, Text: "Hello there"} },
		"settled":             func(c *corpusCase) { c.Ledger[1].Method = memory.EchoDiff },
		"no method":           func(c *corpusCase) { c.Ledger[1].Method = "" },
		"sent":                func(c *corpusCase) { c.Ledger[1].Method = memory.DisconnectOnly },
		"role":                func(c *corpusCase) { c.Ledger[0].Role = "caller" },
	} {
		c := good()
		if bend(c); checkCorpusCase(t, c) == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

// TestWordsBetween: the yardstick of "within one word".
func TestWordsBetween(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"Your", "Your,", 0},
		{"Your table is", "Your", 2},
		{"It's", "It's half-past", 1},
		{"at", "at 3:30 p.m.", 2},
		{"您好", "您好！明天", 1},
		{"您好", "您好！明天上午十点", 2},
		{"a", "b", 1 << 20},
	} {
		if got := wordsBetween(tt.a, tt.b); got != tt.want {
			t.Errorf("between %q and %q: %d words, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
