package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// toldRequest is a request to an LLM, as the API answers it.
type toldRequest struct {
	Seq      int64
	Exact    bool
	Messages []struct {
		Role    string
		Content any
		Seqs    []int64
		Changed bool
	}
	LeftOut []struct {
		Seq     int64
		Role    string
		Content string
		Reason  string
	} `json:"left_out"`
	Policy   map[string]any
	URL      string
	Body     string
	Attempts []struct {
		Upstream, Error string
		SentMS          int64 `json:"sent_ms"`
	}
	Timings map[string]any
	Filler  string
	Content string
}

// requests returns what the LLM was given in a turn.
func (s *server) requests(id string, turn int64) []toldRequest {
	s.t.Helper()
	var out struct{ Requests []toldRequest }
	s.get(agent(id, fmt.Sprintf("/turns/%d/requests", turn))).ok(&out)
	return out.Requests
}

// wantRequest checks that what the upstream was sent in n calls of an agent is known byte for byte.
func (s *server) wantRequest(llm *fake.LLM, id string, n int) {
	s.t.Helper()
	var sent []string
	for _, r := range llm.Requests() {
		sent = append(sent, string(r.Body))
	}
	found, seen := 0, map[int64]bool{}
	for _, m := range s.ledger(id) {
		if seen[m.TurnID] {
			continue
		}
		seen[m.TurnID] = true
		for _, r := range s.requests(id, m.TurnID) {
			found++
			if !r.Exact || !slices.Contains(sent, r.Body) {
				s.t.Errorf("turn %d: exact is %t, and the upstream was not sent %s", m.TurnID, r.Exact, r.Body)
			}
		}
	}
	if found != n {
		s.t.Errorf("there are %d requests of %d", found, n)
	}
}

// TestTold: what the model was given at an earlier turn stays as it was then, whatever is learned
// later of what was heard.
func TestTold(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine from platform two. Shall I book?"})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_API_KEY=key-of-the-server", "HEARDLOG_LLM_MODEL=m1")
	const prompt = "You sell tickets, \"brief\" and polite – and never say more than the caller needs to go on."
	id := s.join("n", map[string]any{"llm": map[string]any{
		"max_history": 4, "params": map[string]any{"api_key": "key-in-the-params"},
		"system_messages": []any{map[string]any{"role": "system", "content": prompt}},
	}})
	path := agent(id, "/chat/completions")
	s.chat(path, "When?", true).ok(nil)
	s.chat(path, "From\n\"where\"? 🚂", false).ok(nil)
	before := s.requests(id, 1)
	s.post(agent(id, "/interrupt"), map[string]any{"heard": "At nine"}).ok(nil)
	s.chat(path, "Yes.", true).ok(nil)
	if diff := cmp.Diff(before, s.requests(id, 1)); diff != "" {
		t.Error("evidence that came later changed what was told", diff)
	}
	got := s.requests(id, 2)
	if len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	r := got[0]
	lines := []string{}
	for _, m := range r.Messages {
		lines = append(lines, fmt.Sprintf("%s: %v %v", m.Role, m.Content, m.Seqs))
	}
	want := []string{"system: " + prompt + " []", "assistant: At nine from platform two. Shall I book? [2]", "user: From\n\"where\"? 🚂 [3]", "assistant: At nine [4]", "user: Yes. [5]"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if len(r.LeftOut) != 1 || r.LeftOut[0].Seq != 1 || r.LeftOut[0].Content != "When?" || r.LeftOut[0].Reason != "limit" || r.Policy["max_messages"] != 4.0 {
		t.Errorf("left out by %v: %+v", r.Policy, r.LeftOut)
	}
	if r.URL != base+"/chat/completions" || len(r.Attempts) != 1 || r.Attempts[0].Upstream != "primary" || r.Timings["first_token_ms"] == nil {
		t.Errorf("%s %+v %+v", r.URL, r.Attempts, r.Timings)
	}
	if strings.Contains(r.Body, "key-in-the-params") || !strings.Contains(string(llm.Requests()[2].Body), "key-in-the-params") {
		t.Errorf("the secret of llm.params: %s", r.Body)
	}
	// Only what is new is stored again.
	var stored int
	for _, m := range s.ledger(id) {
		stored += strings.Count(fmt.Sprint(m), prompt)
	}
	if stored != 0 {
		t.Error("the ledger's own answer shows the record")
	}
	if got := s.requests(id, 77); len(got) != 0 {
		t.Errorf("a turn that never was: %+v", got)
	}
	s.get(agent(id, "/turns/x/requests")).refused(http.StatusBadRequest, "InvalidFieldValue", "turn_id")
	const path0 = v1 + "/agents/a/turns/0/requests"
	start(t, twoTenants).get(path0).refused(http.StatusUnauthorized, "InvalidPermission")
	limited := start(t, "HEARDLOG_RATE_LIMIT=requests=1")
	for limited.get(path0).status != http.StatusTooManyRequests {
	}
	s.get(agent("nobody", "/turns/0/requests")).refused(http.StatusNotFound, "TaskNotFound", "nobody")
}

// TestToldExactly compares each recorded body with what the upstream got, for prompts of many
// kinds.
func TestToldExactly(t *testing.T) {
	t.Parallel()
	calls := json.RawMessage(`[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":\"ü\"}"}}]`)
	result := map[string]any{"role": "tool", "tool_call_id": "c1", "content": "42"}
	parts := map[string]any{"role": "user", "content": json.RawMessage(`[{"type":"text","text":"And this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]`)}
	system := map[string]any{"role": "system", "content": "The platform's own instructions, which are longer than sixty-four bytes of text."}
	for _, mode := range []string{"inject", "reconcile"} {
		for _, vendor := range []string{"", "custom"} {
			for _, projection := range []string{"heard_only", "heard_and_unsaid"} {
				t.Run(mode+" "+vendor+" "+projection, func(t *testing.T) {
					t.Parallel()
					llm, base := upstream(t, fake.Script{Answer: "At nine <from> platform two. Shall I book?"})
					s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_MODEL=m1")
					id := s.join("n", map[string]any{"llm": map[string]any{"vendor": vendor}, "heardlog": map[string]any{"mode": mode, "projection": projection}})
					var list []any
					ask := func(stream bool, msgs ...any) {
						t.Helper()
						list = append(list, msgs...)
						if mode == "reconcile" {
							msgs = list
						}
						s.post(agent(id, "/chat/completions"), map[string]any{"stream": stream, "messages": msgs, "tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "f"}}}}).ok(nil)
					}
					ask(true, system, user("When?"))
					s.post(agent(id, "/interrupt"), map[string]any{"heard": "At nine"}).ok(nil)
					list = append(list, assistant("At nine"))
					ask(false, user("When?"), user("Again?"))
					list = append(list, assistant("At nine <from> platform two. Shall I book?"))
					ask(true, parts)
					list = append(list, assistant("At nine <from> platform two. Shall I book?"))
					if mode == "reconcile" {
						ask(true, user("Run it."), map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}, result)
					} else {
						ask(true, user("Run it."))
					}
					s.wantRequest(llm, id, 4)
					for _, r := range s.requests(id, 3) {
						last := r.Messages[len(r.Messages)-1]
						if len(last.Seqs) == 0 {
							t.Errorf("the last message is in the ledger, too: %s", r.Body)
						}
						for _, l := range r.LeftOut {
							if l.Reason != "platform" && l.Reason != "unheard" {
								t.Errorf("left out: %+v", l)
							}
						}
					}
				})
			}
		}
	}
}

// TestToldErased: a message that is removed, and what an agent is told in a pause, is in no record.
func TestToldErased(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	path := agent(id, "/chat/completions")
	s.chat(path, "When?", true).ok(nil)
	s.remember("human", "My code is canary.", `"user_id":"u","task_id":"t1","agent_id":"`+id+`"`, "")
	s.chat(path, "And then?", true).ok(nil)
	s.wantRequest(llm, id, 2)
	if !strings.Contains(sentUp(llm), "canary") {
		t.Fatalf("the model was not told: %s", sentUp(llm))
	}
	s.post(memoriesPath+"/clear", `{"scope":"task","user_id":"u","task_id":"t1"}`).ok(nil)
	s.wantRequest(llm, id, 1)
	id = s.join("n2", nil)
	path = agent(id, "/chat/completions")
	s.pause(id, `{}`)
	s.chat(path, "My code is canary.", true).ok(nil)
	s.post(agent(id, "/resume"), nil).ok(nil)
	s.post(path, map[string]any{"messages": []any{user("My code is canary."), assistant("At nine."), user("Go on.")}}).ok(nil)
	for turn := range int64(2) {
		if list := s.requests(id, turn); len(list) != 0 {
			t.Errorf("the pause is in %+v", list)
		}
	}
}

// TestToldRepeats: records repeat parts of earlier ones, some of which are dropped with a message.
func TestToldRepeats(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "calls.db")
	llm, base := upstream(t, fake.Script{Answer: "At nine from platform two."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_STORE=sqlite:"+path)
	id := s.join("n", map[string]any{"llm": map[string]any{"max_history": 6}})
	for i := range 12 {
		if i == 3 {
			s.remember("human", "My code is canary.", `"user_id":"u","task_id":"t1","agent_id":"`+id+`"`, "")
		}
		s.chat(agent(id, "/chat/completions"), fmt.Sprintf("Question %d?", i), i%2 == 0).ok(nil)
	}
	s.wantRequest(llm, id, 12)
	s.post(memoriesPath+"/clear", `{"scope":"task","user_id":"u","task_id":"t1"}`).ok(nil)
	s.wantRequest(llm, id, 3) // the others had the words, or repeat parts of those
	s.chat(agent(id, "/chat/completions"), "And back?", true).ok(nil)
	s.stop()
	bodies := strings.Join(storedBodies(t, path), "\n")
	if words, back := strings.Count(bodies, "canary"), strings.Count(bodies, "And back"); words != 0 || back != 1 {
		t.Errorf("the words are there %d times, and the last question %d times", words, back)
	}
	s = start(t, s.env...)
	s.chat(agent(id, "/chat/completions"), "When again?", true).ok(nil)
	s.wantRequest(llm, id, 5)
}

// TestToldErasedMeanwhile: words that are removed while a model answers are not stored with what it
// was given, whether its record has them or repeats them.
func TestToldErasedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, calls := range []int{1, 2, 4} { // the words are removed in the last one
		llm := fake.New(fake.Options{Script: fake.Script{Answer: "At nine."}})
		var s *server
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(llm.Requests()) == calls-1 {
				if got := s.post(memoriesPath+"/clear", `{"scope":"task","user_id":"u","task_id":"t1"}`); got.status != http.StatusOK {
					t.Errorf("clear: %d %s", got.status, got.body)
				}
			}
			llm.ServeHTTP(w, r)
		}))
		t.Cleanup(srv.Close)
		s = start(t, "HEARDLOG_LLM_URL="+srv.URL+"/v1")
		id := s.join("n", nil)
		s.remember("human", "My code is canary.", `"user_id":"u","task_id":"t1","agent_id":"`+id+`"`, "")
		for i := range calls {
			s.chat(agent(id, "/chat/completions"), fmt.Sprintf("Question %d?", i), true).ok(nil)
		}
		if sent := prompts(llm); len(sent) != calls || !strings.Contains(sent[calls-1], "canary") {
			t.Fatalf("the model was told %s", sent)
		}
		s.wantRequest(llm, id, 0)
		s.chat(agent(id, "/chat/completions"), "And then?", true).ok(nil)
		s.wantRequest(llm, id, 1)
	}
}

// TestToldCorrected: a transcript that is corrected later is shown as it was told, and so is one to
// which words were added.
func TestToldCorrected(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"heardlog": map[string]any{"mode": "reconcile"}})
	for _, words := range []string{"To Lund", "To Lund, please", "To London, please"} {
		s.post(agent(id, "/chat/completions"), map[string]any{"messages": []any{user(words)}}).ok(nil)
	}
	s.wantRequest(llm, id, 3)
	told := []string{}
	for _, r := range s.requests(id, 0) {
		for _, m := range r.Messages {
			told = append(told, fmt.Sprintf("%v %v %t", m.Content, m.Seqs, m.Changed))
		}
	}
	if diff := cmp.Diff([]string{"To Lund [1] true", "To Lund, please [1] true", "To London, please [1] false"}, told); diff != "" {
		t.Error(diff, s.ledger(id))
	}
}

// TestToldAttempts: a request that failed over names each attempt, and one that failed for good has
// a record, too.
func TestToldAttempts(t *testing.T) {
	t.Parallel()
	_, bad := upstream(t, fake.Script{Status: 503})
	llm, good := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+bad, fallbacks(t, map[string]any{"name": "spare", "url": good + "?key=secret-in-the-url", "model": "m2"}))
	id := s.join("n", nil)
	s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil)
	r := s.requests(id, 0)
	if len(r) != 1 || len(r[0].Attempts) != 2 || r[0].Attempts[0].Upstream != "primary" || r[0].Attempts[0].Error == "" ||
		r[0].Attempts[1].Upstream != "spare" || r[0].Attempts[1].Error != "" || strings.Contains(r[0].URL, "secret-in-the-url") || !strings.HasPrefix(r[0].URL, good) {
		t.Errorf("%+v", r)
	}
	s.wantRequest(llm, id, 1)
}
