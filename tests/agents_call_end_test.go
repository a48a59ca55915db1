package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// TestPlatformEndsCall sends each platform's last event of a call to the address that finds the
// agent by its key. The agent ends, the transcript in the event counts, and the event can be
// repeated.
func TestPlatformEndsCall(t *testing.T) {
	t.Parallel()
	const answer = "The train leaves at nine from platform two. Shall I book a seat?"
	const half = "The train leaves at nine"
	_, base := upstream(t, fake.Script{})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for name, tt := range map[string]struct {
		event         string
		key           string
		heard, method string
	}{
		"agora":                {"agora.102", "agora.agent:A42", answer, "assumed_full"},
		"elevenlabs":           {"elevenlabs.post_call_transcription-half", "elevenlabs.conversation:conv_1", half, "vendor_text"},
		"elevenlabs, cut":      {"elevenlabs.post_call_transcription", "elevenlabs.conversation:conv_1", "The train leaves at nine from", "vendor_text"},
		"elevenlabs, audio":    {"elevenlabs.post_call_audio", "elevenlabs.conversation:conv_1", answer, "assumed_full"},
		"livekit, session":     {"livekit.close", "livekit.session:s-1", half, "echo_diff"},
		"livekit, room's id":   {"livekit.room_finished", "livekit.room:RM_1", answer, "assumed_full"},
		"livekit, room's name": {"livekit.room_finished", "livekit.room:room-1", answer, "assumed_full"},
		"pipecat":              {"pipecat.end", "pipecat.session:p-1", half, "echo_diff"},
		"pipecat, client":      {"pipecat.disconnect-bot", "pipecat.session:p-1", answer, "assumed_full"},
		"retell":               {"retell.call_ended", "retell.call:call_1", answer, "vendor_text"},
		"retell, half":         {"retell.call_ended-half", "retell.call:call_1", half, "vendor_text"},
		"telnyx, stream":       {"telnyx.stop", "telnyx.call:v3:x", answer, "assumed_full"},
		"telnyx, relay":        {"telnyx.end", "telnyx.call:v3:x", answer, "assumed_full"},
		"telnyx, call":         {"telnyx.call.hangup", "telnyx.call:v3:x", answer, "assumed_full"},
		"twilio, stream":       {"twilio.stop", "twilio.call:CA1", answer, "assumed_full"},
		"twilio, relay":        {"twilio.end", "twilio.call:CA1", answer, "assumed_full"},
		"twilio, status":       {"twilio.completed", "twilio.call:CA1", answer, "assumed_full"},
		"twilio, connect":      {"twilio.ended", "twilio.call:CA1", answer, "assumed_full"},
		"vapi":                 {"vapi.end-of-call-report", "vapi.call:c-1", half, "echo_diff"},
		"vapi, status":         {"vapi.status-update", "vapi.call:c-1", answer, "assumed_full"},
	} {
		platform, _, _ := strings.Cut(tt.event, ".")
		id := s.join(name, map[string]any{"heardlog": map[string]any{"keys": []string{tt.key}}})
		s.ask(id, answer, user("When is my train?"))
		body := string(fixture(t, "events/"+tt.event+".json"))
		if strings.HasSuffix(name, "name") { // RM_1 was another room
			body = strings.Replace(body, "RM_1", "RM_2", 1)
		}
		var before string
		for n := range 2 {
			var out struct {
				AgentID string `json:"agent_id"`
				Ended   bool
			}
			s.post(v1+"/evidence/"+platform, body).ok(&out)
			if a := s.agent(id); out.AgentID != id || !out.Ended || a.Status != "STOPPED" || !strings.HasSuffix(a.Message, "OK") {
				t.Errorf("%s: %+v, %+v", name, out, a)
			}
			m := s.last(id)
			if m.Heard != tt.heard || m.Evidence.Method != tt.method || m.Generated != answer || (m.Metadata["interrupted"] == true) != (tt.heard != answer) {
				t.Errorf("%s: heard %q by %s, %v; want %q by %s", name, m.Heard, m.Evidence.Method, m.Metadata, tt.heard, tt.method)
			}
			now := string(s.get(agent(id)).body) + string(s.get(agent(id, "/messages")).body)
			if before != now && n > 0 {
				t.Errorf("%s: the same event again makes of\n%s\n%s", name, before, now)
			}
			before = now
		}
	}
	id := s.join("ringing", map[string]any{"heardlog": map[string]any{"keys": []string{"vapi.call:c-1"}}})
	s.post(v1+"/evidence/vapi", string(fixture(t, "events/vapi.status-update-ringing.json"))).ok(nil)
	if a := s.agent(id); a.Status != "RUNNING" {
		t.Errorf("a call that rings has ended: %+v", a)
	}
	s.post(agent(id, "/evidence/vapi"), `{"message":{"type":"status-update","status":"ended"}}`).ok(nil)
	if a := s.agent(id); a.Status != "STOPPED" {
		t.Errorf("an event about the agent in the path: %+v", a)
	}
	// Twilio's callbacks are forms.
	const form = "application/x-www-form-urlencoded"
	id = s.join("form", map[string]any{"heardlog": map[string]any{"keys": []string{"twilio.call:CA2"}}})
	for _, status := range []string{"ringing", "in-progress"} {
		s.post(v1+"/evidence/twilio", "CallSid=CA2&CallStatus="+status, "Content-Type", form).ok(nil)
		if a := s.agent(id); a.Status != "RUNNING" {
			t.Errorf("a call that is %s has ended: %+v", status, a)
		}
	}
	s.post(v1+"/evidence/twilio", "CallSid=CA2&CallStatus=%zz", "Content-Type", form).refused(http.StatusBadRequest, "InvalidRequestBody", "form")
	for range 2 {
		s.post(v1+"/evidence/twilio", "CallSid=CA2&From=%2B4930&CallStatus=completed", "Content-Type", form+"; charset=UTF-8").ok(nil)
		if a := s.agent(id); a.Status != "STOPPED" {
			t.Errorf("a form of a completed call: %+v", a)
		}
	}
	// Calls that never asked for an answer end too.
	s.post(v1+"/evidence/twilio", `{"type":"end","callSid":"CA-unknown"}`).ok(nil)
	s.post(agent("nobody", "/evidence/twilio"), `{"type":"end"}`).refused(http.StatusNotFound, "TaskNotFound", "nobody")
}

// TestCallEndsDuringAnswer: the end of the call ends the answer in progress, and what the event
// reports about that answer is stored.
func TestCallEndsDuringAnswer(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Chunks: []string{"One train leaves ", "at nine ", "from two."}, HangAfter: 2})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"heardlog": map[string]any{"keys": []string{"retell.call:call_1"}}})
	lines := s.streaming(id, "When?")
	for lines.Scan() && !strings.Contains(lines.Text(), "at nine") {
	}
	s.post(v1+"/evidence/retell", `{"event":"call_ended","call":{"call_id":"call_1","transcript_object":[{"role":"user","content":"When?"},{"role":"agent","content":"One train leaves"}]}}`).ok(nil)
	m := s.last(id)
	if a := s.agent(id); a.Status != "STOPPED" || m.Heard != "One train leaves" || m.Evidence.Method != "vendor_text" || m.Metadata["interrupted"] != true {
		t.Errorf("%+v, %+v", a, m)
	}
}

// TestLeaveByKey ends agents by the keys that find them in chat completions.
func TestLeaveByKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	keyed := func(keys ...string) map[string]any {
		return map[string]any{"channel": "room-1", "heardlog": map[string]any{"keys": keys}}
	}
	for name, tt := range map[string]struct {
		key, path, body string
		headers         []string
	}{
		"body":                  {"vapi.call:c-1", "/leave", `{"call":{"id":"c-1"}}`, nil},
		"metadata":              {"twilio.call:CA1", "/leave", `{"metadata":{"callSid":"CA1"}}`, nil},
		"header":                {"livekit.session:s-1", "/leave", ``, []string{"X-LiveKit-Session-ID", "s-1"}},
		"header, other case":    {"retell.call:x", "/leave", `{}`, []string{"x-retell-call-id", "x"}},
		"channel":               {"vapi.call:c-9", "/leave", `{"channel":"room-1"}`, nil},
		"path":                  {"pipecat.session:5", "/agents/pipecat.session:5/leave", ``, nil},
		"path, escaped":         {"telnyx.call:v3:a/b+c", "/agents/telnyx.call%3Av3:a%2Fb+c/leave", ``, nil},
		"path, a person":        {"openai.user:ann", "/agents/openai.user:ann/leave", ``, nil},
		"path, a person's hash": {"openai.user:ann", "/agents/HASH/leave", ``, nil},
	} {
		id := s.join(name, keyed(tt.key))
		path := strings.Replace(tt.path, "HASH", s.agent(id).Keys[0], 1)
		for range 2 {
			if a := s.post(v1+path, tt.body, tt.headers...).ok(nil); len(a.body) != 0 {
				t.Errorf("%s: %q", name, a.body)
			}
			if a := s.agent(id); a.Status != "STOPPED" {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	for _, how := range []string{"header", "metadata"} {
		id := s.join("by id, "+how, nil)
		for range 2 {
			if how == "header" {
				s.post(v1+"/leave", nil, "X-Agent-Id", id).ok(nil)
			} else {
				s.post(v1+"/leave", map[string]any{"metadata": map[string]any{"agent_id": id}}).ok(nil)
			}
		}
		if a := s.agent(id); a.Status != "STOPPED" {
			t.Errorf("%+v", a)
		}
		s.post(agent(id, "/leave"), nil).refused(http.StatusNotFound, "TaskNotFound", "stopped")
	}
	s.post(v1+"/leave", nil).refused(http.StatusBadRequest, "MissingRequiredField", "X-Agent-Id", "/v1/profiles")
	s.post(v1+"/leave", `[]`).refused(http.StatusBadRequest, "InvalidRequestBody")
	s.post(v1+"/leave", `{"call":{"id":"other"}}`).refused(http.StatusNotFound, "TaskNotFound", "vapi.call:other")
	s.post(v1+"/leave", nil, "X-Agent-Id", "nobody").refused(http.StatusNotFound, "TaskNotFound", "nobody")
	s.post(v1+"/leave", nil, "X-Agent-Id", "a b").refused(http.StatusNotFound, "TaskNotFound")
	s.post(v1+"/agents/vapi.call:other/leave", nil).refused(http.StatusNotFound, "TaskNotFound", "vapi.call:other")
	s.post(v1+"/agents/a%20b/leave", nil).refused(http.StatusNotFound, "TaskNotFound")
}
