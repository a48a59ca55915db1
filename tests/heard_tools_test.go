package tests

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// booking is a platform with a tool that must not run twice.
type booking struct {
	t    *testing.T
	s    *server
	llm  *fake.LLM
	id   string
	mode string
}

const (
	bookIt  = "Book a table for four at eight."
	booked  = `{"booking":"B7"}`
	telling = "Your table for four is booked, the number is B7."
)

func newBooking(t *testing.T, s *server, llm *fake.LLM, mode string, more map[string]any) *booking {
	heardlog := map[string]any{"mode": mode}
	for k, v := range more {
		heardlog[k] = v
	}
	return &booking{t: t, s: s, llm: llm, mode: mode, id: s.join(fmt.Sprint(t.Name(), len(llm.Requests())), map[string]any{"heardlog": heardlog})}
}

// ask sends a list, which the model answers by script. It returns the answer and the messages that
// the model got.
func (b *booking) ask(script map[string]any, msgs ...any) (map[string]any, []string) {
	b.t.Helper()
	var out struct {
		Choices []struct{ Message map[string]any }
	}
	b.s.post(agent(b.id, "/chat/completions"), map[string]any{"messages": msgs, "fake": script}).ok(&out)
	return out.Choices[0].Message, b.told()
}

// told returns the last messages that the model got. Each call in them must be followed at once by
// its result, and there may be no other results.
func (b *booking) told() []string {
	b.t.Helper()
	return outline(b.t, told(b.t, b.llm))
}

// outline returns messages as lines. It fails on a list that upstreams would refuse.
func outline(t *testing.T, msgs []toldMessage) []string {
	t.Helper()
	lines := spoken(msgs)
	var open []string
	for i, m := range msgs {
		if m.Role == "tool" {
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				t.Errorf("message %d is the result of %q, which was not called in front of it: %q", i, m.ToolCallID, lines)
				continue
			}
			open = slices.Delete(open, at, at+1)
			continue
		}
		if len(open) > 0 {
			t.Errorf("calls %v have no result before message %d: %q", open, i, lines)
		}
		var calls []struct {
			ID       string
			Function struct{ Name, Arguments string }
		}
		if m.ToolCalls != nil {
			if err := json.Unmarshal(m.ToolCalls, &calls); err != nil {
				t.Fatal(err)
			}
		}
		open = open[:0]
		for _, c := range calls {
			open = append(open, c.ID)
			lines[i] += fmt.Sprintf(" %s(%s)", c.Function.Name, c.Function.Arguments)
		}
	}
	if len(open) > 0 {
		t.Errorf("calls %v have no result: %q", open, lines)
	}
	return lines
}

func toolAnswer(call map[string]any, content string) map[string]any {
	calls := call["tool_calls"].([]any)
	return map[string]any{"role": "tool", "tool_call_id": calls[0].(map[string]any)["id"], "content": content}
}

var (
	callsTool = map[string]any{"tool_name": "book", "tool_args": `{"people":4}`}
	tells     = map[string]any{"answer": telling}
)

// TestToolNotTwice: the caller interrupts the answer about a booking, and the platform drops the
// call, its result and the answer from its list. The model still sees that it has booked, once, and
// what the caller heard of it.
func TestToolNotTwice(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	const (
		call = "assistant: null book({\"people\":4})"
		note = "[carried out already, do not repeat it; heard by the caller: %s; not heard: %s]"
	)
	for name, tt := range map[string]struct {
		heard string // what is known to have been heard of the answer; "-" if unknown
		list  func(call, result map[string]any) []any
		want  []string
	}{
		"everything dropped, nothing known": {"-", func(_, _ map[string]any) []any { return nil },
			[]string{call, "tool: " + booked + "\n" + fmt.Sprintf(note, "nothing", `"`+telling+`"`)}},
		"everything dropped, some heard": {"Your table", func(_, _ map[string]any) []any { return nil },
			[]string{call, "tool: " + booked + "\n" + fmt.Sprintf(note, `"Your table"`, `"for four is booked, the number is B7."`)}},
		"call and result dropped, the cut answer kept": {"-", func(_, _ map[string]any) []any { return []any{assistant("Your table")} },
			[]string{call, "tool: " + booked + "\n" + fmt.Sprintf(note, `"Your table"`, `"for four is booked, the number is B7."`), "assistant: Your table"}},
		"only what the platform said meanwhile kept": {"-", func(_, _ map[string]any) []any { return []any{assistant("Hold on.")} },
			[]string{call, "tool: " + booked + "\n" + fmt.Sprintf(note, "nothing", `"`+telling+`"`), "assistant: Hold on."}},
		"the result dropped": {"-", func(c, _ map[string]any) []any { return []any{c} },
			[]string{call, "tool: " + booked + "\n" + fmt.Sprintf(note, "nothing", `"`+telling+`"`)}},
		"the call dropped": {"-", func(_, r map[string]any) []any { return []any{r} },
			[]string{call, "tool: " + booked}},
		"nothing dropped": {"-", func(c, r map[string]any) []any { return []any{c, r, assistant("Your table")} },
			[]string{call, "tool: " + booked, "assistant: Your table"}},
		"tools dropped by a platform that never keeps them": {"-", func(_, _ map[string]any) []any { return []any{assistant(telling)} },
			[]string{"assistant: " + telling}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBooking(t, s, llm, "reconcile", nil)
			c, _ := b.ask(callsTool, user(bookIt))
			r := toolAnswer(c, booked)
			_, got := b.ask(tells, user(bookIt), c, r)
			if diff := cmp.Diff([]string{"user: " + bookIt, call, "tool: " + booked}, got); diff != "" {
				t.Fatalf("the call itself:\n%s", diff)
			}
			if tt.heard != "-" {
				s.post(agent(b.id, "/interrupt"), map[string]any{"heard": tt.heard}).ok(nil)
			}
			list := append([]any{user(bookIt)}, tt.list(c, r)...)
			list = append(list, user("And a high chair."))
			a, got := b.ask(map[string]any{"answer": "Done."}, list...)
			want := append([]string{"user: " + bookIt}, tt.want...)
			want = append(want, "user: And a high chair.")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("after the caller talked into it:\n%s", diff)
			}
			before := messagesOf(t, lastBody(llm))
			_, got = b.ask(map[string]any{"answer": "Bye."}, append(list, a, user("Thanks."))...)
			if diff := cmp.Diff(append(want, "assistant: Done.", "user: Thanks."), got); diff != "" {
				t.Errorf("one call later:\n%s", diff)
			}
			if now := messagesOf(t, lastBody(llm)); !strings.HasPrefix(now, before) {
				t.Errorf("one call later the beginning is another:\n%s\n%s", before, now)
			}
			n := 0
			for _, m := range s.ledger(b.id) {
				if m.Role == "tool" {
					n++
				}
			}
			if n != 1 {
				t.Errorf("the ledger holds %d results", n)
			}
		})
	}
}

func lastBody(llm *fake.LLM) []byte {
	seen := llm.Requests()
	return seen[len(seen)-1].Body
}

// TestToolOfGhost: a platform asks again for the same words, so the first answer becomes a ghost.
// Its tool has run all the same.
func TestToolOfGhost(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	b := newBooking(t, s, llm, "reconcile", nil)
	c, _ := b.ask(callsTool, user(bookIt))
	b.ask(tells, user(bookIt), c, toolAnswer(c, booked))
	_, got := b.ask(tells, user(bookIt))
	want := []string{"user: " + bookIt, `assistant: null book({"people":4})`, "tool: " + booked + "\n" +
		`[carried out already, do not repeat it; heard by the caller: nothing; not heard: nothing]`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The same words by their Idempotency-Key. The text of the ghost beside its call is not sent to
	// the model.
	b = newBooking(t, s, llm, "inject", nil)
	once := func(script map[string]any) answer {
		return s.post(agent(b.id, "/chat/completions"), map[string]any{"messages": []any{user(bookIt)}, "fake": script}, "Idempotency-Key", "k").ok(nil)
	}
	once(map[string]any{"body": `{"choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"I book it.","tool_calls":[` +
		`{"id":"c1","type":"function","function":{"name":"book","arguments":"{\"people\":4}"}}]}}]}`})
	b.ask(tells, map[string]any{"role": "tool", "tool_call_id": "c1", "content": booked})
	once(tells)
	want[2] = "tool: " + booked
	if diff := cmp.Diff(want, b.told()); diff != "" {
		t.Errorf("with a key:\n%s", diff)
	}
}

// TestToolOfLostWords: some platforms drop an interrupted turn and put its words in front of the
// next.
func TestToolOfLostWords(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	const (
		call = `assistant: null book({"people":4})`
		note = "tool: " + booked + "\n" + `[carried out already, do not repeat it; heard by the caller: nothing; not heard: "` + telling + `"]`
	)
	for name, tt := range map[string]struct {
		before []any // the call's turns before it
		keep   int   // how many messages of them the platform still sends
		want   []string
	}{
		"the first turn": {nil, 0, []string{call, note}},
		"a later turn":   {[]any{user("Hi."), assistant("Hello.")}, 2, []string{"user: Hi.", "assistant: Hello.", call, note}},
		"behind others":  {[]any{user("Hi."), assistant("Hello."), user("Are you open?"), assistant("Yes.")}, 2, []string{"user: Hi.", "assistant: Hello.", call, note}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBooking(t, s, llm, "reconcile", nil)
			for i := 0; i < len(tt.before); i += 2 {
				b.ask(map[string]any{"answer": tt.before[i+1].(map[string]any)["content"]}, tt.before[:i+1]...)
			}
			list := append(slices.Clone(tt.before), user(bookIt))
			c, _ := b.ask(callsTool, list...)
			b.ask(tells, append(list, c, toolAnswer(c, booked))...)
			list = append(slices.Clone(tt.before[:tt.keep]), user(bookIt+" And a high chair."))
			a, got := b.ask(map[string]any{"answer": "Done."}, list...)
			want := append(tt.want, "user: "+bookIt+" And a high chair.")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the words of two turns in one message:\n%s", diff)
			}
			_, got = b.ask(map[string]any{"answer": "Bye."}, append(list, a, user("Thanks."))...)
			if diff := cmp.Diff(append(want, "assistant: Done.", "user: Thanks."), got); diff != "" {
				t.Errorf("one call later:\n%s", diff)
			}
		})
	}
}

// TestToolBehindWindow: what a platform's window took away stays away.
func TestToolBehindWindow(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	b := newBooking(t, s, llm, "reconcile", nil)
	c, _ := b.ask(callsTool, user(bookIt))
	b.ask(tells, user(bookIt), c, toolAnswer(c, booked))
	list := []any{user(bookIt)}
	for _, words := range []string{"A high chair.", "A window seat.", "A dog."} {
		list = append(list, user(words))
		a, got := b.ask(map[string]any{"answer": "Noted: " + words}, list...)
		if len(got) < 4 || got[0] != "user: "+bookIt || !strings.HasPrefix(got[2], "tool: ") {
			t.Errorf("%q", got)
		}
		list = append(list, a)
	}
	_, got := b.ask(tells, append(list[3:], user("Thanks."))...)
	want := []string{"user: A window seat.", "assistant: Noted: A window seat.", "user: A dog.", "assistant: Noted: A dog.", "user: Thanks."}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestToolReported: the platform drops the call while its tool is still running, and the tool
// reports its result itself.
func TestToolReported(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	b := newBooking(t, s, llm, "reconcile", nil)
	c, _ := b.ask(callsTool, user(bookIt))
	list := []any{user(bookIt), user("And a high chair.")}
	a, got := b.ask(map[string]any{"answer": "One moment."}, list...)
	if diff := cmp.Diff([]string{"user: " + bookIt + "\nAnd a high chair."}, got); diff != "" {
		t.Errorf("before the result:\n%s", diff)
	}
	s.say(b.id, toolAnswer(c, booked))
	_, got = b.ask(tells, append(list, a, user("Well?"))...)
	want := []string{
		"user: " + bookIt, `assistant: null book({"people":4})`,
		"tool: " + booked + "\n" + `[carried out already, do not repeat it; heard by the caller: nothing; not heard: nothing]`,
		"user: And a high chair.", "assistant: One moment.", "user: Well?",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with the result:\n%s", diff)
	}
}

// TestToolAskedAgain: the platform asks again from the call on, without the result. It is not known
// what was heard of the answer.
func TestToolAskedAgain(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	b := newBooking(t, s, llm, "reconcile", nil)
	c, _ := b.ask(callsTool, user(bookIt))
	b.ask(tells, user(bookIt), c, toolAnswer(c, booked))
	_, got := b.ask(tells, user(bookIt), c)
	if len(got) != 3 || !strings.HasPrefix(got[2], "tool: "+booked) || strings.Contains(got[2], `heard by the caller: "`) {
		t.Errorf("%q", got)
	}
}

// TestToolWithoutResult: a client that sends only new messages speaks on without the result of a
// call.
func TestToolWithoutResult(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	const call = "assistant: null book({\"people\":4})"
	for _, vendor := range []string{"", "custom"} {
		t.Run(vendor, func(t *testing.T) {
			b := newBooking(t, s, llm, "inject", map[string]any{"projection_words": map[string]any{"no_result": "(not known)"}})
			b.id = s.join(t.Name()+" of vendor", map[string]any{"llm": map[string]any{"vendor": vendor}, "heardlog": map[string]any{
				"mode": "inject", "projection_words": map[string]any{"no_result": "(not known)"},
			}})
			c, _ := b.ask(callsTool, user(bookIt))
			_, got := b.ask(map[string]any{"answer": "One moment."}, user("Hello?"))
			if diff := cmp.Diff([]string{"user: " + bookIt, call, "tool: (not known)", "user: Hello?"}, got); diff != "" {
				t.Errorf("no result yet:\n%s", diff)
			}
			r := toolAnswer(c, booked)
			_, got = b.ask(tells, r)
			want := []string{"user: " + bookIt, call, "tool: " + booked, "user: Hello?", "assistant: One moment."}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the result came late:\n%s", diff)
			}
			stray := map[string]any{"role": "tool", "tool_call_id": "elsewhere", "name": "weather", "content": "rain"}
			_, got = b.ask(tells, stray, user("And the weather?"))
			want = append(want, "assistant: "+telling, "assistant: null weather({})", "tool: rain", "user: And the weather?")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("a result that nobody called for:\n%s", diff)
			}
		})
	}
}

// TestToolTurns: ids that an upstream uses again in each turn do not mix up the turns.
func TestToolTurns(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	b := newBooking(t, s, llm, "reconcile", nil)
	calling := func(arguments string) map[string]any {
		return map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
			"id": "call_0", "type": "function", "function": map[string]any{"name": "book", "arguments": arguments},
		}}}
	}
	result := func(text string) map[string]any {
		return map[string]any{"role": "tool", "tool_call_id": "call_0", "content": text}
	}
	answering := func(text string) map[string]any { return map[string]any{"answer": text} }
	b.ask(answering("First is booked."), user("Book one."), calling(`{"n":1}`), result("one"))
	list := []any{user("Book one."), user("Book two."), calling(`{"n":2}`), result("two")}
	_, got := b.ask(answering("Second is booked."), list...)
	want := []string{
		"user: Book one.", `assistant: null book({"n":1})`,
		"tool: one\n" + `[carried out already, do not repeat it; heard by the caller: nothing; not heard: "First is booked."]`,
		"user: Book two.", `assistant: null book({"n":2})`, "tool: two",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	b = newBooking(t, s, llm, "inject", nil)
	b.ask(answering("Fine."), user("Book one."), calling(`{"n":1}`))
	_, got = b.ask(answering("Fine."), user("Book two."), calling(`{"n":2}`), result("two"))
	want = []string{
		"user: Book one.", `assistant: null book({"n":1})`, "tool: [no result is known; the call may have been carried out, so check before repeating it]",
		"assistant: Fine.", "user: Book two.", `assistant: null book({"n":2})`, "tool: two",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the first call has no result:\n%s", diff)
	}
}

// TestToolCut: a call that was cut off cannot have been made.
func TestToolCut(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	b := newBooking(t, s, llm, "inject", nil)
	body := `{"stream":true,"messages":[{"role":"user","content":"` + bookIt + `"}],"fake":{"tool_name":"book","tool_args":"{\"people\":4}","hang_after":2}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+agent(b.id, "/chat/completions"), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for p := make([]byte, 4096); !strings.Contains(got, "book"); {
		n, err := resp.Body.Read(p)
		if got += string(p[:n]); err != nil {
			t.Fatalf("%v after %q", err, got)
		}
	}
	_ = resp.Body.Close() // the caller talks into it
	tl := s.tail(b.id, "Last-Event-ID", "0")
	if m := tl.message("the call", func(m message) bool { return m.Role == "assistant" }); m.ToolCalls == nil {
		t.Fatalf("the ledger has no call: %+v", m)
	}
	_, lines := b.ask(tells, user("Hello?"))
	if diff := cmp.Diff([]string{"user: " + bookIt + "\nHello?"}, lines); diff != "" {
		t.Error(diff)
	}
}

// TestToolAnyList sends lists with calls and results in any place, missing or repeated. In the list
// for the upstream each call is followed by its result, and no words of the caller are lost.
func TestToolAnyList(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Fine."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LOG_LEVEL=warn")
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		mode := []string{"inject", "reconcile"}[seed%2]
		b := &booking{t: t, s: s, llm: llm, mode: mode, id: s.join(fmt.Sprint(t.Name(), seed), map[string]any{"heardlog": map[string]any{"mode": mode}})}
		var list []any
		for turn := range 8 {
			words := fmt.Sprintf("Words %d of %d.", turn, seed)
			more := anyTools(rnd, words)
			list = append(list, more...)
			sent := list
			if mode == "inject" {
				sent = more
			}
			_, got := b.ask(map[string]any{}, sent...)
			if t.Failed() {
				t.Fatalf("seed %d, turn %d: %v", seed, turn, sent)
			}
			if !strings.Contains(strings.Join(got, "\n"), words) {
				t.Fatalf("seed %d, turn %d: the caller's words are lost: %q", seed, turn, got)
			}
			if rnd.IntN(2) == 0 {
				list = append(list, assistant("Fine."))
			}
			// The platform drops something.
			if mode == "reconcile" && len(list) > 2 && rnd.IntN(3) == 0 {
				at := rnd.IntN(len(list))
				if m := list[at].(map[string]any); m["role"] != "user" {
					list = slices.Delete(list, at, at+1)
				}
			}
		}
	}
}

// anyTools returns messages of the caller with calls and results around them, in any order.
func anyTools(rnd *rand.Rand, words string) []any {
	out := []any{user(words)}
	id := func() string { return fmt.Sprint("c", rnd.IntN(6)) }
	for range rnd.IntN(4) {
		m := map[string]any{"role": "tool", "tool_call_id": id(), "content": fmt.Sprint("result ", rnd.IntN(100))}
		if rnd.IntN(2) == 0 {
			var calls []any
			for range 1 + rnd.IntN(2) {
				calls = append(calls, map[string]any{"id": id(), "type": "function", "function": map[string]any{"name": "f", "arguments": "{}"}})
			}
			m = map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}
		}
		out = slices.Insert(out, rnd.IntN(len(out)+1), any(m))
	}
	return out
}
