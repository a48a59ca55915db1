package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// worker is a LiveKit worker as the server sees it: its requests, and the events of its session.
type worker struct {
	s   *server
	job string
}

// ask sends a list, which the model answers with answer.
func (w *worker) ask(answer any, msgs ...any) {
	w.s.t.Helper()
	script := map[string]any{"answer": answer}
	if tool, ok := answer.(map[string]any); ok {
		script = tool
	}
	w.s.post(v1+"/chat/completions", map[string]any{"messages": msgs, "fake": script}, "X-LiveKit-Job-ID", w.job).ok(nil)
}

// event sends an event of the session twice: the second time changes nothing.
func (w *worker) event(e map[string]any) {
	w.s.t.Helper()
	for range 2 {
		w.s.post(v1+"/evidence/livekit", e, "X-LiveKit-Job-ID", w.job).ok(nil)
	}
}

// chatItem is a chat item. made is how many seconds ago the answer was ready; it was heard for some
// seconds, 0 for an item without metrics; more are other members.
func chatItem(role, text string, cut bool, made, seconds float64, more map[string]any) map[string]any {
	now := float64(time.Now().UnixMilli()) / 1000
	m := map[string]any{"id": "item_" + text, "type": "message", "role": role, "content": []string{text}, "interrupted": cut, "created_at": now - made}
	if seconds > 0 {
		m["metrics"] = map[string]any{"started_speaking_at": now - made, "stopped_speaking_at": now - made + seconds, "llm_node_ttft": 0.2, "tts_node_ttfb": 0.1}
	}
	for k, v := range more {
		m[k] = v
	}
	return m
}

func added(it map[string]any) map[string]any {
	return map[string]any{"type": "conversation_item_added", "item": it}
}

func closed(items ...map[string]any) map[string]any {
	return map[string]any{"type": "close", "chat_history": map[string]any{"items": items}}
}

// record returns a line for each message of the call: its role, what was heard of it, and its state
// if that is not final.
func (w *worker) record() (out []string) {
	w.s.t.Helper()
	var found struct {
		Agents []struct {
			ID string `json:"agent_id"`
		} `json:"agents"`
	}
	w.s.get(v1 + "/agents?name=livekit.job:" + w.job).ok(&found)
	if len(found.Agents) != 1 {
		w.s.t.Fatalf("%d agents of %s", len(found.Agents), w.job)
	}
	for _, m := range w.s.ledger(found.Agents[0].ID) {
		line := m.Role[:1] + ": " + m.Content
		if m.Metadata["interrupted"] == true && m.State == "final" {
			line += " [cut]"
		}
		if m.State != "final" {
			line += "[" + m.State + "] " + m.Generated
		}
		out = append(out, line)
	}
	return out
}

const (
	toTheTrain  = "The train leaves at nine from platform two and it is not late at all today."
	fromTwo     = "The train leaves from platform two, which is behind the old hall."
	museumHours = "The museum is open until six, and on Sundays it opens at ten in the morning."
	museumPlace = "Of course. The museum is near the river, and the tram stops there."
)

// livekitCalls are what sessions of LiveKit Agents do that a list of messages cannot tell.
func livekitCalls() map[string]struct {
	play func(*worker)
	want []string
} {
	said := func(text string, cut bool, seconds float64) map[string]any { // by say()
		m := chatItem("assistant", text, cut, seconds+1, seconds, nil)
		delete(m["metrics"].(map[string]any), "llm_node_ttft")
		return m
	}
	answered := func(text string, seconds float64) map[string]any {
		return chatItem("assistant", text, false, seconds+1, seconds, nil)
	}
	type call = struct {
		play func(*worker)
		want []string
	}
	return map[string]call{
		"cut, with all of the text": {func(w *worker) {
			w.ask(toTheTrain, user("When?"))
			w.event(added(chatItem("assistant", toTheTrain, true, 0, 1.8, nil)))
		}, []string{"u: When?", "a: The train leaves at nine [cut]"}},
		"cut, with all of the text and no times": {func(w *worker) {
			w.ask(toTheTrain, user("When?"))
			w.event(added(chatItem("assistant", toTheTrain, true, 0, 0, nil)))
			w.event(closed(chatItem("user", "When?", false, 9, 0, nil), chatItem("assistant", toTheTrain, true, 9, 0, nil)))
		}, []string{"u: When?", "a: " + toTheTrain + " [cut]"}},
		"late event, after the next answer": {func(w *worker) {
			cut := chatItem("assistant", "The train leaves", true, -0.3, 1, nil)
			w.ask(map[string]any{"answer": toTheTrain, "delay_first": "900ms"}, user("When?"))
			w.ask(fromTwo, user("When?"), user("Where from?"))
			w.event(added(cut))
			w.event(added(chatItem("assistant", fromTwo, false, 0, 1, nil)))
		}, []string{"u: When?", "a: The train leaves [cut]", "u: Where from?", "a: " + fromTwo}},
		"a cut on the wrong answer is lifted": {func(w *worker) {
			w.ask(toTheTrain, user("When?"))
			w.ask(fromTwo, user("When?"), user("Where from?"))
			w.event(added(chatItem("assistant", "The train leaves", true, -60, 1, nil))) // its clock is ahead
			w.event(added(chatItem("assistant", fromTwo, false, -60, 1, nil)))
		}, []string{"u: When?", "a: [unplayed] " + toTheTrain, "u: Where from?", "a: " + fromTwo}},
		"named by the answer's ID": {func(w *worker) {
			w.ask(toTheTrain, user("When?"))
			w.ask(toTheTrain, user("When?"), user("When, please?"))
			w.event(map[string]any{"type": "playback_finished", "response_id": "chatcmpl-none", "playback": map[string]any{"playback_position": 1}})
			w.event(added(chatItem("assistant", toTheTrain, false, -60, 4, nil)))
		}, []string{"u: When?", "a: [unplayed] " + toTheTrain, "u: When, please?", "a: " + toTheTrain}},
		"played so far, by word times": {func(w *worker) {
			w.ask(toTheTrain, user("When?"))
			e := added(chatItem("assistant", toTheTrain, true, 3, 2, nil))
			e["playback"] = map[string]any{"playback_position": 1.1, "interrupted": true, "words": []map[string]any{
				{"text": "The ", "start": 0, "end": 0.3}, {"text": "train ", "start": 0.3, "end": 0.9}, {"text": "leaves ", "start": 0.9, "end": 1.4},
			}}
			w.event(e)
			w.event(closed(chatItem("user", "When?", false, 9, 0, nil), chatItem("assistant", toTheTrain, true, 9, 0, nil)))
		}, []string{"u: When?", "a: The train [cut]"}},
		"rows of close are in order": {func(w *worker) {
			w.ask(museumHours, user("And the museum?"))
			w.event(added(chatItem("assistant", "The museum is", true, 0, 1, nil)))
			w.ask(museumPlace, user("And the museum?"), assistant("The museum is"), user("Where is it?"))
			w.event(closed(chatItem("user", "And the museum?", false, 9, 0, nil), chatItem("assistant", "The museum is", true, 8, 1, nil), chatItem("user", "Where is it?", false, 1, 0, nil)))
		}, []string{"u: And the museum?", "a: The museum is [cut]", "u: Where is it?", "a: [unplayed] " + museumPlace}},
		"close does not cut a whole answer": {func(w *worker) {
			w.ask(museumPlace, user("Where?"))
			w.event(added(answered(museumPlace, 4)))
			w.ask(museumHours, user("Where?"), assistant(museumPlace), user("And when?"))
			w.event(added(chatItem("assistant", "The museum is", true, 0, 1, nil)))
			w.event(closed(chatItem("user", "Where?", false, 9, 0, nil), chatItem("assistant", museumPlace, false, 8, 4, nil), chatItem("user", "And when?", false, 3, 0, nil), chatItem("assistant", "The museum is", true, 2, 1, nil)))
		}, []string{"u: Where?", "a: " + museumPlace, "u: And when?", "a: The museum is [cut]"}},
		"greeting that was never played": {func(w *worker) {
			w.ask("Hello, this is the station. How can I help?", map[string]any{"role": "system", "content": "Greet the caller."})
			w.ask(toTheTrain, user("Hi, when?"))
			w.event(added(answered(toTheTrain, 4)))
			w.event(closed(chatItem("user", "Hi, when?", false, 9, 0, nil), chatItem("assistant", toTheTrain, false, 8, 4, nil)))
		}, []string{"a: [unplayed] Hello, this is the station. How can I help?", "u: Hi, when?", "a: " + toTheTrain}},
		"answer to the last words that close lacks": {func(w *worker) {
			w.ask(toTheTrain, user("When?"))
			w.event(added(answered(toTheTrain, 4)))
			w.ask("Goodbye, have a pleasant journey.", user("When?"), assistant(toTheTrain), user("Thanks, bye."))
			w.event(closed(chatItem("user", "When?", false, 9, 0, nil), chatItem("assistant", toTheTrain, false, 8, 4, nil), chatItem("user", "Thanks, bye.", false, 1, 0, nil)))
		}, []string{"u: When?", "a: " + toTheTrain, "u: Thanks, bye.", "a: [unplayed] Goodbye, have a pleasant journey."}},
		"the caller's last words": {func(w *worker) {
			w.ask(toTheTrain, user("When?"))
			w.event(added(answered(toTheTrain, 4)))
			w.event(added(chatItem("user", "Thank you, goodbye.", false, 0, 0, nil)))
			w.event(closed(chatItem("user", "When?", false, 9, 0, nil), chatItem("assistant", toTheTrain, false, 8, 4, nil), chatItem("user", "Thank you, goodbye.", false, 1, 0, nil)))
		}, []string{"u: When?", "a: " + toTheTrain, "u: Thank you, goodbye."}},
		"words that come before their request": {func(w *worker) {
			w.event(added(chatItem("user", "When?", false, 0, 0, nil)))
			w.ask(toTheTrain, user("When?"))
			w.event(added(answered(toTheTrain, 4)))
			w.event(added(chatItem("user", "And back?", false, 0, 0, nil)))
			w.ask(museumPlace, user("When?"), assistant(toTheTrain), user("And back?"))
		}, []string{"u: When?", "a: " + toTheTrain, "u: And back?", "a: " + museumPlace}},
		"say after the last request": {func(w *worker) {
			w.ask(toTheTrain, user("When?"))
			w.event(added(answered(toTheTrain, 4)))
			w.event(added(said("Just so you know, platform two is closed.", false, 2)))
			w.event(added(chatItem("user", "Oh. Goodbye.", false, 0, 0, nil)))
			w.event(closed(chatItem("user", "When?", false, 9, 0, nil), chatItem("assistant", toTheTrain, false, 8, 4, nil), said("Just so you know, platform two is closed.", false, 2), chatItem("user", "Oh. Goodbye.", false, 0, 0, nil)))
		}, []string{"u: When?", "a: " + toTheTrain, "a: Just so you know, platform two is closed.", "u: Oh. Goodbye."}},
		"say before the first request, cut": {func(w *worker) {
			w.event(added(said("Hello and welcome to", true, 1)))
			w.ask(toTheTrain, assistant("Hello and welcome to"), user("When?"))
		}, []string{"a: Hello and welcome to [cut]", "u: When?", "a: " + toTheTrain}},
		"say first, and again in close": {func(w *worker) {
			w.event(added(said("Welcome.", false, 1)))
			w.event(added(chatItem("user", "When?", false, 0, 0, nil)))
			w.ask(toTheTrain, assistant("Welcome."), user("When?"))
			w.event(added(answered(toTheTrain, 4)))
			w.event(added(chatItem("user", "Where?", false, 0, 0, nil)))
			w.ask(museumPlace, assistant("Welcome."), user("When?"), assistant(toTheTrain), user("Where?"))
			cut := chatItem("assistant", "Of course.", true, 0, 1, nil)
			w.event(added(cut))
			w.event(closed(said("Welcome.", false, 1), chatItem("user", "When?", false, 9, 0, nil), chatItem("assistant", toTheTrain, false, 8, 4, nil), chatItem("user", "Where?", false, 2, 0, nil), cut))
		}, []string{"a: Welcome.", "u: When?", "a: " + toTheTrain, "u: Where?", "a: Of course. [cut]"}},
		"say whose event is late": {func(w *worker) {
			w.ask(toTheTrain, assistant("Welcome."), user("When?"))
			w.ask(museumPlace, assistant("Welcome."), user("When?"), assistant(toTheTrain), user("Where?"))
			w.event(added(said("Welcome.", false, 1)))
			w.event(added(chatItem("user", "When?", false, 0, 0, nil)))
			w.event(added(answered(toTheTrain, 4)))
			w.event(added(chatItem("user", "Where?", false, 0, 0, nil)))
			w.event(added(answered(museumPlace, 4)))
		}, []string{"a: Welcome.", "u: When?", "a: " + toTheTrain, "u: Where?", "a: " + museumPlace}},
		"say that begins like an answer": {func(w *worker) {
			w.ask(toTheTrain, user("When?"))
			w.event(added(answered(toTheTrain, 4)))
			w.event(added(said("The train", true, 1)))
		}, []string{"u: When?", "a: " + toTheTrain, "a: The train [cut]"}},
		"an answer that a later request asks again for, and that was played": {func(w *worker) {
			w.ask(toTheTrain, user("Thank you, goodbye."))
			w.ask(museumHours, map[string]any{"role": "system", "content": "Say goodbye."}, user("Thank you, goodbye."))
			w.event(added(answered(toTheTrain, 4)))
			w.event(added(answered(museumHours, 4)))
			w.event(closed(chatItem("user", "Thank you, goodbye.", false, 9, 0, nil), chatItem("assistant", toTheTrain, false, 8, 4, nil), chatItem("assistant", museumHours, false, 4, 3, nil)))
		}, []string{"u: Thank you, goodbye.", "a: " + toTheTrain, "a: " + museumHours}},
	}
}

// TestLiveKit: what was heard in calls of LiveKit Agents. Each event comes twice, which changes
// nothing.
func TestLiveKit(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	n := 0
	for name, call := range livekitCalls() {
		n++
		job := fmt.Sprint("job-", n)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &worker{s: s, job: job}
			call.play(w)
			if diff := cmp.Diff(call.want, w.record()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLiveKitOnlyRecorded: a call whose answers do not come through the proxy. Words that come
// again are said again.
func TestLiveKitOnlyRecorded(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("job", map[string]any{"heardlog": map[string]any{"keys": []string{"livekit.job:realtime"}}})
	w := &worker{s: s, job: "realtime"}
	n := 0
	for _, line := range []string{"u: two tickets, please", "a: I did not get that.", "u: three tickets, please", "a: I did not get that."} {
		role := map[string]string{"u": "user", "a": "assistant"}[line[:1]]
		n++
		w.event(added(chatItem(role, line[3:], false, 0, 0, map[string]any{"id": fmt.Sprint("item_", n)})))
	}
	var got []string
	for _, m := range s.ledger(id) {
		got = append(got, m.Role[:1]+": "+m.Content)
	}
	if diff := cmp.Diff([]string{"u: two tickets, please", "a: I did not get that.", "u: three tickets, please", "a: I did not get that."}, got); diff != "" {
		t.Error(diff)
	}
}

// TestLiveKitCloseEnds: the end of a call ends it, whatever else its event has.
func TestLiveKitCloseEnds(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_MAX_MESSAGES=5")
	w := &worker{s: s, job: "full"}
	w.ask(toTheTrain, user("When?"))
	event := closed(chatItem("user", "When?", false, 9, 0, nil), chatItem("assistant", toTheTrain, false, 8, 4, nil),
		chatItem("user", "One", false, 3, 0, nil), chatItem("user", "Two", false, 3, 0, nil), chatItem("user", "Three", false, 3, 0, nil))
	s.post(v1+"/evidence/livekit", event, "X-LiveKit-Job-ID", w.job).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "5")
	var found struct {
		Agents []struct{ Status string } `json:"agents"`
	}
	s.get(v1 + "/agents?name=livekit.job:full").ok(&found)
	if len(found.Agents) != 1 || found.Agents[0].Status != "STOPPED" {
		t.Errorf("%+v", found)
	}
	id := s.join("full too", nil)
	s.say(id, user("One"), assistant("Two"), user("Three"), assistant("Four"))
	event = closed(chatItem("user", "Five", false, 3, 0, nil), chatItem("user", "Six", false, 3, 0, nil), chatItem("user", "Seven", false, 3, 0, nil))
	s.post(agent(id, "/evidence/livekit"), event).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "5")
	w.event(added(chatItem("user", "And more", false, -5, 0, nil))) // of the next call with the key
	if s.get(v1 + "/agents?name=livekit.job:full").ok(&found); len(found.Agents) != 2 {
		t.Errorf("%+v", found)
	}
}

// TestLiveKitAnswerID: what names an answer in a list does not reach the LLM.
func TestLiveKitAnswerID(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{})
	for vendor, properties := range map[string]map[string]any{"other": nil, "custom": {"llm": map[string]any{"vendor": "custom"}}} {
		s := start(t, "HEARDLOG_LLM_URL="+base)
		id := s.join(vendor, properties)
		s.ask(id, toTheTrain, user("When?"))
		s.ask(id, museumPlace, user("When?"), map[string]any{
			"role": "assistant", "content": "The train", "extra_content": map[string]any{"livekit": map[string]any{"heardlog": "none"}, "google": map[string]any{"x": 1}},
		}, user("Where?"))
		all := llm.Requests()
		sent := string(all[len(all)-1].Body)
		if strings.Contains(sent, "livekit") || strings.Contains(sent, `"heardlog"`) || vendor == "custom" && !strings.Contains(sent, `"google":{"x":1}`) {
			t.Errorf("%s: the LLM got %s", vendor, sent)
		}
	}
}
