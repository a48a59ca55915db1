package window_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory/window"
)

// use and answers are a call and results in Anthropic's format.
func use(text string, ids ...string) window.Message {
	blocks := []map[string]any{}
	if text != "" {
		blocks = append(blocks, map[string]any{"type": "text", "text": text})
	}
	for _, id := range ids {
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": id, "name": "f", "input": map[string]any{"q": "long input that costs nothing"}})
	}
	b, _ := json.Marshal(blocks)
	return window.Message{Role: window.Assistant, Parts: b}
}

func answers(pairs ...string) window.Message {
	blocks := []map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		blocks = append(blocks, map[string]any{"type": "tool_result", "tool_use_id": pairs[i], "content": pairs[i+1], "is_error": false})
	}
	b, _ := json.Marshal(blocks)
	return window.Message{Role: window.User, Parts: b}
}

func seq(parts ...any) []window.Message {
	var out []window.Message
	for _, p := range parts {
		switch v := p.(type) {
		case string:
			out = append(out, talk(v)...)
		case window.Message:
			out = append(out, v)
		}
	}
	for i := range out {
		out[i].Ref = i
	}
	return out
}

func refs(v window.View) []int {
	out := []int{}
	for _, e := range v.Entries {
		out = append(out, e.Index)
	}
	return out
}

// budget is lauren-ai's policy with another budget.
func budget(n int) window.Policy { return window.Policy{Preset: "lauren", MaxTokens: &n} }

// TestLaurenDefaults: forty thousand tokens, and tools are healed.
//
// Rules: 001-1
func TestLaurenDefaults(t *testing.T) {
	t.Parallel()
	p := window.Policy{Preset: "lauren"}.Full()
	if *p.MaxTokens != 40000 || !*p.KeepSystem || p.ToolCallIntegrity != window.IntegrityHeal || !*p.KeepLastUser || *p.KeepRecent != 6 || p.Strategy == window.Summarize {
		t.Errorf("preset %+v", p)
	}
}

// TestChars: what is counted of a content, in code points.
//
// Rules: 001-2, 001-3
func TestChars(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		m    window.Message
		want int
	}{
		"text in code points":        {window.Message{Text: "né 🙂"}, 4},
		"empty":                      {window.Message{}, 0},
		"null":                       {window.Message{Parts: []byte("null")}, 4},
		"a missing content":          {window.Message{Parts: []byte("null"), ToolCalls: call("a").ToolCalls}, 4},
		"an object, its JSON":        {window.Message{Parts: []byte(`{"a": "é"}`)}, 9},
		"white space in strings":     {window.Message{Parts: []byte(`{"a": "b \" c"}`)}, 14},
		"a number":                   {window.Message{Parts: []byte("1234")}, 4},
		"texts of a list":            {window.Message{Parts: []byte(`["one","éé"]`)}, 5},
		"text blocks":                {window.Message{Parts: []byte(`[{"type":"text","text":"abcé"},{"type":"text","text":""}]`)}, 4},
		"content that is text":       {window.Message{Parts: []byte(`[{"type":"tool_result","tool_use_id":"very long id","content":"ok"}]`)}, 2},
		"content that is not text":   {window.Message{Parts: []byte(`[{"content":[1]}]`)}, 15},
		"another block, its JSON":    {window.Message{Parts: []byte(`[{"type":"image","source":1}]`)}, 27},
		"elements that are not text": {window.Message{Parts: []byte(`[12,null]`)}, 6},
		"inputs cost nothing":        {use("", "id"), 0},
		"text beside inputs":         {use("abc", "id"), 3},
		"calls and ids cost nothing": {window.Message{Text: "abc", ToolCalls: call("a", "b").ToolCalls}, 3},
		"the caller's own count":     {window.Message{Text: "abc", Chars: 8}, 8},
		"an empty list":              {window.Message{Parts: []byte(`[]`)}, 0},
	} {
		if got := (window.Estimated{}).Size(&tt.m); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	// 001-2: floored once over the sum, and over budget is over it by a code point.
	list := talk("u abc", "a abc", "u abc")
	if got := window.EstimateTokens(list, nil); got != 2 {
		t.Errorf("nine code points are %d tokens, want 2", got)
	}
	if got := refs(budget(2).Read(list, nil, window.Extras{})); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("nine code points in a budget of eight: %v", got)
	}
	if got := refs(budget(2).Read(talk("u abcd", "a abcd"), nil, window.Extras{})); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("eight code points in a budget of eight: %v", got)
	}
}

// TestCountingAfterAppend proves that the size of a memory is known after one append by counting
// one message.
func TestCountingAfterAppend(t *testing.T) {
	t.Parallel()
	list := longTalk(1000)
	c := &counting{}
	tally := window.Tally{Counter: c}
	for i := range list {
		tally.Add(&list[i])
	}
	whole := tally.Tokens()
	if whole != window.EstimateTokens(list, nil) {
		t.Errorf("%d tokens, want %d", whole, window.EstimateTokens(list, nil))
	}
	c.n = 0
	next := window.Message{Role: window.User, Text: "And back?"}
	tally.Add(&next)
	if c.n != 1 {
		t.Errorf("%d messages counted after one append", c.n)
	}
	if tally.Remove(&next); tally.Tokens() != whole || tally.Messages != 1000 {
		t.Errorf("%d tokens after taking it away, want %d", tally.Tokens(), whole)
	}
	// Reading counts what it keeps, one exchange more, and the system messages; never the whole
	// list.
	c.n = 0
	v := window.Policy{Preset: "full", MaxTokens: new(200)}.Read(list, c, window.Extras{})
	if most := 2*len(v.Entries) + 4; c.n > 2*most {
		t.Errorf("%d counts for a view of %d messages", c.n, len(v.Entries))
	}
}

type counting struct{ n int }

func (c *counting) Size(m *window.Message) int { c.n++; return window.Estimated{}.Size(m) }
func (c *counting) PerToken() int              { return window.CharsPerToken }

// TestTwoFormats: calls and results are found in OpenAI's and in Anthropic's format, and a text is
// no call.
//
// Rules: 001-5, 001-6, 001-7
func TestTwoFormats(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		m              window.Message
		calls, results []string
	}{
		"openai calls":      {call("a", "b"), []string{"a", "b"}, nil},
		"openai result":     {result("a", "x"), nil, []string{"a"}},
		"anthropic calls":   {use("text", "a", "b"), []string{"a", "b"}, nil},
		"anthropic results": {answers("a", "x", "b", "y"), nil, []string{"a", "b"}},
		"text":              {talk("u one")[0], nil, nil},
		"text that says so": {window.Message{Role: window.User, Text: `{"type":"tool_use","id":"a"}`}, nil, nil},
		"broken":            {window.Message{Role: window.Assistant, ToolCalls: []byte(`[{`), Parts: []byte(`[{"type":"tool_use"`)}, nil, nil},
	} {
		l := tt.m.ReadLinks()
		if !slices.Equal(l.Calls, tt.calls) || !slices.Equal(l.Results, tt.results) {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// TestTrimmingOrder: what leaves a budget, and in what order.
//
// Rules: 001-7, 001-8, 001-9, 001-10, 001-12, 001-13
func TestTrimmingOrder(t *testing.T) {
	t.Parallel()
	ten := "0123456789"
	none := window.IntegrityNone
	for name, tt := range map[string]struct {
		list   []window.Message
		tokens int
		policy window.Policy
		want   []int
	}{
		"001-8 within budget all stays":                       {seq("u "+ten, "a "+ten), 5, window.Policy{}, []int{0, 1}},
		"001-10 the oldest leaves alone":                      {seq("u "+ten, "a "+ten, "u "+ten), 5, window.Policy{}, []int{1, 2}},
		"001-9 system messages stay in their place and count": {seq("u "+ten, "s "+ten, "a "+ten, "u "+ten), 5, window.Policy{}, []int{1, 3}},
		"001-10 a call leaves with its results":               {seq("u "+ten, call("a", "b"), result("a", ten), result("b", ten), "u "+ten), 6, window.Policy{}, []int{4}},
		"001-10 in the other format too":                      {seq("u "+ten, use(ten, "a"), answers("a", ten), "u "+ten), 6, window.Policy{}, []int{3}},
		"001-10 results that do not follow directly stay":     {seq(call("a"), "u "+ten, result("a", ten), "u "+ten), 6, window.Policy{ToolCallIntegrity: none, KeepLastUser: new(false)}, []int{2, 3}},
		"001-12 trimming stops at the user's last words":      {seq("u "+ten, "a "+ten, "u "+ten, call("a"), result("a", ten)), 1, window.Policy{}, []int{2, 3, 4}},
		"001-12 results are no words of the user":             {seq("u "+ten, use("", "a"), answers("a", ten)), 1, window.Policy{}, []int{0, 1, 2}},
		"001-12 without that the view may be empty":           {seq("u " + ten), 1, window.Policy{KeepLastUser: new(false)}, []int{}},
		"001-12 where the user said nothing the newest stays": {seq("a "+ten, "a "+ten), 1, window.Policy{}, []int{1}},
		"001-13 what measures nothing does not end the trim":  {seq("u", "a "+ten, "u "+ten), 3, window.Policy{}, []int{2}},
		"001-9 system messages are never dropped":             {seq("s "+ten, "u "+ten), 1, window.Policy{KeepLastUser: new(false)}, []int{0}},
		"no limit": {seq("u "+ten, "a "+ten), 0, window.Policy{}, []int{0, 1}},
	} {
		p := window.Merge(window.Policy{Preset: "lauren", MaxTokens: &tt.tokens}, tt.policy)
		before := clone(tt.list)
		if d := cmp.Diff(tt.want, refs(p.Read(tt.list, nil, window.Extras{}))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff(before, tt.list); d != "" {
			t.Errorf("%s: the list was changed: %s", name, d)
		}
	}
}

// TestTrimToTokens: the buffer's own trim has a budget of its own, and puts in what was lost.
//
// Rules: 001-11, 001-15
func TestTrimToTokens(t *testing.T) {
	t.Parallel()
	list := seq("s 0123456789", "u 0123456789", "a 0123456789", "u 0123456789", call("b", "a"), result("b", ""), "u and?")
	got := window.TrimToTokens(list, 18, nil)
	want := window.Trimmed{
		Keep: []int{0, 3, 4, 5, 6}, Tokens: (10 + 10 + len(window.LostResult) + 4) / 4,
		Insert: []window.Insertion{{After: 5, Messages: []window.Message{{Ref: -1, Role: window.Tool, Text: window.LostResult, ToolCallID: "a", IsError: true}}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if all := window.TrimToTokens(list, 1000, nil); len(all.Keep) != len(list) {
		t.Errorf("kept %v", all.Keep)
	}
}

// TestHardCap: what may not be cut is shortened inside.
//
// Rules: 001-14
func TestHardCap(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("head ", 200) + strings.Repeat("tail ", 100) // 1500
	v := budget(250).Read(talk("u old", "u "+long), nil, window.Extras{})
	if len(v.Entries) != 1 || v.Shortened != 1 || v.Entries[0].Kind != window.Altered || v.Tokens > 250 {
		t.Fatalf("%d entries, shortened %d, tokens %d", len(v.Entries), v.Shortened, v.Tokens)
	}
	got := v.Entries[0].Message.Text
	head, tail, ok := strings.Cut(got, window.ShortenedMark)
	if n := len([]rune(got)); !ok || n != 1000 || !strings.HasPrefix(long, head) || !strings.HasSuffix(long, tail) {
		t.Errorf("%d code points: %q", n, got)
	}
	if left := len(head) + len([]rune(tail)); len(head) != left*2/3 {
		t.Errorf("head %d and tail %d are not two thirds and one", len(head), len(tail))
	}

	// The largest message first, and its largest text; never below MinPiece.
	list := seq("u "+strings.Repeat("a", 900), window.Message{Role: window.Assistant, Parts: []byte(`[{"type":"text","text":"` + strings.Repeat("b", 500) + `"},{"type":"text","text":"` + strings.Repeat("c", 700) + `"}]`)})
	v = budget(500).Read(list, nil, window.Extras{}) // 2100 code points, 100 too many
	if v.Shortened != 1 || v.Entries[0].Message.Text != list[0].Text || strings.Count(string(v.Entries[1].Message.Parts), "b") != 500 || v.Tokens != 500 {
		t.Errorf("shortened %d: %.40q tokens %d", v.Shortened, texts(v), v.Tokens)
	}
	v = budget(10).Read(list, nil, window.Extras{})
	if v.Shortened != 2 || v.Tokens != 3*window.MinPiece/4 {
		t.Errorf("shortened %d to %d tokens, want three texts of %d", v.Shortened, v.Tokens, window.MinPiece)
	}

	// Inputs of calls, ids and thinking stay; results in all their forms are texts.
	big := strings.Repeat("x", 2000)
	tools := seq("u go",
		window.Message{Role: window.Assistant, Parts: []byte(`[{"type":"thinking","thinking":"` + big + `"},{"type":"tool_use","id":"a","name":"f","input":{"q":"` + big + `"}}]`)},
		window.Message{Role: window.User, Parts: []byte(`[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"` + big + `"}]}]`)},
		call("b"), result("b", big))
	v = budget(20).Read(tools, nil, window.Extras{})
	said := texts(v)
	if len(said) != 5 || strings.Count(said[1], "x") != 4000 || strings.Count(said[2], "x") > window.MinPiece || strings.Count(said[4], "x") > window.MinPiece || v.Shortened != 2 {
		t.Errorf("shortened %d of %d: %d %d %d", v.Shortened, len(said), strings.Count(said[1], "x"), strings.Count(said[2], "x"), strings.Count(said[4], "x"))
	}
	if l := v.Entries[2].Message.ReadLinks(); !slices.Equal(l.Results, []string{"a"}) {
		t.Errorf("ids after shortening: %+v", l)
	}
}

// TestHealing: lost results get stand-ins, in the format of the call.
//
// Rules: 001-15, 001-16
func TestHealing(t *testing.T) {
	t.Parallel()
	lost := func(id string) string { return "tool " + id + ": " + window.LostResult }
	for name, tt := range map[string]struct {
		list      []window.Message
		utterance *string
		want      []string
		healed    []string
	}{
		"calls still running are left alone":         {seq("u go", call("a")), nil, []string{"user: go", "assistant calls a"}, nil},
		"also where some results are there":          {seq("u go", call("a", "b"), result("a", "1")), nil, []string{"user: go", "assistant calls a b", "tool a: 1"}, nil},
		"moved on: in order of ids":                  {seq(call("c", "a"), "u next"), nil, []string{"assistant calls c a", lost("a"), lost("c"), "user: next"}, []string{"a", "c"}},
		"behind the last result found":               {seq(call("b", "a"), result("b", "1"), "u next"), nil, []string{"assistant calls b a", "tool b: 1", lost("a"), "user: next"}, []string{"a"}},
		"also where that stands further behind":      {seq(call("b", "a"), "u next", result("b", "1")), nil, []string{"assistant calls b a", "user: next", "tool b: 1", lost("a")}, []string{"a"}},
		"an utterance moves on too":                  {seq(call("a")), new("next"), []string{"assistant calls a", lost("a"), "user: next"}, []string{"a"}},
		"an older call was moved on from":            {seq(call("a"), "u next", call("b"), result("b", "1")), nil, []string{"assistant calls a", lost("a"), "user: next", "assistant calls b", "tool b: 1"}, []string{"a"}},
		"nothing lost":                               {seq(call("a"), result("a", "1"), "u next"), nil, []string{"assistant calls a", "tool a: 1", "user: next"}, nil},
		"001-16 blocks: one message with all":        {seq(use("", "b", "a"), "u next"), nil, []string{`assistant: ` + string(use("", "b", "a").Parts), `user: [{"type":"tool_result","tool_use_id":"a","content":"` + window.LostResult + `","is_error":true},{"type":"tool_result","tool_use_id":"b","content":"` + window.LostResult + `","is_error":true}]`, "user: next"}, []string{"a", "b"}},
		"a result without its call is taken away":    {seq("u go", result("x", "1"), "a fine"), nil, []string{"user: go", "assistant: fine"}, nil},
		"of a mixed message only the orphan":         {seq("u go", window.Message{Role: window.User, Parts: []byte(`[{"type":"tool_result","tool_use_id":"x","content":"1"},{"type":"text","text":"hi"}]`)}), nil, []string{"user: go", `user: [{"type":"text","text":"hi"}]`}, nil},
		"a result in front of its call is an orphan": {seq(result("a", "1"), call("a"), "u next"), nil, []string{"assistant calls a", lost("a"), "user: next"}, []string{"a"}},
	} {
		before := clone(tt.list)
		v := window.Policy{Preset: "lauren"}.Read(tt.list, nil, window.Extras{Utterance: tt.utterance})
		if d := cmp.Diff(tt.want, texts(v)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff(tt.healed, v.Healed); d != "" {
			t.Errorf("%s: healed %s", name, d)
		}
		if d := cmp.Diff(before, tt.list); d != "" {
			t.Errorf("%s: the buffer was changed: %s", name, d)
		}
	}
	// Stand-ins count: what they push over the budget leaves.
	v := budget(20).Read(seq("u 0123456789012345678901234567890123456789", call("a"), "u next"), nil, window.Extras{})
	if d := cmp.Diff([]string{"assistant calls a", lost("a"), "user: next"}, texts(v)); d != "" || v.Tokens > 20 {
		t.Errorf("%s tokens %d", d, v.Tokens)
	}
}

// TestRepair: every code, what can be repaired, and that doing it twice changes nothing.
//
// Rules: 001-17, 001-18
func TestRepair(t *testing.T) {
	t.Parallel()
	type problems = []window.Problem
	for name, tt := range map[string]struct {
		list []window.Message
		want problems
	}{
		"nothing":           {seq("u go", call("a"), result("a", "1"), use("", "b"), answers("b", "2")), nil},
		"missing, repaired": {seq("u go", call("b", "a")), problems{{Code: window.MissingResults, Index: 1, IDs: []string{"a", "b"}, Repairable: true}}},
		"empty call id":     {seq(call("")), problems{{Code: window.EmptyCallID, Index: 0}}},
		"duplicate call id": {seq(call("a", "a"), result("a", "1")), problems{{Code: window.DuplicateCallID, Index: 0, IDs: []string{"a"}}}},
		"not adjacent":      {seq(call("a"), "u wait", result("a", "1")), problems{{Code: window.NonAdjacentResults, Index: 2, IDs: []string{"a"}}}},
		"empty result id":   {seq(call("a"), result("a", "1"), result("", "2")), problems{{Code: window.EmptyResultID, Index: 2}}},
		"duplicate result":  {seq(call("a"), result("a", "1"), result("a", "2")), problems{{Code: window.DuplicateResultID, Index: 2, IDs: []string{"a"}}}},
		"unknown result":    {seq(call("a"), result("a", "1"), result("x", "2")), problems{{Code: window.UnknownResultID, Index: 2, IDs: []string{"x"}}}},
		"orphan":            {seq("u go", result("a", "1")), problems{{Code: window.OrphanResult, Index: 1, IDs: []string{"a"}}}},
	} {
		before := clone(tt.list)
		rep := window.Repair(tt.list)
		if d := cmp.Diff(tt.want, rep.Problems); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		lasting := slices.ContainsFunc(rep.Problems, func(p window.Problem) bool { return !p.Repairable })
		if len(rep.Insert) > 0 == lasting && len(tt.want) > 0 {
			t.Errorf("%s: inserts %v and problems %v", name, rep.Insert, rep.Problems)
		}
		again := window.Repair(put(tt.list, rep.Insert))
		if len(again.Insert) > 0 {
			t.Errorf("%s: a second repair does something: %+v", name, again)
		}
		if d := cmp.Diff(before, tt.list); d != "" {
			t.Errorf("%s: the list was changed: %s", name, d)
		}
	}
}

// TestSummarizable: what is summarised and what stays.
//
// Rules: 001-21, 001-22, 001-23, 001-24
func TestSummarizable(t *testing.T) {
	t.Parallel()
	if window.DefaultKeepRecent != 6 {
		t.Error("keep_recent is not 6 unless said")
	}
	plain := seq("s zero", "u one", "a two", "s three", "u four", "a five")
	tools := seq("u zero", call("a", "b"), result("a", "1"), result("b", "2"), "u four", "a five")
	blocks := seq("u zero", use("", "a"), answers("a", "1"), "a three")
	for name, tt := range map[string]struct {
		list        []window.Message
		keep        int
		older, stay []int
	}{
		"001-21, 22 the oldest, system to the front": {plain, 2, []int{1, 2}, []int{0, 3, 4, 5}},
		"001-21 no more than keep_recent":            {plain, 4, []int{}, []int{0, 3, 1, 2, 4, 5}},
		"001-21 fewer":                               {plain, 9, []int{}, []int{0, 3, 1, 2, 4, 5}},
		"001-23 keep_recent 0":                       {plain, 0, []int{1, 2, 4, 5}, []int{0, 3}},
		"001-24 the cut goes back to the call":       {tools, 3, []int{0}, []int{1, 2, 3, 4, 5}},
		"001-24 also from between results":           {tools, 4, []int{0}, []int{1, 2, 3, 4, 5}},
		"001-24 a cut behind all results stays":      {tools, 2, []int{0, 1, 2, 3}, []int{4, 5}},
		"001-24 blocks":                              {blocks, 2, []int{0}, []int{1, 2, 3}},
		"001-23 with calls":                          {tools, 0, []int{0, 1, 2, 3, 4, 5}, nil},
		"nothing":                                    {nil, 6, nil, nil},
	} {
		if got := window.Summarizable(tt.list, tt.keep); !slices.Equal(got, tt.older) {
			t.Errorf("%s: summarised %v, want %v", name, got, tt.older)
		}
		if got := window.TrimToRecent(tt.list, tt.keep); !slices.Equal(got, tt.stay) {
			t.Errorf("%s: stay %v, want %v", name, got, tt.stay)
		}
	}
}

// TestSummaryInContext: under its heading behind the system messages; it is no message of the
// memory and costs nothing.
//
// Rules: 001-20, 001-28
func TestSummaryInContext(t *testing.T) {
	t.Parallel()
	if got, want := window.WithSummary("prompt", "they met"), "prompt\n\n[Earlier conversation summary]\nthey met"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if window.WithSummary("prompt", "") != "prompt" || window.WithSummary("", "they met") != "[Earlier conversation summary]\nthey met" {
		t.Error("a prompt or a summary alone")
	}
	p := window.Policy{Preset: "lauren", MaxTokens: new(3), MaxMessages: new(1)}
	v := p.Read(seq("s kind", "u one", "u now"), nil, window.Extras{System: talk("s prompt"), Summary: strings.Repeat("they met ", 50)})
	want := []string{"system: prompt", "system: kind", "system: " + window.SummaryText(strings.Repeat("they met ", 50)), "user: now"}
	if d := cmp.Diff(want, texts(v)); d != "" {
		t.Error(d)
	}
	if v.Tokens != 1 || v.AllTokens <= 100 {
		t.Errorf("tokens %d, with everything %d", v.Tokens, v.AllTokens)
	}
	only := window.Policy{}.Read(nil, nil, window.Extras{Summary: "they met"})
	if d := cmp.Diff([]string{"system: " + window.SummaryText("they met")}, texts(only)); d != "" {
		t.Error(d)
	}
}

// TestSummaryDue: when the estimate reaches the share of the window.
//
// Rules: 001-29, 003-22
func TestSummaryDue(t *testing.T) {
	t.Parallel()
	chars := func(n int) []window.Message { return talk("u " + strings.Repeat("x", n)) }
	many := func(n int) (out []window.Message) {
		for range n {
			out = append(out, talk("u x")...)
		}
		return append(out, talk("s x")...)
	}
	tokens := window.Policy{Preset: "lauren", Strategy: window.Summarize, SummarizeAt: new(0.5), MaxTokens: new(100)}
	messages := window.Policy{Preset: "ossa", Strategy: window.Summarize, SummarizeAt: new(0.5), MaxTokens: new(0), MaxMessages: new(10)}
	orbiter := window.Policy{Preset: "orbiter", Strategy: window.Summarize}
	for name, tt := range map[string]struct {
		p    window.Policy
		list []window.Message
		want bool
	}{
		"below":                     {tokens, chars(199), false},
		"reached":                   {tokens, chars(200), true},
		"another strategy":          {window.Policy{Preset: "lauren", MaxTokens: new(1)}, chars(200), false},
		"never":                     {window.Merge(tokens, window.Policy{SummarizeAt: new(0.0)}), chars(999), false},
		"memory off":                {window.Merge(tokens, window.Policy{Enabled: new(false)}), chars(999), false},
		"messages below":            {messages, many(4), false},
		"messages reached":          {messages, many(5), true},
		"003-22 twenty messages":    {orbiter, many(20), false},
		"003-22 more than twenty":   {orbiter, many(21), true},
		"003-22 four thousand":      {orbiter, chars(16003), false},
		"003-22 more tokens":        {orbiter, chars(16004), true},
		"drafts do not count":       {tokens, func() []window.Message { l := chars(400); l[0].Status = window.Draft; return l }(), false},
		"nothing is due of nothing": {tokens, nil, false},
	} {
		if got := tt.p.SummaryDue(tt.list, nil); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if *orbiter.Full().KeepRecent != 4 {
		t.Error("orbiter's keep_recent is not 4")
	}
}
