package hosted

import (
	"cmp"

	"github.com/heardlog/heardlog/memory"
)

// pipecat reads a log of a Pipecat session: an object with its session_id and its messages, which
// are those of its context, or the ones that its transcript processor or its aggregators' events
// report (role, content, timestamp, and interrupted of an answer). Pipecat fills its context with
// what its voice has spoken.
func (r *reader) pipecat() bool {
	s := r.root
	r.ID = cmp.Or(s.at("session_id", "call_id", "id").str(), s.hash())
	r.Key = "pipecat.session:" + r.ID
	r.StartMS, r.EndMS = s.at("started_at", "start_time", "timestamp").time(), s.at("ended_at", "end_time").time()
	r.EndReason = s.at("end_reason").str()
	r.Caller = s.at("caller", "caller_id", "from", "user_id").caller()
	r.RecordingURL = s.at("recording_url").url()
	for _, m := range s.at("messages", "transcript", "context.messages").objects() {
		r.chatMessage(m, "", memory.VendorText)
	}
	if r.StartMS == 0 && len(r.Messages) > 0 {
		r.StartMS = r.Messages[0].StartMS
	}
	return true
}
