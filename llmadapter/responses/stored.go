package responses

import (
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// Answer is an answer as the ledger has it.
type Answer struct {
	Model       string // that answered
	Text        string
	Thoughts    string // what the model thought; "" for nothing
	ToolCalls   []byte // a tool_calls array of a chat completion; nil for none
	Finish      string // its finish_reason
	Usage       []byte // its usage; nil for none
	Interrupted bool
	TimestampMS int64
}

// Deleted is the answer to the deletion of a response.
type Deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // response
	Deleted bool   `json:"deleted"`
}

// Stored returns the response at a place, with nothing of what its request asked for.
func Stored(ref Ref, m Answer) Response {
	a := (&Request{}).newAnswer(ref, m.TimestampMS/1000)
	a.res.Model = m.Model
	a.say(reasoning, reasoningText, m.Thoughts)
	a.say(message, outputText, m.Text)
	a.rec.Chunk([]byte(`{"choices":[{"delta":{"tool_calls":` + calls(m.ToolCalls) + `}}]}`))
	a.rec.Usage = m.Usage
	if a.finish(m.Finish); m.Interrupted {
		a.res.Incomplete = &Incomplete{"interrupted"}
	}
	a.end()
	return a.res
}

// calls returns a tool_calls array, or an empty one for nil.
func calls(toolCalls []byte) string {
	if len(toolCalls) == 0 {
		return "[]"
	}
	return string(toolCalls)
}

// Items iterates over the items of an answer, by their IDs.
func Items(ref Ref, text string, toolCalls []byte) iter.Seq2[string, jsontext.Value] {
	return func(yield func(string, jsontext.Value) bool) {
		for _, it := range Stored(ref, Answer{Text: text, ToolCalls: toolCalls}).Output {
			if !yield(it.ID, marshal(it)) {
				return
			}
		}
	}
}
