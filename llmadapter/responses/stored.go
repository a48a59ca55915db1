package responses

import (
	"encoding/json"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// Answer is an answer as the ledger has it.
type Answer struct {
	Model       string // that answered
	Text        string
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
	a.say(message, outputText, m.Text)
	var calls []callDelta
	_ = json.Unmarshal(m.ToolCalls, &calls) // as the ledger has it
	for i := range calls {
		calls[i].Index = &i
		a.call(&calls[i])
	}
	var usage *chatUsage
	if json.Unmarshal(m.Usage, &usage) == nil {
		a.used(usage)
	}
	if a.finish(m.Finish); m.Interrupted {
		a.res.Incomplete = &Incomplete{"interrupted"}
	}
	a.end()
	return a.res
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
