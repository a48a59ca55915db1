package window_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory/window"
)

// talk makes a list from a short form: one line a message, "s u a t" for the role, then its text.
func talk(lines ...string) []window.Message {
	roles := map[byte]window.Role{'s': window.System, 'd': window.Developer, 'u': window.User, 'a': window.Assistant}
	var out []window.Message
	for i, l := range lines {
		out = append(out, window.Message{Ref: i, Role: roles[l[0]], Text: strings.TrimPrefix(l[1:], " ")})
	}
	return out
}

// call makes an assistant message that calls tools, result the answer to one, both in OpenAI's
// format.
func call(ids ...string) window.Message {
	var calls []string
	for _, id := range ids {
		calls = append(calls, `{"id":"`+id+`","type":"function","function":{"name":"f","arguments":"{}"}}`)
	}
	return window.Message{Role: window.Assistant, ToolCalls: []byte("[" + strings.Join(calls, ",") + "]")}
}

func result(id, text string) window.Message {
	return window.Message{Role: window.Tool, ToolCallID: id, Text: text}
}

// texts gives what a view says, one line a message.
func texts(v window.View) []string {
	var out []string
	for _, e := range v.Entries {
		m := e.Message
		switch {
		case len(m.Parts) > 0:
			out = append(out, string(m.Role)+": "+string(m.Parts))
		case len(m.ToolCalls) > 0:
			out = append(out, string(m.Role)+" calls "+strings.Join(m.ReadLinks().Calls, " "))
		case m.Role == window.Tool:
			out = append(out, "tool "+m.ToolCallID+": "+m.Text)
		default:
			out = append(out, string(m.Role)+": "+m.Text)
		}
	}
	return out
}

func TestRead(t *testing.T) {
	t.Parallel()
	list := talk("s be kind", "u one", "a two", "u three", "a four", "u five")
	v := window.Policy{MaxMessages: new(2), IncludeSystem: new(true)}.Read(list, nil, window.Extras{
		System: talk("s  prompt "), Summary: "they met", Utterance: new(" six "),
	})
	want := []string{"system: prompt", "system: be kind", "system: " + window.SummaryText("they met"), "assistant: four", "user: five", "user: six"}
	if d := cmp.Diff(want, texts(v)); d != "" {
		t.Error(d)
	}
	if v.Dropped != 3 {
		t.Errorf("dropped %d, want 3", v.Dropped)
	}
}

func TestReadHeals(t *testing.T) {
	t.Parallel()
	list := append(append(talk("u go"), call("b", "a", "c"), result("a", "done")), talk("u and?")...)
	v := window.Policy{Preset: "lauren"}.Read(list, nil, window.Extras{})
	want := []string{"user: go", "assistant calls b a c", "tool a: done", "tool b: " + window.LostResult, "tool c: " + window.LostResult, "user: and?"}
	if d := cmp.Diff(want, texts(v)); d != "" {
		t.Error(d)
	}
}

// TestLongLists goes through lists that would take minutes if a rule looked at the whole list for
// each message of it.
func TestLongLists(t *testing.T) {
	t.Parallel()
	const n = 20000
	var orphans, calls, system, batch []window.Message
	ids := make([]string, n)
	for i := range n {
		ids[i] = fmt.Sprint("call_", i)
		orphans = append(orphans, result(ids[i], "one"))
		calls = append(calls, call(ids[i]))
		batch = append(batch, result(ids[i], "two"))
		system = append(system, window.Message{Role: window.System, Text: strings.Repeat("x", window.MinPiece+1)})
	}
	calls = append(calls, talk("u next")...)
	read := func(list []window.Message, p window.Policy) window.View { return p.Read(list, nil, window.Extras{}) }

	if v := read(orphans, window.Policy{Preset: "orbiter"}); len(v.Entries) != 0 {
		t.Errorf("%d orphans stay", len(v.Entries))
	}
	if v := read(orphans, window.Policy{Preset: "full", MaxTokens: new(n / 2)}); len(v.Entries) != n*4/2/3 {
		t.Errorf("%d orphans in the budget", len(v.Entries))
	}
	if v := read(calls, window.Policy{Preset: "lauren", MaxTokens: new(0)}); len(v.Healed) != n {
		t.Errorf("%d calls healed", len(v.Healed))
	}
	if r := window.Repair(calls); len(r.Insert) != n {
		t.Errorf("%d calls repaired", len(r.Insert))
	}
	if v := read(system, window.Policy{Preset: "full", MaxTokens: new(1)}); v.Shortened != n {
		t.Errorf("%d messages shortened", v.Shortened)
	}
	if got := window.Summarizable(append([]window.Message{call(ids...)}, batch...), 5); len(got) != 0 {
		t.Errorf("%d are summarised apart from their results", len(got))
	}
	if v := read(append(append([]window.Message{call(ids...)}, batch...), talk("u next")...), window.Policy{Preset: "ossa", Strategy: window.ImportanceBased}); len(v.Entries) != 1 {
		t.Errorf("%d entries by importance", len(v.Entries))
	}
}
