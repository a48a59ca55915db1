package hosted

import (
	"cmp"

	"github.com/heardlog/heardlog/memory"
)

// openAI reads logs of OpenAI's three APIs: chat completions ("messages", and the completion itself
// or under "response"), responses ("input" and "output"), and sessions of the Realtime API
// ("items", or "events" of the server). OpenAI does not know what was heard, so answers count as
// heard in full unless their session says that they were truncated.
func (r *reader) openAI() bool {
	s := r.root
	r.ID = cmp.Or(s.at("call_id", "session.id", "session_id", "conversation.id").str(), s.at("id", "response.id").str(), s.hash())
	r.StartMS = s.at("started_at", "created_at", "created", "session.created_at", "response.created_at", "response.created").time()
	r.EndMS = s.at("ended_at", "completed_at").time()
	r.Caller = s.at("metadata.user_id", "metadata.caller_id", "safety_identifier", "user").caller()
	r.label("model", s.at("model", "session.model", "response.model").str())
	model := s.at("model", "session.model", "response.model").str()
	for _, m := range s.at("messages", "request.messages").objects() {
		r.chatMessage(m, model, memory.AssumedFull)
	}
	for _, c := range s.at("choices", "response.choices").objects() {
		r.chatMessage(c.at("message"), model, memory.AssumedFull)
	}
	if in := s.at("input", "request.input"); in.v.IsString() {
		r.add(Message{Role: memory.User, Text: in.text(memory.MaxContent)})
	} else {
		r.openAIItems(in.objects(), model)
	}
	r.openAIItems(s.at("output", "response.output").objects(), model)
	r.openAIItems(s.at("items").objects(), model)
	r.realtimeEvents(s.at("events").objects(), model)
	return true
}

// openAIItems reads items of responses and of realtime sessions.
func (r *reader) openAIItems(items []value, model string) {
	for _, item := range items {
		r.openAIItem(item, model)
	}
}

func (r *reader) openAIItem(item value, model string) {
	switch item.at("type").str() {
	case "message", "":
		r.chatMessage(item, model, memory.AssumedFull)
	case "function_call":
		r.add(Message{Role: memory.Assistant, ToolCalls: []ToolCall{{item.at("call_id", "id").str(), item.at("name").str(), item.at("arguments").raw(memory.MaxContent)}}})
	case "function_call_output":
		r.add(Message{Role: memory.Tool, ToolCallID: item.at("call_id").str(), Text: item.at("output").raw(memory.MaxContent)})
	}
}

// chatMessage reads a message with a role and a content. method is how it is known what was heard
// of an answer.
func (r *reader) chatMessage(m value, model string, method memory.Method) {
	if !m.exists() {
		return
	}
	out := Message{StartMS: m.at("timestamp", "created_at").time()}
	switch m.at("role").str() {
	case "user":
		out.Role, out.Text = memory.User, m.at("content").content()
	case "assistant":
		out.Role, out.Text, out.Method = memory.Assistant, m.at("content").content(), method
		out.Interrupted = m.at("interrupted").flag()
		out.ToolCalls = m.at("tool_calls").toolCalls()
		out.Model = model
	case "tool":
		out.Role, out.Text, out.ToolCallID, out.ToolName = memory.Tool, m.at("content").content(), m.at("tool_call_id").str(), m.at("name").str()
	case "system", "developer":
		return
	default:
		m.o.Add(m.path+".role", "is not known")
		return
	}
	r.add(out)
}

// realtimeEvents reads the events that the server of a realtime session has sent, in order. The
// words of the caller come late and are put where the session has their item.
func (r *reader) realtimeEvents(events []value, model string) {
	index := map[string]int{} // of messages, by item
	place := func(id string, role memory.Role) *Message {
		if at, ok := index[id]; ok && id != "" {
			return &r.Messages[at]
		}
		index[id] = len(r.Messages)
		out := Message{Role: role}
		if role == memory.Assistant {
			out.Method, out.Model = memory.AssumedFull, model
		}
		r.Messages = append(r.Messages, out)
		return &r.Messages[len(r.Messages)-1]
	}
	for _, e := range events {
		switch e.at("type").str() {
		case "conversation.item.created", "conversation.item.added", "conversation.item.done", "response.output_item.done":
			item := e.at("item")
			id := item.at("id").str()
			if item.at("type").str() != "message" {
				n := len(r.Messages)
				if r.openAIItem(item, model); len(r.Messages) == n {
					continue
				}
				if at, known := index[id]; known { // it is complete now
					r.Messages[at], r.Messages = r.Messages[n], r.Messages[:n]
				} else {
					index[id] = n
				}
				continue
			}
			role := memory.Role(item.at("role").str())
			if role != memory.User && role != memory.Assistant {
				continue
			}
			if m := place(id, role); m.Text == "" {
				m.Text = item.at("content").content()
			}
		case "conversation.item.input_audio_transcription.completed":
			place(e.at("item_id").str(), memory.User).Text = e.at("transcript").text(memory.MaxContent)
		case "response.output_audio_transcript.done", "response.audio_transcript.done":
			place(e.at("item_id").str(), memory.Assistant).Text = e.at("transcript").text(memory.MaxContent)
		case "conversation.item.truncated": // where in its words is not said
			place(e.at("item_id").str(), memory.Assistant).Interrupted = true
		case "session.created":
			r.ID = cmp.Or(r.root.at("call_id").str(), e.at("session.id").str(), r.ID)
			model = cmp.Or(model, e.at("session.model").str())
		}
	}
	kept := r.Messages[:0]
	for _, m := range r.Messages {
		if m.Text != "" || len(m.ToolCalls) > 0 || m.Role == memory.Tool {
			kept = append(kept, m)
		}
	}
	r.Messages = kept
}
