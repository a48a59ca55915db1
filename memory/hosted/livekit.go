package hosted

import "github.com/heardlog/heardlog/memory"

// liveKit reads the report of a session that LiveKit Agents make when it ends
// (SessionReport.to_dict).
func (r *reader) liveKit() bool {
	if !r.root.at("chat_history").exists() {
		r.ID = r.root.at("job_id", "room_id").str()
		return false
	}
	if r.ID = r.root.at("job_id").text(maxField); r.ID != "" {
		r.Key = "livekit.job:" + r.ID
	} else if r.ID = r.root.at("room_id").str(); r.ID != "" {
		r.Key = "livekit.room:" + r.ID
	}
	r.Name = r.root.at("agent_name").str()
	r.EndMS = r.root.at("timestamp").time()
	if r.StartMS = r.root.at("started_at").time(); r.StartMS == 0 && r.EndMS > 0 && r.root.at("duration_ms").exists() {
		r.StartMS = r.EndMS - r.root.at("duration_ms").duration(1)
	}
	r.EndReason = r.root.at("close_reason").str()
	r.Failed = r.EndReason == "CR_ERROR"
	r.label("room", r.root.at("room").str())
	for _, item := range r.root.at("chat_history.items").objects() {
		r.liveKitItem(item)
	}
	if r.StartMS == 0 && len(r.Messages) > 0 {
		r.StartMS = r.Messages[0].StartMS
	}
	return true
}

func (r *reader) liveKitItem(item value) {
	at := item.at("created_at").time()
	switch item.at("type").str() {
	case "message", "":
		out := Message{StartMS: at, Text: item.at("content").content()}
		metrics := item.at("metrics")
		if t := metrics.at("started_speaking_at"); t.exists() {
			out.StartMS = t.time()
		}
		if t := metrics.at("stopped_speaking_at"); t.exists() {
			out.EndMS = t.time()
		}
		switch item.at("role").str() {
		case "user":
			out.Role = memory.User
			out.Latency = metrics.latencies(1000, map[string]string{StageSTT: "transcription_delay", StageEndpointing: "end_of_turn_delay"})
		case "assistant":
			// Of an answer that was cut, LiveKit keeps what it has played, and not the rest.
			out.Role, out.Method, out.Interrupted = memory.Assistant, memory.VendorText, item.at("interrupted").flag()
			out.Latency = metrics.latencies(1000, map[string]string{StageLLM: "llm_node_ttft", StageTTS: "tts_node_ttfb", StageE2E: "e2e_latency"})
			out.Model = metrics.at("llm_metadata.model_name").str()
		case "system", "developer":
			return
		default:
			item.o.Add(item.path+".role", "is not known")
			return
		}
		r.add(out)
	case "function_call":
		r.add(Message{Role: memory.Assistant, StartMS: at, ToolCalls: []ToolCall{{item.at("call_id").str(), item.at("name").str(), item.at("arguments").raw(memory.MaxContent)}}})
	case "function_call_output":
		r.add(Message{
			Role: memory.Tool, StartMS: at, ToolCallID: item.at("call_id").str(), ToolName: item.at("name").str(),
			Text: item.at("output").raw(memory.MaxContent), Failed: item.at("is_error").flag(),
		})
	}
}
