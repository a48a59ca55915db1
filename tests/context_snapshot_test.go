package tests

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// appended is the answer of an append.
type appended struct {
	Messages []message `json:"messages"`
	Merged   []struct{ Seq, Into int64 }
	Dropped  []int64
}

// TestWriteTimePolicy runs OVOS' memory: the seam between stored and new messages is normalized,
// then the memory is cut for good, and the answer reports both. The ledger keeps all messages, IDs
// stay known, and a system message at the seam prevents its normalization.
//
// Rules: 000-9, 000-12, 000-13, 000-14, 000-15, 000-16, 000-17, 000-18, 000-19, 000-20, 000-22,
// 000-29
func TestWriteTimePolicy(t *testing.T) {
	t.Parallel()
	s := start(t)
	ovos := func(name, more string) string {
		return s.join(name, map[string]any{"heardlog": map[string]any{"policy": json.RawMessage(`{"preset":"ovos"` + more + `}`)}})
	}
	put := func(id, body string) (out appended) {
		t.Helper()
		s.post(agent(id, "/messages"), body).ok(&out)
		return out
	}
	id := ovos("seam", `,"max_messages":0`)
	if out := put(id, `[]`); len(out.Messages) != 0 || len(out.Merged)+len(out.Dropped) != 0 {
		t.Errorf("an empty batch on a new session: %+v", out)
	}
	// A batch is stored as it comes.
	put(id, `[{"role":"user","content":"one"},{"role":"human","content":"two"}]`)
	sameLines(t, "as it came", s.context(id, `{}`), "user: one", "user: two")
	out := put(id, `[{"role":"user","content":"three"},{"role":"ai","content":" a "},{"role":"assistant","content":"b"}]`)
	if len(out.Dropped) != 1 || out.Dropped[0] != 2 {
		t.Errorf("of a hanging user: %+v", out)
	}
	sameLines(t, "one is dropped, within the batch nothing is merged", s.context(id, `{}`), "user: one", "user: three", "assistant:  a ", "assistant: b")
	out = put(id, `{"id":"m-1","role":"assistant","content":""}`)
	if len(out.Merged) != 1 || out.Merged[0].Into != 5 || out.Messages[0].State != "merged" {
		t.Errorf("merged: %+v", out)
	}
	// Again: known, and nothing is merged twice.
	put(id, `{"id":"m-1","role":"assistant","content":""}`)
	put(id, `[]`)
	sameLines(t, "an empty part still gets its newline", s.context(id, `{}`), "user: one", "user: three", "assistant:  a ", "assistant: b\n")
	put(id, `[{"role":"system","content":"be kind"},{"role":"assistant","content":"c"}]`)
	put(id, `{"role":"assistant","content":"d"}`)
	s = s.again()
	sameLines(t, "a system message blocks", s.context(id, `{}`), "user: one", "user: three", "assistant:  a ", "assistant: b\n", "system: be kind", "assistant: c\nd")
	if n := len(s.ledger(id)); n != 9 {
		t.Errorf("the ledger has %d messages", n)
	}
	short := ovos("short", "")
	put(short, `[{"role":"system","content":"s"},{"role":"user","content":"1"},{"role":"assistant","content":"2"},{"role":"user","content":"3"},{"role":"assistant","content":"4"}]`)
	// A merged turn counts once: nothing has to leave.
	out = put(short, `{"role":"assistant","content":"5"}`)
	if len(out.Dropped) != 0 {
		t.Errorf("dropped %v", out.Dropped)
	}
	out = put(short, `[{"role":"user","content":"6"},{"role":"assistant","content":"7"}]`)
	if d := cmp.Diff([]int64{1, 2}, out.Dropped); d != "" {
		t.Errorf("the cut takes the oldest, system messages too, and may leave an answer in front (-want +got):\n%s", d)
	}
	sameLines(t, "five", s.context(short, `{"policy":{"preset":"full"}}`), "assistant: 2", "user: 3", "assistant: 4\n5", "user: 6", "assistant: 7")
	for i := range 400 { // the memory's beginning follows, and what a cut looks at stays bounded
		put(short, `{"role":"`+[]string{"user", "assistant"}[i%2]+`","content":"more"}`)
	}
	if n := len(s.context(short, `{"policy":{"preset":"full"}}`).Messages); n != 5 {
		t.Errorf("%d messages are left, want 5", n)
	}
	if d := cmp.Diff([]string{"assistant", "user", "assistant", "user", "assistant"}, s.roles(short)); d != "" {
		t.Errorf("history (-want +got):\n%s", d)
	}
	zero := ovos("zero", `,"max_messages":0`)
	put(zero, `[{"role":"user","content":"1"},{"role":"assistant","content":"2"},{"role":"user","content":"3"},{"role":"assistant","content":"4"},{"role":"user","content":"5"},{"role":"assistant","content":"6"},{"role":"user","content":"7"}]`)
	if n := len(s.context(zero, `{}`).Messages); n != 7 {
		t.Errorf("max_messages 0 leaves %d of 7", n)
	}
	s.post(v1+"/join", `{"name":"x","properties":{"heardlog":{"policy":{"max_messages":-1}}}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "max_messages")
}

func (s *server) roles(id string) []string {
	out := []string{}
	for _, m := range s.history(id).Contents {
		out = append(out, m.Role)
	}
	return out
}

// TestSnapshot: a restored snapshot, an object or a plain list, comes back byte for byte, over a
// restart. A restore is all or nothing.
//
// Rules: 001-4, 001-5, 001-6, 001-7, 001-26, 001-27
func TestSnapshot(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	at := agent(id, "/snapshot")
	if got := s.get(at).ok(nil); string(got.body) != "{\"messages\":[],\"summary\":null}\n" {
		t.Errorf("empty: %s", got.body)
	}
	s.say(id, user("before"))
	const messages = `[{"role":"system","content":"be <b>kind</b>"},{ "role": "user",  "content" : "h\u00e9 \ud83d\ude00 1.50", "extra": {"n": 1.50, "deep": [null, {"x": []}]}},` +
		`{"role":"assistant","content":[{"type":"text","text":"wait"},{"type":"tool_use","id":"t1","name":"trains","input":{"to":"Rome"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"nine","is_error":false}]},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{ }"}}]},{"role":"tool","tool_call_id":"c1","content":"ok"},` +
		`{"role":"assistant","content":"At ","timestamp":1780000000000,"metadata":{"interrupted":true,"original":"At nine.","interrupt_timestamp":1780000000500}}]`
	whole := `{"messages":` + messages + `,"summary":"Ann \"called\".","tool_exchange":{"id":  7}}` + "\n"
	for _, base := range []string{v1, agora, cn} {
		s.do("PUT", base+"/agents/"+id+"/snapshot", whole).ok(nil)
		s = s.again()
		got := s.get(base + "/agents/" + id + "/snapshot").ok(nil)
		if d := cmp.Diff(whole, string(got.body)); d != "" {
			t.Fatalf("not what was restored (-want +got):\n%s", d)
		}
	}
	if d := cmp.Diff([]string{"hé 😀 1.50", "wait", "At "}, s.history(id).texts()); d != "" {
		t.Errorf("history (-want +got):\n%s", d)
	}
	c := s.context(id, `{"policy":{"preset":"full"}}`)
	if len(c.Messages) != 7 || c.Messages[3]["role"] != "user" || c.Messages[5]["role"] != "tool" || !strings.Contains(c.lines()[0], "[Earlier conversation summary]") {
		t.Errorf("context %v", c.lines())
	}
	if last := s.history(id).Contents[2].Metadata; last["interrupted"] != true || last["original"] != "At nine." {
		t.Errorf("the interruption is lost: %v", last)
	}
	for body, words := range map[string]string{
		`{"messages":[{"role":"user","content":"x"},{"role":"king","content":"x"}]}`: "messages[1].role", `[{"role":"user"},7]`: "messages[1]",
		`{"messages":[],"memory":1}`: "memory", `[{"role":"tool","content":"x"}]`: "messages[0].tool_call_id", `[{"role":1}]`: "messages[0].role",
	} {
		got := s.do("PUT", at, body)
		var e struct{ Detail string }
		if err := json.Unmarshal(got.body, &e); err != nil || got.status != http.StatusBadRequest || !strings.Contains(e.Detail, words) {
			t.Errorf("%s: %d %s, want a 400 that names %s", body, got.status, got.body, words)
		}
	}
	// Neither a list nor an object (001-34).
	for _, body := range []string{` null `, `7`, `"x"`, `true`} {
		s.do("PUT", at, body).refused(http.StatusBadRequest, "InvalidRequestBody", "the body must be")
	}
	if got := s.get(at).ok(nil); string(got.body) != whole {
		t.Error("a refused restore changed the memory")
	}
	s.do("PUT", at, messages).ok(nil) // a plain list: no summary
	if got := s.get(at).ok(nil); string(got.body) != `{"messages":`+messages+`,"summary":null}`+"\n" {
		t.Errorf("a plain list gave %s", got.body)
	}
	own := s.join("own", nil) // what we made ourselves goes round too
	s.say(own, user("a"), map[string]any{"role": "assistant", "content": "b", "metadata": map[string]any{"interrupted": true, "original": "b c"}},
		map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": "c1", "type": "function"}}}, map[string]any{"role": "tool", "tool_call_id": "c1", "content": "ok", "metadata": map[string]any{"k": 1}},
		map[string]any{"role": "user", "content": []any{map[string]any{"type": "tool_result", "tool_use_id": "t", "content": "x"}}}, map[string]any{"role": "system", "content": "s"})
	first := s.get(agent(own, "/snapshot")).ok(nil).body
	other := s.join("other", nil)
	s.do("PUT", agent(other, "/snapshot"), string(first)).ok(nil)
	if d := cmp.Diff(string(first), string(s.get(agent(other, "/snapshot")).ok(nil).body)); d != "" {
		t.Errorf("another agent's (-first +second):\n%s", d)
	}
	s.do("PUT", agent(other, "/snapshot"), `{}`).ok(nil)
	if got := s.get(agent(other, "/snapshot")).ok(nil); string(got.body) != "{\"messages\":[],\"summary\":null}\n" {
		t.Errorf("an object without messages gave %s", got.body)
	}
	s.post(agent(own, "/leave"), nil).ok(nil)
	s.do("PUT", agent(own, "/snapshot"), `[]`).refused(http.StatusGone, "TaskNotFound")
	s.get(agent(own, "/snapshot")).ok(nil)
}

type trimmed struct {
	Dropped, Kept int
	Tokens        int `json:"estimated_tokens"`
	Healed        []string
	Problems      []struct {
		Code       string
		Seq        int64
		IDs        []string
		Repairable bool
	}
}

// TestTrim cuts by count and by tokens. System messages stay, in front if the newest are kept, and
// a call stays with its results.
//
// Rules: 001-11, 001-21, 001-22, 001-23, 001-24
func TestTrim(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"ok"}`
	fill := func(id string) {
		s.post(agent(id, "/messages"), `[{"role":"user","content":"one"},{"role":"system","content":"rule"},{"role":"assistant","content":"two"},`+call+`,{"role":"user","content":"four"}]`).ok(nil)
	}
	full := `{"policy":{"preset":"full"}}`
	fill(id)
	var l struct {
		Messages []message
		UpToSeq  int64 `json:"up_to_seq"`
		Keep     *int  `json:"keep_recent"`
	}
	if s.get(agent(id, "/summarizable")).ok(&l); len(l.Messages) != 0 || *l.Keep != 6 {
		t.Errorf("with no more than six: %+v", l)
	}
	// Not between the call and its result.
	if s.get(agent(id, "/summarizable?keep_recent=2")).ok(&l); strings.Join(contents(l.Messages), " ") != "one two" {
		t.Errorf("keep 2: %v", contents(l.Messages))
	}
	if s.get(agent(id, "/summarizable?keep_recent=0")).ok(&l); len(l.Messages) != 5 || l.UpToSeq != 6 {
		t.Errorf("keep 0: %v", contents(l.Messages))
	}
	s.get(agent(id, "/summarizable?keep_recent=x")).refused(http.StatusBadRequest, "InvalidFieldValue", "keep_recent")
	var out trimmed
	s.post(agent(id, "/trim"), `{"keep_recent":2}`).ok(&out)
	if out.Dropped != 2 || out.Kept != 4 {
		t.Errorf("%+v", out)
	}
	s = s.again()
	sameLines(t, "keep 2", s.context(id, full), "system: rule", "assistant: null", "tool: ok", "user: four")
	if s.post(agent(id, "/trim"), `{"keep_recent":2}`).ok(&out); out.Dropped != 0 {
		t.Errorf("again: %+v", out)
	}
	later := s.join("later", nil)
	s.post(agent(later, "/messages"), `[{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"system","content":"rule"}]`).ok(nil)
	s.post(agent(later, "/trim"), `{"keep_recent":1}`).ok(nil)
	sameLines(t, "the system's move to the front", s.context(later, full), "system: rule", "assistant: two")
	s.post(agent(later, "/trim"), `{"keep_recent":0}`).ok(nil)
	sameLines(t, "none is kept", s.context(later, full), "system: rule")

	tokens := s.join("tokens", nil)
	long := strings.Repeat("x", 40)
	s.post(agent(tokens, "/messages"), `[{"role":"system","content":"rule"},{"role":"user","content":"`+long+`"},`+call+`,{"role":"user","content":"`+long+`"},{"role":"assistant","content":"four"}]`).ok(nil)
	if s.post(agent(tokens, "/trim"), `{"max_tokens":12}`).ok(&out); out.Tokens != 12 || out.Kept != 3 {
		t.Errorf("%+v", out)
	}
	sameLines(t, "12 tokens", s.context(tokens, full), "system: rule", "user: "+long, "assistant: four")
	s.post(agent(tokens, "/trim"), `{"max_tokens":1}`).ok(&out) // the user's last words stay
	sameLines(t, "1 token", s.context(tokens, full), "system: rule", "user: "+long, "assistant: four")
	for body, words := range map[string]string{`{}`: "max_tokens", `{"max_tokens":1,"keep_recent":1}`: "max_tokens", `{"max_tokens":0}`: "max_tokens", `{"keep_recent":-1}`: "keep_recent", `{"keep":1}`: "keep"} {
		got := s.post(agent(id, "/trim"), body)
		if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), words) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	s.post(agent(id, "/trim"), `{"keep_recent":1}`).refused(http.StatusGone, "TaskNotFound")
	s.post(agent(id, "/repair"), nil).refused(http.StatusGone, "TaskNotFound")
}

func contents(list []message) []string {
	out := []string{}
	for _, m := range list {
		out = append(out, m.Content)
	}
	return out
}

// TestRepair: missing results get a placeholder in the memory. Other problems are only reported,
// and a second repair changes nothing.
//
// Rules: 001-17, 001-18
func TestRepair(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	s.post(agent(id, "/messages"), `[{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c2","content":"ok"},{"role":"tool","tool_call_id":"c9","content":"?"},{"role":"assistant","content":"done"}]`).ok(nil)
	var out trimmed
	s.post(agent(id, "/repair"), nil).ok(&out)
	if len(out.Healed) != 1 || out.Healed[0] != "c1" || out.Kept != 6 || len(out.Problems) != 2 {
		t.Fatalf("%+v", out)
	}
	codes := map[string]bool{}
	for _, p := range out.Problems {
		codes[p.Code] = p.Repairable
	}
	if d := cmp.Diff(map[string]bool{"missing_results": true, "unknown_result_id": false}, codes); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	want := s.context(id, `{"policy":{"preset":"full"}}`).lines()
	if len(want) != 6 || !strings.HasPrefix(want[3], "tool: [the tool was interrupted") {
		t.Errorf("repaired: %q", want)
	}
	s = s.again()
	if s.post(agent(id, "/repair"), `{}`).ok(&out); len(out.Healed) != 0 || len(out.Problems) != 1 {
		t.Errorf("again: %+v", out)
	}
	sameLines(t, "again", s.context(id, `{"policy":{"preset":"full"}}`), want...)
}

// TestSnapshotHoldsAll: the next snapshot has everything that a restore accepted: messages without
// text, drafts, and those of a user's scope. When evidence shows that less of an answer was heard,
// the snapshot holds no more than that.
//
// Rules: 001-26, 001-27
func TestSnapshotHoldsAll(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	at := agent(id, "/snapshot")
	const whole = `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":""},{"role":"assistant","content":null},{"role":"assistant"},` +
		`{"role":"assistant","content":"","timestamp":1780000000000,"metadata":{"source":"llm"}},{"role":"user","content":"maybe","status":"draft"}],"summary":null}` + "\n"
	s.do("PUT", at, whole).ok(nil)
	s = s.again()
	if d := cmp.Diff(whole, string(s.get(at).ok(nil).body)); d != "" {
		t.Errorf("not what was restored (-want +got):\n%s", d)
	}
	sameLines(t, "an LLM is told no more of it than before", s.context(id, `{"policy":{"preset":"full"}}`), "user: q")

	s.post(agent(id, "/clear"), nil)
	s.post(agent(id, "/messages"), `{"role":"user","content":"mine","importance":0.9,"category":"semantic","scope":{"user_id":"ann"}}`).ok(nil)
	first := s.get(at).ok(nil).body
	s.do("PUT", at, string(first)).ok(nil)
	if d := cmp.Diff(string(first), string(s.get(at).ok(nil).body)); d != "" {
		t.Errorf("again (-want +got):\n%s", d)
	}
	sameLines(t, "it is still Ann's", s.context(id, `{"scope":{"user_id":"ann"}}`), "user: mine")
	ledger := s.ledger(id)
	if last := ledger[len(ledger)-1]; last.Importance == nil || *last.Importance != 0.9 || last.Category != "semantic" {
		t.Errorf("restored as %+v", last)
	}

	s.do("PUT", at, `[{"role":"user","content":"q"},{"role":"assistant","content":"one two three","mood":"glad"}]`).ok(nil)
	s.post(agent(id, "/interrupt"), `{"heard":"one two"}`).ok(nil)
	if got := string(s.get(at).ok(nil).body); !strings.Contains(got, `"content":"one two"`) || !strings.Contains(got, `"interrupted":true`) {
		t.Errorf("after an interruption: %s", got)
	}
}

// TestRepairKeepsAnswers: a repair that rewrites the memory keeps the answer in progress.
func TestRepairKeepsAnswers(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Hang: true})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	s.post(agent(id, "/messages"), `[{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"user","content":"well?"}]`).ok(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"user","content":"so?"}]}`)
	}()
	for len(llm.Requests()) == 0 {
		runtime.Gosched()
	}
	s.post(agent(id, "/repair"), nil).refused(http.StatusConflict, "TaskConflict")
	s.post(agent(id, "/trim"), `{"max_tokens":500}`).refused(http.StatusConflict, "TaskConflict")
	s.post(agent(id, "/interrupt"), nil).ok(nil)
	<-done
	var out trimmed
	if s.post(agent(id, "/repair"), nil).ok(&out); len(out.Healed) != 1 {
		t.Errorf("%+v", out)
	}
}

// TestRetryOfWhatGrew: a retried answer is recognized although a later one was merged into it
// meanwhile.
//
// Rules: 000-13
func TestRetryOfWhatGrew(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{"heardlog": map[string]any{"policy": map[string]any{"preset": "ovos"}}})
	first := `{"id":"m-1","role":"assistant","content":"Hello."}`
	for _, body := range []string{first, `{"id":"m-2","role":"assistant","content":"Who is there?"}`, first} {
		s.post(agent(id, "/messages"), body).ok(nil)
	}
	sameLines(t, "told once", s.context(id, `{}`), "assistant: Hello.\nWho is there?")
	s.post(agent(id, "/messages"), `{"id":"m-1","role":"assistant","content":"Hell"}`).refused(http.StatusConflict, "TaskConflict", "m-1")
}
