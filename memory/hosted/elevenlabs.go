package hosted

import "github.com/heardlog/heardlog/memory"

// elevenLabs reads ElevenLabs' post_call_transcription, or a conversation of its API.
func (r *reader) elevenLabs() bool {
	call := r.root
	if kind := r.root.at("type"); kind.exists() {
		call = r.root.at("data")
		if kind.str() != "post_call_transcription" {
			r.ID = call.at("conversation_id").str()
			return false
		}
	}
	r.ID = call.at("conversation_id").str()
	status := call.at("status").str()
	if status != "" && status != "done" && status != "failed" {
		return false
	}
	r.Key = "elevenlabs.conversation:" + r.ID
	r.Name = call.at("agent_name").str()
	r.Failed = status == "failed"
	meta := call.at("metadata")
	if r.StartMS = meta.at("start_time_unix_secs").time(); r.StartMS > 0 && meta.at("call_duration_secs").exists() {
		r.EndMS = r.StartMS + meta.at("call_duration_secs").duration(1000)
	}
	r.EndReason = meta.at("termination_reason").str()
	const variable = "conversation_initiation_client_data.dynamic_variables.system__caller_id"
	// A caller who withholds the number is not named by another ID either.
	if number := call.at("metadata.phone_call.external_number", variable); number.exists() {
		r.Caller = number.caller()
	} else {
		r.Caller = call.at("user_id").caller()
	}
	r.CostUSD = meta.at("cost_fiat").cost(1) // metadata.cost counts credits
	r.label("agent_id", call.at("agent_id").str())
	r.label("language", meta.at("main_language").str())
	for _, row := range call.at("transcript").objects() {
		r.elevenLabsMessage(row)
	}
	return true
}

func (r *reader) elevenLabsMessage(row value) {
	var out Message
	if out.StartMS = row.at("created_at_unix_ms").time(); out.StartMS == 0 {
		out.StartMS = r.after(row.at("time_in_call_secs"))
	}
	text := row.at("message").text(memory.MaxContent)
	switch row.at("role").str() {
	case "user":
		out.Role, out.Text = memory.User, text
	case "agent":
		out.Role, out.Text, out.Method = memory.Assistant, text, memory.VendorText
		out.Interrupted = row.at("interrupted").flag()
		if out.Interrupted {
			out.Original = row.at("original_message").text(memory.MaxContent)
		}
		out.Model = row.at("producing_llm").str()
	default:
		row.o.Add(row.path+".role", "is not known")
		return
	}
	metrics := row.at("conversation_turn_metrics.metrics")
	out.Latency = metrics.latencies(1000, map[string]string{
		StageLLM: "convai_llm_service_ttfb.elapsed_time", StageTTS: "convai_tts_service_ttfb.elapsed_time", StageSTT: "convai_asr_trailing_service_latency.elapsed_time",
	})
	for i, c := range row.at("tool_calls").objects() {
		if i == maxTools {
			break
		}
		out.ToolCalls = append(out.ToolCalls, ToolCall{c.at("request_id").str(), c.at("tool_name").str(), c.at("params_as_json").raw(memory.MaxContent)})
	}
	if out.Role == memory.User && len(out.ToolCalls) > 0 { // a tool that the client called
		calls := out.ToolCalls
		out.ToolCalls = nil
		r.add(out)
		out = Message{Role: memory.Assistant, StartMS: out.StartMS, ToolCalls: calls}
	}
	r.add(out)
	for _, t := range row.at("tool_results").objects() {
		r.add(Message{
			Role: memory.Tool, StartMS: out.StartMS, ToolCallID: t.at("request_id").str(), ToolName: t.at("tool_name").str(),
			Text: t.at("result_value", "result").raw(memory.MaxContent), Failed: t.at("is_error").flag(),
		})
	}
}
