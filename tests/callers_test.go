package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	eventtype "github.com/heardlog/heardlog/internal/event"
)

type consentIs struct{ Remember, Until, Now string }

type callerIs struct {
	UserID      string `json:"user_id"`
	Aliases     []string
	Calls       int
	FirstCallAt string `json:"first_call_at"`
	LastCallAt  string `json:"last_call_at"`
	Facts       map[string]int
	Consent     consentIs
}

func userPath(name string, more ...string) string {
	return v1 + "/users/" + url.PathEscape(name) + strings.Join(more, "")
}

// putCaller sends a body that must be taken and returns the caller as it is then.
func (s *server) putCaller(name, what, body string) (out callerIs) {
	s.t.Helper()
	s.do("PUT", userPath(name, "/", what), body).ok(&out)
	return out
}

// TestCallers: the calls under all names of a caller are one caller's, in recall, in its overview
// and in the list.
func TestCallers(t *testing.T) {
	t.Parallel()
	s := start(t)
	first := s.join("first", caller("anna"))
	s.say(first, user("My parrot is green."))
	s.post(agent(first, "/leave"), nil).ok(nil)
	s.say(s.join("second", caller("+4930123456")), user("The parrot flew away."))
	s.say(s.join("third", caller("ben")), user("A parrot? Not mine."))
	s.wantRecalled("before", "anna", "parrot", "My parrot is green.")

	is := s.putCaller("anna", "aliases", `{"aliases":["crm-17","+49 (0)30 123-456"]}`)
	if is.UserID != "anna" || !slices.Equal(is.Aliases, []string{"+4930123456", "crm-17"}) || is.Consent != (consentIs{"all", "", "all"}) {
		t.Errorf("%+v", is)
	}
	for _, name := range []string{"anna", "+4930123456", "crm-17"} {
		s.wantRecalled("by "+name, name, "parrot", "My parrot is green.", "The parrot flew away.")
		var got callerIs
		s.get(userPath(name)).ok(&got)
		if got.UserID != "anna" || got.Calls != 2 || got.FirstCallAt == "" || got.FirstCallAt > got.LastCallAt || len(got.Facts) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	fourth := s.join("fourth", caller("crm-17"))
	s.say(fourth, user("The parrot is back."))
	s.wantRecalled("a new call", "anna", "parrot", "My parrot is green.", "The parrot flew away.", "The parrot is back.")
	var out recalled
	s.post(agent(fourth, "/recall"), `{"query":"parrot","user_id":"+4930123456","deadline_ms":10000}`).ok(&out)
	if got := out.texts(); len(got) != 2 || slices.Contains(got, "The parrot is back.") {
		t.Errorf("recall of an agent: %q", got)
	}

	s.do("PUT", userPath("ben", "/aliases"), `{"aliases":["x","crm-17"]}`).refused(http.StatusConflict, "TaskConflict", "aliases[1]", "crm-17", "anna")
	s.do("PUT", userPath("ben", "/aliases"), `{"aliases":["anna"]}`).refused(http.StatusConflict, "TaskConflict", "aliases[0]", "anna")
	for body, want := range map[string]string{
		`{}`: "aliases", `{"aliases":[""]}`: "aliases[0]", `{"aliases":["ben"]}`: "own name", `{"aliases":["a","a"]}`: "twice", `{"aliases":["anonymous"]}`: "withhold",
		`{"aliases":["` + strings.Repeat("x", 257) + `"]}`: "256", `{"aliases":[7]}`: "aliases", `{"aliases":["a\u0000"]}`: "NUL",
	} {
		if got := s.do("PUT", userPath("ben", "/aliases"), body); got.status != http.StatusBadRequest || !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	s.do("PUT", userPath("x", "/aliases"), `{"aliases":[`+strings.Repeat(`"a",`, 32)+`"b"]}`).refused(http.StatusBadRequest, "InvalidFieldValue", "32")

	s.get(userPath("nobody")).refused(http.StatusNotFound, "TaskNotFound")
	s.get(userPath("nobody", "/export")).refused(http.StatusNotFound, "TaskNotFound")
	s.get(userPath(strings.Repeat("x", 257))).refused(http.StatusBadRequest, "InvalidFieldValue", "256")
	s.get(userPath(strings.Repeat("x", 257), "/export")).refused(http.StatusBadRequest, "InvalidFieldValue", "256")
	s.get(v1+"/users?limit=many").refused(http.StatusBadRequest, "InvalidFieldValue", "limit")
	if got := s.recall("nobody", "parrot"); got.Strength != "none" || got.Calls != 0 || got.Consent != "" {
		t.Errorf("recall of an unknown caller: %+v", got)
	}

	var names []string
	for cursor := ""; ; {
		var page struct {
			Users      []callerIs
			NextCursor string `json:"next_cursor"`
		}
		s.get(v1 + "/users?limit=1&cursor=" + url.QueryEscape(cursor)).ok(&page)
		for _, u := range page.Users {
			names = append(names, fmt.Sprintf("%s %q", u.UserID, u.Aliases))
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if want := []string{`anna ["+4930123456" "crm-17"]`, `ben []`}; !cmp.Equal(names, want) {
		t.Errorf("the list is %q, want %q", names, want)
	}
}

// TestCallerConsent: without consent there is nothing to recall, and a consent ends in time.
func TestCallerConsent(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", caller("anna"))
	s.say(id, user("My parrot is green."))
	s.putCaller("anna", "aliases", `{"aliases":["crm-17"]}`)
	s.putCaller("crm-17", "consent", `{"remember":"none"}`)
	for _, name := range []string{"anna", "crm-17"} {
		if got := s.recall(name, "parrot"); len(got.Hits) != 0 || got.Strength != "none" || got.Consent != "none" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := s.history(id).Contents; len(got) != 1 {
		t.Errorf("the call's own history is %q", texts(got))
	}
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond).Format("2006-01-02T15:04:05.000Z")
	if is := s.putCaller("anna", "consent", `{"remember":"turns","until":"`+until+`"}`); is.Consent != (consentIs{"turns", until, "turns"}) {
		t.Errorf("%+v", is)
	}
	s.wantRecalled("with consent for turns", "crm-17", "parrot", "My parrot is green.")
	s.do("PUT", userPath("anna", "/consent"), `{"remember":"some"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "remember", "all", "turns", "none")
	s.do("PUT", userPath("anna", "/consent"), `{}`).refused(http.StatusBadRequest, "MissingRequiredField", "remember")
	s.do("PUT", userPath("anna", "/consent"), `{"remember":"all","until":"2020-01-01T00:00:00Z"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "until")
}

// TestCallersElsewhere: aliases, consent and erasure that one server has acknowledged count on
// another at once.
func TestCallersElsewhere(t *testing.T) {
	t.Parallel()
	two := replicas(t, 2)
	for i := range 10 {
		from, to := two[i%2], two[1-i%2]
		name, alias := fmt.Sprint("anna", i), fmt.Sprint("+493012345", i)
		said, also := fmt.Sprintf("The locker has the number %d.", i), fmt.Sprintf("The locker of the alias is %d.", i)
		from.say(from.join(fmt.Sprint("a", i), caller(name)), user(said))
		from.say(from.join(fmt.Sprint("b", i), caller(alias)), user(also))
		to.wantRecalled("before", name, "locker", said)
		from.putCaller(name, "aliases", `{"aliases":["`+alias+`"]}`)
		to.wantRecalled("by the name", name, "locker", said, also)
		to.wantRecalled("by the alias", alias, "locker", said, also)
		to.putCaller(alias, "consent", `{"remember":"none"}`)
		from.wantRecalled("without consent", name, "locker")
		to.putCaller(alias, "consent", `{"remember":"all"}`)
		from.wantRecalled("with consent", name, "locker", said, also)
		to.do("DELETE", userPath(alias), nil).ok(nil)
		from.wantRecalled("erased", name, "locker")
		from.wantRecalled("erased, by the alias", alias, "locker")
		from.get(userPath(name)).refused(http.StatusNotFound, "TaskNotFound")
	}
}

// TestCallerExport: an export holds every message of a caller, as heard and as generated, and ends
// with its number of lines.
func TestCallerExport(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.putCaller("anna", "aliases", `{"aliases":["crm-17"]}`)
	first, second := s.join("first", caller("anna")), s.join("second", caller("crm-17"))
	s.say(first, user("And its cage?"), assistant("The cage stands in the cellar behind the freezer."))
	s.interrupt(first, map[string]any{"heard": "The cage stands in the"}).ok(nil)
	for i := range 600 {
		s.say(second, user(fmt.Sprintf("Number %d.", i)))
	}
	theirs := s.join("theirs", caller("ben"))
	s.say(theirs, user("of ben"))
	s.remember("human", "I like window seats.", `"user_id":"anna"`, "")
	all := s.get(userPath("crm-17", "/export"))
	if kind := all.header.Get("Content-Type"); all.status != http.StatusOK || kind != "application/x-ndjson" {
		t.Fatalf("%d %s", all.status, kind)
	}
	got := all.body
	var types []string
	count := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(got)); lines.Scan(); {
		var l struct {
			Type, Content, Generated string
			AgentID                  string `json:"agent_id"`
			Lines                    int
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if count[l.Type]++; count[l.Type] == 1 {
			types = append(types, l.Type)
		}
		if l.Content == "The cage stands in the" && l.Generated != "The cage stands in the cellar behind the freezer." {
			t.Errorf("%s", lines.Bytes())
		}
		if sum := count["caller"] + count["call"] + count["message"] + count["record"]; l.Type == "end" && l.Lines != sum {
			t.Errorf("the last line counts %d lines, there are %d", l.Lines, sum)
		}
	}
	if !slices.Equal(types, []string{"caller", "call", "message", "end"}) || count["call"] != 2 || count["message"] != 603 {
		t.Errorf("%q %v", types, count)
	}
	if text := string(got); strings.Contains(text, "of ben") || !strings.Contains(text, "window seats") || !strings.Contains(text, "Number 599.") {
		t.Error("something is missing or another's")
	}
}

// TestEraseCaller: a call that is running when its caller is erased does not bring back what was
// said, and an event says that the caller was erased.
func TestEraseCaller(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: "Your locker is number nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true")
	h := newHook(t)
	s.hookTo(h, map[string]any{"events": []string{"user.erased"}})
	s.putCaller("anna", "aliases", `{"aliases":["+4930123456"]}`)
	list := []any{user("Where is my locker?"), assistant("Your locker is number nine."), user("And the key?")}
	ask := func(more string, headers ...string) answer {
		body, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		return s.post(v1+"/chat/completions", `{"messages":`+string(body)+more+`}`, headers...)
	}
	byNumber := `,"call":{"id":"c1","customer":{"number":"+4930123456"}}`
	ask("", "X-Agent-Id", "a1", "X-Heardlog-User", "anna").ok(nil)
	ask(byNumber).ok(nil)
	if got := s.recall("anna", "locker"); got.Calls != 2 {
		t.Errorf("%+v", got)
	}
	var receipt struct {
		User   string
		Erased struct{ Agents, Aliases int }
	}
	s.do("DELETE", userPath("+4930123456"), nil).ok(&receipt)
	if receipt.User != "anna" || receipt.Erased.Agents != 2 || receipt.Erased.Aliases != 1 {
		t.Errorf("%+v", receipt)
	}
	for range 2 {
		ask("", "X-Agent-Id", "a1", "X-Heardlog-User", "anna").failed(http.StatusGone, "stopped", "erased")
		ask(byNumber).failed(http.StatusGone, "stopped", "erased")
	}
	s.wantRecalled("what the platform sent again", "anna", "locker")
	var told struct {
		UserID  string `json:"user_id"`
		Agents  int
		Aliases int
	}
	if e := h.next(t); e.EventType != eventtype.UserErased || json.Unmarshal(e.Payload, &told) != nil || told.UserID != "anna" || told.Agents != 2 || told.Aliases != 1 {
		t.Errorf("%s", e.body)
	}
	// Another call of the same number is a new one.
	ask(`,"call":{"id":"c2","customer":{"number":"+4930123456"}}`).ok(nil)
	if got := s.recall("+4930123456", "locker"); got.Calls != 1 {
		t.Errorf("a new call: %+v", got)
	}
}

// TestCallerFacts: facts are the caller's under all of its names, also those of a name that became
// an alias later, and there are none without consent.
func TestCallerFacts(t *testing.T) {
	t.Parallel()
	s := start(t)
	add := func(name, content string) {
		t.Helper()
		s.post(userPath(name, "/facts"), `{"content":"`+content+`"}`).is(http.StatusCreated, nil)
	}
	add("anna", "Likes window seats.")
	add("crm-17", "Has a parrot.")
	s.putCaller("anna", "aliases", `{"aliases":["crm-17"]}`)
	add("crm-17", "Lives in Porto.")
	for _, name := range []string{"anna", "crm-17"} {
		var list struct{ Facts []struct{ Content string } }
		s.get(userPath(name, "/facts")).ok(&list)
		var is callerIs
		s.get(userPath(name)).ok(&is)
		if len(list.Facts) != 3 || is.Facts["active"] != 3 || is.UserID != "anna" {
			t.Errorf("%s has %+v, overview %+v", name, list, is)
		}
		if got := s.get(userPath(name, "/facts/context")).ok(nil); !strings.Contains(string(got.body), "parrot") {
			t.Errorf("the block of %s: %s", name, got.body)
		}
	}
	if got := s.get(userPath("anna", "/export")); strings.Count(string(got.body), `{"type":"fact"`) != 3 {
		t.Errorf("the export has %s", got.body)
	}
	var found struct {
		Hits []struct {
			Fact struct {
				UserID string `json:"user_id"`
			}
		}
		Consent string
	}
	s.post(v1+"/recall", `{"user_id":"crm-17","query":"parrot","kinds":["fact"]}`).ok(&found)
	if len(found.Hits) != 1 || found.Hits[0].Fact.UserID != "anna" || found.Consent != "" {
		t.Errorf("recalled by an alias: %+v", found)
	}
	s.putCaller("anna", "consent", `{"remember":"none"}`)
	s.post(v1+"/recall", `{"user_id":"crm-17","query":"parrot","kinds":["fact"]}`).ok(&found)
	if len(found.Hits) != 0 || found.Consent != "none" {
		t.Errorf("recalled without consent: %+v", found)
	}
	s.putCaller("crm-17", "consent", `{"remember":"turns"}`)
	s.post(userPath("anna", "/facts"), `{"content":"Another."}`).refused(http.StatusForbidden, "InvalidPermission", "consent")
	if got := s.get(userPath("anna", "/facts/context")).ok(nil); strings.Contains(string(got.body), "parrot") {
		t.Errorf("the block without consent: %s", got.body)
	}
	var receipt struct{ Erased struct{ Records int } }
	s.do("DELETE", userPath("crm-17"), nil).ok(&receipt)
	if receipt.Erased.Records < 3 {
		t.Errorf("%+v", receipt)
	}
	s.get(userPath("anna")).refused(http.StatusNotFound, "TaskNotFound")
}
