package hosted

import (
	"cmp"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// twilio reads what Twilio has of a call in three places: a webhook about its end (the form of a
// status callback or of ConversationRelay's action, as an object), the call of its API, and the
// sentences of Conversational Intelligence. An object with "call", "transcript" and "sentences" has
// the last two. With "messages" instead, it has the messages of ConversationRelay in both
// directions, as an application has logged them.
func (r *reader) twilio() bool {
	if r.root.at("CallSid").exists() {
		return r.twilioHook(r.root)
	}
	call, transcript := r.root.at("call"), r.root.at("transcript")
	if !call.exists() && r.root.at("sid").exists() {
		call = r.root
	}
	r.ID = cmp.Or(call.at("sid").str(), transcript.at("channel.media_properties.reference_sids.call_sid").str(), transcript.at("customer_key").str(), r.root.at("callSid").str())
	switch call.at("status").str() {
	case "queued", "ringing", "in-progress", "initiated":
		return false
	case "failed", "busy", "no-answer":
		r.Failed = true
	}
	r.StartMS, r.EndMS = call.at("start_time").time(), call.at("end_time").time()
	if r.StartMS == 0 {
		r.StartMS = transcript.at("media_start_time").time()
	}
	if d := transcript.at("duration"); r.EndMS == 0 && r.StartMS > 0 && d.exists() {
		r.EndMS = r.StartMS + d.duration(1000)
	}
	r.EndReason = call.at("status").str()
	r.Caller = twilioCaller(call.at("direction").str(), call.at("from"), call.at("to"))
	if strings.EqualFold(call.at("price_unit").str(), "USD") && call.at("price").exists() {
		if price, ok := call.at("price").number(); ok { // what was paid is negative
			price = max(price, -price)
			r.CostUSD = &price
		}
	}
	r.RecordingURL = r.root.at("recording_url").url()
	r.twilioSentences(transcript, r.root.at("sentences").objects())
	r.twilioRelay(r.root.at("messages").objects())
	r.Key = "twilio.call:" + r.ID
	return true
}

func twilioCaller(direction string, from, to value) string {
	if strings.HasPrefix(direction, "outbound") {
		return to.caller()
	}
	return from.caller()
}

// twilioHook reads a webhook. ConversationRelay's has a SessionStatus.
func (r *reader) twilioHook(form value) bool {
	r.ID = form.at("CallSid").str()
	r.Key = "twilio.call:" + r.ID
	status := cmp.Or(form.at("SessionStatus").str(), form.at("CallStatus").str())
	switch status {
	case "completed", "ended":
	case "failed", "busy", "no-answer", "canceled":
		r.Failed = status != "canceled"
	default:
		return false
	}
	r.EndReason = status
	r.EndMS = form.at("Timestamp").time()
	if d := form.at("SessionDuration", "CallDuration"); r.EndMS > 0 && d.exists() {
		r.StartMS = r.EndMS - d.duration(1000)
	}
	r.Caller = twilioCaller(form.at("Direction").str(), form.at("From"), form.at("To"))
	r.RecordingURL = form.at("RecordingUrl").url()
	return true
}

// twilioSentences reads the sentences of a transcript of the recording. It is made of the audio, so
// that it has what was spoken. The speakers are those that the transcript names; without names
// Twilio takes the first channel for the agent's.
func (r *reader) twilioSentences(transcript value, rows []value) {
	agent := 1.0
	for _, p := range transcript.at("channel.participants").objects() {
		role := strings.ToLower(p.at("role").str())
		n, ok := p.at("channel_participant").number()
		switch {
		case !ok:
		case role == "agent":
			agent = n
		case role == "customer" && n == agent:
			agent = 3 - n
		}
	}
	slices.SortStableFunc(rows, func(a, b value) int {
		return cmp.Compare(a.v.Path("sentence_index").Float(), b.v.Path("sentence_index").Float())
	})
	for _, row := range rows {
		out := Message{Role: memory.User, Text: row.at("transcript").text(memory.MaxContent)}
		out.StartMS, out.EndMS = r.after(row.at("start_time")), r.after(row.at("end_time"))
		if n, _ := row.at("media_channel").number(); n == agent {
			out.Role, out.Method = memory.Assistant, memory.VendorText
		}
		r.add(out)
	}
}

// twilioRelay reads logged messages of ConversationRelay. An answer is the tokens up to the last
// one; what was heard of one that was interrupted, Twilio says.
func (r *reader) twilioRelay(rows []value) {
	var answer, prompt strings.Builder
	var at int64
	flush := func(cut *value) {
		if answer.Len() == 0 {
			return
		}
		out := Message{Role: memory.Assistant, Text: answer.String(), StartMS: at, Method: memory.AssumedFull}
		if cut != nil {
			out.Original, out.Text = out.Text, cut.at("utteranceUntilInterrupt").text(memory.MaxContent)
			out.Interrupted, out.Method = true, memory.VendorText
		}
		answer.Reset()
		r.add(out)
	}
	open := false // the answer may still get tokens
	for _, row := range rows {
		ms := row.at("timestamp", "at").time()
		switch row.at("type").str() {
		case "setup":
			r.ID = cmp.Or(r.ID, row.at("callSid").str())
			r.StartMS = cmp.Or(r.StartMS, ms)
			r.Caller = cmp.Or(r.Caller, twilioCaller(row.at("direction").str(), row.at("from"), row.at("to")))
		case "prompt":
			flush(nil)
			open = false
			prompt.WriteString(row.at("voicePrompt").text(memory.MaxContent))
			if last := row.at("last"); !last.exists() || last.flag() {
				r.add(Message{Role: memory.User, Text: prompt.String(), StartMS: ms})
				prompt.Reset()
			}
		case "text":
			if !open {
				flush(nil)
				at = ms
			}
			answer.WriteString(row.at("token").text(memory.MaxContent))
			open = !row.at("last").flag()
		case "interrupt":
			flush(&row)
			open = false
		}
	}
	flush(nil)
	if prompt.Len() > 0 {
		r.add(Message{Role: memory.User, Text: prompt.String()})
	}
}
