package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

type recalled struct {
	Hits []struct {
		ID, Content, Role string
		AgentID           string `json:"agent_id"`
		Seq               int64
		Heard             *struct {
			Method   string
			Complete bool
		}
		Context []struct{ Content string }
		Also    []string
		Explain map[string]float64
	}
	Strength string
	Degraded []string
	Calls    int
	Consent  string
}

func (r recalled) texts() []string {
	out := []string{}
	for _, h := range r.Hits {
		out = append(out, h.Content)
	}
	return out
}

// caller returns join properties with a user in the scope.
func caller(user string) map[string]any {
	return map[string]any{"heardlog": map[string]any{"scope": map[string]any{"user_id": user}}}
}

// recall searches the calls of a user, waiting as long as it takes.
func (s *server) recall(user, query string, more ...string) recalled {
	s.t.Helper()
	var out recalled
	s.post(v1+"/recall", fmt.Sprintf(`{"user_id":%q,"query":%q,"deadline_ms":10000%s}`, user, query, strings.Join(more, ""))).ok(&out)
	if len(out.Degraded) > 0 {
		s.t.Errorf("degraded: %q", out.Degraded)
	}
	return out
}

// wantRecalled checks which texts with a word a recall for it finds, in any order. Neighbors of
// hits are found, too.
func (s *server) wantRecalled(what, user, word string, want ...string) {
	s.t.Helper()
	got := slices.DeleteFunc(s.recall(user, word).texts(), func(text string) bool { return !strings.Contains(text, word) })
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: found %q, want %q", what, got, want)
	}
}

// TestRecallNever: what does not count, or no longer, is never found.
func TestRecallNever(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", caller("anna"))
	other := s.join("other", caller("ben"))
	s.say(other, user("My parrot is green."))
	if got := s.recall("anna", "parrot"); len(got.Hits) != 0 || got.Strength != "none" {
		t.Errorf("another user's words: %+v", got)
	}

	// Nobody waits for the first answer: it is a ghost.
	s.ask(id, "Hello.", user("Hi"))
	call := []any{user("Hi"), assistant("Hello."), user("Where is my parrot?")}
	s.ask(id, "The parrot flew away.", call...)
	s.ask(id, "The parrot is in the kitchen.", call...)
	s.wantRecalled("a ghost", "anna", "parrot", "Where is my parrot?", "The parrot is in the kitchen.")

	// Late evidence: of the answer only the start was heard.
	s.say(id, user("And its cage?"), assistant("The cage stands in the cellar behind the freezer."))
	if got := s.recall("anna", "freezer"); len(got.Hits) == 0 || got.Hits[0].Heard == nil || !got.Hits[0].Heard.Complete {
		t.Errorf("before the evidence: %+v", got)
	}
	s.interrupt(id, map[string]any{"heard": "The cage stands in the"}).ok(nil)
	got := s.recall("anna", "Does the cage stand behind the freezer in the cellar?")
	if slices.ContainsFunc(got.texts(), func(s string) bool { return strings.Contains(s, "freezer") }) {
		t.Errorf("words that were never heard: %q", got.texts())
	}
	if i := slices.Index(got.texts(), "The cage stands in the"); i < 0 || got.Hits[i].Heard.Complete {
		t.Errorf("what was heard: %+v", got.Hits)
	}

	// Drafts are found once they are accepted, items until they are cleared.
	draft := s.remember("human", "My submarine is yellow.", `"user_id":"anna","agent_id":"`+id+`"`, `,"status":"draft"`)
	s.wantRecalled("a draft", "anna", "submarine")
	s.post(memoriesPath+"/"+draft.ID+"/status", `{"status":"accepted"}`).ok(nil)
	if got := s.recall("anna", "submarine"); len(got.Hits) == 0 || got.Hits[0].Content != "My submarine is yellow." {
		t.Errorf("an accepted draft: %q", got.texts())
	}
	s.post(memoriesPath+"/"+draft.ID+"/status", `{"status":"discard"}`).ok(nil)
	s.wantRecalled("a discarded item", "anna", "submarine")

	// Of two calls, one is cleared and then the other erased.
	second := s.join("second", caller("anna"))
	s.say(second, user("The parrot's name is Coco."))
	s.post(agent(id, "/clear"), nil)
	s.wantRecalled("a cleared memory", "anna", "parrot", "The parrot's name is Coco.")
	s.do("DELETE", agent(second), nil)
	s.wantRecalled("an erased call", "anna", "parrot")

	third := s.join("third", caller("anna"))
	s.say(third, user("The parrot is back."))
	s.wantRecalled("a new call", "anna", "parrot", "The parrot is back.")
	s.do("DELETE", v1+"/users/anna", nil).ok(nil)
	s.wantRecalled("an erased user", "anna", "parrot")
}

// TestRecallRequest: what a recall may ask for, and what it refuses.
func TestRecallRequest(t *testing.T) {
	t.Parallel()
	s := start(t)
	first, second := s.join("first", caller("anna")), s.join("second", caller("anna"))
	s.say(first, user("We booked two rooms in Porto."), assistant("Both rooms have a balcony."), user("Good, and parking?"))
	s.say(second, user("Cancel the rooms in Porto, please."))
	one := s.recall("anna", "rooms in Porto", `,"k":1,"explain":true,"role":"user","agent_id":"`+first+`"`)
	if len(one.Hits) != 1 || one.Hits[0].Content != "We booked two rooms in Porto." || one.Hits[0].Explain["words"] != 1 || one.Strength != "strong" {
		t.Errorf("%+v", one)
	}
	around := s.recall("anna", "balcony", `,"k":1,"budget_tokens":1000`)
	if len(around.Hits) != 1 || len(around.Hits[0].Context) != 2 {
		t.Errorf("with context: %+v", around)
	}
	if got := s.recall("anna", "rooms", `,"to":"2020-01-01T00:00:00Z"`); len(got.Hits) != 0 {
		t.Errorf("before all calls: %q", got.texts())
	}
	// An agent's recall leaves out its own call while that runs.
	ask := func(id, more string) []string {
		var out recalled
		s.post(agent(id, "/recall"), `{"query":"Porto rooms","deadline_ms":10000`+more+`}`).ok(&out)
		return out.texts()
	}
	if got := ask(second, ""); slices.Contains(got, "Cancel the rooms in Porto, please.") || !slices.Contains(got, "We booked two rooms in Porto.") {
		t.Errorf("of a running agent: %q", got)
	}
	if got := ask(second, `,"include_current":true`); !slices.Contains(got, "Cancel the rooms in Porto, please.") {
		t.Errorf("with the running call: %q", got)
	}
	nobody := s.join("nobody", nil)
	for _, tt := range []struct{ path, body, want string }{
		{v1 + "/recall", `{"query":"x"}`, "user_id"},
		{v1 + "/recall", `{"user_id":"anna"}`, "query"},
		{v1 + "/recall", `{"user_id":"anna","query":"x","k":101}`, "k: must be at most 100"},
		{v1 + "/recall", `{"user_id":"anna","query":"x","from":"yesterday"}`, "from: must be a time"},
		{v1 + "/recall", `{"user_id":"anna","query":"x","kinds":["dream"]}`, "kinds"},
		{v1 + "/recall", `{"user_id":"anna","query":"x","view":"generated"}`, "view"},
		{agent(second, "/recall"), `{"query":"x","user_id":"ben"}`, "user_id"},
		{agent(nobody, "/recall"), `{"query":"x"}`, "has no user_id"},
	} {
		if got := s.post(tt.path, tt.body); got.status != http.StatusBadRequest || !strings.Contains(string(got.body), tt.want) {
			t.Errorf("%s: %d %s, want %q", tt.body, got.status, got.body, tt.want)
		}
	}
	s.post(agent("unknown", "/recall"), `{"query":"x"}`).refused(http.StatusNotFound, "TaskNotFound")
}

// TestRecallElsewhere: what one server has stored is found by another at once, and what it has
// erased is not found any more.
func TestRecallElsewhere(t *testing.T) {
	t.Parallel()
	two := replicas(t, 2)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			from, to := two[w%2], two[1-w%2]
			name := fmt.Sprint("caller", w/2) // two writers share a caller
			id := from.join(fmt.Sprint("n", w), caller(name))
			for i := range 25 {
				said := fmt.Sprintf("The code of locker %d%d is open sesame.", w, i)
				from.say(id, user(said))
				if got := to.recall(name, fmt.Sprintf("locker %d%d", w, i), `,"k":3`).texts(); !slices.Contains(got, said) {
					t.Errorf("%q was not found: %q", said, got)
				}
			}
			from.do("DELETE", agent(id), nil)
			for _, h := range to.recall(name, "locker code").Hits {
				if h.AgentID == id {
					t.Errorf("an erased call is found: %q", h.Content)
				}
			}
		})
	}
	all.Wait()
}

// TestRecallCallers: the caller of an agent without a user is named by a header or by a platform's
// number. A withheld number names no caller.
func TestRecallCallers(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Your locker is number nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	ask := func(body string, headers ...string) {
		s.post(v1+"/chat/completions", `{"messages":[{"role":"user","content":"Where is my locker?"}]`+body+`}`, headers...).ok(nil)
	}
	ask("", "X-Agent-Id", "a1", "X-Heardlog-User", "anna")
	s.wantRecalled("by the header", "anna", "locker", "Where is my locker?", "Your locker is number nine.")
	ask(`,"call":{"id":"c1","customer":{"number":"+4930123456"}}`)
	s.wantRecalled("by the number", "+4930123456", "locker", "Where is my locker?", "Your locker is number nine.")
	ask(`,"call":{"id":"c2","customer":{"number":"+266696687"}}`)
	s.wantRecalled("by a withheld number", "+266696687", "locker")
	ask("", "X-Agent-Id", "a3", "X-Heardlog-User", "sip:anonymous@anonymous.invalid")
	s.wantRecalled("by a header for nobody", "sip:anonymous@anonymous.invalid", "locker")
	ask("", "X-Agent-Id", "a4", "X-Heardlog-User", "+49 (0)30 999-888")
	s.wantRecalled("by a number in the header", "+4930999888", "locker", "Where is my locker?", "Your locker is number nine.")
	joined := s.join("joined", caller("ben"))
	ask("", "X-Agent-Id", joined, "X-Heardlog-User", "anna") // the scope of the join counts
	s.wantRecalled("by the join", "ben", "locker", "Where is my locker?", "Your locker is number nine.")
	number := s.join("number", caller("+49 30 777-666"))
	ask("", "X-Agent-Id", number)
	for _, form := range []string{"+4930777666", "+49 (0)30 777666", "tel:+49-30-777-666"} {
		s.wantRecalled("by the number of the join", form, "locker", "Where is my locker?", "Your locker is number nine.")
		s.get(v1 + "/users/" + url.PathEscape(form)).ok(nil)
	}
	for i, form := range []string{"+2562533", "+8656696", "Private Number", "anonymous", `"Anonymous" <sip:anonymous@anonymous.invalid>`, "{{customer.number}}", "-"} {
		s.post(userPath(form, "/facts"), `{"content":"Likes tea."}`).refused(http.StatusBadRequest, "InvalidFieldValue", "user", "withhold")
		nobody := s.join(fmt.Sprint("nobody ", i), caller(form))
		ask("", "X-Agent-Id", nobody)
		s.wantRecalled("by a join for nobody", form, "locker")
	}
	plain := s.join("plain", nil)
	ask("", "X-Agent-Id", plain, "X-Heardlog-User", "carl")
	s.wantRecalled("by the header, later", "carl", "locker", "Where is my locker?", "Your locker is number nine.")
	s.post(v1+"/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, "X-Agent-Id", plain, "X-Heardlog-User", strings.Repeat("x", 257)).
		failed(http.StatusBadRequest, "invalid", "X-Heardlog-User")
}
