package agents_test

import (
	"encoding/json"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/turns"
)

// TestSize counts as the rule says: code points of text, of parts the text or the content, else
// their JSON; null is 4, calls and ids nothing.
//
// Rules: 001-3
func TestSize(t *testing.T) {
	t.Parallel()
	call := json.RawMessage(`[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{}"}}]`)
	for name, tt := range map[string]struct {
		m    memory.Message
		want int64
	}{
		"text in code points":    {memory.Message{Role: memory.User, Content: "héllo 😀"}, 7},
		"nothing":                {memory.Message{Role: memory.User}, 0},
		"a call without content": {memory.Message{Role: memory.Assistant, ToolCalls: call}, 4},
		"a call with text":       {memory.Message{Role: memory.Assistant, Content: "wait", ToolCalls: call}, 4},
		"text parts":             {memory.Message{Parts: json.RawMessage(`[{"type":"text","text":"abc"},{"type":"text","text":"é"}]`)}, 4},
		"a text among parts":     {memory.Message{Parts: json.RawMessage(`["abc",{"text":"d"}]`)}, 4},
		"a block's content":      {memory.Message{Parts: json.RawMessage(`[{"type":"tool_result","tool_use_id":"long id","content":"12"}]`)}, 2},
		"a block of neither":     {memory.Message{Parts: json.RawMessage(`[{"a":1}]`)}, 7},
		"as stored":              {memory.Message{Content: "abc", Chars: 3}, 3},
	} {
		if got := tt.m.Size(); got != tt.want {
			t.Errorf("%s: size %d, want %d", name, got, tt.want)
		}
	}
}

// TestSizeIsStored: what is written carries its size, whether it is new, an answer, or changed by
// evidence.
func TestSizeIsStored(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, func(s *memory.Settings) { s.LLM.Greeting = "Grüß Gott" })
	turn := begin(t, s, a.ID, nil, user("hello"))
	settle(t, s, turn, agents.Answer{Generated: "four score and seven", Sent: "four score and seven", Complete: true})
	heard := "four score"
	if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{Heard: &heard}); err != nil {
		t.Fatal(err)
	}
	list, err := s.Messages.Page(t.Context(), "p", a.ID, memory.MessageQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, m := range list {
		got = append(got, m.Chars)
	}
	if d := cmp.Diff([]int64{9, 5, 10}, got); d != "" {
		t.Errorf("sizes (-want +got):\n%s", d)
	}
}

// TestWhatIsShown holds roles, states and statuses against history and context.
//
// Rules: 002-2, 003-6
func TestWhatIsShown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		m                        memory.Message
		history, context, memory bool
	}{
		"user":      {memory.Message{Role: memory.User, Content: "a"}, true, true, true},
		"assistant": {memory.Message{Role: memory.Assistant, Content: "a"}, true, true, true},
		"tool":      {memory.Message{Role: memory.Tool, Content: "a"}, false, true, true},
		"system":    {memory.Message{Role: memory.System, Content: "a"}, false, false, true},
		"developer": {memory.Message{Role: memory.Developer, Content: "a"}, false, false, true},
		"draft":     {memory.Message{Role: memory.User, Content: "a", Status: memory.Draft}, false, false, false},
		"discarded": {memory.Message{Role: memory.Assistant, Content: "a", Status: memory.Discarded}, false, false, false},
		"dropped":   {memory.Message{Role: memory.User, Content: "a", State: memory.Dropped}, false, false, false},
		"merged":    {memory.Message{Role: memory.Assistant, Content: "a", State: memory.Merged}, false, false, false},
		"removed":   {memory.Message{Role: memory.User, State: memory.Removed}, false, false, false},
	} {
		if h, c, m := tt.m.InHistory(), tt.m.InContext(), tt.m.InMemory(); h != tt.history || c != tt.context || m != tt.memory {
			t.Errorf("%s: history %v, context %v, memory %v", name, h, c, m)
		}
	}
}

// TestInstructionsHaveNoTurnOfTheirOwn: a stored system message belongs to the turn that it stands
// in front of, and the turn table does not know it.
func TestInstructionsHaveNoTurnOfTheirOwn(t *testing.T) {
	t.Parallel()
	system := memory.Message{Role: memory.System, Source: memory.SourceMessage, Content: "be brief"}
	s := newService(t, nil)
	a := join(t, s, nil)
	in := []memory.Message{system, user("a"), llm("b"), system, system, user("c"), system, llm("d"), user("e")}
	stored, err := s.Messages.Append(t.Context(), "p", a.ID, in)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int64{0, 0, 0, 1, 1, 1, 1, 1, 2}, turnIDs(stored.Messages)); d != "" {
		t.Errorf("turns (-want +got):\n%s", d)
	}
	_, rows, err := turns.Read(t.Context(), s.Messages, "p", a.ID)
	if err != nil || len(rows) != 3 || rows[0].StartType != turns.StartVoice {
		t.Errorf("turn table %+v, err %v", rows, err)
	}
}

// TestMessageIsSmall: each message of a turn is copied many times, so that a field more in each is
// felt by the proxy. What few messages have belongs into Details.
func TestMessageIsSmall(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(memory.Message{}); got > 448 {
		t.Errorf("a message takes %d bytes; at most 448 are meant", got)
	}
}

// TestAmend: a message's rare fields are its own once they are changed, and take no room where none
// is left.
func TestAmend(t *testing.T) {
	t.Parallel()
	first := memory.Message{Role: memory.User, Content: "a"}
	first.Amend(func(r *memory.Details) { r.Category = "episodic" })
	second := first
	second.Amend(func(r *memory.Details) { r.Category, r.Raw = "semantic", "{}" })
	if first.Filed().Category != "episodic" || first.Filed().Raw != "" || second.Filed().Category != "semantic" || second.Filed().Raw != "{}" {
		t.Errorf("%+v and %+v", first.Details, second.Details)
	}
	second.Amend(func(r *memory.Details) { r.Category, r.Raw = "", "" })
	if second.Details != nil || second.Filed().Category != "" || first.Filed().Category != "episodic" {
		t.Errorf("%+v and %+v", first.Details, second.Details)
	}
	raw, err := json.Marshal(&first)
	if err != nil {
		t.Fatal(err)
	}
	var again memory.Message
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, again); d != "" {
		t.Errorf("as JSON (-want +got):\n%s\n%s", d, raw)
	}
}
