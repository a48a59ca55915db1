package tests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"unicode"
)

// callScore counts what the server made of calls.
type callScore struct {
	calls, wrong   int // wrong: calls with any fault
	full, cut      int // answers by what the caller heard
	hit, miss      int // cut answers found, and not found
	exact          int // heard texts right to the letter, of full+cut
	falseCut, sure int // full answers called cut or absent; those of confidence 90 and more
	lost           int // heard answers, or words of the caller, that the history lacks
	phantom        int // texts in the history that nobody said, or twice
	unheard        int // answers in the history that were never played
	tools          int // results of tools that are not the tool's
	order          int // texts of the platform behind the answer that they introduce
	refused        int // requests that the server refused
}

func (s *callScore) add(o callScore) {
	s.calls, s.wrong, s.full, s.cut = s.calls+o.calls, s.wrong+o.wrong, s.full+o.full, s.cut+o.cut
	s.hit, s.miss, s.exact = s.hit+o.hit, s.miss+o.miss, s.exact+o.exact
	s.falseCut, s.sure, s.lost, s.phantom = s.falseCut+o.falseCut, s.sure+o.sure, s.lost+o.lost, s.phantom+o.phantom
	s.unheard, s.tools, s.order, s.refused = s.unheard+o.unheard, s.tools+o.tools, s.order+o.order, s.refused+o.refused
}

func (s *callScore) f1() float64         { return ratio(2*s.hit, 2*s.hit+s.miss+s.falseCut) }
func (s *callScore) heardExact() float64 { return ratio(s.exact, s.full+s.cut) }

func ratio(n, all int) float64 {
	if all == 0 {
		return 1
	}
	return float64(n) / float64(all)
}

func (s *callScore) row(w io.Writer, name string) {
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.3f\t%.3f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, s.calls, s.wrong, s.full, s.cut, s.f1(), s.heardExact(),
		s.falseCut, s.sure, s.lost, s.phantom, s.unheard, s.tools, s.order, s.refused)
}

// letters returns a text without case, punctuation and spaces.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// words returns the words of texts, sorted, without case and punctuation.
func words(texts []string) []string {
	out := strings.FieldsFunc(strings.ToLower(strings.Join(texts, " ")), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
	})
	slices.Sort(out)
	return out
}

// surplus returns the elements of a that b lacks; both are sorted.
func surplus(a, b []string) []string {
	var out []string
	for _, w := range a {
		for len(b) > 0 && b[0] < w {
			b = b[1:]
		}
		if len(b) > 0 && b[0] == w {
			b = b[1:]
			continue
		}
		out = append(out, w)
	}
	return out
}

// made reports whether the model made the message in answer to a request.
func (m *message) made() bool {
	return m.Role == "assistant" && (m.Metadata["source"] == "llm" || m.Metadata["source"] == "greeting")
}

// judge compares the ledger of a call with its label and returns the score and the faults.
func (c *spokenCall) judge(ledger []message, refused []string) (s callScore, faults []string) {
	fault := func(n *int, format string, args ...any) {
		*n++
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	s.calls = 1
	for _, r := range refused {
		fault(&s.refused, "%s", r)
	}
	found, taken := map[string]*message{}, map[*message]bool{}
	for _, r := range c.Requests {
		a := c.Answers[r.Answer]
		if r.Answer == "" || a.Text == "" || found[r.Answer] != nil {
			continue
		}
		for i := range ledger {
			m := &ledger[i]
			g := letters(m.Generated)
			if m.made() && !taken[m] && g != "" && (g == letters(a.Text) || r.Close != nil && strings.HasPrefix(letters(a.Text), g)) {
				found[r.Answer], taken[m] = m, true
				break
			}
		}
	}
	for _, name := range c.answerNames() {
		c.judgeAnswer(name, found[name], &s, fault)
	}
	said := make([]string, len(c.Said))
	for i, text := range c.Said {
		said[i] = letters(text)
	}
	var caller []string
	for i := range ledger {
		m := &ledger[i]
		switch {
		case m.State != "final" || taken[m]:
		case m.Role == "user":
			caller = append(caller, m.Content)
		case m.Role == "tool":
			if want, ok := c.Tools[m.ToolCallID]; ok && m.Content != want {
				fault(&s.tools, "tool %s has the result %q", m.ToolCallID, m.Content)
			}
		case m.Role == "assistant" && m.Content != "":
			if k := slices.Index(said, letters(m.Content)); k >= 0 {
				said = slices.Delete(said, k, k+1)
			} else {
				fault(&s.phantom, "phantom %s: %q", m.Metadata["source"], m.Content)
			}
		}
	}
	for _, text := range said {
		fault(&s.lost, "the platform's own words are lost: %q", text)
	}
	have, want := words(caller), words(c.Caller)
	if more := surplus(surplus(have, want), words(c.Perhaps)); len(more) > 0 {
		fault(&s.phantom, "caller's words too many: %q", more)
	}
	if less := surplus(want, have); len(less) > 0 {
		fault(&s.lost, "caller's words lost: %q", less)
	}
	for _, o := range c.Order {
		at := func(text string) int {
			return slices.IndexFunc(ledger, func(m message) bool { return m.State == "final" && letters(m.Content) == letters(text) })
		}
		if first, second := at(o[0]), at(o[1]); first > second && second >= 0 {
			fault(&s.order, "%q stands behind %q", o[0], o[1])
		}
	}
	if len(faults) > 0 {
		s.wrong = 1
	}
	return s, faults
}

// judgeAnswer compares what the ledger says of one answer with its label.
func (c *spokenCall) judgeAnswer(name string, m *message, s *callScore, fault func(n *int, format string, args ...any)) {
	a := c.Answers[name]
	kept := m != nil && m.State == "final" && m.Content != ""
	cut := m != nil && m.Metadata["interrupted"] == true
	state := "missing"
	if m != nil {
		state = m.State
	}
	heard := cmp.Or(a.Heard, a.Text)
	switch a.Outcome {
	case "full":
		s.full++
		switch {
		case !kept:
			fault(&s.falseCut, "%s was heard in full and is %s", name, state)
			s.lost++
		case cut:
			fault(&s.falseCut, "%s was heard in full and is cut, at confidence %d: %q", name, m.Evidence.Confidence, m.Content)
		case letters(m.Content) == letters(heard):
			s.exact++
			return
		default:
			fault(new(int), "%s was heard otherwise: %q", name, m.Content)
		}
		if m != nil && m.Evidence.Confidence >= 90 && (!kept || cut) {
			s.sure++
		}
	case "interrupted":
		s.cut++
		switch {
		case !kept:
			fault(&s.lost, "%s was heard in part and is %s", name, state)
			s.miss++
		case !cut:
			fault(&s.miss, "%s was cut and is heard in full", name)
		case letters(m.Content) == letters(heard):
			s.hit, s.exact = s.hit+1, s.exact+1
		default:
			s.hit++
			fault(new(int), "%s was heard up to %q, not %q", name, heard, m.Content)
		}
	default: // unplayed, ghost
		if kept {
			fault(&s.unheard, "%s is %s and in the history: %q", name, a.Outcome, m.Content)
		}
	}
}

// answerNames returns the answers with words in the order of their requests.
func (c *spokenCall) answerNames() []string {
	var out []string
	for _, r := range c.Requests {
		if a := c.Answers[r.Answer]; a.Text != "" && a.Outcome != "" && !slices.Contains(out, r.Answer) {
			out = append(out, r.Answer)
		}
	}
	return out
}

// loadCalls reads the calls of a directory; a member that is not known is an error.
func loadCalls(t *testing.T, dir string) []*spokenCall {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no calls in %s: %v", dir, err)
	}
	var all []*spokenCall
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		var calls []*spokenCall
		if err := d.Decode(&calls); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, calls...)
	}
	return all
}

// TestCalls plays whole calls of all platforms over HTTP. The history of each must be what the
// caller heard; a call with a fault fails. With -v it prints how often that is so, by platform.
// HEARDLOG_TEST_CALL_DIR names another directory of calls, whose faults are printed and do not
// fail.
func TestCalls(t *testing.T) {
	t.Parallel()
	dir, own := os.Getenv("HEARDLOG_TEST_CALL_DIR"), false
	if dir == "" {
		dir, own = "../memory/echo/testdata/calls", true
	}
	s := start(t)
	model, base := callUpstream(t)
	var mu sync.Mutex
	scores, all := map[string]*callScore{}, map[string]*callScore{"ordinary": {}, "rough": {}}
	t.Run("each", func(t *testing.T) {
		for i, c := range loadCalls(t, dir) {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				server := *s
				server.t = t
				score, faults := c.judge(playCall(t, &server, model, base, fmt.Sprintf("call-%d", i), c))
				for _, f := range faults {
					if own {
						t.Error(f)
					} else {
						t.Log(f)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				key := c.Platform + " " + c.Class
				if scores[key] == nil {
					scores[key] = &callScore{}
				}
				scores[key].add(score)
				all[c.Class].add(score)
			})
		}
	})
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "calls of\tcalls\twrong\tfull\tcut\tF1\theard=\tfalse cut\tsure\tlost\tphantom\tunheard\ttool\torder\trefused\t")
	for _, k := range slices.Sorted(maps.Keys(scores)) {
		scores[k].row(w, k)
	}
	for _, class := range []string{"ordinary", "rough"} {
		all[class].row(w, "all "+class)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
}
