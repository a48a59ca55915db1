package echo_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
)

// TestCorpusBent changes the form of each case's list, or adds a longer call around it. Neither may
// change the result. With -v it prints the cases whose result changes.
func TestCorpusBent(t *testing.T) {
	t.Parallel()
	open := openCases(t)
	cases := slices.DeleteFunc(loadCorpus(t), func(c *corpusCase) bool { return open[c.Name] })
	for name, tt := range map[string]struct {
		bend func(t *testing.T, c *corpusCase) (bent *corpusCase, ledger, list int)
		max  int // cases that come out otherwise today: to be lowered, never raised
	}{
		"content as parts":   {bendParts, 0},
		"no system messages": {bendNoSystem, 0},
		"a window cut a long call": {func(t *testing.T, c *corpusCase) (*corpusCase, int, int) {
			return bendLonger(t, c, false, "What about item %d on my list?")
		}, 0},
		// Three cases differ: two equal user messages without an answer between them may be the
		// second and third time that the caller said so.
		"a window cut a call in the same words": {func(t *testing.T, c *corpusCase) (*corpusCase, int, int) {
			if len(c.Ledger) == 0 {
				return nil, 0, 0
			}
			return bendLonger(t, c, false, c.Ledger[0].Text)
		}, 3},
		"a long call, all of it in": {func(t *testing.T, c *corpusCase) (*corpusCase, int, int) {
			return bendLonger(t, c, true, "What about item %d on my list?")
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done, other := 0, 0
			for _, c := range cases {
				bent, ledger, list := tt.bend(t, c)
				if bent == nil {
					continue
				}
				done++
				want, got := reconcileCorpus(t, c), reconcileCorpus(t, bent)
				shift(&want, ledger, list)
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					other++
					if testing.Verbose() {
						t.Logf("%s (-as it is +bent)\n%s", c.Name, diff)
					}
				}
			}
			t.Logf("%d of %d cases come out otherwise", other, done)
			if done < len(cases)/2 || other > tt.max {
				t.Errorf("%d cases of %d were bent; %d come out otherwise, at most %d may", done, len(cases), other, tt.max)
			}
		})
	}
}

// shift moves the indices of a result.
func shift(w *corpusWant, ledger, list int) {
	w.New = slices.Clone(w.New)
	for i := range w.New {
		w.New[i] += list
	}
	for i := range w.Answers {
		w.Answers[i].Ledger += ledger
	}
	for i := range w.Rest {
		w.Rest[i].Incoming += list
	}
	if w.Extend != nil {
		w.Extend.Ledger += ledger
	}
}

// rawList returns the messages of a list as JSON objects.
func rawList(t *testing.T, c *corpusCase) (list []map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(c.Incoming, &list); err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	return list
}

func withList(t *testing.T, c *corpusCase, list []map[string]json.RawMessage) *corpusCase {
	t.Helper()
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	bent := *c
	bent.Incoming = b
	return &bent
}

// bendParts writes each text as an array of one part.
func bendParts(t *testing.T, c *corpusCase) (*corpusCase, int, int) {
	t.Helper()
	list := rawList(t, c)
	for _, m := range list {
		if text := m["content"]; len(text) > 0 && text[0] == '"' && string(m["role"]) != `"tool"` {
			m["content"] = json.RawMessage(`[{"type":"text","text":` + string(text) + `}]`)
		}
	}
	return withList(t, c, list), 0, 0
}

// bendNoSystem leaves out one system message at the head.
func bendNoSystem(t *testing.T, c *corpusCase) (*corpusCase, int, int) {
	t.Helper()
	list := rawList(t, c)
	if string(list[0]["role"]) != `"system"` {
		return nil, 0, 0
	}
	return withList(t, c, list[1:]), 0, -1
}

// bendLonger puts forty settled turns, with the given user's words, in front of the ledger. With
// whole, it puts them in front of the list too, if the list shows the ledger from its first message
// on.
func bendLonger(t *testing.T, c *corpusCase, whole bool, words string) (*corpusCase, int, int) {
	t.Helper()
	if len(c.Ledger) == 0 || words == "" {
		// What a list holds before a ledger begins is new, unless there is something older.
		return nil, 0, 0
	}
	list := rawList(t, c)
	head := 0
	for head < len(list) && (string(list[head]["role"]) == `"system"` || string(list[head]["role"]) == `"developer"`) {
		head++
	}
	if whole && !showsFirst(t, c, head) || !whole && asksAgain(c) {
		return nil, 0, 0
	}
	bent := *c
	bent.Ledger = nil
	var older []map[string]json.RawMessage
	for i := range 40 {
		q, a := strings.ReplaceAll(words, "%d", strconv.Itoa(i)), fmt.Sprintf("Item %d is in stock.", i)
		bent.Ledger = append(bent.Ledger, corpusEntry{Role: "user", Text: q},
			corpusEntry{Role: "assistant", Generated: a, Method: memory.EchoDiff, Source: "llm"})
		older = append(older, message("user", q), message("assistant", a))
	}
	n := len(bent.Ledger)
	bent.Ledger = append(bent.Ledger, c.Ledger...)
	bent.Want.Answers = slices.Clone(c.Want.Answers) // reconcileCorpus goes by them
	for i := range bent.Want.Answers {
		bent.Want.Answers[i].Ledger += n
	}
	if !whole {
		return &bent, n, 0
	}
	return withList(t, &bent, slices.Concat(list[:head], older, list[head:])), n, len(older)
}

func message(role, text string) map[string]json.RawMessage {
	return map[string]json.RawMessage{"role": json.RawMessage(strconv.Quote(role)), "content": json.RawMessage(strconv.Quote(text))}
}

// asksAgain reports whether a case asks again for an answer. The messages before its user message
// must then be in the list, and a window would remove them.
func asksAgain(c *corpusCase) bool {
	return slices.ContainsFunc(c.Want.Answers, func(a corpusAnswer) bool { return a.Outcome == "ghost" }) || c.Want.Extend != nil
}

// showsFirst reports whether message at of the list is the first one of the ledger, and not a later
// one in the same words: the list then has as many known user messages as the ledger.
func showsFirst(t *testing.T, c *corpusCase, at int) bool {
	t.Helper()
	in := parse(t, `{"messages":`+string(c.Incoming)+`}`)
	first, theirs, ours := c.Ledger[0], 0, 0
	for i := range in {
		if in[i].Role == "user" && !slices.Contains(c.Want.New, i) {
			theirs++
		}
	}
	for i := range c.Ledger {
		if c.Ledger[i].Role == "user" {
			ours++
		}
	}
	return at < len(in) && theirs >= ours && in[at].Role == first.Role &&
		heard.Normalize(in[at].Text) == heard.Normalize(first.Text+first.Generated)
}
