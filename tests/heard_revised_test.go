package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

const longAnswer = "The train leaves at nine from platform two, and it is on time. Shall I book a seat for you?"

// TestInterruptEstimates: an interruption that does not say what was heard is an estimate by the
// time since the first token, until anything better comes.
func TestInterruptEstimates(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: longAnswer})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	asked := func(name string) (id string, at int64) {
		id = s.join(name, nil)
		s.ask(id, longAnswer, user("When is my train?"))
		return id, s.last(id).Timestamp
	}
	heard := func(id string, after int64) message {
		t.Helper()
		s.interrupt(id, map[string]any{"at": after}).ok(nil)
		m := s.last(id)
		if m.Evidence.Method != "rate_estimate" || !strings.HasPrefix(longAnswer, m.Heard) || m.Generated != longAnswer || m.Sent != longAnswer {
			t.Errorf("%+v", m)
		}
		return m
	}
	id, at := asked("at once")
	if m := heard(id, at+100); m.Heard != "" || m.Metadata["interrupted"] != true {
		t.Errorf("the voice has not begun: %+v", m)
	}
	id, at = asked("long after")
	if m := heard(id, at+60_000); m.Heard != longAnswer || m.Metadata["interrupted"] != nil {
		t.Errorf("the voice has long ended: %+v", m)
	}
	id, at = asked("usual voice")
	usual := heard(id, at+2400)
	if n := len(strings.Fields(usual.Heard)); n < 4 || n > 10 || usual.Metadata["interrupted"] != true || usual.Evidence.Confidence < 40 || usual.Evidence.Confidence > 80 {
		t.Errorf("two seconds of a usual voice: %+v", usual)
	}
	s.interrupt(id, nil).ok(nil)
	if diff := cmp.Diff(usual, s.last(id)); diff != "" {
		t.Errorf("the call again, without a time, changed something:\n%s", diff)
	}
	s.ask(id, "Good.", user("When is my train?"), assistant("The train leaves at nine from platform two, and it is"), user("Wait."))
	if m := s.ledger(id)[1]; m.Heard != "The train leaves at nine from platform two, and it is" || m.Evidence.Method != "echo_diff" {
		t.Errorf("a list does not replace the estimate: %+v", m)
	}

	// A slow voice, as its word times say.
	id, _ = asked("slow voice")
	texts, starts, ends := []string{}, []int{}, []int{}
	for i, w := range strings.Fields(longAnswer) {
		texts, starts, ends = append(texts, w), append(starts, i*700), append(ends, i*700+700)
	}
	s.tell(id, "vapi", map[string]any{"message": map[string]any{
		"type": "assistant.speechStarted", "timestamp": 1780000012000, "text": longAnswer,
		"timing": map[string]any{"type": "word-alignment", "words": texts, "wordsStartTimesMs": starts, "wordsEndTimesMs": ends},
	}})
	s.ask(id, longAnswer, user("When is my train?"), assistant(longAnswer), user("Again, please."))
	if slow := heard(id, s.last(id).Timestamp+2400); len(slow.Heard) >= len(usual.Heard) || slow.Heard == "" {
		t.Errorf("of a slow voice %q was heard, of a usual one %q", slow.Heard, usual.Heard)
	}

	id = s.join("speak", nil)
	s.post(agent(id, "/speak"), map[string]any{"text": longAnswer}).ok(nil)
	if m := heard(id, s.last(id).Timestamp+2400); m.Heard != usual.Heard {
		t.Errorf("of words to speak %q was heard, of an answer %q", m.Heard, usual.Heard)
	}
	id, at = asked("clock")
	if m := heard(id, at-3_600_000); m.Heard == longAnswer && m.Metadata["interrupted"] == true {
		t.Errorf("a clock that is off: %+v", m)
	}
}

// TestInterruptEstimatesInFlight: an answer that is cut while it is sent was heard at most as far
// as it was sent.
func TestInterruptEstimatesInFlight(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Chunks: []string{"One two", " three"}, HangAfter: 1})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	s.streaming(id, "Count.")
	s.interrupt(id, nil).ok(nil)
	m := s.last(id)
	if m.Evidence.Method != "rate_estimate" || !strings.HasPrefix("One two", m.Heard) || m.Sent != "One two" || m.Metadata["interrupted"] != true {
		t.Errorf("%+v", m)
	}
	s.interrupt(id, nil).ok(nil)
	if diff := cmp.Diff(m, s.last(id)); diff != "" {
		t.Errorf("the same call again changed something:\n%s", diff)
	}
}

// TestEvidenceRevised: later evidence of the same kind revises the earlier, in both directions.
// Each change of what was heard is an event, and the ledger keeps what was known before.
func TestEvidenceRevised(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: longAnswer})
	const half = "The train leaves at nine"
	for name, tt := range map[string]struct {
		list, report string // what the re-sent list has of the answer, and what the report after the call
	}{
		"cut after all":   {longAnswer, half},
		"heard after all": {half, longAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := receive(t, hookSecret)
			s := start(t, subscribed(t, asked, hookSecret, "agent.interrupted"), "HEARDLOG_LLM_URL="+base)
			id := s.join("n", map[string]any{"heardlog": map[string]any{"keys": []string{"vapi.call:c-1"}}})
			s.ask(id, longAnswer, user("When is my train?"))
			s.ask(id, "Good.", user("When is my train?"), assistant(tt.list), user("I see."))
			if m := s.ledger(id)[1]; m.Heard != tt.list || m.Evidence.Method != "echo_diff" || m.Evidence.Earlier != nil {
				t.Errorf("%+v", m)
			}
			row := func(role, text string) map[string]any { return map[string]any{"role": role, "message": text} }
			report := map[string]any{"message": map[string]any{"type": "end-of-call-report", "call": map[string]any{"id": "c-1"}, "artifact": map[string]any{
				"messages": []any{row("user", "When is my train?"), row("bot", tt.report), row("user", "I see."), row("bot", "Good.")},
			}}}
			for range 2 {
				s.post(v1+"/evidence/vapi", report).ok(nil)
				m := s.ledger(id)[1]
				if m.Heard != tt.report || m.Evidence.Method != "echo_diff" || m.Evidence.Confidence < 50 || m.Evidence.Confidence > 90 || (m.Metadata["interrupted"] == true) != (tt.report == half) {
					t.Errorf("%+v", m)
				}
				if diff := cmp.Diff([]past{{"echo_diff", tt.list}}, m.Evidence.Earlier); diff != "" {
					t.Errorf("what was known before:\n%s", diff)
				}
			}
			events := 1
			if tt.list == half {
				events = 2 // the cut, and that it was none
			}
			told := asked.of(t, 10001, events)
			if e := told[events-1].told(t); e.Cut != (tt.report == half) || e.Heard != tt.report {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestConfidence: history shows it on demand.
func TestConfidence(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Answer: longAnswer})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	s.ask(id, longAnswer, user("When is my train?"))
	s.ask(id, "Good.", user("When is my train?"), assistant("The train leaves at nine"), user("I see."))
	s.say(id, map[string]any{"role": "user", "content": "x", "metadata": map[string]any{"confidence": 0.5}})
	for query, shown := range map[string]bool{"": false, "?confidence=false": false, "?confidence=true": true, "?confidence=true&limit=all": true, "?limit=4&confidence=true": true} {
		var h history
		s.get(agent(id, "/history", query)).ok(&h)
		for _, m := range h.Contents {
			c, has := m.Metadata["confidence"].(float64)
			switch {
			case m.Content == "x":
				has = !has || c != 0.5 // the client's own
			case m.Content == "The train leaves at nine":
				has = has != shown || has && (c < 90 || c > 100)
			}
			if has {
				t.Errorf("history%s: %q has %v", query, m.Content, m.Metadata)
			}
		}
	}
	s.get(agent(id, "/history?confidence=maybe")).refused(http.StatusBadRequest, "InvalidFieldValue", "confidence")
}

// TestClampedTimes: by the clock of a platform a turn may end before it begins. The turn table lets
// it end when it begins, and says so.
func TestClampedTimes(t *testing.T) {
	t.Parallel()
	s := start(t)
	const asked, answered = 1780000010000, 1780000012000
	id := s.join("n", nil)
	say := func(answer string) {
		s.say(id, map[string]any{"role": "user", "content": "a", "timestamp": asked}, map[string]any{"role": "assistant", "content": answer, "timestamp": answered})
	}
	say("One two three four.")
	s.tell(id, "twilio", `{"type":"interrupt","utteranceUntilInterrupt":"One two"}`)
	say("Five six seven eight.")
	s.tell(id, "agora", `{"eventType":103,"payload":{"contents":[{"role":"assistant","content":"Five six","metadata":{"source":"llm","interrupted":true,"interrupt_timestamp":1780000001,"original":"Five six seven eight."}}]}}`)
	say("Nine ten eleven.")
	// The caller's clock runs ahead of the answer's.
	s.say(id, map[string]any{"role": "user", "content": "b", "timestamp": answered + 9000}, map[string]any{"role": "assistant", "content": "Twelve.", "timestamp": answered})
	type edge struct {
		StartAt  int64          `json:"start_at"`
		EndAt    int64          `json:"end_at"`
		Metadata map[string]any `json:"metadata"`
	}
	var table struct {
		Turns []struct{ Start, End edge }
	}
	s.get(agent(id, "/turns")).ok(&table)
	for i, clamped := range []bool{false, true, false, true} {
		turn := table.Turns[i]
		if turn.End.EndAt < turn.Start.StartAt || (turn.End.Metadata["clamped"] == true) != clamped || clamped && turn.End.EndAt != turn.Start.StartAt {
			t.Errorf("turn %d: %+v", i, turn)
		}
	}
}
