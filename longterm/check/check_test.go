package check_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/longterm/check"
	"github.com/heardlog/heardlog/memory"
)

// TestTimes: silences, and answers over the caller's words, are found where the times say so.
func TestTimes(t *testing.T) {
	t.Parallel()
	const start = int64(1_780_000_000_000)
	long := "I would also like to know whether it is possible to bring my dog and two bicycles on the train"
	user := func(ms int64, text string) memory.Message {
		return memory.Message{Role: memory.User, Source: memory.SourceASR, Timestamp: start + ms, Content: text}
	}
	agent := func(ms int64, text string) memory.Message {
		return memory.Message{
			Role: memory.Assistant, Source: memory.SourceLLM, Timestamp: start + ms, Content: text, Method: memory.AssumedFull,
			Timings: &memory.Timings{StartMS: start + ms - 400, FirstTokenMS: 400},
		}
	}
	cut := func(m memory.Message, ms int64, by memory.Method) memory.Message {
		m.Generated, m.Interrupted, m.InterruptMS, m.Method = m.Content+" And so on.", true, start+ms, by
		m.Amend(func(d *memory.Details) { d.InterruptMSFrom = by })
		return m
	}
	for _, tt := range []struct {
		name string
		msgs []memory.Message
		want string
	}{
		{"in time", []memory.Message{user(0, "Hello?"), agent(900, "Good morning.")}, ""},
		{"late", []memory.Message{user(0, "Hello?"), agent(5600, "Good morning.")}, check.Silence},
		{"typed", []memory.Message{{Role: memory.User, Source: memory.SourceMessage, Timestamp: start, Content: "Hello?"}, agent(5600, "Good morning.")}, ""},
		{"the caller goes on", []memory.Message{user(0, "Well"), user(6000, "I think so"), agent(7000, "Good.")}, ""},
		{"not measured", []memory.Message{user(0, "Hello?"), {Role: memory.Assistant, Source: memory.SourceLLM, Timestamp: start + 9000, Content: "Good morning."}}, ""},
		{"no time", []memory.Message{{Role: memory.User, Source: memory.SourceASR, Content: "Hello?"}, agent(5600, "Good morning.")}, ""},
		{"the caller had begun", []memory.Message{user(0, "A ticket please."), agent(500, "To which city would you like to go?"), user(3200, long), agent(4000, "Yes.")}, check.TalkedOver},
		{"after the answer", []memory.Message{user(0, "A ticket please."), agent(500, "To which city?"), user(9500, long), agent(10_000, "Yes.")}, ""},
		{"a short word", []memory.Message{user(0, "A ticket please."), agent(500, "To which city would you like to go?"), user(1900, "Mhm."), agent(5000, "Yes.")}, ""},
		{"cut at once", []memory.Message{user(0, "A ticket please."), cut(agent(500, "To"), 1500, memory.WordTimes), user(3200, long), agent(4000, "Yes.")}, ""},
		{"went on", []memory.Message{user(0, "A ticket please."), cut(agent(500, "To which city would you like to go today with us?"), 12_000, memory.WordTimes), user(9500, long), agent(13_000, "Yes.")}, check.TalkedOver},
		{"stopped", []memory.Message{user(0, "A ticket please."), cut(agent(500, "To which city would you like to go today with us?"), 7000, memory.WordTimes), user(12_500, long), agent(13_000, "Yes.")}, ""},
		{"a guess", []memory.Message{user(0, "A ticket please."), cut(agent(500, "To which city would you like to go today with us?"), 12_000, memory.DisconnectOnly), user(9500, long), agent(13_000, "Yes.")}, ""},
	} {
		for i := range tt.msgs {
			tt.msgs[i].Seq, tt.msgs[i].TurnID = int64(i+1), int64(i/2)
		}
		found := check.Of(tt.msgs)
		if got := strings.Join(check.Found(found), " "); got != tt.want {
			t.Errorf("%s: found %+v, want %q", tt.name, found, tt.want)
		}
		if len(found) > 0 && (found[0].MS < 1000 || found[0].At.Text == "" || found[0].Before.Text == "") {
			t.Errorf("%s: found %+v, want a time and both places", tt.name, found)
		}
	}
}

// TestBounded: the longest call that is read, of the longest texts that are compared, takes no more
// than a few seconds.
func TestBounded(t *testing.T) {
	t.Parallel()
	var msgs []memory.Message
	for i := range 5000 {
		m := memory.Message{Seq: int64(i + 1), TurnID: int64(i / 2), Role: memory.User, Source: memory.SourceASR, Content: "Which of the many different kinds of apples do you sell today?"}
		if i%2 == 1 {
			m.Role, m.Source = memory.Assistant, memory.SourceLLM
			m.Content = strings.Repeat("We sell many different kinds of red, green and yellow apples from the old orchard. ", 3)
		}
		msgs = append(msgs, m)
	}
	if got := check.Of(msgs); len(got) == 0 || len(got) > check.MaxFindings {
		t.Errorf("found %d", len(got))
	}
	for i := range msgs { // no two sentences are alike, and all share words
		var b strings.Builder
		for j := range 100 {
			fmt.Fprintf(&b, "As I said, we sell many different kinds of apples from the old orchard number %d. ", 100*i+j)
		}
		msgs[i].Content, msgs[i].Generated = b.String(), b.String()+b.String()
		msgs[i].Interrupted, msgs[i].Method = i%2 == 1, memory.WordTimes
	}
	began := time.Now()
	check.Of(msgs)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}
