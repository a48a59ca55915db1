package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type recorded struct {
	AgentID  string `json:"agent_id"`
	Event    string
	Recorded []struct {
		Seq     int64
		TurnID  *int64 `json:"turn_id"`
		Heard   string
		Method  string
		Changed bool
		Pending bool
	}
	Unmatched int
}

// tell sends a vendor's event about an agent.
func (s *server) tell(id, platform string, body any) recorded {
	s.t.Helper()
	var out recorded
	s.post(agent(id, "/evidence/"+platform), body).ok(&out)
	return out
}

// TestEvidence is one event of each kind, as the platforms send them.
func TestEvidence(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, tt := range map[string]struct {
		platform, body string
		heard, method  string
	}{
		"twilio":               {"twilio", `{"type":"interrupt","utteranceUntilInterrupt":"The train leaves","durationUntilInterruptMs":"460"}`, "The train leaves", "vendor_text"},
		"twilio in the middle": {"twilio", `{"type":"interrupt","utteranceUntilInterrupt":"leaves at 9:05 from","durationUntilInterruptMs":"460"}`, "The train leaves at 9:05 from", "vendor_text"},
		"telnyx":               {"telnyx", `{"type":"interrupt","utteranceUntilInterrupt":"The train","durationUntilInterruptMs":1820}`, "The train", "vendor_text"},
		"elevenlabs": {"elevenlabs", `{"type":"agent_response_correction","agent_response_correction_event":{"original_agent_response":"The train leaves at 9:05 from platform 2. Anything else?","corrected_agent_response":"The train leaves at..."}}`,
			"The train leaves at", "vendor_text"},
		"openai words": {"openai-realtime", `{"type":"conversation.item.truncate","item_id":"item_7","audio_end_ms":"700","words":[
			{"word":"The","start_ms":0,"end_ms":200},{"word":"train","start_ms":200,"end_ms":700},{"word":"leaves","start_ms":700,"end_ms":1100}]}`, "The train", "word_times"},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.join(name, nil)
			s.say(id, user("When is my train?"), map[string]any{"id": "item_7", "role": "assistant", "content": trainAnswer})
			out := s.tell(id, tt.platform, tt.body)
			if out.AgentID != id || len(out.Recorded) != 1 || out.Unmatched != 0 || !out.Recorded[0].Changed || *out.Recorded[0].TurnID != 0 {
				t.Fatalf("%+v", out)
			}
			m := s.last(id)
			if m.Content != tt.heard || m.Evidence.Method != tt.method || m.Generated != trainAnswer {
				t.Errorf("heard %q by %s of %q; want %q by %s", m.Content, m.Evidence.Method, m.Generated, tt.heard, tt.method)
			}
			if again := s.tell(id, tt.platform, tt.body); again.Recorded[0].Changed {
				t.Errorf("the same event again: %+v", again)
			}
		})
	}
}

func TestEvidenceRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.said("n")
	s.post(agent(id, "/evidence/acme"), `{}`).refused(http.StatusNotFound, "TaskNotFound", "acme", "twilio", "vapi")
	s.post(agent("nobody", "/evidence/twilio"), `{"type":"interrupt"}`).refused(http.StatusNotFound, "TaskNotFound", "nobody")
	s.post(agent(id, "/evidence/twilio"), `{`).refused(http.StatusBadRequest, "InvalidRequestBody", "JSON")
	s.post(agent(id, "/evidence/twilio"), `[]`).refused(http.StatusBadRequest, "InvalidRequestBody", "object")
	s.post(agent(id, "/evidence/twilio"), `{"voicePrompt":"x"}`).refused(http.StatusBadRequest, "MissingRequiredField", "type")
	if out := s.tell(id, "twilio", `{"type":"setup","callSid":"CA1"}`); out.Event != "" || len(out.Recorded) != 0 || out.Unmatched != 0 {
		t.Errorf("%+v", out)
	}
	if out := s.tell(id, "twilio", `{"type":"interrupt","utteranceUntilInterrupt":"of another call"}`); out.Unmatched != 1 {
		t.Errorf("%+v", out)
	}
	if m := s.last(id); m.Content != trainAnswer {
		t.Errorf("%q", m.Content)
	}
}

// TestEvidenceOfEachPlatform sends the fixtures of a platform in both orders, with a restart in
// between. The evidence of single events is stored with the answer.
func TestEvidenceOfEachPlatform(t *testing.T) {
	t.Parallel()
	const answer = "The train leaves at nine from platform two. Shall I book a seat?"
	s := start(t)
	cases := map[string]struct {
		events        []string // after the platform's name and a dot
		heard, method string
	}{
		"agora":                   {[]string{"103"}, "The train leaves at", "vendor_text"},
		"agora, without metadata": {[]string{"103-plain"}, "The train leaves at nine", "vendor_text"},
		"agora, turns":            {[]string{"112"}, answer, "audio_ms"},
		"elevenlabs":              {[]string{"agent_response_correction"}, "The train leaves at nine", "vendor_text"},
		"elevenlabs, after":       {[]string{"post_call_transcription"}, "The train leaves at nine from", "vendor_text"},
		"livekit":                 {[]string{"conversation_item_added", "conversation_item_added-user"}, "The train leaves at nine", "vendor_text"},
		"livekit, whole":          {[]string{"conversation_item_added-full"}, answer, "vendor_text"},
		"openai-realtime":         {[]string{"conversation.item.truncate"}, "The train leaves at nine", "word_times"},
		"pipecat":                 {[]string{"bot-output-new", "bot-output", "bot-interrupted"}, "The train leaves at nine", "word_times"},
		"pipecat, sentence":       {[]string{"bot-output", "bot-output-completed", "bot-interrupted"}, "The train leaves at nine from platform two.", "word_times"},
		"pipecat, package":        {[]string{"bot-speech-speaking", "bot-speech"}, "The train leaves at nine", "word_times"},
		"pipecat, whole":          {[]string{"bot-speech-speaking", "bot-speech-completed"}, answer, "vendor_text"},
		"pipecat, unplayed":       {[]string{"bot-speech-other", "bot-speech-unplayed"}, "", "vendor_text"},
		"retell":                  {[]string{"update_only-speaking", "update_only"}, "The train leaves at nine", "vendor_text"},
		"retell, whole":           {[]string{"update_only-speaking", "call_ended"}, answer, "vendor_text"},
		"telnyx":                  {[]string{"interrupt"}, "The train leaves at nine", "vendor_text"},
		"twilio":                  {[]string{"setup", "interrupt"}, "The train leaves at nine", "vendor_text"},
		"vapi":                    {[]string{"assistant.speechStarted-alignment", "user-interrupted"}, "The train leaves at nine", "word_times"},
		"vapi, progress":          {[]string{"assistant.speechStarted-progress", "user-interrupted"}, "The train leaves at nine", "word_times"},
		"vapi, neither":           {[]string{"assistant.speechStarted", "user-interrupted"}, "The train leaves at", "audio_ms"},
	}
	ids := map[string]string{}
	for name := range cases {
		for _, order := range []string{"forwards", "backwards"} {
			id := s.join(name+" "+order, nil)
			// A first turn that no event speaks of, so that turns count as in the fixtures.
			last := assistant(answer)
			last["id"] = "chatcmpl-1"
			s.say(id, user("x"), assistant("Good morning to you."), user("When is my train?"), assistant("We shall see what that is."), user("So?"), last)
			ids[name+" "+order] = id
		}
	}
	send := func(which func(n, events int) int) {
		for name, tt := range cases {
			vendor, _, _ := strings.Cut(name, ",")
			for _, order := range []string{"forwards", "backwards"} {
				for n := range tt.events {
					if at := which(n, len(tt.events)); order == "forwards" && at >= 0 {
						s.tell(ids[name+" "+order], vendor, string(fixture(t, "events/"+vendor+"."+tt.events[at]+".json")))
					} else if at >= 0 {
						s.tell(ids[name+" "+order], vendor, string(fixture(t, "events/"+vendor+"."+tt.events[len(tt.events)-1-at]+".json")))
					}
				}
			}
		}
	}
	send(func(n, _ int) int {
		if n > 0 {
			return -1
		}
		return 0
	})
	s = s.again()
	send(func(n, _ int) int { return n })
	for name, tt := range cases {
		for _, order := range []string{"forwards", "backwards"} {
			if m := s.last(ids[name+" "+order]); m.Content != tt.heard || m.Evidence.Method != tt.method || m.Generated != answer {
				t.Errorf("%s, %s: heard %q by %s of %q; want %q by %s", name, order, m.Content, m.Evidence.Method, m.Generated, tt.heard, tt.method)
			}
		}
	}
}

// TestAudio: the times of an answer's words, and how long it was played, are shown with it.
func TestAudio(t *testing.T) {
	t.Parallel()
	s := start(t)
	type audio struct {
		StartAt int64   `json:"start_ms"`
		Played  *int64  `json:"heard_ms"`
		Words   string  `json:"words"`
		Ends    []int64 `json:"word_ends_ms"`
	}
	seven := int64(700)
	for name, tt := range map[string]struct {
		events []string // platform and body
		want   []audio
	}{
		"words and length": {[]string{"openai-realtime", `{"type":"conversation.item.truncate","item_id":"i","audio_end_ms":700,"words":[{"word":"The","start_ms":0,"end_ms":200},{"word":" train","start_ms":200,"end_ms":700}]}`},
			[]audio{{Played: &seven, Words: "The train", Ends: []int64{200, 700}}}},
		"words of something else": {[]string{"openai-realtime", `{"type":"conversation.item.truncate","item_id":"i","audio_end_ms":700,"words":[{"word":"Buses","start_ms":0,"end_ms":200}]}`},
			[]audio{{Played: &seven}}},
		"length beside the text": {[]string{"twilio", `{"type":"interrupt","utteranceUntilInterrupt":"The train","durationUntilInterruptMs":700}`}, []audio{{Played: &seven}}},
		"length before words": {[]string{
			"openai-realtime", `{"type":"conversation.item.truncate","item_id":"i","audio_end_ms":900}`,
			"openai-realtime", `{"type":"conversation.item.truncate","item_id":"i","audio_end_ms":700,"words":[{"word":"The","end_ms":200}]}`,
		}, []audio{{Played: &seven, Words: "The", Ends: []int64{200}}}},
		"a piece": {[]string{"vapi", `{"message":{"type":"assistant.speechStarted","timestamp":1780000000000,"text":"The train leaves at 9:05 from platform 2. Anything else?","timing":{"type":"word-alignment","words":["The","train"],"wordsStartTimesMs":[0,200],"wordsEndTimesMs":[200,700]}}}`},
			[]audio{{StartAt: 1780000000000, Words: "The train", Ends: []int64{200, 700}}}},
		"nothing": {[]string{"twilio", `{"type":"interrupt","utteranceUntilInterrupt":"The train"}`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.join(name, nil)
			s.say(id, user("When is my train?"), map[string]any{"id": "i", "role": "assistant", "content": trainAnswer})
			for _, order := range []string{"once", "again"} {
				for i := 0; i < len(tt.events); i += 2 {
					s.tell(id, tt.events[i], tt.events[i+1])
				}
				var out struct{ Messages []struct{ Audio []audio } }
				s.get(agent(id, "/messages")).ok(&out)
				if diff := cmp.Diff(tt.want, out.Messages[1].Audio); diff != "" {
					t.Errorf("%s (-want +got)\n%s", order, diff)
				}
			}
		})
	}
	id := s.join("interrupted", nil)
	s.say(id, user("When is my train?"), assistant(trainAnswer))
	s.interrupt(id, `{"heard_ms":700,"at":1780000001000}`).ok(nil)
	var out struct{ Messages []struct{ Audio []audio } }
	s.get(agent(id, "/messages")).ok(&out)
	if diff := cmp.Diff([]audio{{StartAt: 1780000000300, Played: &seven}}, out.Messages[1].Audio); diff != "" {
		t.Errorf("an interruption (-want +got)\n%s", diff)
	}
}

// TestEvidenceOfFewWords: one or two words may match any answer, so they do not cut an old one that
// was heard.
func TestEvidenceOfFewWords(t *testing.T) {
	t.Parallel()
	s := start(t)
	const old, before, newest = "We have twenty seats on the train, come along.", "Fine, see you then.", "Twelve euros each."
	for name, tt := range map[string]struct {
		heard, of string // "" = of none
	}{
		"in the newest":                      {"euros", newest},
		"at the beginning of the one before": {"Fine,", before},
		"within the one before":              {"you", ""},
		"within an old one":                  {"twenty seats", ""},
		"at the beginning of an old one":     {"We have", ""},
		"three words":                        {"have twenty seats", old},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.join(name, nil)
			s.say(id, user("a"), assistant(old), user("b"), assistant(before), user("c"), assistant(newest), user("d"))
			s.tell(id, "twilio", map[string]any{"type": "interrupt", "utteranceUntilInterrupt": tt.heard})
			for _, m := range s.ledger(id) {
				if cut := m.Evidence.Method == "vendor_text"; cut != (m.Generated == tt.of && m.Role == "assistant") {
					t.Errorf("heard %q: %+v", tt.heard, m)
				}
			}
		})
	}
}
