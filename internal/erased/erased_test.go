package erased_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/erased"
	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/webhook"
)

type log []webhook.Event

func (l log) AgentEvents(_ context.Context, _, _ string, each func(webhook.Event) error) error {
	for _, e := range l {
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

func message(seq, turn, ms int64, role memory.Role, content string) memory.Message {
	return memory.Message{Seq: seq, TurnID: turn, Timestamp: ms, Role: role, Content: content, State: memory.Final}
}

// TestEvents: of each type of event the words of removed messages go, and nothing else. Events that
// have none are not returned.
func TestEvents(t *testing.T) {
	t.Parallel()
	ledger := []memory.Message{
		message(1, 0, 10, memory.User, "gone"), message(2, 0, 11, memory.Assistant, "keep"),
		message(3, 1, 20, memory.User, "keep"), message(4, 1, 20, memory.User, "gone"), message(5, 1, 21, memory.Assistant, "gone"),
		message(6, 2, 30, memory.Assistant, "keep"),
	}
	form := func(m memory.Message) json.RawMessage { return m.AppendHistory(nil) }
	revised := ledger[0]
	revised.Timestamp = 9 // it had another time then
	all := []json.RawMessage{form(revised)}
	for _, m := range ledger[1:] {
		all = append(all, form(m))
	}
	withSeq := func(m memory.Message) json.RawMessage {
		return json.RawMessage(`{"seq":` + string('0'+rune(m.Seq)) + `,"state":"final",` + string(form(m)[1:]))
	}
	failed := json.RawMessage(`{"reason":"error","details":"gone","error":"gone"}`)
	payloads := []webhook.Payload{
		webhook.History{Contents: all},
		webhook.Messages{Messages: []json.RawMessage{withSeq(ledger[0]), withSeq(ledger[1])}},
		webhook.Messages{Messages: []json.RawMessage{withSeq(ledger[1])}},
		webhook.Interrupted{TurnID: 1, Seq: 5, State: "final", Heard: "gone", Sent: "gone", Generated: "gone"},
		webhook.Interrupted{TurnID: 2, Seq: 6, State: "final", Heard: "keep", Sent: "keep", Generated: "keep"},
		webhook.Failed{TurnID: 1, Errors: []webhook.Failure{{Module: "llm", Code: 400, Message: "gone"}}},
		webhook.Failed{TurnID: 2, Errors: []webhook.Failure{{Module: "llm", Code: 400, Message: "keep"}}},
		webhook.Turns{Turns: []webhook.Turn{
			{TurnID: 1, End: &webhook.TurnEdge{Type: "error", Metadata: failed}},
			{TurnID: 2, End: &webhook.TurnEdge{Type: "error", Metadata: json.RawMessage(strings.ReplaceAll(string(failed), "gone", "keep"))}},
		}},
		webhook.Joined{},
	}
	var events log
	for i, p := range payloads {
		body, err := webhook.Encode(webhook.Notice{ID: string('a' + rune(i)), Payload: p})
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, webhook.Event{ID: string('a' + rune(i)), Type: p.EventType(), Body: body})
	}
	for _, i := range []int{0, 3, 4} {
		m := &ledger[i]
		*m = memory.Message{Seq: m.Seq, TurnID: m.TurnID, Timestamp: m.Timestamp, Role: m.Role, State: memory.Removed}
	}
	out, err := erased.Events(t.Context(), events, "p", "a", ledger)
	if err != nil {
		t.Fatal(err)
	}
	changed := ""
	for _, e := range out {
		changed += e.ID
		body := string(e.Body)
		before := string(events[e.ID[0]-'a'].Body)
		if strings.Contains(body, "gone") || strings.Count(body, "keep") != strings.Count(before, "keep") {
			t.Errorf("%s\nbecame %s", before, body)
		}
		if !json.Valid(e.Body) {
			t.Errorf("no JSON: %s", body)
		}
		switch {
		case e.Type == event.History && strings.Count(body, `"content"`) != 3:
			t.Errorf("the history became %s", body)
		case e.ID == "b" && !strings.Contains(body, `{"seq":1,"state":"removed","role":"user","content":"",`):
			t.Errorf("the messages became %s", body)
		case e.ID == "d" && !strings.Contains(body, `"state":"removed"`):
			t.Errorf("the cut became %s", body)
		}
	}
	if changed != "abdfh" {
		t.Errorf("the events %q were changed", changed)
	}
	for _, e := range out {
		events[e.ID[0]-'a'].Body = e.Body
	}
	if again, err := erased.Events(t.Context(), events, "p", "a", ledger); err != nil || len(again) != 0 {
		t.Errorf("%d events were changed again, %v", len(again), err)
	}
}

// TestReworded: an event has the messages that were changed since as they are now, and all else as
// it was.
func TestReworded(t *testing.T) {
	t.Parallel()
	was := memory.Message{Seq: 1, Role: memory.User, Content: "My card is 4929 1234", TurnID: 1, Timestamp: 5}
	is := was
	is.Content = "My card is [card]"
	other := memory.Message{Seq: 2, Role: memory.User, Content: "4929 1234 is the order", TurnID: 2, Timestamp: 6}
	entry := func(m memory.Message) string { return string(m.AppendHistory(nil)) }
	withSeq := func(m memory.Message) string {
		return `{"seq":` + strconv.FormatInt(m.Seq, 10) + `,"state":"final",` + entry(m)[1:]
	}
	body := func(payload string) []byte { return []byte(`{"noticeId":"n","payload":` + payload + `,"x":1.50}`) }
	for kind, want := range map[int][2]string{
		event.Message:     {`{"messages":[` + withSeq(was) + `,` + withSeq(other) + `]}`, `{"messages":[` + withSeq(is) + `,` + withSeq(other) + `]}`},
		event.History:     {`{"contents":[` + entry(was) + `,` + entry(other) + `]}`, `{"contents":[` + entry(is) + `,` + entry(other) + `]}`},
		event.Interrupted: {`{"seq":1,"heard":"4929","sent":"4929","generated":"4929"}`, `{"seq":1,"heard":"My card is [card]","sent":"My card is [card]","generated":"My card is [card]"}`},
		event.Joined:      {`{"name":"4929 1234"}`, ""},
	} {
		got, err := erased.Reworded(t.Context(), log{{ID: "e", Type: kind, Body: body(want[0])}}, "p", "a", []memory.Message{was, other}, []memory.Message{is})
		if err != nil || len(got) != min(len(want[1]), 1) || len(got) == 1 && string(got[0].Body) != string(body(want[1])) {
			t.Errorf("%d: %v %+v", kind, err, got)
		}
	}
}
