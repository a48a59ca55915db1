package echo_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory/echo"
)

// platform is a simulated voice platform with a simulated memory. What it sends and what happened
// are known.
type platform struct {
	rnd    *rand.Rand
	list   []map[string]any // its own history
	ledger []echo.Known
	truth  map[int]echo.Outcome // of answers in the ledger, by index
	n      int
}

var (
	sayings = []string{"yes", "no", "I want %d tickets", "what does number %d cost", "and on Sunday the %d", "ok", "¿cuánto cuesta el %d?", "我要 %d 张票", "wait"}
	replies = []string{
		"Sure, number %d it is, and I will send you the ticket by mail.", "That costs %d euros, including the seat and the meal.", "Der Zug Nummer %d fährt um neun von Gleis zwei ab.",
		"好的，%d 张票，一共三百元。", "Number %d? One moment please, I will have a look at the list for you.", "**%d** is *fine*, <break/>thank you very much indeed.",
	}
)

func (p *platform) text(from []string) string {
	p.n++
	s := from[p.rnd.IntN(len(from))]
	if strings.Contains(s, "%d") {
		return fmt.Sprintf(s, p.n)
	}
	return s
}

// request is the platform's next list: all it has, or a window of it.
func (p *platform) request(t *testing.T) []echo.Message {
	t.Helper()
	list := p.list
	if n := 6 + p.rnd.IntN(30); p.rnd.IntN(3) == 0 && len(list) > n {
		list = list[len(list)-n:]
	}
	msgs := append([]map[string]any{{"role": "system", "content": "Be brief."}}, list...)
	b, err := json.Marshal(map[string]any{"messages": msgs})
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(b))
}

// settle does with the ledger what a reconciliation says.
func (p *platform) settle(in []echo.Message, r echo.Result) {
	for _, f := range r.Answers {
		k := &p.ledger[f.Known]
		switch f.Outcome {
		case echo.Full:
			k.Provisional, k.Unheard, k.Text = false, false, k.Original
		case echo.Interrupted:
			k.Provisional, k.Unheard, k.Text = false, false, f.Heard
		case echo.Unplayed, echo.Replaced:
			k.Provisional, k.Unheard, k.Text = false, true, ""
		}
	}
	for _, i := range r.New {
		text, ok := r.Part[i]
		if !ok {
			text = in[i].Text
		}
		p.ledger = append(p.ledger, echo.Known{Role: in[i].Role, Text: text, Original: text, Aside: in[i].Role == "assistant"})
	}
	for _, x := range r.Extend {
		p.ledger[x.Known].Text, p.ledger[x.Known].Original = x.Text, x.Text
	}
	// Ghosts leave the list, as superseded answers do.
	gone := map[int]bool{}
	for _, f := range r.Answers {
		gone[f.Known] = f.Outcome == echo.Ghost
	}
	var kept []echo.Known
	truth := map[int]echo.Outcome{}
	for j, k := range p.ledger {
		if !gone[j] {
			if o, ok := p.truth[j]; ok {
				truth[len(kept)] = o
			}
			kept = append(kept, k)
		}
	}
	p.ledger, p.truth = kept, truth
}

// TestReconcileCalls plays random calls: each answer's outcome is found, the same list again
// changes nothing, nothing is stored twice and nothing is lost. Answers are long and different
// enough to be distinguished.
func TestReconcileCalls(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		p := &platform{rnd: rnd, truth: map[int]echo.Outcome{}}
		generated := map[string]bool{}
		for range 12 {
			words := p.text(sayings)
			p.list = append(p.list, map[string]any{"role": "user", "content": words})
			for range 1 + rnd.IntN(3) { // a ghost or two before the answer that is played
				in := p.request(t)
				r := echo.Asked.Reconcile(in, p.ledger)
				checkReconciliation(t, seed, in, p.ledger, r)
				p.check(t, seed, in, r)
				p.settle(in, r)
				again := echo.Asked.Reconcile(in, p.ledger)
				if told := slices.ContainsFunc(again.Answers, func(f echo.Finding) bool { return f.Outcome != echo.Unknown }); told || len(again.New) > 0 || len(again.Extend) > 0 || len(again.Gone) > 0 {
					t.Fatalf("seed %d: the same list again brings %+v\nto %+v", seed, again, p.ledger)
				}
				answer := p.text(replies)
				generated[answer] = true
				p.ledger = append(p.ledger, echo.Known{Role: "assistant", Text: answer, Original: answer, Provisional: true})
			}
			p.play()
		}
		users := 0
		for _, k := range p.ledger {
			if k.Role == "user" {
				users++
			} else if !generated[k.Original] && !k.Aside {
				t.Fatalf("seed %d: %q was never generated", seed, k.Original)
			}
		}
		if users != 12 {
			t.Fatalf("seed %d: %d user messages in the ledger, want 12: %+v", seed, users, p.ledger)
		}
	}
}

// play lets the last answer be heard, or not.
func (p *platform) play() {
	last := len(p.ledger) - 1
	whole := p.ledger[last].Original
	say := func(text string) { p.list = append(p.list, map[string]any{"role": "assistant", "content": text}) }
	switch p.rnd.IntN(5) {
	case 0:
		words := strings.Fields(whole)
		n := len(words) / 2
		if len(words) < 4 { // Chinese
			runes := []rune(whole)
			say(string(runes[:len(runes)-4]))
		} else {
			say(strings.Join(words[:n], " "))
		}
		p.truth[last] = echo.Interrupted
	case 1:
		p.truth[last] = echo.Unplayed
	case 2:
		p.n++
		say(fmt.Sprintf("I am sorry, but number %d is something that I must not talk about here.", p.n))
		p.truth[last] = echo.Replaced
	case 3:
		say(strings.ToUpper(strings.ReplaceAll(whole, "*", "")))
		p.truth[last] = echo.Full
	default:
		say(whole)
		p.truth[last] = echo.Full
	}
}

// check holds the findings against the truth.
func (p *platform) check(t *testing.T, seed uint64, in []echo.Message, r echo.Result) {
	t.Helper()
	for _, f := range r.Answers {
		want, ok := p.truth[f.Known]
		if !ok {
			want = echo.Ghost
		}
		if f.Outcome != want {
			var list, ledger []string
			for i := range in {
				list = append(list, fmt.Sprintf("%d %s: %s", i, in[i].Role, in[i].Text))
			}
			for j, k := range p.ledger {
				ledger = append(ledger, fmt.Sprintf("%d %s: %s", j, k.Role, k.Original))
			}
			t.Fatalf("seed %d: %q was %s and is called %s (%q)\n%+v\nlist:\n%s\nledger:\n%s", seed, p.ledger[f.Known].Original, want, f.Outcome, f.Heard, r,
				strings.Join(list, "\n"), strings.Join(ledger, "\n"))
		}
	}
}

// checkReconciliation demands what must hold of every reconciliation, whatever the lists are.
func checkReconciliation(t *testing.T, seed uint64, in []echo.Message, ledger []echo.Known, r echo.Result) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d: %s\n%+v", seed, fmt.Sprintf(format, args...), r)
	}
	if !slices.IsSorted(r.New) || len(slices.Compact(slices.Clone(r.New))) != len(r.New) {
		bad("new %v", r.New)
	}
	if len(r.Pair) != len(in) {
		bad("%d pairs of %d", len(r.Pair), len(in))
	}
	for _, i := range r.New {
		if _, part := r.Part[i]; in[i].IsSystem() || r.Pair[i] >= 0 && !part {
			bad("message %d is new and not", i)
		}
	}
	for i, j := range r.Pair {
		if j >= 0 && (j >= len(ledger) || in[i].Role != ledger[j].Role && in[i].Role != "function") {
			bad("message %d is paired with %d", i, j)
		}
	}
	last := -1
	for _, f := range r.Answers {
		k := ledger[f.Known]
		switch {
		case f.Known <= last, k.Role != "assistant", !k.Provisional && !k.Unheard && !k.Echoed && !k.Ghost:
			bad("a finding of %d", f.Known)
		case (f.Outcome == echo.Interrupted) != (f.Heard != ""), !strings.HasPrefix(k.Original, f.Heard), f.Heard == k.Original && f.Heard != "":
			bad("%q heard of %q, which is %s", f.Heard, k.Original, f.Outcome)
		case (f.Method == "") != (f.Outcome == echo.Ghost || f.Outcome == echo.Unknown), (f.Confidence == 0) != (f.Outcome == echo.Unknown), f.Confidence > 100:
			bad("method %q, confidence %d of %s", f.Method, f.Confidence, f.Outcome)
		case k.Aside && (f.Outcome == echo.Unplayed || f.Outcome == echo.Replaced || f.Outcome == echo.Ghost):
			bad("%d was not the model's and is called %s", f.Known, f.Outcome)
		}
		last = f.Known
	}
	for _, j := range r.Gone {
		if slices.Contains(r.Pair, j) {
			bad("%d is gone and in the list", j)
		}
	}
	for _, x := range r.Extend {
		if x.Known < 0 || x.Known >= len(ledger) || ledger[x.Known].Role != "user" || x.Text == ledger[x.Known].Text {
			bad("extend")
		}
	}
}

// FuzzReconcile checks that the result is consistent for any lists. A list is lines, each with the
// first letter of its role.
func FuzzReconcile(f *testing.F) {
	f.Add("u hi\na hello there\nu bye", "u hi\np hello there, friend")
	f.Add("u a b\na c d e\nu f", "u a\np x\nu b\np c d e")
	f.Add("a one two three\nu ok", "u x\np one two three four")
	f.Add("u [12:00:01] Anna: hi\na [12:00:02] Bot: It is ni\nu (x) ok", "u hi\np It is nine\nx gone\ng hello")
	f.Add("u a\nc 1\nt 1\na 5 dollars (cut)\nu b", "u a\nd 1\nt 1\np five dollars please\nu c\np d")
	f.Add("u a b\na c d e\nu f", "u a\nz x y z\nu a b\ne c d e f g\nr k")
	f.Add("u 你好\na 好的，3 张\nu \xff", "u 你好\np 好的，三张票")
	f.Fuzz(func(t *testing.T, list, kept string) {
		var msgs []map[string]any
		call := func(id string) []any {
			return []any{map[string]any{"id": id, "function": map[string]any{"name": "f", "arguments": "{}"}}}
		}
		for _, l := range strings.SplitN(list, "\n", 40) {
			kind, text, _ := strings.Cut(l, " ")
			switch kind {
			case "u":
				msgs = append(msgs, map[string]any{"role": "user", "content": text})
			case "s":
				msgs = append(msgs, map[string]any{"role": "system", "content": text})
			case "t":
				msgs = append(msgs, map[string]any{"role": "tool", "tool_call_id": text, "content": text})
			case "c":
				msgs = append(msgs, map[string]any{"role": "assistant", "content": text, "tool_calls": call(text)})
			default:
				msgs = append(msgs, map[string]any{"role": "assistant", "content": text})
			}
		}
		b, err := json.Marshal(map[string]any{"messages": msgs})
		if err != nil {
			t.Fatal(err)
		}
		req, err := llmadapter.ParseRequest(b)
		if err != nil {
			return
		}
		var ledger []echo.Known
		for _, l := range strings.SplitN(kept, "\n", 40) {
			kind, text, _ := strings.Cut(l, " ")
			k := echo.Known{Role: "assistant", Text: text, Original: text}
			switch kind {
			case "u":
				k.Role = "user"
			case "t":
				k.Role, k.CallIDs = "tool", []string{text}
			case "c", "d":
				calls, err := json.Marshal(call(text))
				if err != nil {
					t.Fatal(err)
				}
				k.CallIDs, k.ToolCalls, k.Provisional = []string{text}, calls, true
			case "p":
				k.Provisional = true
			case "g":
				k.Provisional, k.Aside = true, true
			case "x":
				k.Text, k.Unheard = "", true
			case "e":
				k.Echoed = true
			case "z":
				k.Ghost = true
			case "r":
				k.Reported, k.Aside = true, true
			}
			ledger = append(ledger, k)
		}
		in := messages(req.Messages)
		checkReconciliation(t, 0, in, ledger, echo.Asked.Reconcile(in, ledger))
	})
}
