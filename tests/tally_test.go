package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// talliedJSON is what lists, calls, overviews and reports say of the words of answers.
type talliedJSON struct {
	Answers, Interruptions, Failures, Ghosts int
	Words                                    int
	Unheard                                  int      `json:"unheard_words"`
	GhostWords                               int      `json:"ghost_words"`
	Share                                    *float64 `json:"unheard_share"`
	Evident                                  *int     `json:"answers_with_evidence"`
	ToolCalls                                int      `json:"tool_calls"`
	ToolsOpen                                *int     `json:"tool_calls_without_result"`
}

func (t talliedJSON) String() string {
	share, evident, open := "unknown", -1, -1
	if t.Share != nil {
		share = fmt.Sprintf("%.2f", *t.Share)
	}
	if t.Evident != nil {
		evident, open = *t.Evident, *t.ToolsOpen
	}
	return fmt.Sprintf("%d answers, %d cut, %d known, %d failed, %d ghosts; %d words, %d of ghosts, %d not heard, %s; tools %d, %d open",
		t.Answers, t.Interruptions, evident, t.Failures, t.Ghosts, t.Words, t.GhostWords, t.Unheard, share, t.ToolCalls, open)
}

// wordsOf counts the words of a call from its messages.
func (s *server) wordsOf(id string) (words, unheard int) {
	s.t.Helper()
	for _, m := range s.ledger(id) {
		if m.Role != "assistant" || m.State == "empty" {
			continue
		}
		words += len(strings.Fields(m.Generated))
		unheard += len(strings.Fields(m.Generated))
		if m.State == "final" {
			unheard -= len(strings.Fields(m.Heard))
		}
	}
	return words, unheard
}

// TestTally has calls of each kind, and compares what each place says of their words: the list, the
// call, its messages, the overview and the report.
func TestTally(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	const eight = "one two three four five six seven eight"
	calls := map[string]struct {
		do   func(id string)
		want string
	}{
		"no evidence": {
			func(id string) { s.ask(id, eight, user("Count.")) },
			"1 answers, 0 cut, 0 known, 0 failed, 0 ghosts; 8 words, 0 of ghosts, 0 not heard, unknown; tools 0, 0 open",
		},
		"cut": {
			func(id string) {
				s.ask(id, eight, user("Count."))
				s.interrupt(id, `{"heard":"one two three"}`).ok(nil)
			},
			"1 answers, 1 cut, 1 known, 0 failed, 0 ghosts; 8 words, 0 of ghosts, 5 not heard, 0.62; tools 0, 0 open",
		},
		"by the echo": {
			func(id string) {
				s.ask(id, eight, user("Count."))
				s.ask(id, "nine ten", user("Count."), assistant("one two three four"), user("Go on."))
			},
			"2 answers, 1 cut, 1 known, 0 failed, 0 ghosts; 10 words, 0 of ghosts, 4 not heard, 0.40; tools 0, 0 open",
		},
		"late evidence": {
			func(id string) {
				s.ask(id, eight, user("Count."))
				s.interrupt(id, `{"heard_ms":0}`).ok(nil)
				s.ask(id, "nine ten", user("Count."), user("Go on."))
				s.interrupt(id, `{"turn_id":0,"heard":"`+eight+`"}`).ok(nil)
			},
			"2 answers, 0 cut, 1 known, 0 failed, 0 ghosts; 10 words, 0 of ghosts, 0 not heard, 0.00; tools 0, 0 open",
		},
		"ghosts": {
			func(id string) {
				s.ask(id, "nine ten", user("Count."))
				for _, answer := range []string{"a draft", "another draft it is", eight} {
					s.ask(id, answer, user("Count."), assistant("nine ten"), user("Go on."))
				}
			},
			"2 answers, 0 cut, 1 known, 0 failed, 2 ghosts; 16 words, 6 of ghosts, 6 not heard, 0.38; tools 0, 0 open",
		},
		"failed": {
			func(id string) {
				s.post(agent(id, "/chat/completions"), map[string]any{"messages": []any{user("Count.")}, "fake": map[string]any{"status": 400}})
			},
			"0 answers, 0 cut, 0 known, 1 failed, 0 ghosts; 0 words, 0 of ghosts, 0 not heard, unknown; tools 0, 0 open",
		},
		"tools": {
			func(id string) {
				s.say(id, user("Book it."), map[string]any{"role": "assistant", "content": "", "tool_calls": []any{
					map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "book", "arguments": "{}"}},
					map[string]any{"id": "c2", "type": "function", "function": map[string]any{"name": "pay", "arguments": "{}"}},
				}}, map[string]any{"role": "tool", "tool_call_id": "c1", "content": "done"})
			},
			"1 answers, 0 cut, 0 known, 0 failed, 0 ghosts; 0 words, 0 of ghosts, 0 not heard, unknown; tools 2, 1 open",
		},
		"nothing": {func(string) {}, "0 answers, 0 cut, 0 known, 0 failed, 0 ghosts; 0 words, 0 of ghosts, 0 not heard, unknown; tools 0, 0 open"},
	}
	ids := map[string]string{}
	for name, call := range calls {
		ids[name] = s.join(name, nil)
		call.do(ids[name])
	}
	check := func(when string) {
		t.Helper()
		var sum, all talliedJSON
		var list struct {
			Agents []struct {
				ID    string `json:"agent_id"`
				Tally json.RawMessage
			}
			Total int
		}
		s.get(v1 + "/agents?count=true").ok(&list)
		if len(list.Agents) != len(calls) || list.Total != len(calls) {
			t.Errorf("%s: %d calls, total %d", when, len(list.Agents), list.Total)
		}
		inList := map[string]string{}
		for _, a := range list.Agents {
			inList[a.ID] = string(a.Tally)
		}
		for name, call := range calls {
			id := ids[name]
			var a struct{ Tally json.RawMessage }
			s.get(agent(id)).ok(&a)
			if string(a.Tally) != inList[id] {
				t.Errorf("%s: %s: the call says %s, the list %s", when, name, a.Tally, inList[id])
			}
			var got talliedJSON
			if err := json.Unmarshal(a.Tally, &got); err != nil {
				t.Fatal(err)
			}
			if got.String() != call.want {
				t.Errorf("%s: %s:\n got %s\nwant %s", when, name, got, call.want)
			}
			if words, unheard := s.wordsOf(id); words != got.Words || unheard != got.Unheard {
				t.Errorf("%s: %s: the messages have %d words, %d not heard", when, name, words, unheard)
			}
			sum.Answers, sum.Interruptions, sum.Failures, sum.Ghosts = sum.Answers+got.Answers, sum.Interruptions+got.Interruptions, sum.Failures+got.Failures, sum.Ghosts+got.Ghosts
			sum.Words, sum.Unheard, sum.GhostWords, sum.ToolCalls = sum.Words+got.Words, sum.Unheard+got.Unheard, sum.GhostWords+got.GhostWords, sum.ToolCalls+got.ToolCalls
			sum.Evident, sum.ToolsOpen = plus(sum.Evident, got.Evident), plus(sum.ToolsOpen, got.ToolsOpen)
		}
		share := float64(sum.Unheard) / float64(sum.Words)
		sum.Share = &share
		var o struct{ Totals talliedJSON }
		if s.get(v1 + "/overview").ok(&o); o.Totals.String() != sum.String() {
			t.Errorf("%s: overview:\n got %s\nwant %s", when, o.Totals, sum)
		}
		all = o.Totals
		if when == "live" {
			return
		}
		o.Totals = talliedJSON{}
		s.get(v1 + "/reports").ok(&o)
		if o.Totals.GhostWords = all.GhostWords; o.Totals.String() != sum.String() { // reports do not have them
			t.Errorf("%s: report:\n got %s\nwant %s", when, o.Totals, sum)
		}
	}
	check("live")
	for _, id := range ids {
		s.post(agent(id, "/leave"), nil).ok(nil)
	}
	check("ended")
	s = s.again()
	check("after a restart")
}

// TestGlance checks the shape and the moments of calls, in the list and in the call.
func TestGlance(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id, failed := s.join("busy", nil), s.join("failed", nil)
	at := func(role, text string, ms int64, more ...any) map[string]any {
		m := map[string]any{"role": role, "content": text, "timestamp": 1_780_000_000_000 + ms}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
	call := map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "book", "arguments": "{}"}}
	lost := map[string]any{"id": "c2", "type": "function", "function": map[string]any{"name": "pay", "arguments": "{}"}}
	s.say(id, at("user", "Book a table.", 1000), at("assistant", "", 1500, "tool_calls", []any{call, lost}), at("tool", "done", 4500, "tool_call_id", "c1"),
		at("assistant", "Your table is booked for nine, with a fee.", 9000), at("user", "Thanks.", 12_000))
	s.interrupt(id, `{"turn_id":0,"heard":"Your table is booked"}`).ok(nil)
	s.post(agent(failed, "/chat/completions"), map[string]any{"messages": []any{user("Count.")}, "fake": map[string]any{"status": 400}})
	type glance struct {
		ID      string `json:"agent_id"`
		Shape   [][2]any
		Moments []map[string]any
		Tally   struct {
			Silence int64 `json:"longest_silence_ms"`
		}
	}
	var list struct{ Agents []glance }
	s.get(v1 + "/agents?include=shape").ok(&list)
	for _, g := range list.Agents {
		var one glance
		s.get(agent(g.ID) + "?include=shape").ok(&one)
		if diff := cmp.Diff(one, g); diff != "" {
			t.Errorf("the list and the call differ: %s", diff)
		}
	}
	got := list.Agents[1]
	if diff := cmp.Diff([][2]any{{"caller", 871.0}, {"tool", 3000.0}, {"silence", 5000.0}, {"heard", 1251.0}, {"unheard", 1563.0}, {"caller", 469.0}}, got.Shape); diff != "" {
		t.Errorf("shape: %s", diff)
	}
	if diff := cmp.Diff([]map[string]any{
		{"kind": "unheard", "seq": 4.0, "turn_id": 0.0, "words": 5.0, "text": "for nine, with a fee."},
		{"kind": "silence", "seq": 4.0, "turn_id": 0.0, "ms": 8000.0, "tool": "book"},
		{"kind": "tool_without_result", "seq": 2.0, "turn_id": 0.0, "tool": "pay"},
	}, got.Moments); diff != "" || got.Tally.Silence != 8000 {
		t.Errorf("moments: %s, silence %d", diff, got.Tally.Silence)
	}
	if m := list.Agents[0].Moments; len(m) != 1 || m[0]["kind"] != "failure" || m[0]["error"] == "" || m[0]["status"] != 400.0 || m[0]["upstream"] != "primary" {
		t.Errorf("a failed call: %v", m)
	}
	var plain map[string]any
	if s.get(agent(id)).ok(&plain); plain["shape"] != nil || plain["moments"] != nil {
		t.Errorf("unasked: %v", plain)
	}
	s.get(v1+"/agents?include=all").refused(http.StatusBadRequest, "InvalidFieldValue", "include")
	s.get(agent(id)+"?include=messages").refused(http.StatusBadRequest, "InvalidFieldValue", "include")
}

func plus(a, b *int) *int {
	n := *b
	if a != nil {
		n += *a
	}
	return &n
}

// TestFindByTally checks the filters and orders of lists by what was counted in the calls.
func TestFindByTally(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	half, tenth, none, assumed, tool := s.join("half", nil), s.join("tenth", nil), s.join("none", nil), s.join("assumed", nil), s.join("tool", nil)
	const ten = "one two three four five six seven eight nine ten"
	for id, heard := range map[string]string{half: "one two three four five", tenth: "one two three four five six seven eight nine", none: "", assumed: "-"} {
		s.ask(id, ten, user("Count."))
		if heard != "-" {
			s.interrupt(id, map[string]any{"turn_id": 0, "heard": heard}).ok(nil)
		}
	}
	call := map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "book", "arguments": "{}"}}
	s.say(tool, user("Book it."), map[string]any{"role": "assistant", "content": "", "tool_calls": []any{call}})
	for query, want := range map[string]string{
		"unheard_min=0.5":                              "none half",
		"unheard_min=0.5&order=asc":                    "half none",
		"unheard_min=0":                                "tool assumed none tenth half",
		"unheard_min=0.05&interrupted=true":            "none tenth half",
		"tool_without_result=true":                     "tool",
		"first_word_min=3600000":                       "",
		"sort=unheard":                                 "none half tenth",
		"sort=unheard&order=asc":                       "tenth half none",
		"sort=unheard&unheard_min=0.2":                 "none half",
		"sort=unheard&status=stopped":                  "",
		"unheard_min=0.05&q=seven":                     "none tenth half",
		"tool_without_result=true&status=idle,running": "tool",
	} {
		if got := strings.Join(s.finds(query), " "); got != want {
			t.Errorf("%s finds %q, not %q", query, got, want)
		}
	}
	byTime := s.finds("sort=first_word")
	slices.Sort(byTime)
	if diff := cmp.Diff([]string{"assumed", "half", "none", "tenth"}, byTime); diff != "" {
		t.Errorf("calls with a first token: %s", diff)
	}
	var page struct {
		Agents   []struct{ Name string }
		Next     string `json:"next_cursor"`
		Total    *int
		More     bool `json:"total_more"`
		Compared *struct {
			Calls int
			All   bool
			Since string
		}
	}
	if s.get(v1 + "/agents?sort=unheard&limit=2&count=true").ok(&page); page.Total == nil || *page.Total != 3 || page.More || page.Compared == nil || page.Compared.Calls != 5 || !page.Compared.All || page.Compared.Since == "" {
		t.Errorf("%+v", page)
	}
	next := page.Next
	if page.Total, page.Next = nil, ""; s.get(v1+"/agents?sort=unheard&limit=2&count=true&cursor="+next).ok(&page).status != http.StatusOK || page.Total != nil || page.Next != "" || len(page.Agents) != 1 || page.Agents[0].Name != "tenth" {
		t.Errorf("the second page: %+v", page)
	}
	s.get(v1+"/agents?cursor="+next).refused(http.StatusBadRequest, "InvalidFieldValue", "cursor", "another sort")
	if page.Compared = nil; s.get(v1+"/agents?limit=1&count=true").ok(&page).status != http.StatusOK || *page.Total != 5 || page.Compared != nil {
		t.Errorf("%+v", page)
	}
	for query, field := range map[string]string{
		"unheard_min=1.1": "unheard_min", "unheard_min=NaN": "unheard_min", "unheard_min=half": "unheard_min", "first_word_min=-1": "first_word_min", "first_word_min=1s": "first_word_min",
		"tool_without_result=1": "tool_without_result", "sort=silence": "sort", "count=1": "count", "count=true&q=one": "count", "sort=unheard&q=one": "sort",
	} {
		s.get(v1+"/agents?"+query).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
	s.say(tool, map[string]any{"role": "tool", "tool_call_id": "c1", "content": "done"})
	if got := s.finds("tool_without_result=true"); len(got) != 0 {
		t.Errorf("after the result: %q", got)
	}
}
