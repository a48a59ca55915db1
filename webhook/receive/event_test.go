package receive_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/receive"
)

func encode(t *testing.T, id string, p webhook.Payload) []byte {
	t.Helper()
	body, err := webhook.Encode(webhook.Notice{SID: "a1", ID: id, AtMS: 1780000000123, Payload: p})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestDecodeForeignMetadata: clients' own keys are told apart from ours, however they are spelled,
// and cannot make an event unreadable.
func TestDecodeForeignMetadata(t *testing.T) {
	t.Parallel()
	e, err := receive.Decode(encode(t, "n:1", webhook.History{Contents: []json.RawMessage{
		json.RawMessage(`{"role":"user","content":"Hi","metadata":{"source":"asr","Source":5,"Interrupted":true,"ORIGINAL":"x"}}`),
	}}))
	if err != nil {
		t.Fatal(err)
	}
	h, ok := e.Data.(receive.History)
	if !ok || len(h.Contents) != 1 {
		t.Fatalf("%+v", e)
	}
	want := receive.Metadata{Source: "asr", Other: map[string]json.RawMessage{"Source": json.RawMessage("5"), "Interrupted": json.RawMessage("true"), "ORIGINAL": json.RawMessage(`"x"`)}}
	if diff := cmp.Diff(want, h.Contents[0].Metadata); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDecode reads what the sender's own encoder writes.
func TestDecode(t *testing.T) {
	t.Parallel()
	sent := webhook.About{AgentID: "a1", Name: "desk", Channel: "room", StartMS: 1780000000000, Labels: map[string]string{"k": "v"}, Sequence: 9}
	about := receive.About{AgentID: "a1", Name: "desk", Channel: "room", StartTS: 1780000000, Labels: map[string]string{"k": "v"}, Sequence: 9}
	inMS := about
	inMS.StartTS = 1780000000000
	for _, tt := range []struct {
		in   webhook.Payload
		want any
	}{
		{webhook.Joined{About: sent}, receive.Joined{About: about}},
		{webhook.Left{About: sent, StopMS: 1780000060000, Status: "STOPPED", Message: "OK"}, receive.Left{About: about, StopTS: 1780000060, Status: "STOPPED", Message: "OK"}},
		{webhook.History{About: sent, StopMS: 1780000060000, Contents: []json.RawMessage{
			json.RawMessage(`{"role":"user","content":"Hi","turn_id":1,"timestamp":1780000001000,"metadata":{"source":"asr","user":"42"}}`),
			json.RawMessage(`{"role":"assistant","content":"The train","turn_id":1,"timestamp":1780000002000,"metadata":{"source":"llm","interrupted":true,"interrupt_timestamp":1780000003000,"original":"The train leaves"}}`),
		}}, receive.History{About: about, StopTS: 1780000060, Contents: []receive.Message{
			{Role: "user", Content: "Hi", TurnID: 1, Timestamp: 1780000001000, Metadata: receive.Metadata{Source: "asr", Other: map[string]json.RawMessage{"user": json.RawMessage(`"42"`)}}},
			{Role: "assistant", Content: "The train", TurnID: 1, Timestamp: 1780000002000, Metadata: receive.Metadata{
				Source: "llm", Interrupted: true, InterruptMS: 1780000003000, Original: "The train leaves", Other: map[string]json.RawMessage{},
			}},
		}}},
		{webhook.Failed{About: sent, TurnID: 2, Errors: []webhook.Failure{{Module: "llm", TurnID: 2, Code: 503, Message: "busy"}}},
			receive.Failed{About: about, TurnID: 2, Errors: []receive.Failure{{Module: "llm", TurnID: 2, Code: 503, Message: "busy"}}}},
	} {
		e, err := receive.Decode(encode(t, "n:1", tt.in))
		if err != nil || e.ID != "n:1" || e.SID != "a1" || e.ProductID != 17 || e.Type != tt.in.EventType() || !e.At.Equal(time.UnixMilli(1780000000123)) {
			t.Errorf("%d: %+v, %v", tt.in.EventType(), e, err)
		}
		if diff := cmp.Diff(tt.want, e.Data); diff != "" {
			t.Errorf("%d (-want +got):\n%s", tt.in.EventType(), diff)
		}
	}
	e, err := receive.Decode(encode(t, "n:1", webhook.Turns{About: sent, StopMS: 1780000060000, Turns: []webhook.Turn{{
		TurnID: 1, Start: webhook.TurnEdge{AtMS: 1780000001000, Type: "voice_input"}, End: &webhook.TurnEdge{AtMS: 1780000003000, Type: "ok"},
		E2EMS: 900, SegmentsMS: map[string]int64{"llm_ttft": 600},
	}}}))
	table, ok := e.Data.(receive.Turns)
	if err != nil || !ok || table.TotalTurnCount != 1 || table.StartTS != inMS.StartTS || len(table.Turns) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	if turn := table.Turns[0]; turn.Start.AtMS != 1780000001000 || turn.Start.Type != "voice_input" || turn.End == nil || turn.End.Type != "ok" ||
		turn.Metrics.E2EMS != 900 || turn.Metrics.SegmentsMS["llm_ttft"] != 600 {
		t.Errorf("%+v", turn)
	}
}

// TestDecodeCatalogue reads the example of every event that Heardlog sends into a type that has all
// of its fields.
func TestDecodeCatalogue(t *testing.T) {
	t.Parallel()
	list, err := webhook.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range list {
		e, err := receive.Decode(entry.Example)
		if err != nil || e.Type != entry.Number || e.Data == nil {
			t.Errorf("%s: %+v, %v", entry.Name, e, err)
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(e.Payload))
		dec.DisallowUnknownFields()
		if err := dec.Decode(reflect.New(reflect.TypeOf(e.Data)).Interface()); err != nil {
			t.Errorf("%s: %v", entry.Name, err)
		}
	}
	if len(list) < 12 {
		t.Errorf("%d events", len(list))
	}
}

func TestDecodeOthers(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]any{
		`{"noticeId":"n","eventType":104,"payload":{"agent_id":"a","message":"soon"}}`:                    receive.Expiring{About: receive.About{AgentID: "a"}, Message: "soon"},
		`{"noticeId":"n","eventType":111,"payload":{"stop_ts":7,"metrics":[{"turn_id":1,"asr_ttlw":5}]}}`: receive.Metrics{StopTS: 7, Metrics: []map[string]float64{{"turn_id": 1, "asr_ttlw": 5}}},
		`{"noticeId":"n","eventType":777,"payload":{"agent_id":"a"}}`:                                     nil,
	} {
		e, err := receive.Decode([]byte(body))
		if err != nil || !reflect.DeepEqual(e.Data, want) {
			t.Errorf("%s: %+v, %v", body, e, err)
		}
	}
	for _, body := range []string{"", "hello", "[]", "{}", `{"noticeId":"n"}`, `{"eventType":101}`, `{"noticeId":"n","eventType":101}`, `{"noticeId":"n","eventType":103,"payload":{"contents":7}}`, `{"noticeId":7,"eventType":101}`} {
		if e, err := receive.Decode([]byte(body)); err == nil {
			t.Errorf("%s is read as %+v", body, e)
		}
	}
}
