package window_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory/window"
)

var ovos = window.Policy{Preset: "ovos"}

// TestOVOSDefaults: five messages, cut when they are written, and a memory can be switched off.
//
// Rules: 000-1, 000-4
func TestOVOSDefaults(t *testing.T) {
	t.Parallel()
	p := ovos.Full()
	if *p.MaxMessages != 5 || p.Apply != window.OnWrite || *p.KeepSystem || !*p.Normalise.DropHangingUser || !*p.Normalise.MergeAssistant || *p.Normalise.Separator != "\n" {
		t.Errorf("preset %+v", p)
	}
	if !*p.Enabled {
		t.Error("memory is off unless it is switched on")
	}
}

// TestMemoryOff: without a memory the context is the utterance, as it came.
//
// Rules: 000-4, 000-7
func TestMemoryOff(t *testing.T) {
	t.Parallel()
	off := window.Policy{Preset: "ovos", Enabled: new(false)}
	list := talk("s be kind", "u one", "a two")
	v := off.Read(list, nil, window.Extras{System: talk("s prompt"), Summary: "sum", Utterance: new("  hello ")})
	if d := cmp.Diff([]string{"user:   hello "}, texts(v)); d != "" {
		t.Error(d)
	}
	if v.Dropped != 3 || v.Tokens != 0 || v.AllTokens != 2 {
		t.Errorf("dropped %d, tokens %d and %d", v.Dropped, v.Tokens, v.AllTokens)
	}
	if s := off.Seam(&list[1], talk("u two")); s != (window.Seam{}) {
		t.Errorf("seam %+v", s)
	}
	if cut := off.Cut(talk("u 1", "u 2", "u 3", "u 4", "u 5", "u 6"), nil); cut != nil {
		t.Errorf("cut %v", cut)
	}
}

// TestSeam: what happens where a batch meets the last stored message, and nowhere else.
//
// Rules: 000-12, 000-13, 000-14, 000-15, 000-16, 000-17, 000-19
func TestSeam(t *testing.T) {
	t.Parallel()
	tools := window.Message{Role: window.Assistant, Text: "wait", ToolCalls: call("x").ToolCalls}
	answer := window.Message{Role: window.User, Parts: []byte(`[{"type":"tool_result","tool_use_id":"x","content":"1"}]`)}
	picture := window.Message{Role: window.Assistant, Parts: []byte(`[{"type":"text","text":"a"}]`)}
	for name, tt := range map[string]struct {
		last  []window.Message // none or one
		batch []window.Message
		want  window.Seam
	}{
		"000-12 a hanging user turn is dropped":            {talk("u one"), talk("u two"), window.Seam{DropLast: true}},
		"000-13 answers are merged, the older part first":  {talk("a one"), talk("a two"), window.Seam{MergeFirst: true, Text: "one\ntwo"}},
		"000-14 inside a batch nothing is dropped":         {talk("a zero"), talk("u one", "u two"), window.Seam{}},
		"000-14 inside a batch nothing is merged":          {talk("u zero"), talk("a one", "a two"), window.Seam{}},
		"000-14 a new session takes the batch as it comes": {nil, talk("u one", "u two"), window.Seam{}},
		"000-15 one message is dropped at most":            {talk("u one"), talk("u two", "u three"), window.Seam{DropLast: true}},
		"000-16 a system message stored blocks":            {talk("s one"), talk("u two"), window.Seam{}},
		"000-16 a system message to come blocks":           {talk("u one"), talk("s two", "u three"), window.Seam{}},
		"000-16 a developer message blocks too":            {talk("a one"), talk("d two", "a three"), window.Seam{}},
		"000-17 empty parts get the newline":               {talk("a"), talk("a two"), window.Seam{MergeFirst: true, Text: "\ntwo"}},
		"000-17 nothing is stripped":                       {talk("a one  "), talk("a  two"), window.Seam{MergeFirst: true, Text: "one  \n two"}},
		"000-19 an empty batch changes nothing":            {talk("u one"), nil, window.Seam{}},
		"000-19 an empty batch on nothing changes nothing": {nil, nil, window.Seam{}},
		"turns that take turns":                            {talk("u one"), talk("a two"), window.Seam{}},
		"a message with calls is not merged":               {[]window.Message{tools}, talk("a two"), window.Seam{}},
		"nor one that is not text":                         {talk("a one"), []window.Message{picture}, window.Seam{}},
		"a tool's result is no hanging turn":               {[]window.Message{answer}, talk("u two"), window.Seam{}},
	} {
		var last *window.Message
		if len(tt.last) > 0 {
			last = &tt.last[0]
		}
		before := clone(append(append([]window.Message{}, tt.last...), tt.batch...))
		if d := cmp.Diff(tt.want, ovos.Seam(last, tt.batch)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff(before, append(append([]window.Message{}, tt.last...), tt.batch...)); d != "" {
			t.Errorf("%s: the messages given were changed: %s", name, d)
		}
	}
	other := window.Policy{Preset: "ovos", Normalise: &window.Normalise{Separator: new(" | ")}}
	one := talk("a one")
	if got := other.Seam(&one[0], talk("a two")).Text; got != "one | two" {
		t.Errorf("another separator: %q", got)
	}
	if got := (window.Policy{}).Seam(&one[0], talk("a two")); got != (window.Seam{}) {
		t.Errorf("the default normalises: %+v", got)
	}
}

// TestOVOSCut: the newest five stay, system messages are cut as all others, and an assistant
// message may come first then.
//
// Rules: 000-18, 000-20
func TestOVOSCut(t *testing.T) {
	t.Parallel()
	list := talk("s be kind", "u one", "a two", "u three", "a four", "u five", "a six")
	if d := cmp.Diff([]int{0, 1}, ovos.Cut(list, nil)); d != "" {
		t.Error(d)
	}
	// 000-20: no limit is no limit, and a limit below 0 is refused.
	if cut := (window.Policy{Preset: "ovos", MaxMessages: new(0)}).Cut(list, nil); len(cut) > 0 {
		t.Errorf("max_messages 0 cuts %v", cut)
	}
	if err := (window.Policy{MaxMessages: new(-1)}).Validate(""); err == nil {
		t.Error("max_messages -1 is taken")
	}
	if cut := (window.Policy{MaxMessages: new(2)}).Cut(list, nil); cut != nil {
		t.Errorf("a policy that applies on read cuts %v", cut)
	}
	keep := window.Policy{Preset: "ovos", MaxMessages: new(2), KeepSystem: new(true)}
	if d := cmp.Diff([]int{1, 2, 3, 4}, keep.Cut(list, nil)); d != "" {
		t.Error(d)
	}
	atomic := window.Policy{Preset: "ovos", MaxMessages: new(2), ToolCallIntegrity: window.IntegrityAtomic}
	withTools := append(append(talk("u one"), call("x"), result("x", "1")), talk("a two")...)
	if d := cmp.Diff([]int{0, 1, 2}, atomic.Cut(withTools, nil)); d != "" {
		t.Errorf("a result stays without its call: %s", d)
	}
	drafts := talk("u 1", "u 2", "u 3", "u 4", "u 5", "u 6")
	drafts[0].Status, drafts[5].Status = window.Draft, window.Discard
	if cut := ovos.Cut(drafts, nil); len(cut) > 0 {
		t.Errorf("drafts are counted: %v", cut)
	}
}

// TestBuildContext: history, less all user turns at its end, the prompt in front, the utterance
// behind.
//
// Rules: 000-23, 000-24, 000-25, 000-26, 000-27
func TestBuildContext(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		list   []window.Message
		prompt string
		want   []string
	}{
		"000-23 all trailing user turns go":            {talk("u one", "a two", "u three", "u four"), "p", []string{"system: p", "user: one", "assistant: two", "user: now"}},
		"000-24 prompt and utterance are stripped":     {nil, "\n p ", []string{"system: p", "user: now"}},
		"000-24 a blank prompt adds nothing":           {nil, " \n ", []string{"user: now"}},
		"000-26 the drop stops at what is no user":     {talk("u one", "s two", "u three"), "", []string{"user: one", "system: two", "user: now"}},
		"000-27 system first, the utterance last":      {talk("a zero"), "p", []string{"system: p", "assistant: zero", "user: now"}},
		"000-23 nothing is left of a lone user's turn": {talk("u one"), "", []string{"user: now"}},
	} {
		before := clone(tt.list)
		v := ovos.Read(tt.list, nil, window.Extras{System: talk("s" + tt.prompt), Utterance: new("  now\n")})
		if d := cmp.Diff(tt.want, texts(v)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if d := cmp.Diff(before, tt.list); d != "" {
			t.Errorf("%s, 000-25: history was changed: %s", name, d)
		}
	}
	// 000-25: neither prompt nor utterance counts against a limit.
	v := window.Policy{Preset: "ovos", MaxMessages: new(1), MaxTokens: new(1)}.Read(talk("a two"), nil, window.Extras{System: talk("s a long prompt"), Utterance: new("a long question")})
	if len(v.Entries) != 3 || v.Tokens != 0 || v.AllTokens == 0 {
		t.Errorf("%q, tokens %d and %d", texts(v), v.Tokens, v.AllTokens)
	}
	// Without an utterance, and without the rule, history stays as it is.
	list := talk("a one", "u two")
	if d := cmp.Diff([]string{"assistant: one", "user: two"}, texts(ovos.Read(list, nil, window.Extras{}))); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"assistant: one", "user: two", "user: now"}, texts(window.Policy{}.Read(list, nil, window.Extras{Utterance: new("now")}))); d != "" {
		t.Error(d)
	}
}

// TestRoles: the four roles and tools; a developer message counts as a system message.
//
// Rules: 000-10
func TestRoles(t *testing.T) {
	t.Parallel()
	list := talk("d obey", "u one", "a two", "u three")
	v := window.Policy{Preset: "full", MaxMessages: new(1)}.Read(list, nil, window.Extras{})
	if d := cmp.Diff([]string{"developer: obey", "user: three"}, texts(v)); d != "" {
		t.Error(d)
	}
	v = window.Policy{Preset: "full", IncludeSystem: new(false)}.Read(list, nil, window.Extras{})
	if d := cmp.Diff([]string{"user: one", "assistant: two", "user: three"}, texts(v)); d != "" {
		t.Error(d)
	}
}
