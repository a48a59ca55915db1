package memory

// EndReason is why the memory of an ended agent lacks the last answer that was asked for.
type EndReason string

// The reasons. They are API: never renamed, only added.
const (
	AnswerCut EndReason = "answer_cut" // cut before its first word
	// Not stored in time; the ledger has it as soon as it is.
	AnswerRunning EndReason = "answer_running"
	AnswerLost    EndReason = "answer_lost" // the process that generated it died
	// The LLM failed, and there was no text to say instead.
	AnswerFailed EndReason = "answer_failed"
	AnswerEmpty  EndReason = "answer_empty" // the LLM returned nothing
	// Generated and sent, but the caller heard nothing of it.
	AnswerUnheard EndReason = "answer_unheard"
	AnswerTool    EndReason = "answer_tool" // a tool was called, and its result never came
)

// OpenEnd is a turn that ended without an answer in the history. The zero value, without a Reason,
// is that nothing is missing.
type OpenEnd struct {
	TurnID int64
	Reason EndReason
}

// EndOf returns what happened to the last answer that was asked for, if the history lacks it. It is
// a pure function of the ledger, in order of Seq, and of which answers are still being generated.
// If the caller has spoken since, nothing is missing.
func EndOf(msgs []Message, running func(turn int64) bool) OpenEnd {
	var asked *Message
	for i := range msgs {
		if m := &msgs[i]; m.AnswerSeq > 0 && (asked == nil || m.AnswerSeq > asked.AnswerSeq) {
			asked = m
		}
	}
	if asked == nil {
		return OpenEnd{}
	}
	var answer *Message
	gone := false
	for i := range msgs {
		switch m := &msgs[i]; {
		case m.Seq == asked.AnswerSeq:
			answer = m
		case m.Seq > asked.AnswerSeq && m.Role == User && m.State == Final:
			gone = true
		}
	}
	why := AnswerLost
	if answer != nil {
		why = whyMissing(answer)
	} else if running(asked.TurnID) {
		return OpenEnd{asked.TurnID, AnswerRunning}
	}
	if gone || why == "" {
		return OpenEnd{}
	}
	return OpenEnd{asked.TurnID, why}
}

// whyMissing returns why history does not show the answer, or "" if it does or a later one replaces
// it.
func whyMissing(m *Message) EndReason {
	switch {
	case m.InHistory() || m.State == Superseded:
		return ""
	case m.State == Unplayed || m.State == Replaced:
		return AnswerUnheard
	case m.State == Final: // what history leaves out of those that count is bare tool calls
		return AnswerTool
	case m.Failure != nil:
		return AnswerFailed
	case m.Interrupted:
		return AnswerCut
	}
	return AnswerEmpty
}
