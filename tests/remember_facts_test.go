package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/llmadapter"
)

// waitFor waits until ok reports true.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for late := time.After(patience); !ok(); {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// TestRememberFacts: what is known of the caller stands behind the system messages, the same for
// the whole call.
func TestRememberFacts(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true", `HEARDLOG_REMEMBER={}`)
	known := s.addFact("anna", `{"content":"Anna sits in seat 12 A.","kind":"preference"}`)
	id := s.joinAs("new", remembering("anna", `{}`, `,"llm":{"system_messages":[{"role":"system","content":"Be brief."}]}`))
	s.chat(agent(id, "/chat/completions"), "Hello", true).ok(nil)
	s.addFact("anna", `{"content":"Anna has a dog.","kind":"profile"}`)
	s.chat(agent(id, "/chat/completions"), "And now?", true).ok(nil)
	all := prompts(llm)
	block := blockOf(t, all[0])
	if !strings.Contains(block, "Anna sits in seat 12 A.") || !strings.HasPrefix(all[0], `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"<memory id=`) {
		t.Fatalf("%s", all[0])
	}
	if again := blockOf(t, all[1]); again != block {
		t.Errorf("the block has changed: %s", again)
	}
	if newest := strings.LastIndex(all[0], `"},`); !strings.HasPrefix(all[1], all[0][:strings.Index(all[0], `Hello"}`)]) {
		t.Errorf("%d: the beginning has changed:\n%s\n%s", newest, all[0], all[1])
	}
	s = s.again()
	if got := s.context(id, `{}`); !strings.HasPrefix(got.lines()[1], "user: "+block) || !slices.Equal(got.Recalled, []string{known.ID}) {
		t.Errorf("after a restart: %q %v", got.lines(), got.Recalled)
	}
	// A caller that the first chat completion names. On a slow machine nothing may be found before
	// the deadline.
	for n := 0; ; n++ {
		first := len(prompts(llm))
		for range 2 {
			s.chat(v1+"/chat/completions", "Hello", true, "X-Agent-Id", fmt.Sprint("room", n), "X-Heardlog-User", "anna").ok(nil)
			s.addFact("anna", fmt.Sprintf(`{"content":"Anna has %d cats."}`, len(prompts(llm))))
		}
		all = prompts(llm)[first:]
		a, b := blockOf(t, all[0]), blockOf(t, all[1])
		if a == "" && n < 20 {
			continue
		}
		if a == "" || a != b || !strings.Contains(a, "dog") {
			t.Errorf("%s\n%s", a, b)
		}
		break
	}
}

// TestRememberFactsOfTurn: a fact that answers the newest message stands right before it in the
// prompt, even if it was added during the call. Nothing that the prompt already has is repeated,
// and the block of the whole call does not change.
func TestRememberFactsOfTurn(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	old := s.join("old", caller("anna"))
	s.say(old, user("I am allergic to peanuts."), assistant("I will note that."))
	for _, f := range []string{"Sings in a choir", "Has a canoe", "Lives in Bonn", "Drives a red van", "Collects stamps"} {
		s.addFact("anna", fmt.Sprintf(`{"content":%q,"confidence":0.9}`, f))
	}
	s.addFact("anna", fmt.Sprintf(`{"content":"Is allergic to peanuts","confidence":0.5,"source":{"agent_id":%q,"from_seq":1,"to_seq":1,"quote":"allergic to peanuts","speaker":"user"}}`, old))
	for name, remember := range map[string]string{"facts": `{"top_k":3}`, "turns, too": `{"top_k":3,"recall":"always"}`} {
		t.Run(name, func(t *testing.T) {
			own := *s
			own.t = t
			id := own.joinAs(name, remembering("anna", remember))
			ask := func(words string) (prompt, newest string) {
				// On a slow machine nothing may be found before the deadline.
				waitFor(t, "an answer to "+words, func() bool {
					own.chat(agent(id, "/chat/completions"), words, true).ok(nil)
					all := prompts(llm)
					prompt = all[len(all)-1]
					newest = prompt[strings.LastIndex(prompt, `{"role":"user"`):]
					return strings.Contains(prompt, "choir") && (!strings.Contains(words, "?") || strings.Contains(newest, "memory id="))
				})
				return prompt, newest
			}
			if _, newest := ask("Hello."); strings.Contains(newest, "peanuts") {
				t.Errorf("nothing was asked: %s", newest)
			}
			prompt, newest := ask("Am I allergic to peanuts?")
			line := `- Is allergic to peanuts (confidence: medium)`
			if strings.Count(prompt, line) != 1 || !strings.Contains(newest, line) || strings.Contains(prompt, "caller: I am allergic") {
				t.Errorf("the fact is not there once, without the turn that proves it: %s", prompt)
			}
			own.addFact("anna", fmt.Sprintf(`{"content":"Was given the locker %s","confidence":0.2}`, name))
			if _, newest := ask("Which locker was I given?"); !strings.Contains(newest, "the locker "+name) {
				t.Errorf("a new fact: %s", newest)
			}
			if prompt, _ := ask("Do I sing in a choir? And am I allergic to peanuts?"); strings.Count(prompt, "Sings in a choir") != 1 {
				t.Errorf("a fact that the call began with: %s", prompt)
			}
		})
	}
}

// TestRememberExtracts: after a call its facts are extracted, also if the server was away then.
func TestRememberExtracts(t *testing.T) {
	t.Parallel()
	answer := `[{"op":"add","kind":"preference","subject":"caller","attribute":"seat","content":"The caller wants a seat at the window.","speaker":"user","from_seq":1,"to_seq":1,"quote":"a seat at the window"}]`
	llm, base := upstream(t, fake.Script{Answer: answer})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	var ids []string
	for _, name := range []string{"one", "two"} {
		id := s.joinAs(name, remembering("anna-"+name, `{"extract":true,"extraction_model":"small"}`))
		s.say(id, user("I want a seat at the window."), assistant("Noted."))
		ids = append(ids, id)
	}
	if len(llm.Requests()) != 0 {
		t.Errorf("asked during the call")
	}
	s.post(agent(ids[0], "/leave"), nil).ok(nil)
	waitFor(t, "the facts of a call", func() bool { return len(s.facts("anna-one", "").Facts) == 1 })
	if got := s.facts("anna-one", "").Facts[0]; got.Content != "The caller wants a seat at the window." || got.Source.AgentID != ids[0] {
		t.Errorf("%+v", got)
	}
	if body := prompts(llm)[0]; !strings.Contains(body, `"model":"small"`) || !strings.Contains(body, "I want a seat at the window.") {
		t.Errorf("%s", body)
	}
	s = s.again()
	s.post(agent(ids[1], "/leave"), nil).ok(nil)
	waitFor(t, "the facts after a restart", func() bool { return len(s.facts("anna-two", "").Facts) == 1 })
	if n := len(llm.Requests()); n != 2 {
		t.Errorf("%d requests for two calls", n)
	}
	waitFor(t, "the count of one extraction after the restart", func() bool { // it follows the facts
		return strings.Contains(string(s.get("/metrics").ok(nil).body), `heardlog_extractions_total{outcome="ok"} 1`)
	})
}

// TestRememberExtractsDuring: what the caller says in one call is a fact for another that runs at
// the same time, as long as it was heard, and the end of the call does not repeat it.
func TestRememberExtractsDuring(t *testing.T) {
	t.Parallel()
	answer := `[{"kind":"preference","content":"Wants the seat at the window.","speaker":"user","from_seq":2,"to_seq":3,"quote":"Yes, that one"}]`
	llm, base := upstream(t, fake.Script{Answer: answer})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	first := s.joinAs("first", remembering("anna", `{"extract":true,"extract_seconds":1}`))
	second := s.joinAs("second", remembering("anna", `{}`))
	s.say(first, user("Hello."), assistant("There is a seat at the window. Would you like it?"))
	s.interrupt(first, map[string]any{"heard": "There is a seat at the window. Would you like it?"}).ok(nil)
	s.say(first, user("Yes, that one."), assistant("Good."))
	waitFor(t, "the fact of a running call", func() bool { return len(s.facts("anna", "").Facts) == 1 })
	if all := prompts(llm); len(all) != 1 || strings.Contains(all[0], "Good.") {
		t.Errorf("the answer that is still spoken was read: %q", all)
	}
	waitFor(t, "the other call", func() bool {
		s.chat(agent(second, "/chat/completions"), "Which seat do I want?", true).ok(nil)
		all := prompts(llm)
		return strings.Contains(all[len(all)-1], "Wants the seat at the window.")
	})
	s.interrupt(first, map[string]any{"heard": "There is", "turn_id": 0}).ok(nil)
	if got := s.facts("anna", "").texts(); len(got) != 0 {
		t.Errorf("it was not heard: %q", got)
	}
	asked := len(prompts(llm))
	s.say(first, user("Bye."))
	s = s.again()
	s.post(agent(first, "/leave"), nil).ok(nil)
	waitFor(t, "the end of the call", func() bool { return len(prompts(llm)) > asked })
	waitFor(t, "its count", func() bool {
		return strings.Contains(string(s.get("/metrics").ok(nil).body), `heardlog_extractions_total{outcome="ok"} 1`)
	})
	if got := s.facts("anna", "?state=all").texts(); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// scripted is an LLM that answers requests in turn with streams.
type scripted struct {
	mu      sync.Mutex
	answers []string // data of events, one a line; or a whole answer
	bodies  []string
}

func (l *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bodies = append(l.bodies, string(body))
	if len(l.answers) == 0 {
		http.Error(w, "no more answers", http.StatusTeapot)
		return
	}
	next := l.answers[0]
	l.answers = l.answers[1:]
	var in struct{ Stream bool }
	_ = json.Unmarshal(body, &in)
	if !in.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, next)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for line := range strings.SplitSeq(next, "\n") {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func (l *scripted) script(answers ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers, l.bodies = answers, nil
}

// chunks returns events with these deltas and finish reasons.
func chunks(id string, deltas ...string) string {
	var out []string
	for _, d := range deltas {
		delta, finish, ok := strings.Cut(d, "|")
		if finish = `"` + finish + `"`; !ok {
			finish = "null"
		}
		out = append(out, fmt.Sprintf(`{"id":%q,"object":"chat.completion.chunk","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`, id, delta, finish))
	}
	return strings.Join(out, "\n")
}

// called returns the deltas of a tool call.
func called(index int, name, args string) []string {
	quoted, _ := json.Marshal(args)
	return []string{
		fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"call_%s%d","type":"function","function":{"name":%q,"arguments":""}}]}`, index, name, index, name),
		fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, index, quoted),
	}
}

// TestRememberTools: the model's calls of the memory's tools are run, and the client gets the rest
// as one answer.
func TestRememberTools(t *testing.T) {
	t.Parallel()
	llm := &scripted{}
	srv := httptest.NewServer(llm)
	t.Cleanup(srv.Close)
	s := start(t, "HEARDLOG_LLM_URL="+srv.URL+"/v1")
	s.balcony("old")
	id := s.joinAs("new", remembering("anna", `{"tools":true}`))
	own := `,"tools":[{"type":"function","function":{"name":"book","parameters":{}}}]`
	ask := func(words, more string) string {
		return string(s.post(agent(id, "/chat/completions"), fmt.Sprintf(`{"stream":true,"messages":[{"role":"user","content":%q}]%s}`, words, more)).ok(nil).body)
	}
	opening := `{"role":"assistant","content":null}`
	said := func(text string) string {
		return chunks("b", opening, fmt.Sprintf(`{"content":%q}`, text), `{}|stop`)
	}

	// A fact: the stream of the last response comes as it is.
	save := slices.Concat([]string{opening}, called(0, "remember", `{"content":"The caller wants a window seat.","kind":"preference"}`), []string{`{}|tool_calls`})
	llm.script(chunks("a", save...), said("I will remember that."))
	got := ask("I always want a window seat.", own)
	var want strings.Builder
	for line := range strings.SplitSeq(said("I will remember that."), "\n") {
		want.WriteString("data: " + line + "\n\n")
	}
	if want.WriteString("data: [DONE]\n\n"); got != want.String() {
		t.Errorf("%s\nwant\n%s", got, want.String())
	}
	if f := s.facts("anna", "").Facts; len(f) != 1 || f[0].Content != "The caller wants a window seat." || f[0].By != "tool" {
		t.Errorf("%+v", f)
	}
	if b := llm.bodies; len(b) != 2 || !strings.Contains(b[0], `"name":"forget"`) || !strings.Contains(b[0], `"name":"book"`) ||
		!strings.Contains(b[1], `"role":"tool","tool_call_id":"call_remember0"`) || !strings.Contains(b[1], `{\"done\":true`) {
		t.Errorf("%q", b)
	}

	// Words before the call, and a search: one answer with one ID.
	look := slices.Concat([]string{`{"role":"assistant","content":"One moment. "}`}, called(0, "recall", `{"query":"rooms in Porto balcony"}`), []string{`{}|tool_calls`})
	llm.script(chunks("a", look...), said("They have a balcony."))
	got = ask("What about the rooms?", "")
	if strings.Contains(got, `"b"`) || strings.Contains(got, "tool_calls") || strings.Count(got, "role") != 1 || !strings.Contains(got, "They have a balcony.") {
		t.Errorf("%s", got)
	}
	if b := llm.bodies; len(b) != 2 || !strings.Contains(b[1], "We booked two rooms in Porto with a balcony.") || strings.Contains(b[1], "tool_choice") {
		t.Errorf("%q", b)
	}
	if l := s.ledger(id); l[len(l)-1].Content != "One moment. They have a balcony." {
		t.Errorf("%+v", l[len(l)-1])
	}

	// Mixed calls: the client gets its own, numbered from 0.
	mixed := slices.Concat([]string{opening}, called(0, "remember", `{"content":"The caller likes Porto.","kind":"preference"}`), called(1, "book", `{"room":2}`), []string{`{}|tool_calls`})
	llm.script(chunks("a", mixed...))
	got = ask("I like Porto, book it.", own)
	if strings.Contains(got, "remember") || !strings.Contains(got, `"name":"book"`) || strings.Contains(got, `"index":1`) || !strings.Contains(got, `"finish_reason":"tool_calls"`) {
		t.Errorf("%s", got)
	}
	if f := s.facts("anna", "").Facts; len(f) != 2 {
		t.Errorf("%+v", f)
	}
	// The client's own calls alone are not touched.
	alone := chunks("a", slices.Concat([]string{opening}, called(0, "book", `{"room":2}`), []string{`{}|tool_calls`})...)
	llm.script(alone)
	if got = ask("Book again.", own); got != "data: "+strings.ReplaceAll(alone, "\n", "\n\ndata: ")+"\n\ndata: [DONE]\n\n" {
		t.Errorf("%s", got)
	}

	// Two rounds at most, then the model may choose none.
	again := chunks("a", slices.Concat(called(0, "recall", `{"query":"Porto"}`), []string{`{}|tool_calls`})...)
	llm.script(again, again, said("Enough."))
	if got = ask("Go on.", ""); !strings.Contains(got, "Enough.") || len(llm.bodies) != 3 || !strings.Contains(llm.bodies[2], `"tool_choice":"none"`) {
		t.Errorf("%s %q", got, llm.bodies)
	}

	// Wrong arguments are explained to the model, and null is no argument.
	for arguments, want := range map[string]string{
		`{"content":7,"kind":"event"}`: `content: must be a string`, `{"content":null}`: `content: is required`, ``: `content: is required`, `null`: `content: is required`,
		`[]`: `the arguments must be a JSON object`,
	} {
		llm.script(chunks("a", slices.Concat([]string{opening}, called(0, "remember", arguments), []string{`{}|tool_calls`})...), said("Sorry."))
		ask("Keep it.", "")
		if b := llm.bodies; len(b) != 2 || !strings.Contains(b[1], want) || goWords(b[1]) || strings.Contains(b[1], `"arguments":""`) {
			t.Errorf("%s: %q", arguments, b)
		}
	}

	// Nothing is offered where the request forbids it.
	llm.script(said("No."))
	if ask("And this?", `,"tool_choice":"none"`); strings.Contains(llm.bodies[0], "forget") {
		t.Errorf("%s", llm.bodies[0])
	}

	// In one piece.
	whole := func(message, finish string) string {
		return fmt.Sprintf(`{"id":"a","object":"chat.completion","choices":[{"index":0,"message":%s,"finish_reason":%q}]}`, message, finish)
	}
	forget := `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"forget","arguments":"{\"what\":\"window seat\"}"}}]}`
	turn := func(words, text string) string {
		llm.script(whole(forget, "tool_calls"), whole(fmt.Sprintf(`{"role":"assistant","content":%q}`, text), "stop"))
		return string(s.chat(agent(id, "/chat/completions"), words, false).ok(nil).body)
	}
	if got := turn("Forget my seat.", "Shall I forget the window seat?"); !strings.Contains(got, "Shall I forget") || strings.Contains(got, "tool_calls") {
		t.Errorf("%s", got)
	}
	if f := s.facts("anna", "").Facts; len(f) != 2 || !strings.Contains(llm.bodies[1], "would_erase") {
		t.Errorf("erased at once: %+v %s", f, llm.bodies[1])
	}
	// The list was not heard to its end: other words are no consent.
	s.interrupt(id, `{"heard":"Shall I"}`).ok(nil)
	turn("What was that?", "Shall I forget the window seat?")
	if f := s.facts("anna", "").Facts; len(f) != 2 || !strings.Contains(llm.bodies[1], "would_erase") {
		t.Errorf("erased without consent: %+v %s", f, llm.bodies[1])
	}
	turn("Yes, please.", "Done.")
	if f := s.facts("anna", "").Facts; len(f) != 1 || f[0].Content != "The caller likes Porto." {
		t.Errorf("after the caller agreed: %+v", f)
	}
	for _, m := range s.ledger(id) {
		if strings.Contains(m.Content, "would_erase") || m.Role == "tool" {
			t.Errorf("in the ledger: %+v", m)
		}
	}
}

// TestRememberToolStreams: upstreams whose streams differ from those of OpenAI.
func TestRememberToolStreams(t *testing.T) {
	t.Parallel()
	llm := &scripted{}
	srv := httptest.NewServer(llm)
	t.Cleanup(srv.Close)
	s := start(t, "HEARDLOG_LLM_URL="+srv.URL+"/v1")
	s.say(s.join("old", caller("anna")), user("My mail address is jane@mail.example for Porto."), assistant("Noted."))
	s.recall("anna", "Porto")
	id := s.joinAs("new", remembering("anna", `{"tools":true},"redact":{"types":["email"],"upstream":"redacted"}`))
	post := func(words string) answer {
		return s.post(agent(id, "/chat/completions"), fmt.Sprintf(`{"stream":true,"messages":[{"role":"user","content":%q}],"tools":[{"type":"function","function":{"name":"book","parameters":{}}}]}`, words))
	}
	opening := `{"role":"assistant","content":null}`
	look := called(0, "recall", `{"query":"mail address for Porto"}`)
	said := chunks("b", opening, `{"content":"I have it."}`, `{}|stop`)
	blank := `{"id":"","object":"","choices":[],"prompt_filter_results":[]}`

	// No finish_reason before [DONE], and an empty ID first. The result has no personal data.
	llm.script(blank+"\n"+chunks("a", slices.Concat([]string{`{"role":"assistant","content":"One moment. "}`}, look)...), blank+"\n"+said)
	got := string(post("Which address?").ok(nil).body)
	if !strings.Contains(got, "I have it.") || strings.Count(got, `"id":"a"`) != 3 || strings.Contains(got, `"b"`) {
		t.Errorf("%s", got)
	}
	if b := llm.bodies; len(b) != 2 || !strings.Contains(b[1], "My mail address is [email]") || strings.Contains(b[1], "jane@mail") {
		t.Errorf("%q", b)
	}

	// A finish_reason that is repeated.
	before := s.metric(`heardlog_memory_tool_calls_total{tool="recall"}`)
	llm.script(chunks("a", slices.Concat([]string{opening}, look, called(1, "book", `{}`), []string{`{}|tool_calls`, `{}|tool_calls`})...))
	post("Book it.").ok(nil)
	if after := s.metric(`heardlog_memory_tool_calls_total{tool="recall"}`); before != "1" || after != "2" {
		t.Errorf("%s, then %s calls", before, after)
	}

	// An event without end.
	llm.script(fmt.Sprintf(`{"padding":%q}`, strings.Repeat("x", llmadapter.MaxEvent)) + "\n" + said)
	if a := post("Go on."); strings.Contains(string(a.body), "I have it.") || a.status != http.StatusBadGateway {
		t.Errorf("%d %.300s", a.status, a.body)
	}
}
