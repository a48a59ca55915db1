package evidence_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/echo"
	"github.com/heardlog/heardlog/memory/heard"
)

// TestReliability measures what confidence is worth: of the answers with a confidence in a band, at
// least the share that the band begins with must be right within one word. The answers are those of
// the corpus of package echo, and of calls that are made up here: voices of many rates, late
// starts, clocks that are off by a little, lists that rewrite, shorten and contradict each other.
// The texts are those of the corpus.
func TestReliability(t *testing.T) {
	t.Parallel()
	r := reliability{kinds: map[string]*[2]int{}}
	texts := r.corpus(t)
	rnd := rand.New(rand.NewPCG(7, 11)) // fixed: constants were fitted to it
	for range 12 {
		for _, text := range texts {
			r.timed(t, rnd, text)
			r.told(t, rnd, text)
			r.listed(t, rnd, text)
		}
	}
	var table strings.Builder
	for i, from := range []int64{50, 70, 90, 97} {
		b := r.bands[i]
		share := 100 * float64(b[1]) / float64(max(b[0], 1))
		fmt.Fprintf(&table, "%d and up: %5d answers, %5.1f %% right\n", from, b[0], share)
		if b[0] < 100 || share < float64(from) {
			t.Errorf("confidence from %d on: %.1f %% of %d answers are right", from, share, b[0])
		}
	}
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range r.kinds {
			if !yield(k) {
				return
			}
		}
	}) {
		fmt.Fprintf(&table, "%-22s %5d answers, %5.1f %% right\n", k, r.kinds[k][0], 100*float64(r.kinds[k][1])/float64(r.kinds[k][0]))
	}
	t.Logf("\n%s", table.String())
}

// reliability counts answers, and those that are right.
type reliability struct {
	bands [4][2]int // from 50, 70, 90 and 97
	kinds map[string]*[2]int
}

// add notes an answer whose heard text by the evidence is that of the message.
func (r *reliability) add(m memory.Message, truth string) {
	right := apart(m.Content, truth) <= 1
	count := func(c *[2]int) {
		c[0]++
		if right {
			c[1]++
		}
	}
	kind := fmt.Sprintf("%s %d", m.Method, m.Confidence)
	if r.kinds[kind] == nil {
		r.kinds[kind] = &[2]int{}
	}
	count(r.kinds[kind])
	switch c := m.Confidence; {
	case c >= 97:
		count(&r.bands[3])
	case c >= 90:
		count(&r.bands[2])
	case c >= 70:
		count(&r.bands[1])
	case c >= 50:
		count(&r.bands[0])
	}
}

// apart returns by how many words two beginnings of a text differ. In scripts without spaces two
// letters are taken for a word.
func apart(a, b string) int {
	if len(a) > len(b) {
		a, b = b, a
	}
	n, alone, in := 0, 0, false
	for _, c := range b[len(a):] {
		switch {
		case unicode.In(c, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
			alone, in = alone+1, false
		case !unicode.IsLetter(c) && !unicode.IsNumber(c):
			in = in && c == '\''
		case !in:
			n, in = n+1, true
		}
	}
	return n + (alone+1)/2
}

// applied returns an answer with a piece of evidence.
func applied(t *testing.T, m memory.Message, e memory.Evidence) (memory.Message, bool) {
	t.Helper()
	out, _, err := m.WithEvidence(e, 1)
	return out, err == nil
}

func answered(text string) memory.Message {
	return memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, Content: text, Method: memory.AssumedFull, Timestamp: 1}
}

// corpus adds the labelled answers of package echo and returns their texts.
func (r *reliability) corpus(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../echo/testdata/corpus/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var texts []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []corpusCase
		if err := json.Unmarshal(raw, &cases); err != nil {
			t.Fatal(file, err)
		}
		for i := range cases {
			texts = append(texts, r.labelled(t, &cases[i])...)
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// corpusCase is what is read here of a case; see the README of the corpus.
type corpusCase struct {
	Ledger []struct {
		Role       string          `json:"role"`
		Text       string          `json:"text"`
		Generated  string          `json:"generated"`
		Heard      *string         `json:"heard"`
		Method     memory.Method   `json:"method"`
		Source     string          `json:"source"`
		Superseded bool            `json:"superseded"`
		ToolCalls  json.RawMessage `json:"tool_calls"`
		ToolCallID string          `json:"tool_call_id"`
	} `json:"ledger"`
	Incoming json.RawMessage `json:"incoming"`
	Want     struct {
		Answers []struct {
			Ledger  int    `json:"ledger"`
			Outcome string `json:"outcome"`
			Heard   string `json:"heard"`
		} `json:"answers"`
	} `json:"want"`
}

func (r *reliability) labelled(t *testing.T, c *corpusCase) (texts []string) {
	t.Helper()
	req, err := llmadapter.ParseRequest([]byte(`{"messages":` + string(c.Incoming) + `}`))
	if err != nil {
		t.Fatal(err)
	}
	var in []echo.Message
	for i := range req.Messages {
		m := &req.Messages[i]
		in = append(in, echo.Message{Role: m.Role, Text: m.Text(), CallID: m.ToolCallID, CallIDs: llmadapter.CallIDs(m.ToolCalls), ToolCalls: m.ToolCalls})
	}
	var known []echo.Known
	var at []int
	for i, e := range c.Ledger {
		if e.Superseded {
			continue
		}
		k := echo.Known{
			Role: e.Role, Text: e.Text + e.Generated, Original: e.Text + e.Generated, Aside: e.Role == "assistant" && e.Source != "llm",
			Provisional: e.Role == "assistant" && e.Source != "command" && e.Method.Rank() < memory.EchoDiff.Rank(),
		}
		if e.Heard != nil {
			k.Text = *e.Heard
		}
		if e.ToolCallID != "" {
			k.CallIDs = []string{e.ToolCallID}
		} else {
			k.CallIDs, k.ToolCalls = llmadapter.CallIDs(e.ToolCalls), e.ToolCalls
		}
		known, at = append(known, k), append(at, i)
		if len(strings.Fields(e.Generated)) >= 5 {
			texts = append(texts, e.Generated)
		}
	}
	for _, f := range echo.Asked.Reconcile(in, known).Answers {
		for _, w := range c.Want.Answers {
			e, ok := evidenceOf(f)
			if w.Ledger != at[f.Known] || !ok || w.Outcome == "ghost" || w.Outcome == "unknown" {
				continue
			}
			whole := c.Ledger[w.Ledger].Generated
			m, ok := applied(t, answered(whole), e)
			truth := map[string]string{"full": whole, "interrupted": w.Heard}[w.Outcome]
			if ok {
				r.add(m, truth)
			}
		}
	}
	return texts
}

// evidenceOf returns a finding as evidence, as a request brings it.
func evidenceOf(f echo.Finding) (memory.Evidence, bool) {
	e := memory.Evidence{Seq: 1, Method: memory.EchoDiff, Confidence: int64(f.Confidence), Later: true}
	switch f.Outcome {
	case echo.Full:
		e.Full = true
	case echo.Interrupted:
		e.Heard = f.Heard
	case echo.Unplayed:
		e.State = memory.Unplayed
	case echo.Replaced:
		e.State = memory.Replaced
	default:
		return e, false
	}
	return e, true
}

// spell returns the words of a text with the byte at which each ends.
func spell(text string) (words []string, ends []int) {
	from := 0
	for _, w := range strings.Fields(text) {
		at := from + strings.Index(text[from:], w)
		from = at + len(w)
		words, ends = append(words, w), append(ends, from)
	}
	return words, ends
}

// timed plays an answer with a voice of some rate, cuts it at some moment, and tells it by time
// alone and by word times.
func (r *reliability) timed(t *testing.T, rnd *rand.Rand, text string) {
	t.Helper()
	words, ends := spell(text)
	rate := 3.83 * math.Exp(0.17*rnd.NormFloat64()) // voices differ by a third
	var clock float64                               // ms
	times := make([]int64, len(words))
	for i, w := range words {
		// A word's length in letters is another measure than the syllables of the estimate.
		clock += (60 + 62*float64(len([]rune(w)))) * 3.83 / rate * math.Exp(0.15*rnd.NormFloat64())
		if strings.ContainsAny(w[len(w)-1:], ".!?") {
			clock += 250
		}
		times[i] = int64(clock)
	}
	cut := int64(clock * 1.2 * rnd.Float64())
	truth := ""
	for i, at := range times {
		if at <= cut {
			truth = text[:ends[i]]
		}
	}
	if truth == text[:ends[len(ends)-1]] {
		truth = text
	}
	if m, ok := applied(t, answered(text), memory.Evidence{Method: memory.AudioMS, Heard: heard.Estimate(text, cut)}); ok {
		r.add(m, truth)
	}
	// The voice begins 200 to 800 ms after the first token; 400 ms are assumed.
	if m, ok := applied(t, answered(text), memory.Evidence{Method: memory.RateEstimate, Heard: heard.Estimate(text, cut+200+rnd.Int64N(600)-400)}); ok {
		r.add(m, truth)
	}
	said := 0 // the platform's words end a little earlier or later, and so does its cut
	for said < len(times) && times[said]+rnd.Int64N(160)-80 <= cut+rnd.Int64N(200)-100 {
		said++
	}
	if m, ok := applied(t, answered(text), memory.Evidence{Method: memory.WordTimes, Heard: strings.Join(words[:said], " ")}); ok {
		r.add(m, truth)
	}
}

// rewritten returns a beginning of a text as a platform may write it.
func rewritten(rnd *rand.Rand, said string, hard bool) string {
	words := strings.Fields(said)
	for i := range words {
		switch n := rnd.IntN(40); {
		case n == 0:
			words[i] = strings.ToLower(words[i])
		case n == 1:
			words[i] = strings.Trim(words[i], ".,;:!?*")
		case hard && n < 4 && len(words) > 3: // heard otherwise
			words[i] = []string{"well", "the", "uh", "so"}[rnd.IntN(4)]
		case hard && n == 4 && i > 0:
			words[i] = words[i-1]
		}
	}
	if n := len(words); n > 1 && rnd.IntN(6) == 0 { // half a word
		if last := []rune(words[n-1]); len(last) > 0 {
			words[n-1] = string(last[:1+rnd.IntN(len(last))])
		}
	}
	return strings.Join(words, " ")
}

// beginning returns a beginning of a text of some words, sometimes all of it.
func beginning(rnd *rand.Rand, text string) string {
	_, ends := spell(text)
	if n := rnd.IntN(len(ends) + len(ends)/2); n < len(ends)-1 {
		return text[:ends[n]]
	}
	return text
}

// told has a platform tell the heard text in its own words.
func (r *reliability) told(t *testing.T, rnd *rand.Rand, text string) {
	t.Helper()
	truth := beginning(rnd, text)
	if m, ok := applied(t, answered(text), memory.Evidence{Method: memory.VendorText, Heard: rewritten(rnd, truth, false)}); ok {
		r.add(m, truth)
	}
}

// listed sends lists with the heard text, as a platform keeps it. In some calls a list is sent
// while the answer is still played, or an old answer is shortened in a later list.
func (r *reliability) listed(t *testing.T, rnd *rand.Rand, text string) {
	t.Helper()
	truth := beginning(rnd, text)
	echoes := []string{truth}
	switch rnd.IntN(8) {
	case 0:
		echoes = []string{beginning(rnd, truth), truth}
	case 1:
		if rnd.IntN(4) == 0 {
			echoes = []string{truth, beginning(rnd, truth)}
		}
	}
	m := answered(text)
	hard := rnd.IntN(3) == 0
	for _, said := range echoes {
		in := []echo.Message{{Role: "user", Text: "What is it?"}, {Role: "assistant", Text: rewritten(rnd, said, hard)}, {Role: "user", Text: "I see."}}
		known := []echo.Known{{Role: "user", Text: "What is it?"}, {Role: "assistant", Text: text, Original: text, Provisional: true}}
		for _, f := range echo.Asked.Reconcile(in, known).Answers {
			if e, ok := evidenceOf(f); ok {
				m, _ = applied(t, m, e)
			}
		}
	}
	if m.Method == memory.EchoDiff {
		r.add(m, truth)
	}
}
