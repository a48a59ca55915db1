package hosted

import "github.com/heardlog/heardlog/memory"

// vapi reads Vapi's end-of-call-report, or a call of its API (GET /call).
func (r *reader) vapi() bool {
	m, call := r.root, r.root
	if hook := r.root.at("message"); hook.v.IsObject() {
		m, call = hook, hook.at("call")
		if r.ID = call.at("id").str(); hook.at("type").str() != "end-of-call-report" {
			return false
		}
	} else if status := call.at("status").str(); status != "" && status != "ended" {
		r.ID = call.at("id").str()
		return false
	}
	// A report repeats what its call has, and may have more.
	first := func(paths ...string) value {
		if v := m.at(paths...); v.exists() {
			return v
		}
		return call.at(paths...)
	}
	r.ID = call.at("id").str()
	r.Key = "vapi.call:" + r.ID
	r.Name = first("assistant.name").str()
	r.StartMS, r.EndMS = first("startedAt", "createdAt").time(), first("endedAt").time()
	r.EndReason = first("endedReason").str()
	r.Caller = first("customer.number", "customer.sipUri").caller()
	r.RecordingURL = first("artifact.recordingUrl", "artifact.recording.mono.combinedUrl", "recordingUrl").url()
	r.CostUSD = first("cost").cost(1)
	r.label("assistant_id", first("assistantId", "assistant.id").str())
	list := first("artifact.messages", "messages").objects()
	for _, row := range list {
		r.vapiMessage(row)
	}
	r.turnLatencies(first("artifact.performanceMetrics.turnLatencies").objects(), 1, map[string]string{
		StageLLM: "modelLatency", StageTTS: "voiceLatency", StageSTT: "transcriberLatency", StageEndpointing: "endpointingLatency", StageE2E: "turnLatency",
	})
	return true
}

func (r *reader) vapiMessage(row value) {
	out := Message{StartMS: row.at("time").time(), EndMS: row.at("endTime").time()}
	if out.StartMS == 0 {
		out.StartMS = r.after(row.at("secondsFromStart"))
	}
	switch role := row.at("role").str(); role {
	case "user":
		out.Role, out.Text = memory.User, row.at("message").text(memory.MaxContent)
	case "bot", "assistant":
		// Vapi keeps what its voice has spoken, and does not say which answers were cut.
		out.Role, out.Text, out.Method = memory.Assistant, row.at("message").text(memory.MaxContent), memory.VendorText
	case "tool_calls":
		out.Role, out.ToolCalls = memory.Assistant, row.at("toolCalls").toolCalls()
	case "tool_call_result":
		out.Role, out.ToolCallID, out.ToolName = memory.Tool, row.at("toolCallId").str(), row.at("name").str()
		out.Text = row.at("result").raw(memory.MaxContent)
	case "system": // the instructions of the assistant are not the conversation
	default:
		row.o.Add(row.path+".role", "is not known")
	}
	if out.Role != "" {
		r.add(out)
	}
}
