package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// entries returns a ledger as lines: turn, role, state, heard text, and for answers the generated
// text, the evidence and its flags.
func entries(msgs []message) []string {
	var out []string
	for _, m := range msgs {
		line := fmt.Sprintf("%d %s %s: %s", m.TurnID, m.Role, m.State, m.Content)
		if m.Role == "assistant" {
			line += " | " + m.Generated + " | " + m.Evidence.Method
			for _, flag := range []struct {
				name string
				set  bool
			}{{"provisional", m.Provisional}, {"ghost", m.Ghost}, {"interrupted", m.Metadata["interrupted"] == true}, {"command", m.Metadata["source"] == "command"}} {
				if flag.set {
					line += " " + flag.name
				}
			}
		}
		out = append(out, line)
	}
	return out
}

// ask sends a list, which the model answers with answer.
func (s *server) ask(id, answer string, msgs ...any) answer {
	s.t.Helper()
	return s.post(agent(id, "/chat/completions"), map[string]any{"messages": msgs, "fake": map[string]any{"answer": answer}}).ok(nil)
}

// metric returns a counter's value.
func (s *server) metric(name string) string {
	s.t.Helper()
	for _, line := range strings.Split(string(s.get("/metrics").ok(nil).body), "\n") {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return rest
		}
	}
	s.t.Errorf("no metric %s", name)
	return ""
}

// TestHeardByEcho plays a call with each kind of echo: whole, cut, left out, other words, more
// words. The end of the call settles the last answer.
func TestHeardByEcho(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	call := []any{user("one")}
	turn := func(answer, echo, next string) {
		t.Helper()
		s.ask(id, answer, call...)
		if echo != "" {
			call = append(call, assistant(echo))
		}
		call = append(call, user(next))
	}
	turn("The **first** answer.", "The first answer.", "two")
	turn("The second answer is cut.", "The second answer", "three")
	turn("Nobody hears the third answer.", "", "four")
	turn("The fourth answer is refused.", "I may not say that.", "five")
	turn("The fifth answer.", "One moment. The fifth answer. Are you still there?", "six")
	s.ask(id, "The sixth answer.", call...)
	want := []string{
		"0 user final: one", "0 assistant final: The **first** answer. | The **first** answer. | echo_diff",
		"1 user final: two", "1 assistant final: The second answer | The second answer is cut. | echo_diff interrupted",
		"2 user final: three", "2 assistant unplayed:  | Nobody hears the third answer. | echo_diff interrupted",
		"3 user final: four", "3 assistant replaced:  | The fourth answer is refused. | echo_diff interrupted",
		"3 assistant final: I may not say that. | I may not say that. | echo_diff command",
		"4 user final: five", "4 assistant final: The fifth answer. | The fifth answer. | echo_diff",
		"5 assistant final: One moment. Are you still there? | One moment. Are you still there? | echo_diff command",
		"6 user final: six", "6 assistant final: The sixth answer. | The sixth answer. | assumed_full provisional",
	}
	if diff := cmp.Diff(want, entries(s.ledger(id))); diff != "" {
		t.Error(diff)
	}
	s.ask(id, "The sixth answer, again.", call...) // the same list: nothing but a ghost comes of it
	want[len(want)-1] = "6 assistant superseded: The sixth answer. | The sixth answer. | assumed_full ghost"
	want = append(want, "6 assistant final: The sixth answer, again. | The sixth answer, again. | assumed_full provisional")
	if diff := cmp.Diff(want, entries(s.ledger(id))); diff != "" {
		t.Errorf("the same list again:\n%s", diff)
	}
	shown := []string{
		"0 user: one", "0 assistant: The **first** answer.", "1 user: two", "1 assistant: The second answer", "2 user: three", "3 user: four",
		"3 assistant: I may not say that.", "4 user: five", "4 assistant: The fifth answer.", "5 assistant: One moment. Are you still there?",
		"6 user: six", "6 assistant: The sixth answer, again.",
	}
	if diff := cmp.Diff(shown, texts(s.history(id).Contents)); diff != "" {
		t.Errorf("history:\n%s", diff)
	}
	for _, m := range s.ledger(id) {
		if c := m.Evidence.Confidence; (c > 0) != (m.Evidence.Method == "echo_diff" && m.Metadata["source"] == "llm") {
			t.Errorf("confidence %d of %+v", c, m)
		}
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	if m := s.last(id); m.Provisional {
		t.Errorf("provisional after the end: %+v", m)
	}
}

// TestUnplayedComesBack: an answer that a list left out was played after all: a later list has its
// words, or an application that knows the audio reports it.
func TestUnplayedComesBack(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for name, tt := range map[string]struct {
		revive func(id string)
		want   string
	}{
		"by its words": {func(id string) {
			s.ask(id, "Then.", user("one"), assistant("At nine."), user("two"), assistant("What?"), user("three"))
		}, "0 assistant final: At nine. | At nine. | echo_diff"},
		"by a report": {func(id string) {
			s.interrupt(id, map[string]any{"turn_id": 0, "heard": "At"}).ok(nil)
		}, "0 assistant final: At | At nine. | vendor_text interrupted"},
	} {
		id := s.join(name, map[string]any{"heardlog": map[string]any{"mode": "reconcile"}})
		s.ask(id, "At nine.", user("one"))
		s.ask(id, "What?", user("one"), user("two"))
		if m := s.ledger(id)[1]; m.State != "unplayed" {
			t.Fatalf("%s: %+v", name, m)
		}
		tt.revive(id)
		if got := entries(s.ledger(id))[1]; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestOrderOfSentences: a platform re-sends an answer with its sentences in another order, in each
// request. The caller has heard the answer as it was written, or its first sentences.
func TestOrderOfSentences(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	const answer = "Dr. Smith is in. He leaves at 9:30. Shall I book it?"
	for name, tt := range map[string]struct{ said, want string }{
		"whole":       {"He leaves at nine thirty. Doctor Smith is in. Shall I book it?", "0 assistant final: " + answer + " | " + answer + " | echo_diff"},
		"by the line": {"Shall I book it?\nDr. Smith is in.\nHe leaves at 9:30.", "0 assistant final: " + answer + " | " + answer + " | echo_diff"},
		"cut":         {"He leaves at 9:30. Dr. Smith is in.", "0 assistant final: Dr. Smith is in. He leaves at 9:30. | " + answer + " | echo_diff interrupted"},
	} {
		id := s.join(name, map[string]any{"heardlog": map[string]any{"mode": "reconcile"}})
		s.ask(id, answer, user("one"))
		list := []any{user("one"), assistant(tt.said), user("two")}
		s.ask(id, "Good.", list...)
		s.ask(id, "Bye.", append(list, assistant("Good."), user("three"))...)
		want := []string{
			"0 user final: one", tt.want, "1 user final: two", "1 assistant final: Good. | Good. | echo_diff",
			"2 user final: three", "2 assistant final: Bye. | Bye. | assumed_full provisional",
		}
		if diff := cmp.Diff(want, entries(s.ledger(id))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestSpeculation: a platform asks four times while the caller speaks. That is one turn and three
// ghosts, whatever happened to the earlier answers.
func TestSpeculation(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	growing := []string{"I want", "I want a", "I want a table for", "I want a table for two"}
	for name, tt := range map[string]struct {
		script map[string]any // of the first three
		leave  bool
		state  string // of the first, once its client has left
	}{
		"each completed":           {map[string]any{"answer": "What?"}, false, ""},
		"each cut":                 {map[string]any{"chunks": []string{"What", "?"}, "hang_after": 2}, true, "final"},
		"each cut before its time": {map[string]any{"hang": true}, true, "empty"},
		"each still running":       {map[string]any{"chunks": []string{"What", "?"}, "hang_after": 2}, false, ""},
	} {
		for _, before := range []bool{false, true} {
			for _, same := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, before %v, same %v", name, before, same), func(t *testing.T) {
					t.Parallel()
					s := start(t, "HEARDLOG_LLM_URL="+base)
					id := s.join("n", map[string]any{"heardlog": map[string]any{"mode": "reconcile"}})
					var list []any
					turn := int64(0)
					if before {
						s.ask(id, "Hello.", user("Hello?"))
						list, turn = []any{user("Hello?"), assistant("Hello.")}, 1
					}
					tail := s.tail(id)
					for _, words := range growing[:3] {
						if same {
							words = growing[3]
						}
						body := s.speculate(id, tt.script, append(list, user(words)))
						if tt.leave {
							_ = body.Close()
							tail.message("the answer that was cut", func(m message) bool {
								return m.Role == "assistant" && m.State == tt.state && m.TurnID == turn
							})
						} else if tt.script["answer"] != nil {
							_, _ = io.ReadAll(body)
						}
					}
					list = append(list, user(growing[3]))
					s.ask(id, "For when?", list...)
					tail.message("the last answer", func(m message) bool { return m.Generated == "For when?" })
					s.ask(id, "Done.", append(list, assistant("For when?"), user("Now"))...)
					if got := s.metric("heardlog_ghost_requests_total"); got != "3" {
						t.Errorf("%s ghosts", got)
					}
					var users, ghosts int
					for _, m := range s.ledger(id) {
						switch {
						case m.TurnID == turn && m.Role == "user":
							users++
						case m.State == "superseded" && m.Ghost && m.TurnID == turn:
							ghosts++
						case m.State != "final":
							t.Errorf("state of %+v", m)
						}
					}
					if users != 1 || ghosts != 3 {
						t.Errorf("%d user messages and %d ghosts in the turn:\n%s", users, ghosts, strings.Join(entries(s.ledger(id)), "\n"))
					}
					want := []string{fmt.Sprintf("%d user: I want a table for two", turn), fmt.Sprintf("%d assistant: For when?", turn), fmt.Sprintf("%d user: Now", turn+1), fmt.Sprintf("%d assistant: Done.", turn+1)}
					got := texts(s.history(id).Contents)
					if diff := cmp.Diff(want, got[len(got)-4:]); diff != "" || len(got) != 4+2*int(turn) {
						t.Errorf("%q\n%s", got, diff)
					}
				})
			}
		}
	}
}

// TestGhostPlayed: the platform plays an answer that seemed to be dropped. The ledger shows one
// answer, with what was heard.
func TestGhostPlayed(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"heardlog": map[string]any{"mode": "reconcile"}})
	s.ask(id, "Where to?", user("I want a ticket"))
	s.ask(id, "For which day?", user("I want a ticket please"))
	s.ask(id, "Fine.", user("I want a ticket please"), assistant("Where to?"), user("Rome"))
	want := []string{"0 user: I want a ticket please", "0 assistant: Where to?", "1 user: Rome", "1 assistant: Fine."}
	if diff := cmp.Diff(want, texts(s.history(id).Contents)); diff != "" {
		t.Errorf("%s\n%s", diff, strings.Join(entries(s.ledger(id)), "\n"))
	}
}

// TestGhostOfTool: a speculative tool call that was never run stays in the ledger, marked as a
// ghost, and appears nowhere else.
func TestGhostOfTool(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"heardlog": map[string]any{"mode": "reconcile"}})
	s.post(agent(id, "/chat/completions"), map[string]any{"messages": []any{user("Book a table")}, "fake": map[string]any{"tool_name": "book", "tool_args": "{}"}}).ok(nil)
	s.ask(id, "For whom?", user("Book a table for two"))
	s.ask(id, "Booked.", user("Book a table for two"), assistant("For whom?"), user("Anna"))
	want := []string{
		"0 user final: Book a table for two", "0 assistant superseded:  |  | assumed_full ghost", "0 assistant final: For whom? | For whom? | echo_diff",
		"1 user final: Anna", "1 assistant final: Booked. | Booked. | assumed_full provisional",
	}
	msgs := s.ledger(id)
	if diff := cmp.Diff(want, entries(msgs)); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(msgs[1].ToolCalls), `"book"`) {
		t.Errorf("the ghost's call is lost: %s", msgs[1].ToolCalls)
	}
	if sent := string(lastBody(llm)); strings.Contains(sent, `"book"`) {
		t.Errorf("the model is told of a ghost's call: %s", sent)
	}
	if got := s.metric("heardlog_ghost_requests_total"); got != "1" {
		t.Errorf("%s ghosts", got)
	}
}

// TestResentWithoutAnswers: a list without answers counts as the whole call if it starts as the
// call did. A client that sends only new messages may say the same twice.
func TestResentWithoutAnswers(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for name, tt := range map[string]struct {
		first  []any
		second []any
		want   []string
	}{
		"the answer was never played": {[]any{user("one")}, []any{user("one"), user("two")}, []string{"0 user: one", "1 user: two", "1 assistant: b"}},
		"only what is new":            {[]any{user("hi")}, []any{user("hi")}, []string{"0 user: hi", "0 assistant: a", "1 user: hi", "1 assistant: b"}},
		"two new messages":            {[]any{user("hi")}, []any{user("well"), user("hi")}, []string{"0 user: hi", "0 assistant: a", "1 user: well", "1 user: hi", "1 assistant: b"}},
	} {
		id := s.join(name, nil)
		s.ask(id, "a", tt.first...)
		s.ask(id, "b", tt.second...)
		if diff := cmp.Diff(tt.want, texts(s.history(id).Contents)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	id := s.join("cut and extended", nil)
	tail := s.tail(id)
	_ = s.speculate(id, map[string]any{"chunks": []string{"a", "b"}, "hang_after": 2}, []any{user("I want")}).Close()
	tail.message("the answer that was cut", func(m message) bool { return m.Role == "assistant" })
	s.ask(id, "b", user("I want a ticket"))
	if diff := cmp.Diff([]string{"0 user: I want a ticket", "0 assistant: b"}, texts(s.history(id).Contents)); diff != "" {
		t.Errorf("cut and extended:\n%s", diff)
	}
}

// speculate starts a streamed call. It returns the body once the upstream has been asked and, if it
// answers, the first words have come.
func (s *server) speculate(id string, script map[string]any, list []any) io.ReadCloser {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"stream": true, "messages": list, "fake": script})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+agent(id, "/chat/completions"), strings.NewReader(string(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	if script["hang"] == true {
		begun := s.tail(id)
		go func() {
			if resp, err := s.client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		begun.message("that the call is stored", func(message) bool { return true })
		return closer(cancel)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	if script["answer"] == nil {
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			s.t.Fatal(err)
		}
	}
	return resp.Body
}

// closer is a body that has not come yet; closing it cancels the call.
type closer func()

func (c closer) Read([]byte) (int, error) { return 0, io.EOF }

func (c closer) Close() error {
	c()
	return nil
}

// TestHeardInPieces: a platform that replaces our answer with two messages has both stored in its
// turn. A list with several new turns is accepted whatever its turn number.
func TestHeardInPieces(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("two", nil)
	s.ask(id, "The train leaves at nine.", user("when does it leave"))
	s.ask(id, "Bye.", user("when does it leave"), assistant("One moment please."), assistant("I am getting somebody for you."), user("ok then"))
	want := []string{
		"0 user final: when does it leave", "0 assistant replaced:  | The train leaves at nine. | echo_diff interrupted",
		"0 assistant final: One moment please. | One moment please. | echo_diff command",
		"0 assistant final: I am getting somebody for you. | I am getting somebody for you. | echo_diff command",
		"1 user final: ok then", "1 assistant final: Bye. | Bye. | assumed_full provisional",
	}
	if diff := cmp.Diff(want, entries(s.ledger(id))); diff != "" {
		t.Error(diff)
	}

	id = s.join("several", nil)
	s.ask(id, "The first answer.", user("one"))
	s.post(agent(id, "/chat/completions"), map[string]any{"turn_id": 1, "messages": []any{
		user("one"), assistant("The first answer."), user("two"), assistant("The second answer."), user("three"), assistant("The third answer."), user("four"),
	}, "fake": map[string]any{"answer": "The fourth answer."}}).ok(nil)
	var turns []string
	for _, m := range s.ledger(id) {
		turns = append(turns, fmt.Sprint(m.TurnID, " ", m.Role))
	}
	if diff := cmp.Diff([]string{"0 user", "0 assistant", "1 user", "1 assistant", "2 user", "2 assistant", "3 user", "3 assistant"}, turns); diff != "" {
		t.Error(diff)
	}
}
