package hosted

import (
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// retell reads Retell's call_ended and call_analyzed, or a call of its API.
func (r *reader) retell() bool {
	call := r.root
	if event := r.root.at("event"); event.exists() {
		call = r.root.at("call")
		if kind := event.str(); kind != "call_ended" && kind != "call_analyzed" {
			r.ID = call.at("call_id").str()
			return false
		}
	}
	r.ID = call.at("call_id").str()
	status := call.at("call_status").str()
	if status != "" && status != "ended" && status != "error" && status != "not_connected" {
		return false
	}
	r.Key = "retell.call:" + r.ID
	r.Name = call.at("agent_name").str()
	r.StartMS, r.EndMS = call.at("start_timestamp").time(), call.at("end_timestamp").time()
	r.EndReason = call.at("disconnection_reason").str()
	r.Failed = status == "error" || strings.HasPrefix(r.EndReason, "error_")
	r.Caller = call.at("from_number").caller()
	if call.at("direction").str() == "outbound" {
		r.Caller = call.at("to_number").caller()
	}
	r.RecordingURL = call.at("recording_url").url()
	r.CostUSD = call.at("call_cost.combined_cost").cost(0.01) // cents
	r.label("agent_id", call.at("agent_id").str())
	rows := call.at("transcript_with_tool_calls", "transcript_object")
	for _, row := range rows.objects() {
		r.retellMessage(row)
	}
	r.retellLatencies(call.at("latency"))
	return true
}

func (r *reader) retellMessage(row value) {
	var out Message
	switch row.at("role").str() {
	case "user":
		out.Role, out.Text = memory.User, row.at("content").text(memory.MaxContent)
	case "agent": // the transcript of the audio, so that what was not spoken is not in it
		out.Role, out.Text, out.Method = memory.Assistant, row.at("content").text(memory.MaxContent), memory.VendorText
	case "tool_call_invocation":
		out.Role = memory.Assistant
		out.ToolCalls = []ToolCall{{row.at("tool_call_id").str(), row.at("name").str(), row.at("arguments").raw(memory.MaxContent)}}
	case "tool_call_result":
		out.Role, out.ToolCallID, out.Text = memory.Tool, row.at("tool_call_id").str(), row.at("content").raw(memory.MaxContent)
		out.Failed = row.at("successful").exists() && !row.at("successful").flag()
	case "transfer_target", "node_transition", "dtmf", "sms", "injected": // nothing that the two have said
	default:
		row.o.Add(row.path+".role", "is not known")
	}
	if words := row.at("words").objects(); len(words) > 0 && r.StartMS > 0 {
		// Seconds from the start of the call, roughly.
		out.StartMS = r.after(words[0].at("start"))
		out.EndMS = r.after(words[len(words)-1].at("end"))
	}
	if out.Role != "" {
		r.add(out)
	}
}

// after returns the time that is so many seconds after the start of the call, 0 if either is not
// known.
func (r *reader) after(seconds value) int64 {
	if !seconds.exists() || r.StartMS == 0 {
		return 0
	}
	return r.StartMS + seconds.duration(1000)
}

// retellLatencies adds the latencies of answers, of which Retell has a list by stage. A list is
// used only if it has an entry for each answer.
func (r *reader) retellLatencies(latency value) {
	answers := r.firstAnswers()
	for stage, path := range map[string]string{StageE2E: "e2e.values", StageLLM: "llm.values", StageTTS: "tts.values", StageSTT: "asr.values"} {
		list := latency.at(path).list()
		if len(list) != len(answers) {
			continue
		}
		for i, v := range list {
			if answers[i].Latency == nil {
				answers[i].Latency = map[string]int64{}
			}
			answers[i].Latency[stage] = v.duration(1)
		}
	}
}
