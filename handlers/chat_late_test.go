package handlers_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// TestChatLateResult checks that a tool's result replaces the note that the tool was still running,
// in both modes, and that no later note replaces a result.
func TestChatLateResult(t *testing.T) {
	t.Parallel()
	const ask = `{"role":"user","content":"Book it."}`
	const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"book","arguments":"{}"}}]}`
	result := func(text string) string {
		return fmt.Sprintf(`{"role":"tool","tool_call_id":"call_1","content":%q}`, text)
	}
	list := func(msgs ...string) string { return `{"messages":[` + strings.Join(msgs, ",") + `]}` }
	for name, tt := range map[string]struct {
		mode          string
		first, second string
	}{
		"reconcile": {"reconcile", list(ask, call, result("IN_PROGRESS")), list(ask, call, result(`{"booked":true}`))},
		"quoted":    {"reconcile", list(ask, call, result(`"IN_PROGRESS"`)), list(ask, call, result(`{"booked":true}`))},
		"inject":    {"inject", list(ask, call, result("IN_PROGRESS")), list(result(`{"booked":true}`))},
		"backwards": {"reconcile", list(ask, call, result(`{"booked":true}`)), list(ask, call, result("IN_PROGRESS"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(func(l *memory.LLMSettings) { l.Mode = tt.mode })
			p.read(p.post(t.Context(), agent, tt.first))
			p.read(p.post(t.Context(), agent, tt.second))
			var results []string
			for _, m := range p.ledger(agent) {
				if m.Role == memory.Tool {
					results = append(results, m.Content)
				}
			}
			if diff := cmp.Diff([]string{`{"booked":true}`}, results); diff != "" {
				t.Error(diff)
			}
			if got := string(p.llm.Requests()[1].Body); tt.mode == "inject" && (strings.Contains(got, "IN_PROGRESS") || !strings.Contains(got, "booked")) {
				t.Errorf("the LLM was sent %s", got)
			}
		})
	}
}

// TestChatThoughts checks that what a model thinks is passed on, but is neither stored, nor
// compared with the platform's list, nor sent upstream again.
func TestChatThoughts(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(script(map[string]any{"chunks": []string{"<thi", "nk>A train.", " At nine?</think>\n\n", "It leaves ", "at nine."}}))
			if got := p.read(p.post(t.Context(), agent, chatOf(stream, "user: My train?"))); !strings.Contains(got, "At nine?") {
				t.Errorf("the client got %s", got)
			}
			m := p.ledger(agent)[1]
			if m.Content != "It leaves at nine." || m.Original() != "It leaves at nine." || m.Produced() != "<think>A train. At nine?</think>\n\nIt leaves at nine." {
				t.Errorf("stored %q of %q of %q", m.Content, m.Original(), m.Produced())
			}
			p.read(p.post(t.Context(), agent, chatOf(stream, "user: My train?", "assistant: <think>A train. At nine?</think>It leaves", "user: Thanks.")))
			want := []string{"user: My train?", "assistant: It leaves (interrupted)", "user: Thanks.", "assistant: It leaves at nine."}
			if diff := cmp.Diff(want, lines(p.ledger(agent))); diff != "" {
				t.Error(diff)
			}
			if got := string(p.llm.Requests()[1].Body); strings.Contains(got, "think>") {
				t.Errorf("the LLM was sent %s", got)
			}
		})
	}
}

// TestChatCutThought checks that an answer that is cut while the model thinks is empty.
func TestChatCutThought(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(script(map[string]any{"chunks": []string{"<think>A ", "train."}, "hang_after": 1}))
	r := bufio.NewReader(p.post(t.Context(), agent, chatOf(true, "user: My train?")).Body)
	until(t, r, "A ")
	p.mem.Turns.Cut(t.Context(), "p1", agent, agents.ErrInterrupted)
	until(t, r, "[DONE]")
	if diff := cmp.Diff([]string{"user: My train?", "assistant:  (empty) (interrupted)"}, lines(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}
}

// TestChatPlatformFiller checks that what a platform says to introduce an answer is stored before
// that answer, as it was heard.
func TestChatPlatformFiller(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(func(l *memory.LLMSettings) {
		script(map[string]any{"answer": "At nine."})(l)
		l.Mode = "reconcile"
	})
	p.read(p.post(t.Context(), agent, chatOf(true, "user: My train?")))
	list := []string{"user: My train?", "assistant: One moment please.", "assistant: At nine.", "user: And back?"}
	for range 2 { // the second time it is known
		p.read(p.post(t.Context(), agent, chatOf(true, list...)))
	}
	_, history, err := p.mem.Messages.History(t.Context(), "p1", agent, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0 message user: My train?", "0 command assistant: One moment please.", "0 llm assistant: At nine.", "1 message user: And back?", "1 llm assistant: At nine."}
	if diff := cmp.Diff(want, placed(history)); diff != "" {
		t.Error(diff)
	}
	for _, m := range history[:3] {
		if m.Interrupted {
			t.Errorf("%q is interrupted", m.Content)
		}
	}
}
