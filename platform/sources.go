package platform

import (
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// sources returns the table of platforms and their events. Event numbers and names are data: a new
// event is a new row.
func sources() []source {
	over := rule{rows: noRows, ends: always}
	relay := rule{heard: "utteranceUntilInterrupt", heardMS: "durationUntilInterruptMs", more: relayInterrupt}
	transcript := rule{
		rows: "payload.contents", role: "role", is: []string{"assistant"}, turn: "turn_id", ordinal: true, generated: "metadata.original",
		heard: "content", cut: "metadata.interrupted", at: "metadata.interrupt_timestamp", more: agoraContent,
	}
	turns := rule{rows: "payload.turns", turn: "turn_id", ordinal: true, at: "end.end_at", more: agoraTurn}
	truncate := rule{item: "item_id", generated: "transcript", heardMS: "audio_end_ms", words: "words", at: "at", more: truncated}
	retell := func(list string) rule {
		return rule{rows: list, role: "role", is: []string{"agent"}, heard: "content", more: retellRow}
	}
	ended := retell("call.transcript_object")
	ended.ends = always
	// The list that the platform keeps for the LLM, in the form of each.
	vapiReport := rule{
		rows: "message.artifact.messages|artifact.messages|message.artifact.messagesOpenAIFormatted|artifact.messagesOpenAIFormatted",
		role: "role", is: []string{"bot", "assistant"}, heard: "message|content", more: echoed, ends: always,
	}
	pipecatEnd := rule{rows: "data.messages|messages", role: "role", is: []string{"assistant"}, heard: "content", more: echoed, ends: always}
	return []source{
		{name: "agora", kind: "eventType", events: map[string]rule{
			"102": over,
			// The four-digit numbers are those of the Platform preview.
			"103": transcript, "1002": transcript, "112": turns, "1004": turns,
		}},
		{name: "elevenlabs", kind: "type", events: map[string]rule{
			"agent_response_correction": {
				generated: "agent_response_correction_event.original_agent_response", heard: "agent_response_correction_event.corrected_agent_response", more: cut,
			},
			"post_call_transcription": {
				rows: "data.transcript", role: "role", is: []string{"agent"}, generated: "original_message", heard: "message", cut: "interrupted", settles: true, more: spoken, ends: always,
			},
			"post_call_audio": over, "call_initiation_failure": over,
		}},
		{name: "livekit", kind: "type|event", list: livekitList, events: map[string]rule{
			"close": over, "room_finished": over,
			"conversation_item_added": {
				cut: "item.interrupted", at: "item.metrics.stopped_speaking_at|item.metrics.stoppedSpeakingAt", more: livekitItem,
			},
			"playback_finished": {more: livekitPlayed},
		}},
		{name: "openai-realtime", kind: "type", events: map[string]rule{"conversation.item.truncate": truncate, "conversation.item.truncated": truncate}},
		{name: "pipecat", kind: "type", events: map[string]rule{
			"bot-output":      {heard: "data.spoken_progress.accumulated", more: botOutput},
			"bot-interrupted": {at: "data.timestamp|timestamp", more: cut},
			"bot-speech":      {item: "data.id", heardMS: "data.played_ms", words: "data.words", at: "data.timestamp", more: botSpeech},
			"end":             pipecatEnd, "disconnect-bot": pipecatEnd,
		}},
		{name: "retell", kind: "interaction_type|event", events: map[string]rule{
			"update_only": retell("transcript"), "response_required": retell("transcript"), "reminder_required": retell("transcript"),
			"call_ended": ended, "call_analyzed": ended,
		}},
		{name: "telnyx", kind: "type|event|data.event_type", events: map[string]rule{"interrupt": relay, "end": over, "stop": over, "call.hangup": over}},
		// Callbacks in capitals: of a <Connect> that has ended, of a media stream, of the call.
		{name: "twilio", kind: "type|event|SessionStatus|StreamEvent|CallStatus", events: map[string]rule{
			"interrupt": relay, "end": over, "stop": over,
			"ended": over, "completed": over, "failed": over, "busy": over, "no-answer": over, "canceled": over,
			"stream-stopped": over,
		}},
		{name: "vapi", kind: "message.type|type", events: map[string]rule{
			"user-interrupted":        {at: "message.timestamp|timestamp", more: vapiInterrupted},
			"assistant.speechStarted": {at: "message.timestamp|timestamp", more: vapiSpeech},
			"end-of-call-report":      vapiReport,
			"status-update":           {rows: noRows, ends: statusEnded},
		}},
	}
}

func always(peek.Value) bool { return true }

// statusEnded reports whether Vapi's status of the call is that it has ended.
func statusEnded(root peek.Value) bool {
	return first(root, "message.status|status").Text() == "ended"
}

// echoed reads a row of the list that the platform keeps for its LLM.
func echoed(_ peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	e.Echo = true
	return e.Heard != nil && strings.TrimSpace(*e.Heard) != ""
}

func cut(_ peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	e.Cut = true
	return true
}

// spoken drops rows without words: those of tool calls.
func spoken(_ peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	return e.Heard != nil || e.Generated != ""
}

// relayInterrupt reads ConversationRelay's account of what was spoken. Without a text, the spoken
// time counts.
func relayInterrupt(_ peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	e.Cut = true
	if e.Heard != nil && *e.Heard == "" && e.HeardMS != nil && *e.HeardMS > 0 {
		e.Heard = nil
	}
	return true
}

// agoraContent reads a row of the engine's short-term memory. Without metadata its content is what
// was heard, whatever was generated.
func agoraContent(row peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	if e.Heard == nil {
		return false
	}
	if row.Path("metadata.source").Exists() && !e.Cut {
		e.Full, e.Generated, e.Heard = true, *e.Heard, nil
	}
	return true
}

// agoraTurn is a row of the turn table, which holds no text.
func agoraTurn(row peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	if e.Turn == nil {
		return false
	}
	switch row.Path("end.type").Text() {
	case "ok":
		e.Full = true
	case "interrupted":
		e.Cut, e.By = true, causedBy(row.Path("end.metadata.caused_by").Text())
	default:
		return false
	}
	return true
}

// causedBy returns a cause of an interruption if it is a documented one, else "".
func causedBy(s string) string {
	switch s {
	case "start_of_speech", "api_speak", "api_interrupt", "api_leave":
		return s
	}
	return ""
}

// truncated is a client's or the server's word on how much audio was played.
func truncated(_ peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	e.Cut = true
	return e.HeardMS != nil
}

// botOutput reads RTVI's account of one stretch of text: spoken to its end, or up to
// spoken_progress.accumulated.
func botOutput(row peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	d := row.Path("data")
	switch d.Path("spoken_status").Text() {
	case "completed":
		if t := d.Path("text"); t.IsString() {
			said := t.Str()
			e.Heard = &said
		}
	case "in-progress":
	default: // new, or a version that does not say: nothing of it is known to be played
		return false
	}
	e.Playing = true
	return e.Heard != nil && strings.TrimSpace(*e.Heard) != ""
}

// retellRow reads a row of a growing transcript. The row before a user's row was interrupted there
// or heard in full, and the last row is still being spoken unless the call is over.
func retellRow(_ peek.Value, rows []peek.Value, i int, e *Evidence) bool {
	if e.Heard == nil || strings.TrimSpace(*e.Heard) == "" {
		return false
	}
	e.Playing, e.Account = true, true
	for _, later := range rows[i+1:] {
		if later.Path("role").Text() == "user" {
			e.Cut = true
		}
	}
	return true
}

// vapiInterrupted reads the moment of an interruption; its speech events say what had been spoken
// by then.
func vapiInterrupted(_ peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	e.Cut = true
	return true
}

// vapiSpeech reads a stretch of speech that begins now. Its text is that of the whole turn and
// identifies the answer; timing, if the voice has any, says what is spoken when.
func vapiSpeech(row peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	m := row
	if row.Path("message").IsObject() {
		m = row.Path("message")
	}
	e.Playing, e.StartMS, e.AtMS = true, e.AtMS, 0
	e.Generated = m.Path("text").Str()
	t := m.Path("timing")
	switch t.Path("type").Text() {
	case "word-alignment":
		e.Words = aligned(t)
	case "word-progress":
		// It comes at the end of a stretch: what it counts has been spoken.
		said := leading(e.Generated, t.Path("wordsSpoken").Int())
		e.Heard = &said
		e.StartMS = 0
	}
	return true
}

// aligned reads the three parallel lists of word-alignment.
func aligned(t peek.Value) []Word {
	texts, starts, ends := t.Path("words").List(), t.Path("wordsStartTimesMs").List(), t.Path("wordsEndTimesMs").List()
	var out []Word
	for i := range min(len(texts), len(ends), MaxWords) {
		w := Word{Text: texts[i].Text(), EndMS: ends[i].Int()}
		if i < len(starts) {
			w.StartMS = starts[i].Int()
		}
		out = append(out, w)
	}
	return out
}

// leading returns the first n words of a text.
func leading(s string, n int64) string {
	words := strings.Fields(s)
	return strings.Join(words[:max(0, min(n, int64(len(words))))], " ")
}
