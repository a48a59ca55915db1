package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAppend is the contract of the store.
//
// Rules: 002-1, 002-5, 002-7
func TestAppend(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	before := time.Now().UnixMilli()
	var one ledger
	s.post(agent(id, "/messages"), `{"id":"m-1","role":"user","content":"Hi","source":"asr","metadata":{"user":"42","nested":{"a":[1]}}}`).ok(&one)
	if len(one.Messages) != 1 || one.AgentID != id {
		t.Fatalf("%+v", one)
	}
	m := one.Messages[0]
	if m.Timestamp < before || m.Timestamp > time.Now().UnixMilli() {
		t.Errorf("timestamp %d is not now", m.Timestamp)
	}
	want := message{Seq: 1, ID: "m-1", Role: "user", Content: "Hi", State: "final", Timestamp: m.Timestamp,
		Metadata: map[string]any{"source": "asr", "user": "42", "nested": map[string]any{"a": []any{1.0}}}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	batch := s.say(id, assistant("Yes?"), user("a"), user("b"), assistant("c"))
	if diff := cmp.Diff([]string{"0 assistant: Yes?", "1 user: a", "1 user: b", "1 assistant: c"}, texts(batch)); diff != "" {
		t.Error(diff)
	}
	var bare ledger
	s.post(agent(id, "/messages"), `[{"role":"user","content":"d"},{"role":"assistant","content":[{"type":"text","text":"e"},{"type":"text","text":"f"}]}]`).ok(&bare)
	if diff := cmp.Diff([]string{"2 user: d", "2 assistant: e\nf"}, texts(bare.Messages)); diff != "" {
		t.Error(diff)
	}
	if string(bare.Messages[1].Parts) != `[{"type":"text","text":"e"},{"type":"text","text":"f"}]` {
		t.Errorf("parts %s", bare.Messages[1].Parts)
	}
	stored := s.ledger(id)
	if len(stored) != 7 {
		t.Fatalf("the ledger holds %d messages", len(stored))
	}
	for i, m := range stored {
		if i > 0 && m.Seq <= stored[i-1].Seq {
			t.Errorf("seq %d stands behind %d", m.Seq, stored[i-1].Seq)
		}
	}
	// The same call under the other bases.
	for base, path := range map[string]string{agora: agora, cn: cn} {
		s.post(path+"/agents/"+id+"/messages", user("from "+base)).ok(nil)
		s.get(path + "/agents/" + id + "/messages").ok(nil)
	}
}

// TestAppendRefused: if one message of a batch is not allowed, none is stored, and the error names
// it.
func TestAppendRefused(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_BODY=8388608")
	id := s.join("n", nil)
	s.say(id, map[string]any{"role": "user", "content": "first", "turn_id": 3})
	for _, tt := range []struct{ name, message, reason, words string }{
		{"a status that is none", `{"role":"user","content":"x","status":"old"}`, "InvalidFieldValue", "accepted, draft, discard"},
		{"importance above 1", `{"role":"user","content":"x","importance":1.1}`, "InvalidFieldValue", "importance"},
		{"an unknown id in a scope", `{"role":"user","content":"x","scope":{"house_id":"1"}}`, "InvalidFieldValue", "house_id"},
		{"a long scope", `{"role":"user","content":"x","scope":{"user_id":"` + strings.Repeat("x", 257) + `"}}`, "InvalidFieldValue", "scope.user_id"},
		{"NUL in a category", `{"role":"user","content":"x","category":"a\u0000"}`, "InvalidFieldValue", "category"},
		{"calls of the system", `{"role":"system","content":"x","tool_calls":[{}]}`, "InvalidFieldValue", "tool_calls"},
		{"no role", `{"content":"x"}`, "MissingRequiredField", "role"},
		{"unknown role", `{"role":"root","content":"x"}`, "InvalidFieldValue", `"root"`},
		{"no content", `{"role":"user"}`, "MissingRequiredField", "content"},
		{"a number for content", `{"role":"user","content":7}`, "InvalidFieldValue", "content"},
		{"a text part without text", `{"role":"user","content":[{"type":"text"}]}`, "InvalidFieldValue", "content[0].text"},
		{"a picture without url", `{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url"}]}`, "InvalidFieldValue", "content[1].image_url"},
		{"a picture with an empty url", `{"role":"user","content":[{"type":"image_url","image_url":{"url":""}}]}`, "InvalidFieldValue", "content[0].image_url"},
		{"sound without data", `{"role":"user","content":[{"type":"input_audio","input_audio":{"format":"wav"}}]}`, "InvalidFieldValue", "content[0].input_audio"},
		{"a file that is none", `{"role":"user","content":[{"type":"file"}]}`, "InvalidFieldValue", "content[0].file"},
		{"parts that are none", `{"role":"user","content":["x"]}`, "InvalidFieldValue", "content"},
		{"too long", `{"role":"user","content":"` + strings.Repeat("x", 4<<20+1) + `"}`, "InvalidFieldValue", "4194304"},
		{"an unknown key", `{"role":"user","content":"x","contents":"y"}`, "InvalidFieldValue", "contents"},
		{"a source of the other role", `{"role":"user","content":"x","source":"llm"}`, "InvalidFieldValue", "source"},
		{"an unknown source", `{"role":"assistant","content":"x","metadata":{"source":"dream"}}`, "InvalidFieldValue", "source"},
		{"a source that is no string", `{"role":"user","content":"x","metadata":{"source":1}}`, "InvalidFieldValue", "metadata.source"},
		{"a long id", `{"id":"` + strings.Repeat("x", 129) + `","role":"user","content":"x"}`, "InvalidFieldValue", "128"},
		{"a control character in an id", `{"id":"a\tb","role":"user","content":"x"}`, "InvalidFieldValue", "id"},
		{"turn below zero", `{"turn_id":-1,"role":"user","content":"x"}`, "InvalidFieldValue", "turn_id"},
		{"turn that goes down", `{"turn_id":2,"role":"user","content":"x"}`, "InvalidFieldValue", "never go down"},
		{"time below zero", `{"timestamp":-5,"role":"user","content":"x"}`, "InvalidFieldValue", "timestamp"},
		{"time in nanoseconds", `{"timestamp":1780000000000000000,"role":"user","content":"x"}`, "InvalidFieldValue", "timestamp"},
		{"tool without call", `{"role":"tool","content":"x"}`, "MissingRequiredField", "tool_call_id"},
		{"tool call of a user", `{"role":"user","content":"x","tool_calls":[{}]}`, "InvalidFieldValue", "tool_calls"},
		{"tool calls that are no list", `{"role":"assistant","tool_calls":{"a":1}}`, "InvalidFieldValue", "tool_calls"},
		{"tool_call_id of a user", `{"role":"user","content":"x","tool_call_id":"c"}`, "InvalidFieldValue", "tool_call_id"},
		{"interrupted that is no boolean", `{"role":"assistant","content":"x","metadata":{"interrupted":"yes"}}`, "InvalidFieldValue", "metadata.interrupted"},
		{"original that is no string", `{"role":"assistant","content":"x","metadata":{"interrupted":true,"original":1}}`, "InvalidFieldValue", "metadata.original"},
		{"interrupt time that is none", `{"role":"assistant","content":"x","metadata":{"interrupted":true,"interrupt_timestamp":"now"}}`, "InvalidFieldValue", "interrupt_timestamp"},
		{"too much metadata", `{"role":"user","content":"x","metadata":{"a":"` + strings.Repeat("x", 16<<10) + `"}}`, "InvalidFieldValue", "metadata"},
	} {
		s.post(agent(id, "/messages"), tt.message).refused(http.StatusBadRequest, tt.reason, tt.words)
		got := s.post(agent(id, "/messages"), `{"messages":[{"role":"user","content":"good"},`+tt.message+`]}`)
		if got.status != http.StatusBadRequest {
			t.Errorf("%s in a batch: %d", tt.name, got.status)
		}
	}
	for _, tt := range []struct{ body, reason, words string }{
		{``, "InvalidRequestBody", "empty"},
		{`{`, "InvalidRequestBody", ""},
		{`"x"`, "InvalidRequestBody", ""},
		{`[1]`, "InvalidFieldValue", "messages"},
		{`[{"role":"user","content":"x","contents":"y"}]`, "InvalidFieldValue", "contents"},
		{`[{"role":"user","content":"x"}] {}`, "InvalidRequestBody", ""},
		{`[],"role":"user"`, "InvalidRequestBody", ""},
		{`{"messages":[{"role":"user","content":"x"}],"role":"user"}`, "InvalidFieldValue", "cannot be combined"},
		{`{"messages":[{"role":"user","content":"x"}],"turn_id":5}`, "InvalidFieldValue", "cannot be combined"},
		{`[` + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"x"},`, 1001), ",") + `]`, "InvalidFieldValue", "1001"},
		{`{"role":"user","content":"x"} {}`, "InvalidRequestBody", "more than one"},
	} {
		s.post(agent(id, "/messages"), tt.body).refused(http.StatusBadRequest, tt.reason, tt.words)
	}
	if diff := cmp.Diff([]string{"3 user: first"}, texts(s.ledger(id))); diff != "" {
		t.Errorf("something of the refused batches is stored:\n%s", diff)
	}
	s.post(agent("unknown", "/messages"), user("x")).refused(http.StatusNotFound, "TaskNotFound")
}

// TestAppendLimits are bodies at their limits, which are taken.
func TestAppendLimits(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	var l ledger
	s.post(agent(id, "/messages"), `[`+strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"x"},`, 1000), ",")+`]`).ok(&l)
	if len(l.Messages) != 1000 || l.Messages[999].TurnID != 0 {
		t.Errorf("%d messages, the last in turn %d", len(l.Messages), l.Messages[len(l.Messages)-1].TurnID)
	}
	long := strings.Repeat("ö", 128<<10)
	if got := s.say(id, map[string]any{"id": strings.Repeat("ä", 128), "role": "assistant", "content": long}); got[0].Content != long {
		t.Error("the longest content came back otherwise")
	}
	if got := s.say(id, map[string]any{"role": "assistant", "content": ""}, map[string]any{"role": "user", "content": ""}); got[0].Content != "" {
		t.Errorf("%+v", got)
	}
}

// TestAppendIDs: an ID names one message. A repeat changes nothing, in a batch and after the
// agent's end too.
func TestAppendIDs(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	hi := map[string]any{"id": "a", "role": "user", "content": "Hi"}
	first := s.say(id, hi)
	if diff := cmp.Diff(first, s.say(id, hi)); diff != "" {
		t.Errorf("the same message again:\n%s", diff)
	}
	both := s.say(id, hi, map[string]any{"id": "b", "role": "assistant", "content": "Yes?"})
	if diff := cmp.Diff(first[0], both[0]); diff != "" {
		t.Errorf("part of a batch:\n%s", diff)
	}
	twice := s.say(id, map[string]any{"id": "c", "role": "user", "content": "x"}, map[string]any{"id": "c", "role": "user", "content": "x"})
	if diff := cmp.Diff(twice[0], twice[1]); diff != "" {
		t.Errorf("twice in one batch:\n%s", diff)
	}
	if got := s.ledger(id); len(got) != 3 {
		t.Errorf("the ledger holds %q", texts(got))
	}
	for _, other := range []map[string]any{
		{"id": "a", "role": "user", "content": "Ho"}, {"id": "a", "role": "assistant", "content": "Hi"}, {"id": "a", "role": "user", "content": "Hi", "source": "asr"},
	} {
		s.post(agent(id, "/messages"), other).refused(http.StatusConflict, "TaskConflict", `"a"`)
	}
	s.post(agent(id, "/messages"), map[string]any{"messages": []any{map[string]any{"id": "d", "role": "assistant", "content": "new"}, map[string]any{"id": "b", "role": "assistant", "content": "No!"}}}).
		refused(http.StatusConflict, "TaskConflict", `"b"`)
	if got := s.ledger(id); len(got) != 3 {
		t.Errorf("a batch with a conflict stored something: %q", texts(got))
	}
	other := s.join("m", nil)
	if got := s.say(other, map[string]any{"id": "a", "role": "user", "content": "an id belongs to its agent"}); got[0].Seq != 1 {
		t.Errorf("%+v", got)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	if diff := cmp.Diff(first, s.say(id, hi)); diff != "" {
		t.Errorf("after the end:\n%s", diff)
	}
	s.post(agent(id, "/messages"), map[string]any{"id": "e", "role": "user", "content": "x"}).refused(http.StatusGone, "TaskNotFound")
}

func TestAppendIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	send := func(key string, body any) answer { return s.post(agent(id, "/messages"), body, "Idempotency-Key", key) }
	batch := []any{user("a"), assistant("b")}
	var first, second ledger
	send("k", batch).ok(&first)
	send("k", batch).ok(&second)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Error(diff)
	}
	send("k2", batch).ok(nil)
	if got := s.ledger(id); len(got) != 4 {
		t.Errorf("%q", texts(got))
	}
	send("k", []any{user("other")}).refused(http.StatusConflict, "TaskConflict")
	send(strings.Repeat("k", 101), batch).refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
}

// TestTurnNumbers checks the numbering of turns.
//
// Rules: 002-3
func TestTurnNumbers(t *testing.T) {
	t.Parallel()
	s := start(t)
	with := func(m map[string]any, k string, v any) map[string]any { m[k] = v; return m }
	for name, tt := range map[string]struct {
		in   []map[string]any
		want []int64
	}{
		"question and answer":            {[]map[string]any{user("a"), assistant("b"), user("c"), assistant("d")}, []int64{0, 0, 1, 1}},
		"unanswered questions share one": {[]map[string]any{user("a"), user("b"), assistant("c"), user("d")}, []int64{0, 0, 0, 1}},
		"several answers join one":       {[]map[string]any{user("a"), assistant("b"), assistant("c")}, []int64{0, 0, 0}},
		"an empty answer leaves it open": {[]map[string]any{user("a"), assistant(""), user("b")}, []int64{0, 0, 0}},
		"unsolicited ones open their own": {[]map[string]any{
			with(assistant("hello"), "source", "greeting"), user("a"), assistant("b"), with(assistant("c"), "source", "command"), with(assistant("d"), "source", "silence"), user("e"),
		}, []int64{0, 1, 1, 2, 3, 4}},
		"given ones are kept and may skip": {[]map[string]any{with(user("a"), "turn_id", 5), assistant("b"), user("c"), with(assistant("d"), "turn_id", 10), with(user("e"), "turn_id", 10), user("f")},
			[]int64{5, 5, 6, 10, 10, 10}},
		"tools stay in the turn": {[]map[string]any{
			user("a"), {"role": "assistant", "tool_calls": []any{map[string]any{"id": "c1"}}}, {"role": "tool", "tool_call_id": "c1", "content": "7"}, assistant("b"), user("c"),
		}, []int64{0, 0, 0, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.join(name, nil)
			var got []int64
			for i, m := range s.say(id, tt.in...) {
				got = append(got, m.TurnID)
				_ = i
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			one := s.join(name+", one by one", nil)
			got = nil
			for _, m := range tt.in {
				got = append(got, s.say(one, m)[0].TurnID)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("one by one:\n%s", diff)
			}
		})
	}
}

// TestTimestamps: a time of ten digits is in seconds.
//
// Rules: 002-4
func TestTimestamps(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	for in, want := range map[int64]int64{1780000000: 1780000000000, 1780000000123: 1780000000123, 1000000000: 1000000000000, 9999999999: 9999999999000, 5: 5} {
		if got := s.say(id, map[string]any{"role": "user", "content": "x", "timestamp": in})[0].Timestamp; got != want {
			t.Errorf("%d is stored as %d, want %d", in, got, want)
		}
	}
}

// TestRepairedText: invalid UTF-8 is repaired, since its sender cannot help it. All other text is
// unchanged.
func TestRepairedText(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	for in, want := range map[string]string{
		`"a\ud83db"`: "a\uFFFDb", `"\udc00"`: "\uFFFD", `"\ud83d\ude00"`: "😀", `"\u2028<b>&\\\"\/"`: "\u2028<b>&\\\"/",
		"\"a\xffb\"": "a\uFFFDb", "\"\xe2\x82\"": "\uFFFD", `"  spaces kept  \n"`: "  spaces kept  \n", "\"\xed\xa0\xbd\xed\xb8\x80\"": "😀",
	} {
		var l ledger
		s.post(agent(id, "/messages"), `{"role":"user","content":`+in+`}`).ok(&l)
		if got := l.Messages[0].Content; got != want {
			t.Errorf("%q is stored as %q, want %q", in, got, want)
		}
	}
	got := s.get(agent(id, "/history"))
	if !json.Valid(got.body) {
		t.Errorf("the history is no JSON: %q", got.body)
	}
}

// TestToolMessages are kept in the ledger and not shown in history.
func TestToolMessages(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	s.say(id, user("What is the time?"),
		map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "clock", "arguments": "{}"}}}},
		map[string]any{"role": "tool", "tool_call_id": "c1", "name": "clock", "content": "noon"}, assistant("Noon."))
	if diff := cmp.Diff([]string{"0 user: What is the time?", "0 assistant: Noon."}, texts(s.history(id).Contents)); diff != "" {
		t.Error(diff)
	}
	l := s.ledger(id)
	if len(l) != 4 || string(l[1].ToolCalls) != `[{"id":"c1","type":"function","function":{"arguments":"{}","name":"clock"}}]` && !strings.Contains(string(l[1].ToolCalls), `"id":"c1"`) || l[2].ToolCallID != "c1" || l[2].Content != "noon" {
		t.Errorf("%+v", l)
	}
}

// TestAppendInterrupted: an assistant message may come with its interruption.
//
// Rules: 002-5, 002-6
func TestAppendInterrupted(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	s.say(id, user("a"),
		map[string]any{"role": "assistant", "content": "The train", "timestamp": 1780000000000, "metadata": map[string]any{"interrupted": true, "interrupt_timestamp": 1780000002, "original": "The train leaves.", "user": "7"}},
		user("b"), map[string]any{"role": "assistant", "content": "Yes.", "metadata": map[string]any{"interrupted": false, "original": "dropped", "interrupt_timestamp": 5}},
		map[string]any{"role": "user", "content": "c", "metadata": map[string]any{"interrupted": true, "original": "x"}})
	h := s.history(id).Contents
	want := []map[string]any{
		{"source": "message"},
		{"source": "llm", "interrupted": true, "interrupt_timestamp": 1780000002000.0, "original": "The train leaves.", "user": "7"},
		{"source": "message"},
		{"source": "llm"}, // interrupted: false is not stored, nor what belongs to it
		{"source": "message"},
	}
	for i, m := range h {
		if diff := cmp.Diff(want[i], m.Metadata); diff != "" {
			t.Errorf("message %d:\n%s", i, diff)
		}
	}
	l := s.ledger(id)[1]
	if l.Generated != "The train leaves." || l.Heard != "The train" || l.Evidence.Method != "vendor_text" {
		t.Errorf("%+v", l)
	}
}

// TestHistoryWindow: the newest max_history messages, limit=N, and limit=all in pages.
//
// Rules: 002-1
func TestHistoryWindow(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{"llm": map[string]any{"max_history": 4}})
	plain := s.join("m", nil)
	var in []map[string]any
	for i := range 40 {
		in = append(in, user(fmt.Sprint("u", i)), assistant(fmt.Sprint("a", i)))
	}
	s.say(id, in...)
	s.say(plain, in...)
	count := func(id, query string) int {
		t.Helper()
		var h history
		s.get(agent(id, "/history", query)).ok(&h)
		if n := len(h.Contents); n > 0 && h.Contents[n-1].Content != "a39" {
			t.Errorf("history%s ends with %q", query, h.Contents[n-1].Content)
		}
		return len(h.Contents)
	}
	for query, want := range map[string]int{"": 4, "?": 4, "?limit=": 4, "?limit=1": 1, "?limit=7": 7, "?limit=1000": 80, "?limit=all": 80} {
		if got := count(id, query); got != want {
			t.Errorf("history%s: %d messages, want %d", query, got, want)
		}
	}
	s.get(agent(id, "/history?other=1")).refused(http.StatusBadRequest, "InvalidFieldValue", "other: is not a parameter")
	var h history
	if s.get(agora + "/agents/" + id + "/history?other=1").ok(&h); len(h.Contents) != 4 { // as Agora
		t.Errorf("%d messages, want 4", len(h.Contents))
	}
	if got := count(plain, ""); got != 32 {
		t.Errorf("without max_history: %d messages, want 32", got)
	}
	for _, alone := range []string{"cursor=1", "limit=7&cursor=abc"} { // it would always be the last page
		s.get(agent(id, "/history?", alone)).refused(http.StatusBadRequest, "InvalidFieldValue", "cursor: needs limit=all")
		s.get(agora + "/agents/" + id + "/history?" + alone).ok(nil)
	}
	for _, bad := range []string{"limit=1025", "limit=ALL", "limit=-1", "limit=1.5"} {
		s.get(agent(id, "/history?", bad)).refused(http.StatusBadRequest, "InvalidFieldValue", "limit")
	}
	s.get(agent(id, "/history?limit=all&cursor=x")).refused(http.StatusBadRequest, "InvalidFieldValue", "cursor")
	s.get(agent("unknown", "/history?limit=all")).refused(http.StatusNotFound, "TaskNotFound")
	s.get(agent("unknown", "/history?limit=3")).refused(http.StatusNotFound, "TaskNotFound")

	many := s.join("many", nil)
	for range 3 {
		var in []map[string]any
		for i := range 800 {
			in = append(in, user(fmt.Sprint(i)))
		}
		s.say(many, in...)
	}
	var all []message
	for cursor := ""; ; {
		var h history
		s.get(agent(many, fmt.Sprint("/history?limit=all&cursor=", cursor))).ok(&h)
		all = append(all, h.Contents...)
		if h.NextCursor == "" {
			break
		}
		cursor = h.NextCursor
	}
	if len(all) != 2400 {
		t.Errorf("limit=all gave %d of 2400 messages", len(all))
	}
}

func TestLedgerPaging(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", nil)
	var in []map[string]any
	for i := range 25 {
		in = append(in, user(fmt.Sprint(i)))
	}
	s.say(id, in...)
	var got []string
	for cursor, pages := "", 0; ; pages++ {
		var l ledger
		s.get(agent(id, fmt.Sprint("/messages?limit=10&cursor=", cursor))).ok(&l)
		got = append(got, texts(l.Messages)...)
		if l.NextCursor == "" {
			if pages != 2 || len(l.Messages) != 5 {
				t.Errorf("page %d holds %d messages and is the last", pages, len(l.Messages))
			}
			break
		}
		cursor = l.NextCursor
	}
	if len(got) != 25 || got[24] != "0 user: 24" {
		t.Errorf("%q", got)
	}
	var l ledger
	s.get(agent(id, "/messages?after_seq=9999")).ok(&l)
	if len(l.Messages) != 0 || l.NextCursor != "" {
		t.Errorf("%+v", l)
	}
	for _, bad := range []string{"limit=-1", "limit=1001", "limit=all", "after_seq=-1", "after_seq=x", "cursor=x"} {
		field, _, _ := strings.Cut(bad, "=")
		s.get(agent(id, "/messages?", bad)).refused(http.StatusBadRequest, "InvalidFieldValue", field)
	}
	s.get(agent("unknown", "/messages")).refused(http.StatusNotFound, "TaskNotFound")
}

// TestBodyLimits: a body over the limit gets a 413, with or without a declared length, and one that
// nests too deep a 400.
func TestBodyLimits(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_BODY=20000")
	id := s.join("n", nil)
	big := `{"x":"` + strings.Repeat("x", 20000) + `"}`
	deep := `{"x":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`
	for _, path := range []string{v1 + "/join", v1 + "/agents", agora + "/join", cn + "/join", agent(id, "/update"), agent(id, "/speak"), agent(id, "/think"), agent(id, "/interrupt"), agent(id, "/evidence/twilio"), v1 + "/evidence/twilio", agent(id, "/messages")} {
		s.post(path, big).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody", "20000")
		s.post(path, deep).refused(http.StatusBadRequest, "InvalidRequestBody", "64")
	}
	for call, method := range memoryBodies {
		if call == "/snapshot" { // it has a bound of its own
			continue
		}
		s.do(method, agent(id, call), big).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody", "20000")
		s.do(method, agent(id, call), deep).refused(http.StatusBadRequest, "InvalidRequestBody", "64")
	}
	s.do(http.MethodPut, agent(id, "/snapshot"), `{"x":"`+strings.Repeat("x", 16<<20)+`"}`).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody", "16777216")
	// Exactly 64 deep.
	s.post(v1+"/join", `{"name":"a","properties":{"unknown":`+strings.Repeat("[", 62)+`"]]]"`+strings.Repeat("]", 62)+`}}`).ok(nil)
	// Brackets in strings are text.
	s.post(v1+"/join", `{"name":"`+strings.Repeat("[", 200)+`"}`).ok(nil)
	exact := `{"name":"exact","properties":{"x":"`
	s.post(v1+"/join", exact+strings.Repeat("x", 20000-len(exact)-3)+`"}}`).ok(nil)
}

// TestRateLimit: one limit a project over all bases, with Retry-After.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_RATE_LIMIT=5")
	for _, c := range calls { // every call documents it
		limited := false
		for range 60 {
			path := strings.Replace(c.path, "{id}", "x", 1)
			got := s.do(c.method, path, c.body)
			if got.status != http.StatusTooManyRequests {
				continue
			}
			got.refused(http.StatusTooManyRequests, "ConcurrencyLimitExceeded", "5 requests a second")
			if got.header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", path)
			}
			limited = true
			break
		}
		if !limited {
			t.Errorf("%s %s is not limited", c.method, c.path)
		}
	}
	// The other base shares the limit: its first call after a refusal is refused, too, unless a
	// slow machine lets the next one through meanwhile.
	var got answer
	for range 20 {
		for s.get(v1+"/agents").status != http.StatusTooManyRequests {
		}
		if got = s.get(agora + "/agents"); got.status == http.StatusTooManyRequests {
			break
		}
	}
	got.refused(http.StatusTooManyRequests, "ConcurrencyLimitExceeded")
	s.get(strings.Replace(agora, "default", "another", 1) + "/agents").ok(nil)
	s.get("/healthz").ok(nil)
}
