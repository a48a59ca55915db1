package tests

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// spreadDigits are the parts of the card 4929 1234 5678 9015, written and spoken.
var spreadDigits = regexp.MustCompile(`\b(4929|1234|5678|9015)\b|four nine|one two three`)

// spoken returns the messages that count, as role: content.
func (s *server) spoken(id string) (out []string) {
	s.t.Helper()
	for _, m := range s.ledger(id) {
		if m.State == "final" && !m.Ghost {
			out = append(out, m.Role+": "+m.Content)
		}
	}
	return out
}

// TestSpreadNumber: a number that the caller says in two messages is replaced in both, in the
// ledger and in events that are sent afterwards, with what the agent has repeated of it.
func TestSpreadNumber(t *testing.T) {
	t.Parallel()
	s, _, h, _ := redacting(t)
	h.status.Store(http.StatusServiceUnavailable)
	id := s.join("n", nil)
	first := map[string]any{"role": "user", "content": "My card is 4929 1234", "id": "first"}
	if got := s.say(id, first)[0].Content; got != first["content"] {
		t.Errorf("a part of a number alone became %q", got)
	}
	s.say(id, assistant("4929 1234, and then?"))
	if got := s.say(id, user("5678 9015, thanks"))[0].Content; got != "[card], thanks" {
		t.Errorf("the answer to the append has %q", got)
	}
	if got := s.say(id, first)[0]; got.Seq != 1 || got.Content != "My card is [card]" {
		t.Errorf("the same message again is %+v", got)
	}
	s.say(id, user("I have 2"), user("4 children"))
	want := []string{"user: My card is [card]", "assistant: [card], and then?", "user: [card], thanks", "user: I have 2", "user: 4 children"}
	if diff := cmp.Diff(want, s.spoken(id)); diff != "" {
		t.Error(diff)
	}
	if text := string(s.get(agent(id, "/messages?limit=1000")).body) + string(s.get(agent(id, "/history")).body); spreadDigits.MatchString(text) {
		t.Errorf("the call shows %s", text)
	}
	// What was sent at once had the first part; what is sent from now on has not.
	h.status.Store(http.StatusOK)
	for len(h.got) > 0 {
		<-h.got
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	var seen strings.Builder
	for ended, messages := false, 0; !ended || messages < 4; {
		c := h.next(t)
		seen.Write(c.body)
		ended = ended || c.EventType == 103
		if c.EventType == 10002 {
			messages++
		}
	}
	if at := spreadDigits.FindString(seen.String()); at != "" || !strings.Contains(seen.String(), `[card], thanks`) {
		t.Errorf("events hold %q: %s", at, seen.String())
	}
}

// TestSpreadNumberInTurns: the same in the proxy's two modes. A client that sends its list again
// adds nothing to it, and an LLM that is to see nothing else sees no part.
func TestSpreadNumberInTurns(t *testing.T) {
	t.Parallel()
	said := []string{"It's four nine two nine, one two three four", "five six seven eight", "nine zero one five. That's it.", "Is it fine?"}
	want := []string{
		"user: It's [card]", "assistant: Mm-hm.", "user: [card]", "assistant: Mm-hm.", "user: [card]. That's it.", "assistant: Mm-hm.", "user: Is it fine?", "assistant: Mm-hm.",
	}
	for name, redact := range map[string]map[string]any{"original": {}, "redacted": {"upstream": "redacted"}} {
		for _, resends := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				llm, base := upstream(t, fake.Script{Answer: "Mm-hm."})
				s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_REDACT=card")
				id := s.join("n", map[string]any{"heardlog": map[string]any{"redact": redact}})
				var list []any
				for _, text := range said {
					list = append(list, user(text))
					send := list
					if !resends {
						send = []any{user(text)}
					}
					s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": send}).ok(nil)
					list = append(list, assistant("Mm-hm."))
				}
				if resends { // the start of the list is lost
					s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": append(slices.Clone(list[2:]), user("Hello?"))}).ok(nil)
					want := append(slices.Clone(want), "user: Hello?", "assistant: Mm-hm.")
					if diff := cmp.Diff(want, s.spoken(id)); diff != "" {
						t.Error(diff)
					}
				} else if diff := cmp.Diff(want, s.spoken(id)); diff != "" {
					t.Error(diff)
				}
				for i, r := range llm.Requests() {
					if i >= 2 && name == "redacted" && strings.Contains(strings.ReplaceAll(string(r.Body), "nine zero", ""), "five") {
						t.Errorf("the model was shown %s", r.Body)
					}
				}
				if up := sentUp(llm); resends && name == "original" && !strings.Contains(up, "five six seven eight") {
					t.Errorf("the model is not shown the client's own words: %s", up)
				}
				for turn := range int64(6) {
					for _, r := range s.requests(id, turn) {
						if strings.Contains(r.Body, "seven eight") || strings.Contains(r.Body, "four nine") {
							t.Errorf("the record of turn %d holds %s", turn, r.Body)
						}
					}
				}
			})
		}
	}
}

// TestSpreadReadBack: an answer that reads a number back over two messages, and a transcript that
// comes in pieces.
func TestSpreadReadBack(t *testing.T) {
	t.Parallel()
	s, _, _, _ := redacting(t)
	id := s.join("n", nil)
	s.say(id, assistant("I have 4929 1234"), user("Yes"), assistant("5678 9015, right?"))
	s.say(id, user("No, I mean 0171"), user("234"))
	s.say(id, user("5678, please"))
	want := []string{"assistant: I have [card]", "user: Yes", "assistant: [card], right?", "user: No, I mean [phone]", "user: [phone]", "user: [phone], please"}
	if diff := cmp.Diff(want, s.spoken(id)); diff != "" {
		t.Error(diff)
	}
	// A policy merges the messages as they are stored.
	merging := s.join("merging", map[string]any{"heardlog": map[string]any{"policy": map[string]any{"apply": "write", "normalise": map[string]any{"merge_assistant": true}}}})
	s.say(merging, user("Hi"), assistant("I have 4929 1234"))
	s.say(merging, assistant("5678 9015, right?"))
	if all := string(s.get(agent(merging, "/messages?limit=1000")).body); spreadDigits.MatchString(all) || !strings.Contains(all, "I have [card], right?") {
		t.Errorf("%s", all)
	}
	// The second message grows.
	other := s.join("other", nil)
	list := []any{user("My card is 4929"), assistant("Go on."), user("1234 5678")}
	send := func() {
		t.Helper()
		s.post(agent(other, "/chat/completions"), map[string]any{"model": "m", "messages": list}).ok(nil)
	}
	send()
	list[2] = user("1234 5678 9015 is the number")
	send()
	list = append(list, assistant(cardAnswer), user("Yes."))
	send()
	got := s.spoken(other)
	if len(got) < 3 || got[0] != "user: My card is [card]" || got[2] != "user: [card] is the number" || strings.Count(strings.Join(got, "|"), "My card") != 1 {
		t.Errorf("%q", got)
	}
}

// TestRedactedListKeepsWords: in a list that a client sends again and again, short words are not
// taken for something that was replaced elsewhere.
func TestRedactedListKeepsWords(t *testing.T) {
	t.Parallel()
	for name, said := range map[string][][2]string{
		"address":       {{"hello", "hello"}, {"yes", "yes"}, {"anna@example.com", "[email]"}, {"no", "no"}, {"thank you", "thank you"}},
		"card":          {{"hello", "hello"}, {"two", "two"}, {"4111 1111 1111 1111", "[card]"}, {"yes please", "yes please"}, {"four", "four"}},
		"words before":  {{"two", "two"}, {"0176 12345678", "[phone]"}, {"three", "three"}, {"yes please", "yes please"}},
		"words after":   {{"hello", "hello"}, {"0176 12345678", "[phone]"}, {"two", "two"}, {"yes please", "yes please"}},
		"address first": {{"anna@example.com", "[email]"}, {"no wait, it is bob@example.com", "no wait, it is [email]"}, {"no", "no"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, base := upstream(t, fake.Script{Answer: "Mm-hm."})
			s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_REDACT=card,phone,email,secret")
			id := s.join("n", nil)
			var list []any
			var want []string
			for _, w := range said {
				list, want = append(list, user(w[0])), append(want, "user: "+w[1], "assistant: Mm-hm.")
				s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": list}).ok(nil)
				list = append(list, assistant("Mm-hm."))
			}
			if diff := cmp.Diff(want, s.spoken(id)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
