package window_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
)

// TestOrbiterDefaults: scope task, no limit of rounds, ten found; another scope is an error.
//
// Rules: 003-1, 003-7
func TestOrbiterDefaults(t *testing.T) {
	t.Parallel()
	if l, err := window.ParseLevel("scope", ""); l != window.TaskLevel || err != nil {
		t.Errorf("%q %v", l, err)
	}
	if _, err := window.ParseLevel("scope", "team"); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "user, session, task") {
		t.Errorf("another scope: %v", err)
	}
	for _, l := range []window.Level{window.UserLevel, window.SessionLevel, window.TaskLevel} {
		if got, err := window.ParseLevel("scope", string(l)); got != l || err != nil {
			t.Errorf("%s: %v", l, err)
		}
	}
	if *(window.Policy{Preset: "orbiter"}).Full().MaxRounds != 0 || window.DefaultSearchLimit != 10 {
		t.Error("rounds or limit are bounded otherwise")
	}
}

// TestStatus: the only changes are draft to accepted or discard, and accepted to discard.
//
// Rules: 003-6
func TestStatus(t *testing.T) {
	t.Parallel()
	all := append(window.Statuses(), "")
	for _, from := range all {
		for _, to := range append(all, "lost") {
			ok := from == window.Draft && (to == window.Accepted || to == window.Discard) || (from == window.Accepted || from == "") && to == window.Discard
			if err := from.To(to); (err == nil) != ok || err != nil && !fault.Is(err, fault.Conflict) {
				t.Errorf("%q to %q: %v", from, to, err)
			}
		}
	}
	if s, err := window.ParseStatus("status", ""); s != window.Accepted || err != nil {
		t.Errorf("%q %v", s, err)
	}
	if _, err := window.ParseStatus("status", "lost"); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

// TestScope: ids that are set are compared down to the level, and a message that lacks one does not
// match.
//
// Rules: 003-5, 003-11
func TestScope(t *testing.T) {
	t.Parallel()
	full := &window.Scope{UserID: "u", SessionID: "s", TaskID: "t", AgentID: "a"}
	for name, tt := range map[string]struct {
		level window.Level
		asked window.Scope
		own   *window.Scope
		want  bool
	}{
		"nothing asked":                   {window.TaskLevel, window.Scope{}, full, true},
		"nothing asked of nothing":        {window.TaskLevel, window.Scope{}, nil, true},
		"all the same":                    {window.TaskLevel, *full, full, true},
		"another task":                    {window.TaskLevel, window.Scope{TaskID: "x"}, full, false},
		"another task, below the level":   {window.SessionLevel, window.Scope{TaskID: "x"}, full, true},
		"another session":                 {window.SessionLevel, window.Scope{SessionID: "x"}, full, false},
		"another session, below":          {window.UserLevel, window.Scope{SessionID: "x"}, full, true},
		"another user":                    {window.UserLevel, window.Scope{UserID: "x"}, full, false},
		"another agent, at every level":   {window.UserLevel, window.Scope{AgentID: "x"}, full, false},
		"an id asked that the item lacks": {window.UserLevel, window.Scope{UserID: "u"}, &window.Scope{AgentID: "a"}, false},
		"the default is task":             {"", window.Scope{TaskID: "x"}, full, false},
	} {
		if got := tt.level.Matches(tt.asked, tt.own); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func scoped(list []window.Message, scopes ...string) []window.Message {
	for i, s := range scopes {
		list[i].Scope = &window.Scope{UserID: s}
	}
	return list
}

// TestSearch: scope and filters, keyword, rounds, integrity, limit, in that order; nothing is
// changed.
//
// Rules: 003-7, 003-8, 003-9, 003-10, 003-15, 003-16, 003-19, 003-21
func TestSearch(t *testing.T) {
	t.Parallel()
	many := make([]string, 25)
	for i := range many {
		many[i] = "u word"
	}
	drafts := talk("u one", "u two", "u three")
	drafts[0].Status, drafts[1].Status = window.Draft, window.Discard
	tools := seq("u find", call("a"), result("a", "found it"), "a it is there")
	answered := seq("u find", call("a"), result("a", "found it"))
	blocks := seq(window.Message{Role: window.User, Parts: []byte(`[{"type":"text","text":"Needle"}]`)}, "u hay")
	facts := talk("u one", "u two")
	facts[1].Category = "semantic"
	for name, tt := range map[string]struct {
		list []window.Message
		q    window.SearchQuery
		want []int
	}{
		"everything":                                    {talk("s one", "u two"), window.SearchQuery{}, []int{0, 1}},
		"003-8 the limit takes the oldest":              {talk(many...), window.SearchQuery{Limit: 3}, []int{0, 1, 2}},
		"003-9 drafts and discarded are found":          {drafts, window.SearchQuery{}, []int{0, 1, 2}},
		"003-9 unless a status is asked":                {drafts, window.SearchQuery{Status: window.Accepted}, []int{2}},
		"003-10 any case":                               {talk("u The TRAIN", "a a bus"), window.SearchQuery{Query: "train"}, []int{0}},
		"003-10 it removes system messages too":         {talk("s be kind", "u train"), window.SearchQuery{Query: "train"}, []int{1}},
		"003-10 blocks are looked into":                 {blocks, window.SearchQuery{Query: "needle"}, []int{0}},
		"003-7 by type":                                 {talk("s one", "u two", "a three"), window.SearchQuery{Role: window.Assistant}, []int{2}},
		"003-7 the keyword comes before rounds":         {talk("u train", "a train", "u bus", "a train"), window.SearchQuery{Query: "train", Rounds: 1}, []int{0, 1, 3}},
		"003-15 type tool finds nothing":                {tools, window.SearchQuery{Role: window.Tool, Pairs: window.IntegrityTrailing}, []int{}},
		"003-15 a word only a result holds neither":     {tools, window.SearchQuery{Query: "found", Pairs: window.IntegrityTrailing}, []int{}},
		"003-15 type ai loses a trailing answered call": {answered, window.SearchQuery{Role: window.Assistant, Pairs: window.IntegrityTrailing}, []int{}},
		"003-15 asked without integrity they are found": {tools, window.SearchQuery{Role: window.Tool}, []int{2}},
		"003-16 the limit may part a call":              {tools, window.SearchQuery{Limit: 2, Pairs: window.IntegrityTrailing}, []int{0, 1}},
		"003-21 by category":                            {facts, window.SearchQuery{Category: "semantic"}, []int{1}},
		"003-11 by scope":                               {scoped(talk("u one", "u two"), "anna", "bo"), window.SearchQuery{Scope: window.Scope{UserID: "bo"}}, []int{1}},
	} {
		before := clone(tt.list)
		if d := cmp.Diff(tt.want, window.Search(tt.list, tt.q)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff(before, tt.list); d != "" {
			t.Errorf("%s, 003-19: the list was changed: %s", name, d)
		}
	}
}

// TestRounds: the newest n, each opened by words of the user.
//
// Rules: 003-12, 003-13
func TestRounds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		list   []window.Message
		rounds int
		policy window.Policy
		want   []int
	}{
		"the newest":                                  {talk("u 0", "a 1", "u 2", "a 3", "u 4"), 2, window.Policy{}, []int{2, 3, 4}},
		"no more than n: nothing is cut":              {talk("a 0", "u 1", "a 2"), 1, window.Policy{}, []int{0, 1, 2}},
		"each counts, answered or not":                {talk("u 0", "u 1", "u 2"), 2, window.Policy{}, []int{1, 2}},
		"003-13 system before the cut stays in front": {talk("s 0", "u 1", "s 2", "a 3", "u 4", "s 5", "a 6"), 1, window.Policy{}, []int{0, 2, 4, 5, 6}},
		"unless it is not kept":                       {talk("s 0", "u 1", "u 2"), 1, window.Policy{KeepSystem: new(false)}, []int{2}},
		"of the filtered list":                        {scoped(talk("u 0", "u 1", "u 2"), "x", "x", "y"), 2, window.Policy{}, []int{0, 1}},
		"0 is no limit":                               {talk("u 0", "u 1"), 0, window.Policy{}, []int{0, 1}},
		"a tool's result opens none":                  {seq("u 0", use("", "a"), answers("a", "1"), "u 3"), 2, window.Policy{}, []int{0, 1, 2, 3}},
		"nobody spoke":                                {talk("a 0", "a 1"), 1, window.Policy{}, []int{0, 1}},
	} {
		p := window.Merge(window.Policy{Preset: "orbiter", MaxRounds: &tt.rounds}, tt.policy)
		x := window.Extras{}
		if name == "of the filtered list" {
			x.Scope = &window.Scope{UserID: "x"}
		}
		if d := cmp.Diff(tt.want, refs(p.Read(tt.list, nil, x))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestTrailing: incomplete pairs leave at the end of the list, and only there.
//
// Rules: 003-14
func TestTrailing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		list []window.Message
		want []int
	}{
		"a call at the end goes":                     {seq("u 0", call("a")), []int{0}},
		"a result without a call goes":               {seq("u 0", result("a", "1")), []int{0}},
		"until neither stands there":                 {seq("u 0", call("b"), result("a", "1"), call("c")), []int{0}},
		"a result whose call is anywhere stays":      {seq(call("a"), "u 1", result("a", "1")), []int{0, 1, 2}},
		"a half-answered batch stays":                {seq(call("a", "b"), result("a", "1")), []int{0, 1}},
		"what is incomplete in the middle stays":     {seq(call("a"), "u 1", result("x", "1"), "u 3"), []int{0, 1, 2, 3}},
		"in the other format":                        {seq("u 0", use("text", "a")), []int{0}},
		"a message that also answers is no orphan":   {seq(use("", "a"), answers("a", "1", "x", "2")), []int{0, 1}},
		"nothing but incomplete pairs leave nothing": {seq(call("a")), []int{}},
	} {
		if d := cmp.Diff(tt.want, refs(window.Policy{Preset: "orbiter"}.Read(tt.list, nil, window.Extras{}))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestWriteCap: more than twenty messages a round are cut when written.
//
// Rules: 003-20
func TestWriteCap(t *testing.T) {
	t.Parallel()
	var list []window.Message
	for range 21 {
		list = append(list, talk("u x")...)
	}
	list[5].Role = window.System
	list = append(list, talk("a y")...)
	p := window.Policy{Preset: "orbiter", MaxRounds: new(1), Apply: window.OnWrite}
	if d := cmp.Diff([]int{0}, p.Cut(list, nil)); d != "" {
		t.Error(d)
	}
	if cut := (window.Policy{Preset: "orbiter", MaxRounds: new(1)}).Cut(list, nil); cut != nil {
		t.Errorf("rounds that are cut on reading cut %v for good", cut)
	}
}

// TestOSSA: the defaults, the strategies, and what the include flags leave out.
//
// Rules: 004-4, 004-5
func TestOSSA(t *testing.T) {
	t.Parallel()
	p := window.Policy{Preset: "ossa"}.Full()
	if *p.MaxMessages != 100 || *p.MaxTokens != 32000 || p.Strategy != window.SlidingWindow || !*p.IncludeSystem || !*p.IncludeToolResults || !*p.Enabled {
		t.Errorf("preset %+v", p)
	}
	list := seq("s 0", "u 1", call("a"), result("a", "2"), window.Message{Role: window.Assistant, Text: "look", ToolCalls: call("b").ToolCalls}, result("b", "3"), use("so", "c"), answers("c", "4"), "a 8")
	read := func(p window.Policy) []string {
		return texts(window.Merge(window.Policy{Preset: "ossa"}, p).Read(list, nil, window.Extras{}))
	}
	want := []string{"system: 0", "user: 1", "assistant: look", `assistant: [{"text":"so","type":"text"}]`, "assistant: 8"}
	if d := cmp.Diff(want, read(window.Policy{IncludeToolResults: new(false)})); d != "" {
		t.Errorf("without results: %s", d)
	}
	if got := read(window.Policy{IncludeSystem: new(false)}); len(got) != 8 || got[0] != "user: 1" {
		t.Errorf("without system: %q", got)
	}
	for _, strategy := range []window.Strategy{window.SlidingWindow, window.OldestFirst, window.Summarize} {
		if d := cmp.Diff([]string{"system: 0", `assistant: ` + string(list[6].Parts), "user: " + string(list[7].Parts), "assistant: 8"}, read(window.Policy{Strategy: strategy, MaxMessages: new(3)})); d != "" {
			t.Errorf("%s: %s", strategy, d)
		}
	}
}

// TestImportance: the least important leave first, of equals the oldest; a call and its results
// together.
//
// Rules: 004-5
func TestImportance(t *testing.T) {
	t.Parallel()
	rated := func(list []window.Message, scores ...float64) []window.Message {
		for i, s := range scores {
			if s >= 0 {
				list[i].Importance = new(s)
			}
		}
		return list
	}
	for name, tt := range map[string]struct {
		list []window.Message
		own  window.Policy
		want []int
	}{
		"the least important leave":            {rated(talk("u 0", "a 1", "u 2", "a 3"), .9, .1, .5, .2), window.Policy{MaxMessages: new(2), KeepLastUser: new(false)}, []int{0, 2}},
		"of equals the oldest":                 {rated(talk("u 0", "a 1", "u 2", "a 3"), .5, .5, .5, .5), window.Policy{MaxMessages: new(2), KeepLastUser: new(false)}, []int{2, 3}},
		"the user's last words stay":           {rated(talk("u 0", "a 1", "u 2"), .9, .8, 0), window.Policy{MaxMessages: new(2)}, []int{0, 2}},
		"system messages stay":                 {rated(talk("s 0", "a 1", "u 2"), 0, .8, .9), window.Policy{MaxMessages: new(1)}, []int{0, 2}},
		"a call is as important as its result": {rated(seq(call("a"), result("a", "1"), "a 2", "u 3"), 0, .9, .5, .9), window.Policy{MaxMessages: new(3)}, []int{0, 1, 3}},
		"and leaves with it":                   {rated(seq(call("a"), "a 1", result("a", "1"), "u 3"), .1, .9, .1, .9), window.Policy{MaxMessages: new(3)}, []int{1, 3}},
		"by tokens":                            {rated(talk("u 01234567", "a 01234567", "u 01234567"), .2, .9, 1), window.Policy{MaxTokens: new(4)}, []int{1, 2}},
		"within both limits nothing leaves":    {talk("u 0", "a 1"), window.Policy{MaxMessages: new(2)}, []int{0, 1}},
		"by default answers leave first":       {talk("u 0", "a 1", "u 2", "a 3", "u 4", "a 5", "u 6"), window.Policy{MaxMessages: new(6)}, []int{0, 2, 3, 4, 5, 6}},
	} {
		p := window.Merge(window.Policy{Preset: "ossa", Strategy: window.ImportanceBased}, tt.own)
		if d := cmp.Diff(tt.want, refs(p.Read(tt.list, nil, window.Extras{}))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	cut := talk("a heard")[0]
	cut.Interrupted = true
	one := result("a", "1")
	for name, tt := range map[string]struct {
		m     window.Message
		at, n int
		want  int
	}{
		"system": {talk("s x")[0], 0, 9, 1000}, "developer": {talk("d x")[0], 0, 9, 1000},
		"user, oldest": {talk("u x")[0], 0, 9, 500}, "user, newest": {talk("u x")[0], 8, 9, 900}, "user, in the middle": {talk("u x")[0], 4, 9, 700},
		"answer": {talk("a x")[0], 0, 9, 350}, "interrupted": {cut, 0, 9, 250},
		"call": {call("a"), 0, 9, 550}, "result": {one, 0, 9, 550}, "blocks": {answers("a", "1"), 0, 9, 550},
		"its own": {rated(talk("s x"), .123)[0], 8, 9, 123}, "its own, 0": {rated(talk("s x"), 0)[0], 8, 9, 0},
		"alone": {talk("a x")[0], 0, 1, 750},
	} {
		if got := window.Score(&tt.m, tt.at, tt.n); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// TestAgora: the newest thirty-two messages, without system messages, as today.
//
// Rules: 002-2, 002-8
func TestAgora(t *testing.T) {
	t.Parallel()
	p := window.Policy{}.Full()
	if p.Preset != "recent" || *p.MaxMessages != 32 || *p.IncludeSystem || p.Apply != window.OnRead {
		t.Errorf("default %+v", p)
	}
	list := talk("s zero")
	for range 40 {
		list = append(list, talk("u x")...)
	}
	if v := p.Read(list, nil, window.Extras{}); len(v.Entries) != 32 || v.Entries[0].Index != 9 || v.Dropped != 9 {
		t.Errorf("%d entries from %d on, dropped %d", len(v.Entries), v.Entries[0].Index, v.Dropped)
	}
	// Results whose call the cut took leave with it.
	tools := seq(call("a"), result("a", "1"), "u 2")
	if d := cmp.Diff([]int{2}, refs(window.Policy{MaxMessages: new(2)}.Read(tools, nil, window.Extras{}))); d != "" {
		t.Error(d)
	}
}

// TestDraftsAreNotTold: neither to an LLM nor counted.
//
// Rules: 003-6
func TestDraftsAreNotTold(t *testing.T) {
	t.Parallel()
	list := talk("u one", "u draft", "u lost", "u two")
	list[1].Status, list[2].Status, list[3].Status = window.Draft, window.Discard, window.Accepted
	v := window.Policy{Preset: "full", MaxMessages: new(2)}.Read(list, nil, window.Extras{})
	if d := cmp.Diff([]int{0, 3}, refs(v)); d != "" || v.Dropped != 0 {
		t.Errorf("%s dropped %d", d, v.Dropped)
	}
}
