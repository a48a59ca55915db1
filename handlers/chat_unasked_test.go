package handlers_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/turns"
)

// chatOf returns a call with the given messages, each as "role: content".
func chatOf(stream bool, msgs ...string) string {
	out := make([]string, 0, len(msgs))
	for _, m := range msgs {
		role, text, _ := strings.Cut(m, ": ")
		out = append(out, `{"role":"`+role+`","content":"`+text+`"}`)
	}
	more := ""
	if stream {
		more = `,"stream":true`
	}
	return `{"messages":[` + strings.Join(out, ",") + `]` + more + `}`
}

// placed returns lines of the messages with their turns and sources.
func placed(msgs []memory.Message) []string {
	out := lines(msgs)
	for i, m := range msgs {
		out[i] = string(rune('0'+m.TurnID)) + " " + string(m.Source) + " " + out[i]
	}
	return out
}

// TestChatAgentSpeaksFirst checks that a call with instructions alone is answered: its answer is
// the greeting in turn 0, the instructions are not stored, and the platform's next list is aligned
// with it.
func TestChatAgentSpeaksFirst(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		role, mode string
		stream     bool
	}{
		"stream":    {role: "system", stream: true},
		"unary":     {role: "system"},
		"developer": {role: "developer", stream: true},
		"reconcile": {role: "developer", mode: "reconcile", stream: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent, post := p.join(script(map[string]any{"answer": "Good morning, how can I help?"})), p.post
			header := []string{}
			if tt.mode != "" {
				header = []string{"X-Heardlog-Mode", tt.mode}
			}
			res := post(t.Context(), agent, chatOf(tt.stream, tt.role+": Greet the caller."), header...)
			body := p.read(res)
			if res.StatusCode != http.StatusOK || res.Header.Get("X-Heardlog-Turn") != "0" {
				t.Fatalf("%d, turn %s: %s", res.StatusCode, res.Header.Get("X-Heardlog-Turn"), body)
			}
			if got := string(p.llm.Requests()[0].Body); !strings.Contains(got, "Greet the caller.") {
				t.Errorf("the LLM was sent %s", got)
			}
			msgs := p.ledger(agent)
			if len(msgs) != 1 || msgs[0].Content == "" {
				t.Fatalf("stored %q", placed(msgs))
			}
			said := msgs[0].Content
			if diff := cmp.Diff([]string{"0 greeting assistant: " + said}, placed(msgs)); diff != "" {
				t.Error(diff)
			}
			if m := msgs[0]; !m.Provisional() || m.TurnHasUser || !m.Opens {
				t.Errorf("stored %+v", m)
			}
			heard := strings.Join(strings.Fields(said)[:2], " ")
			p.read(post(t.Context(), agent, chatOf(tt.stream, tt.role+": Be brief.", "assistant: "+heard, "user: My train?")))
			msgs = p.ledger(agent)
			want := []string{"0 greeting assistant: " + heard + " (interrupted)", "1 message user: My train?", "1 llm assistant: " + msgs[len(msgs)-1].Content}
			if diff := cmp.Diff(want, placed(msgs)); diff != "" {
				t.Error(diff)
			}
			_, rows, err := turns.Read(t.Context(), p.mem.Messages, "p1", agent)
			if err != nil || len(rows) != 2 || rows[0].StartType != turns.StartGreeting || rows[0].EndType != turns.EndInterrupted {
				t.Errorf("turns %+v, %v", rows, err)
			}
			// A later list shows that all of the greeting was heard.
			answer := "assistant: " + msgs[len(msgs)-1].Content
			p.read(post(t.Context(), agent, chatOf(tt.stream, tt.role+": Be brief.", "assistant: "+said, "user: My train?", answer, "user: Thanks.")))
			if m := p.ledger(agent)[0]; m.Interrupted || m.Content != said {
				t.Errorf("stored %+v", m)
			}
		})
	}
}

// TestChatUnasked checks that the agent may speak again without words of the caller.
func TestChatUnasked(t *testing.T) {
	t.Parallel()
	const yes = "assistant: Yes, at nine."
	for name, tt := range map[string]struct {
		list []string
		sent string // the last message that the LLM is sent
	}{
		"instructions alone": {[]string{"system: Ask whether they are there."}, `{"role":"assistant","content":"Yes, at nine."}]`},
		"instructions last":  {[]string{"system: Be kind.", "user: A train?", yes, "system: Ask whether they are there."}, `{"role":"system","content":"Ask whether they are there."}]`},
		"instructions first": {[]string{"system: Ask whether they are there.", "user: A train?", yes}, `{"role":"assistant","content":"Yes, at nine."}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(script(map[string]any{"answer": "Yes, at nine."}))
			p.read(p.post(t.Context(), agent, chatOf(true, "system: Be kind.", "user: A train?")))
			res := p.post(t.Context(), agent, chatOf(true, tt.list...))
			p.read(res)
			if res.StatusCode != http.StatusOK || res.Header.Get("X-Heardlog-Turn") != "1" {
				t.Errorf("%d, turn %s", res.StatusCode, res.Header.Get("X-Heardlog-Turn"))
			}
			want := []string{"0 message user: A train?", "0 llm " + yes, "1 llm " + yes}
			if diff := cmp.Diff(want, placed(p.ledger(agent))); diff != "" {
				t.Error(diff)
			}
			if got := string(p.llm.Requests()[1].Body); !strings.Contains(got, tt.sent) || !strings.Contains(got, "Ask whether") {
				t.Errorf("the LLM was sent %s, want %s", got, tt.sent)
			}
			p.read(p.post(t.Context(), agent, chatOf(true, "user: A train?", yes, yes, "user: Thanks.")))
			want = append(want, "2 message user: Thanks.", "2 llm "+yes)
			if diff := cmp.Diff(want, placed(p.ledger(agent))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestChatUnaskedAgain checks that a first greeting that is asked for twice is one turn, and that
// one that fails leaves the turn to the next.
func TestChatUnaskedAgain(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(script(map[string]any{"chunks": []string{"Good ", "morning."}, "hang_after": 1}))
	first := p.post(t.Context(), agent, chatOf(true, "system: Greet."))
	r := bufio.NewReader(first.Body)
	until(t, r, "Good")
	second := p.post(t.Context(), agent, chatOf(true, "system: Greet."))
	until(t, r, "[DONE]")
	until(t, bufio.NewReader(second.Body), "Good")
	if first.Header.Get("X-Heardlog-Turn") != "0" || second.Header.Get("X-Heardlog-Turn") != "0" {
		t.Errorf("turns %s and %s", first.Header.Get("X-Heardlog-Turn"), second.Header.Get("X-Heardlog-Turn"))
	}
	// The caller speaks into the greeting.
	third := p.post(t.Context(), agent, chatOf(true, "user: Hello?"))
	until(t, bufio.NewReader(third.Body), "Good")
	want := []string{"0 greeting assistant: Good  (superseded)", "0 greeting assistant: Good  (interrupted)", "1 message user: Hello?"}
	if diff := cmp.Diff(want, placed(p.ledger(agent))); diff != "" {
		t.Error(diff)
	}

	broken := p.join(script(map[string]any{"status": 400}))
	for range 2 {
		if res := p.post(t.Context(), broken, chatOf(true, "system: Greet.")); res.StatusCode != 400 || res.Header.Get("X-Heardlog-Turn") != "0" {
			t.Errorf("%d, turn %s", res.StatusCode, res.Header.Get("X-Heardlog-Turn"))
		}
	}
	want = []string{"0 greeting assistant:  (empty)", "0 greeting assistant:  (empty)"}
	if diff := cmp.Diff(want, placed(p.ledger(broken))); diff != "" {
		t.Error(diff)
	}
}

// TestChatUnaskedDuringAppend checks that a message that is appended while the agent speaks first
// gets the turn after it.
func TestChatUnaskedDuringAppend(t *testing.T) {
	t.Parallel()
	p := newProxy(t, nil)
	agent := p.join(script(map[string]any{"chunks": []string{"Good ", "morning."}, "hang_after": 1}))
	r := bufio.NewReader(p.post(t.Context(), agent, chatOf(true, "system: Greet.")).Body)
	until(t, r, "Good")
	stored, err := p.mem.Messages.Append(t.Context(), "p1", agent, []memory.Message{{Role: memory.User, Content: "Hello?", Source: memory.SourceMessage}})
	if err != nil || stored.Messages[0].TurnID != 1 {
		t.Errorf("%+v, %v", stored, err)
	}
	p.mem.Turns.Cut(t.Context(), "p1", agent, agents.ErrInterrupted)
	until(t, r, "[DONE]")
	_, history, err := p.mem.Messages.History(t.Context(), "p1", agent, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0 greeting assistant: Good  (interrupted)", "1 message user: Hello?"}
	if diff := cmp.Diff(want, placed(history)); diff != "" {
		t.Error(diff)
	}
}

// TestChatNewQuestion checks that a new question cuts the answer that is still streaming, in both
// modes, unless the agent keeps it.
func TestChatNewQuestion(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode, setting string
		cut           bool
	}{
		"inject": {"inject", "", true}, "inject, cut": {"inject", "cut", true}, "inject, keep": {"inject", "keep", false},
		"reconcile": {"reconcile", "keep", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(func(l *memory.LLMSettings) {
				script(map[string]any{"chunks": []string{"One ", "two."}, "hang_after": 1})(l)
				l.Mode, l.OnQuestion = tt.mode, tt.setting
			})
			first := bufio.NewReader(p.post(t.Context(), agent, chatOf(true, "user: Count.")).Body)
			until(t, first, "One")
			second := []string{"user: Stop."}
			if tt.mode == "reconcile" {
				second = []string{"user: Count.", "assistant: One", "user: Stop."}
			}
			until(t, bufio.NewReader(p.post(t.Context(), agent, chatOf(true, second...)).Body), "One")
			if !tt.cut {
				if diff := cmp.Diff([]string{"0 message user: Count.", "1 message user: Stop."}, placed(p.ledger(agent))); diff != "" {
					t.Error(diff)
				}
				return
			}
			until(t, first, "[DONE]")
			if diff := cmp.Diff([]string{"0 message user: Count.", "0 llm assistant: One  (interrupted)", "1 message user: Stop."}, placed(p.ledger(agent))); diff != "" && tt.mode == "inject" {
				t.Error(diff)
			}
			if got := p.ledger(agent); len(got) != 3 || !got[1].Interrupted {
				t.Errorf("stored %q", placed(got))
			}
			if got := string(p.llm.Requests()[1].Body); !strings.Contains(got, `{"role":"assistant","content":"One`) || strings.Contains(got, `Count.\n`) {
				t.Errorf("the LLM was sent %s", got)
			}
		})
	}
}
