package echo_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory/echo"
)

// parse reads a request's messages.
func parse(t *testing.T, body string) []echo.Message {
	t.Helper()
	req, err := llmadapter.ParseRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return messages(req.Messages)
}

func messages(in []llmadapter.Incoming) []echo.Message {
	out := make([]echo.Message, len(in))
	for i := range in {
		m := &in[i]
		out[i] = echo.Message{
			Role: m.Role, Text: m.Text(), CallID: m.ToolCallID, CallIDs: llmadapter.CallIDs(m.ToolCalls), ToolCalls: m.ToolCalls,
		}
	}
	return out
}

// TestAccount: lists that come without a call for an answer.
func TestAccount(t *testing.T) {
	t.Parallel()
	type list = []string
	for name, tt := range map[string]struct {
		why             echo.Account
		in, known, want list
	}{
		"the caller's last words":      {echo.Final, list{"u: a", "a: It is nine.", "u: bye"}, list{"u: a", "a? It is nine."}, list{"new user: bye", "heard all of 1"}},
		"an answer to the last words":  {echo.Final, list{"u: a", "a: It is nine.", "u: bye"}, list{"u: a", "a: It is nine.", "u: bye", "a? Goodbye."}, list{"unplayed 3"}},
		"not over yet":                 {echo.Noted, list{"u: a", "a: It is nine.", "u: bye"}, list{"u: a", "a: It is nine.", "u: bye", "a? Goodbye."}, list{}},
		"a call for an answer":         {echo.Asked, list{"u: a", "a: It is nine.", "u: bye"}, list{"u: a", "a: It is nine.", "u: bye", "a? Goodbye."}, list{"ghost 3"}},
		"a greeting":                   {echo.Final, list{"u: a", "a: It is nine."}, list{"a? Hello there.", "u: a", "a? It is nine."}, list{"unplayed 0", "heard all of 2"}},
		"an answer behind later words": {echo.Noted, list{"u: is the early one late", "a: Shall I send", "u: yes"}, list{"u: is the cheap one late", "a? Shall I send it?", "u: is the early one late", "a? It is."}, list{"new user: yes", "heard of 1: Shall I send", "unplayed 3"}},
		"a window":                     {echo.Final, list{"u: c", "a: d"}, list{"u: a", "a? b", "u: c", "a? d"}, list{"heard all of 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := incoming(t, tt.in...)
			if diff := cmp.Diff(tt.want, show(in, tt.why.Reconcile(in, known(t, tt.known...)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNamed: a list that names answers is taken at its word, whatever else begins like them.
func TestNamed(t *testing.T) {
	t.Parallel()
	ledger := known(t, "u: a", "a? It is nine now.", "u: b", "a? It is nine o'clock.")
	ledger[1].ID, ledger[3].ID = "x1", "x2"
	in := incoming(t, "u: a", "u: b", "a: It is nine", "u: c")
	in[2].ID = "x1" // committed late, behind later words
	if diff := cmp.Diff([]string{"new user: c", "heard of 1: It is nine", "unplayed 3"}, show(in, echo.Asked.Reconcile(in, ledger))); diff != "" {
		t.Error(diff)
	}
	in[2].ID = "x3" // of another server
	if diff := cmp.Diff([]string{"new user: c", "unplayed 1", "heard of 3: It is nine"}, show(in, echo.Asked.Reconcile(in, ledger))); diff != "" {
		t.Error(diff)
	}
}

// incoming returns messages for lines: "u: text", "a: text", "a? text" (provisional), "s: text",
// "t1: result of call 1", "c1: call 1".
func incoming(t *testing.T, lines ...string) []echo.Message {
	t.Helper()
	var parts []string
	for _, l := range lines {
		kind, text, _ := strings.Cut(l, ": ")
		switch {
		case kind == "u" || kind == "a" || kind == "s":
			role := map[string]string{"u": "user", "a": "assistant", "s": "system"}[kind]
			parts = append(parts, `{"role":"`+role+`","content":`+strconv.Quote(text)+`}`)
		case kind[0] == 't':
			parts = append(parts, `{"role":"tool","tool_call_id":"`+kind[1:]+`","content":`+strconv.Quote(text)+`}`)
		case kind[0] == 'c':
			parts = append(parts, `{"role":"assistant","content":null,"tool_calls":[{"id":"`+kind[1:]+`"}]}`)
		default:
			t.Fatal(l)
		}
	}
	return parse(t, `{"messages":[`+strings.Join(parts, ",")+`]}`)
}

func known(t *testing.T, lines ...string) []echo.Known {
	t.Helper()
	var out []echo.Known
	for _, l := range lines {
		provisional := strings.HasPrefix(l, "a? ")
		l = strings.Replace(l, "a? ", "a: ", 1)
		kind, text, _ := strings.Cut(l, ": ")
		k := echo.Known{Text: text, Original: text, Provisional: provisional}
		switch {
		case kind == "u":
			k.Role = "user"
		case kind == "a":
			k.Role = "assistant"
			if heard, all, ok := strings.Cut(text, "|"); ok { // heard|the rest
				k.Text, k.Original = heard, heard+all
			}
		case kind[0] == 't':
			k.Role, k.CallIDs = "tool", []string{kind[1:]}
		case kind[0] == 'c':
			k.Role, k.CallIDs, k.Text, k.Original = "assistant", []string{kind[1:]}, "", ""
			k.Provisional = true
		default:
			t.Fatal(l)
		}
		out = append(out, k)
	}
	return out
}

// show writes a reconciliation down: what is new, what was heard, what is replaced.
func show(in []echo.Message, r echo.Result) []string {
	out := []string{}
	for _, i := range r.New {
		text, ok := r.Part[i]
		if !ok {
			text = in[i].Text
		}
		out = append(out, "new "+in[i].Role+": "+text)
	}
	for _, f := range r.Answers {
		switch f.Outcome {
		case echo.Full:
			out = append(out, fmt.Sprintf("heard all of %d", f.Known))
		case echo.Interrupted:
			out = append(out, fmt.Sprintf("heard of %d: %s", f.Known, f.Heard))
		case echo.Unknown:
		default:
			out = append(out, fmt.Sprintf("%s %d", f.Outcome, f.Known))
		}
	}
	for _, x := range r.Extend {
		out = append(out, fmt.Sprintf("extend %d: %s", x.Known, x.Text))
	}
	for _, j := range r.Gone {
		out = append(out, fmt.Sprintf("gone %d", j))
	}
	return out
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	type list = []string
	for name, tt := range map[string]struct{ in, known, want list }{
		"first call":                {list{"s: sys", "u: hi"}, nil, list{"new user: hi"}},
		"first call after greeting": {list{"a: Hello.", "u: hi"}, list{"a: Hello"}, list{"new user: hi"}},
		"a platform with a past":    {list{"u: a", "a: b", "u: c"}, nil, list{"new user: a", "new assistant: b", "new user: c"}},
		"next turn, all heard":      {list{"u: a", "a: It is  *nine*!", "u: b"}, list{"u: a", "a? It is nine."}, list{"new user: b", "heard all of 1"}},
		"next turn, cut":            {list{"u: a", "a: It leaves at", "u: b"}, list{"u: a", "a? It leaves at nine."}, list{"new user: b", "heard of 1: It leaves at"}},
		"cut within a word":         {list{"u: a", "a: It leaves at ni", "u: b"}, list{"u: a", "a? It leaves at nine."}, list{"new user: b", "heard of 1: It leaves at"}},
		"known to be cut already":   {list{"u: a", "a: It leaves", "u: b"}, list{"u: a", "a: It leaves| at nine."}, list{"new user: b"}},
		"echo says more than sent":  {list{"u: a", "a: It leaves at nine.", "u: b"}, list{"u: a", "a? It leaves| at nine."}, list{"new user: b", "heard all of 1"}},
		"rewritten answer":          {list{"u: a", "a: Something else", "u: b"}, list{"u: a", "a? It leaves at nine."}, list{"new assistant: Something else", "new user: b", "replaced 1"}},
		"never heard":               {list{"u: a", "u: b"}, list{"u: a", "a? It leaves at nine."}, list{"new user: b", "unplayed 1"}},
		"platform's own words":      {list{"u: a", "a: One moment.", "a: It is nine.", "u: b"}, list{"u: a", "a? It is nine."}, list{"new assistant: One moment.", "new user: b", "heard all of 1"}},
		"the same call again":       {list{"u: a", "a: b", "u: c"}, list{"u: a", "a: b", "u: c", "a? d"}, list{"ghost 3"}},
		"first call again":          {list{"u: hi"}, list{"u: hi", "a? there"}, list{"ghost 1"}},
		"words already stored":      {list{"u: a", "a: b", "u: c"}, list{"u: a", "a: b", "u: c"}, list{}},
		"longer words":              {list{"u: a", "a: b", "u: I want a ticket"}, list{"u: a", "a: b", "u: I want", "a? What?"}, list{"ghost 3", "extend 2: I want a ticket"}},
		"longer first words":        {list{"u: I want a ticket"}, list{"u: I want", "a? What?"}, list{"ghost 1", "extend 0: I want a ticket"}},
		"longer words, unanswered":  {list{"u: a", "a: b", "u: I want a ticket"}, list{"u: a", "a: b", "u: I want"}, list{"extend 2: I want a ticket"}},
		"longer, but heard":         {list{"u: a", "a: b", "u: I want a ticket"}, list{"u: a", "a: b", "u: I want", "a: What?"}, list{"new user: I want a ticket"}},
		"said the same again":       {list{"u: yes", "a: A", "u: yes", "a: B", "u: yes"}, list{"u: yes", "a: A", "u: yes", "a? B"}, list{"new user: yes", "heard all of 3"}},
		"the same three times":      {list{"u: yes", "u: yes"}, list{"u: yes"}, list{"new user: yes"}},
		"a window":                  {list{"a: d", "u: e", "a: f", "u: g"}, list{"u: a", "a: b", "u: c", "a: d", "u: e", "a? f"}, list{"new user: g", "heard all of 5"}},
		"a summary in front":        {list{"s: sum", "a: Summary: …", "u: e", "a: f", "u: g"}, list{"u: a", "a: b", "u: e", "a? f"}, list{"new user: g", "heard all of 3"}},
		"a summary as the caller's": {list{"u: Conversation summary: The caller asked for a train.", "a: It is nine.", "u: b"}, list{"u: When does it leave?", "a? It is nine."}, list{"new user: b", "heard all of 1"}},
		"nothing in common":         {list{"u: x", "a: y", "u: z"}, list{"u: a", "a: b", "u: c", "a: d"}, list{"new user: z"}},
		"merged by the platform":    {list{"u: a b", "a: c", "u: d"}, list{"u: a", "u: b", "a? c"}, list{"new user: d", "heard all of 2"}},
		"merged by the ledger":      {list{"u: a", "u: b", "a: c", "u: d"}, list{"u: a b", "a? c"}, list{"new user: d", "heard all of 1"}},
		"two new":                   {list{"u: a", "a: b", "u: c", "u: d"}, list{"u: a", "a? b"}, list{"new user: c", "new user: d", "heard all of 1"}},
		"a turn that passed us by":  {list{"u: a", "a: b", "u: c", "a: d", "u: e"}, list{"u: a", "a: b"}, list{"new user: c", "new assistant: d", "new user: e"}},
		"a tool's result":           {list{"u: a", "c1: ", "t1: ok"}, list{"u: a", "c1: "}, list{"new tool: ok"}},
		"a tool's result, again":    {list{"u: a", "c1: ", "t1: ok"}, list{"u: a", "c1: ", "t1: ok"}, list{}},
		"after a tool":              {list{"u: a", "c1: ", "t1: ok", "a: done", "u: b"}, list{"u: a", "c1: ", "t1: ok", "a? done"}, list{"new user: b", "heard all of 3"}},
		"nothing said, twice":       {list{"u: a", "a: ", "u: b", "a: ...", "u: c"}, list{"u: a", "a? It is nine."}, list{"new user: b", "new user: c", "unplayed 1"}},
		"an emoji":                  {list{"u: a", "a: 👍", "u: b"}, list{"u: a", "a? 👍"}, list{"new user: b", "heard all of 1"}},
		"an emoji of the platform":  {list{"u: a", "a: 👍", "u: b"}, list{"u: a", "a? It is nine."}, list{"new assistant: 👍", "new user: b", "replaced 1"}},
		"a window of one answer":    {list{"a: Great, when?", "u: yes please"}, list{"u: yes", "a? Great, when?"}, list{"new user: yes please", "heard all of 1"}},
		"again, the tool has run":   {list{"u: a"}, list{"u: a", "c1: ", "t1: ok", "a? done"}, list{"ghost 3"}},
		"again behind the tool":     {list{"u: a", "c1: ", "t1: ok"}, list{"u: a", "c1: ", "t1: ok", "a? done"}, list{"ghost 3"}},
		"again, the tool has not":   {list{"u: a b"}, list{"u: a", "c1: "}, list{"ghost 1", "extend 0: a b"}},
		"a platform's own tool":     {list{"u: a", "c9: ", "t9: ok"}, list{"u: a"}, list{"new assistant: ", "new tool: ok"}},
		"an empty list":             {list{"s: x"}, list{"u: a"}, list{}},
		"punctuation only":          {list{"u: ?!", "a: b", "u: ..."}, list{"u: ?!", "a? b"}, list{"new user: ...", "heard all of 1"}},
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

// Feeding a list to a ledger and then the same list again must bring nothing new, whatever the list
// is.
func FuzzReconcileTwice(f *testing.F) {
	f.Add("uauau")
	f.Add("uuaauua")
	f.Add("auuuua")
	f.Fuzz(func(t *testing.T, shape string) {
		if len(shape) > 40 {
			return
		}
		var lines []string
		for i, c := range shape {
			text := string(rune('a' + i%7))
			switch {
			case c%2 == 0:
				lines = append(lines, "a: "+text)
			default:
				lines = append(lines, "u: "+text)
			}
		}
		lines = append(lines, "u: last")
		in := incoming(t, lines...)
		var ledger []echo.Known
		for _, round := range []int{0, 1} {
			r := echo.Asked.Reconcile(in, ledger)
			if round == 1 && len(r.New) > 0 {
				t.Fatalf("%q: new again: %v", lines, show(in, r))
			}
			for _, i := range r.New {
				ledger = append(ledger, echo.Known{Role: in[i].Role, Text: in[i].Text, Original: in[i].Text})
			}
		}
	})
}
