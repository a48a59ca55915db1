package webhook_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

func about() webhook.About {
	return webhook.About{
		AgentID: "a1", Name: "bot", Channel: "room", StartMS: 1700000000999, Sequence: 3,
		Labels: map[string]string{"tier": "gold", "city": "Köln <1>"},
	}
}

// TestEncode checks the bodies against Agora's documented examples, with their units: seconds
// everywhere except in 112.
func TestEncode(t *testing.T) {
	t.Parallel()
	const labels = `"labels":{"city":"Köln <1>","tier":"gold"},"sequence":3`
	for _, tt := range []struct {
		name    string
		payload webhook.Payload
		want    string // type and payload
	}{
		{
			"joined", webhook.Joined{About: about()},
			`101,"notifyMs":1700000001234,"payload":{"agent_id":"a1","name":"bot","channel":"room","start_ts":1700000000,` + labels + `}`,
		},
		{
			"joined without labels", webhook.Joined{About: webhook.About{AgentID: "a1", StartMS: 5000}},
			`101,"notifyMs":1700000001234,"payload":{"agent_id":"a1","name":"","channel":"","start_ts":5,"sequence":0}`,
		},
		{
			"left", webhook.Left{About: about(), StopMS: 1700000060001, Status: "STOPPED", Message: "Idle for too long"},
			`102,"notifyMs":1700000001234,"payload":{"agent_id":"a1","name":"bot","channel":"room","start_ts":1700000000,"stop_ts":1700000060,` +
				`"status":"STOPPED","message":"Idle for too long",` + labels + `}`,
		},
		{
			"history", webhook.History{About: about(), StopMS: 1700000060001, Contents: []json.RawMessage{
				json.RawMessage(`{"role":"user","content":"<hi> & \u2028","turn_id":0}`), json.RawMessage(" {\"role\":\"assistant\"}\n"),
			}},
			`103,"notifyMs":1700000001234,"payload":{"agent_id":"a1","name":"bot","channel":"room","start_ts":1700000000,"stop_ts":1700000060,` +
				`"contents":[{"role":"user","content":"<hi> & \u2028","turn_id":0},{"role":"assistant"}],` + labels + `}`,
		},
		{
			"empty history", webhook.History{About: webhook.About{AgentID: "a1"}},
			`103,"notifyMs":1700000001234,"payload":{"agent_id":"a1","name":"","channel":"","start_ts":0,"stop_ts":0,"contents":[],"sequence":0}`,
		},
		{
			"failed", webhook.Failed{About: about(), TurnID: 2, Errors: []webhook.Failure{{Module: "llm", TurnID: 2, Code: 503, Message: "busy"}}},
			`110,"notifyMs":1700000001234,"payload":{"agent_id":"a1","name":"bot","channel":"room","start_ts":1700000000,"turn_id":2,` +
				`"errors":[{"module":"llm","turn_id":2,"code":503,"message":"busy"}],` + labels + `}`,
		},
		{
			"failed without errors", webhook.Failed{About: webhook.About{AgentID: "a1"}},
			`110,"notifyMs":1700000001234,"payload":{"agent_id":"a1","name":"","channel":"","start_ts":0,"turn_id":0,"errors":[],"sequence":0}`,
		},
		{
			"turns", webhook.Turns{About: about(), StopMS: 1700000060001, Turns: []webhook.Turn{
				{TurnID: 0, Start: webhook.TurnEdge{AtMS: 1700000001000, Type: "greeting", Metadata: json.RawMessage(`{"greeting_nth":1}`)}},
				{
					TurnID: 1, Start: webhook.TurnEdge{AtMS: 1700000002000, Type: "voice_input"},
					End:   &webhook.TurnEdge{AtMS: 1700000003000, Type: "interrupted", Metadata: json.RawMessage(`{"caused_by":"start_of_speech"}`)},
					E2EMS: 900, SegmentsMS: map[string]int64{"llm_ttft": 600, "asr_ttlw": 200},
				},
			}},
			`112,"notifyMs":1700000001234,"payload":{"agent_id":"a1","name":"bot","channel":"room","start_ts":1700000000999,"stop_ts":1700000060001,` +
				`"total_turn_count":2,"is_truncated":false,"turns":[` +
				`{"turn_id":0,"agent_id":"a1","channel":"room","start":{"start_at":1700000001000,"type":"greeting","metadata":{"greeting_nth":1}},` +
				`"metrics":{"segmented_latency_ms":{}}},` +
				`{"turn_id":1,"agent_id":"a1","channel":"room","start":{"start_at":1700000002000,"type":"voice_input","metadata":{}},` +
				`"end":{"end_at":1700000003000,"type":"interrupted","metadata":{"caused_by":"start_of_speech"}},` +
				`"metrics":{"e2e_latency_ms":900,"segmented_latency_ms":{"asr_ttlw":200,"llm_ttft":600}}}],` + labels + `}`,
		},
		{
			"no turns", webhook.Turns{About: webhook.About{AgentID: "a1"}},
			`112,"notifyMs":1700000001234,"payload":{"agent_id":"a1","name":"","channel":"","start_ts":0,"stop_ts":0,"total_turn_count":0,` +
				`"is_truncated":false,"turns":[],"sequence":0}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := webhook.Notice{SID: "s1", ID: "n:1", AtMS: 1700000001234, Payload: tt.payload}
			want := `{"sid":"s1","noticeId":"n:1","productId":17,"eventType":` + tt.want + `}`
			for range 5 { // maps must not show their random order
				got, err := webhook.Encode(n)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, string(got)); d != "" {
					t.Fatalf("body (-want +got):\n%s", d)
				}
				if !json.Valid(got) {
					t.Fatal("not JSON")
				}
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	ok := webhook.Joined{About: about()}
	for _, tt := range []struct {
		name string
		n    webhook.Notice
		want string
	}{
		{"no id", webhook.Notice{Payload: ok}, "noticeId"},
		{"id with a line break", webhook.Notice{ID: "n\r\nX-Evil: 1", Payload: ok}, "noticeId"},
		{"id with a dot", webhook.Notice{ID: "n.1", Payload: ok}, "noticeId"},
		{"id with a space", webhook.Notice{ID: "n 1", Payload: ok}, "noticeId"},
		{"id not ASCII", webhook.Notice{ID: "né", Payload: ok}, "noticeId"},
		{"id too long", webhook.Notice{ID: strings.Repeat("n", webhook.MaxNoticeID+1), Payload: ok}, "at most 128"},
		{"no payload", webhook.Notice{ID: "n"}, "payload"},
		{"contents not JSON", webhook.Notice{ID: "n", Payload: webhook.History{Contents: []json.RawMessage{json.RawMessage(`{"a":`)}}}, "contents"},
		{"contents empty item", webhook.Notice{ID: "n", Payload: webhook.History{Contents: []json.RawMessage{nil}}}, "contents"},
		{"two values in one item", webhook.Notice{ID: "n", Payload: webhook.History{Contents: []json.RawMessage{json.RawMessage(`{},{}`)}}}, "contents"},
		{"metadata not JSON", webhook.Notice{ID: "n", Payload: webhook.Turns{Turns: []webhook.Turn{{
			Start: webhook.TurnEdge{Metadata: json.RawMessage(`x`)},
		}}}}, "metadata"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body, err := webhook.Encode(tt.n)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%q, %v; want an error with %q", body, err, tt.want)
			}
			if c := fault.CodeOf(err); c != fault.Invalid && c != fault.Missing {
				t.Errorf("code %s", c)
			}
		})
	}
}

func TestEncodeRepairsUTF8(t *testing.T) {
	t.Parallel()
	a := about()
	a.Name, a.Labels = "b\xffot\x00😀", map[string]string{"k\xfe": "v\xc3"}
	body, err := webhook.Encode(webhook.Notice{SID: "s\xed\xa0\x80", ID: "n", Payload: webhook.History{
		About: a, Contents: []json.RawMessage{json.RawMessage("{\"role\":\"user\",\"content\":\"caf\xe9 😀 \\u0000\"}")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		t.Fatalf("not UTF-8 or not JSON: %q", body)
	}
	var got struct {
		SID     string
		Payload struct {
			Name     string
			Contents []struct{ Content string }
		}
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Payload.Name != "b\uFFFDot\x00😀" || got.Payload.Contents[0].Content != "caf\uFFFD 😀 \x00" {
		t.Errorf("got %q", got)
	}
}

// TestEncodeLarge encodes a memory of 100,000 turns and 5 MB, and an empty one.
func TestEncodeLarge(t *testing.T) {
	t.Parallel()
	h := webhook.History{About: about()}
	for i := range 100_000 {
		h.Contents = append(h.Contents, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%050d","turn_id":%d}`, i, i)))
	}
	body, err := webhook.Encode(webhook.Notice{ID: "n", Payload: h})
	if err != nil {
		t.Fatal(err)
	}
	e, err := webhook.Decode(body)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Contents []json.RawMessage }
	if err := json.Unmarshal(e.Payload, &got); err != nil || len(got.Contents) != 100_000 || len(body) < 5<<20 {
		t.Errorf("%d messages in %d bytes, %v", len(got.Contents), len(body), err)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	e, err := webhook.Decode([]byte(`{"sid":"s","noticeId":"n","productId":17,"eventType":101,"notifyMs":5,"payload":{"a":1},"new":true}`))
	want := webhook.Envelope{SID: "s", NoticeID: "n", ProductID: webhook.ProductID, EventType: event.Joined, NotifyMS: 5, Payload: json.RawMessage(`{"a":1}`)}
	if err != nil || !cmp.Equal(e, want) {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []string{"", "[]", "{", `{"noticeId":"n"}`, `{"eventType":101}`, `{"noticeId":1,"eventType":101}`} {
		if _, err := webhook.Decode([]byte(bad)); fault.CodeOf(err) != fault.BadRequest {
			t.Errorf("%q: %v, want a bad request", bad, err)
		}
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("s", "n", "name", "k", "v", []byte(`{"role":"user"}`))
	f.Add("\xff", "n:1", "\x00", "", "\u2028", []byte("\"a\xff\""))
	f.Fuzz(func(t *testing.T, sid, id, name, key, value string, content []byte) {
		body, err := webhook.Encode(webhook.Notice{SID: sid, ID: id, Payload: webhook.History{
			About: webhook.About{Name: name, Labels: map[string]string{key: value}}, Contents: []json.RawMessage{content},
		}})
		if err != nil {
			return
		}
		if !utf8.Valid(body) {
			t.Fatalf("not UTF-8: %q", body)
		}
		e, err := webhook.Decode(body)
		if err != nil || e.NoticeID != id || e.EventType != event.History || e.ProductID != webhook.ProductID {
			t.Fatalf("%q: %+v, %v", body, e, err)
		}
		var p struct {
			Contents []json.RawMessage
			Labels   map[string]string
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil || len(p.Contents) != 1 || len(p.Labels) != 1 {
			t.Fatalf("%q: %+v, %v", body, p, err)
		}
	})
}
