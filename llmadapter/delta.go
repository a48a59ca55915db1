package llmadapter

import (
	"bytes"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxAnswer is how many bytes of an answer's text are kept, and of its tool calls: as much as one event may hold, and days of speech. What comes
// behind is passed on and not kept.
const MaxAnswer = MaxEvent

// maxCalls is how many tool calls of one answer are kept.
const maxCalls = 128

// Record is what was read of one answer, beside its way to the client. It is not safe for concurrent use.
type Record struct {
	text []byte // all the model said
	sent int    // how much of text was written and flushed

	ID     string // of the first chunk
	Finish string // finish_reason
	Usage  []byte // JSON object; nil if the upstream sent none
	calls  []toolCall
	whole  []byte // tool_calls of an unary answer, as they came
	unary  bool   // the answer came in one piece

	// Error is the upstream's error object or text where one came inside the answer.
	Error []byte
	// Done tells that [DONE] came.
	Done bool
	// FirstTokenAt and FirstSentenceAt are when the client was first sent words or a tool call, and when the first sentence
	// was complete; zero while not.
	FirstTokenAt, FirstSentenceAt time.Time

	spoke, sentence bool // read, not yet written
	begun           bool
	cut             bool // more came than is kept
}

// toolCall is one call, put together from its deltas.
type toolCall struct {
	index    int64
	id, kind string
	name     []byte
	args     []byte
}

// Generated gives all that the model said.
func (r *Record) Generated() string { return string(r.text) }

// Sent gives what was written to the client, cut at whole deltas.
func (r *Record) Sent() string { return string(r.text[:r.sent]) }

// Spoke tells that words of the answer were read, whether or not they were written yet.
func (r *Record) Spoke() bool { return r.spoke }

// Begun tells that something of the answer was read. What only says how the answer is to be spoken (reference/agora-api.md 4.4) is nothing of it.
func (r *Record) Begun() bool { return r.begun }

// Calls tells that the answer calls a tool, as far as it was read.
func (r *Record) Calls() bool { return r.whole != nil || len(r.calls) > 0 }

// Complete tells whether the upstream said that it was finished.
func (r *Record) Complete() bool { return (r.Done || r.Finish != "") && r.Error == nil && !r.cut }

// Cut tells that more came than is kept.
func (r *Record) Cut() bool { return r.cut }

// room tells whether n bytes more may be kept beside those that are; once they may not, nothing more is: a text with a hole would be a lie.
func (r *Record) room(kept, n int) bool {
	if kept+n > MaxAnswer {
		r.cut = true
	}
	return !r.cut
}

// ToolCalls gives the calls as an OpenAI tool_calls array; nil if there are none.
func (r *Record) ToolCalls() []byte {
	if r.whole != nil || len(r.calls) == 0 {
		return r.whole
	}
	out := []byte{'['}
	for i, c := range r.calls {
		if i > 0 {
			out = append(out, ',')
		}
		kind := c.kind
		if kind == "" {
			kind = "function"
		}
		out = append(appendQuote(append(out, `{"id":`...), c.id), `,"type":`...)
		out = append(appendQuote(out, kind), `,"function":{"name":`...)
		out = append(appendQuote(out, string(c.name)), `,"arguments":`...)
		out = append(appendQuote(out, string(c.args)), `}}`...)
	}
	return append(out, ']')
}

// flushed notes that all that was read was also written.
func (r *Record) flushed(now func() time.Time) {
	r.sent = len(r.text)
	if r.spoke && r.FirstTokenAt.IsZero() {
		r.FirstTokenAt = now()
	}
	if r.sentence && r.FirstSentenceAt.IsZero() {
		r.FirstSentenceAt = now()
	}
}

// Chunk reads the data of one event. What is not a chunk is passed over: the client gets it anyhow.
func (r *Record) Chunk(data []byte) {
	if len(data) == 0 {
		return
	}
	if data[0] != '{' {
		r.begun = true
		if string(bytes.TrimSpace(data)) == "[DONE]" {
			r.Done = true
		}
		return
	}
	var id, choices, errObj, usage []byte
	spoken := true
	_ = walkObject(data, func(name, v []byte) error {
		switch string(name) {
		case `"id"`:
			id = v
		case `"object"`: // reference/agora-api.md 4.4
			spoken = string(v) != `"chat.completion.custom_metadata"`
		case `"choices"`:
			choices = v
		case `"usage"`:
			if v[0] == '{' {
				usage = v
			}
		case `"error"`:
			if v[0] != 'n' {
				errObj = v
			}
		}
		return nil
	})
	if !spoken {
		return
	}
	r.begun = true
	if r.ID == "" && len(id) > 0 && id[0] == '"' {
		r.ID = unquote(id)
	}
	if errObj != nil && r.Error == nil {
		r.Error = bytes.Clone(errObj)
	}
	if usage != nil {
		r.Usage = append(r.Usage[:0], usage...)
	}
	if len(choices) > 2 && choices[0] == '[' {
		walkArray(choices, func(c []byte) {
			if c[0] == '{' {
				r.choice(c)
			}
		})
	}
}

// choice reads one choice; only the one with index 0 (or none) is what a caller hears.
func (r *Record) choice(c []byte) {
	var delta, finish []byte
	first := true
	_ = walkObject(c, func(name, v []byte) error {
		switch string(name) {
		case `"index"`:
			first = string(v) == "0"
		case `"delta"`:
			delta = v
		case `"finish_reason"`:
			finish = v
		}
		return nil
	})
	if !first {
		return
	}
	if len(delta) > 2 && delta[0] == '{' {
		r.said(delta)
	}
	if len(finish) > 2 && finish[0] == '"' {
		r.Finish = unquote(finish)
		r.sentence = r.sentence || len(r.text) > 0
	}
}

// said reads a delta, or the message of a whole answer. Text and transcript beside each other are the same words twice, and the text is what counts.
func (r *Record) said(delta []byte) {
	var audio []byte
	before := len(r.text)
	_ = walkObject(delta, func(name, v []byte) error {
		if string(name) == `"audio"` {
			audio = v
			return nil
		}
		r.delta(name, v)
		return nil
	})
	if len(audio) > 0 && audio[0] == '{' && len(r.text) == before { // reference/agora-api.md 4.5: the transcript is what is remembered
		r.say(stringMember(audio, "transcript"))
	}
}

// delta reads one member of a delta, or of the message of a whole answer; name is quoted.
func (r *Record) delta(name, v []byte) {
	switch string(name) {
	case `"content"`:
		if v[0] == '[' {
			r.say(ContentText(v))
			return
		}
		r.sayJSON(v)
	case `"refusal"`: // what a model says when it refuses is said all the same
		r.sayJSON(v)
	case `"tool_calls"`:
		switch {
		case v[0] != '[':
		case r.unary: // kept as they came
			if !emptyArray(v) && r.room(0, len(v)) {
				r.whole, r.spoke = bytes.Clone(v), true
			}
		default:
			walkArray(v, r.toolCall)
		}
	}
}

// sayJSON is say for a JSON string. It ignores other values.
func (r *Record) sayJSON(v []byte) {
	if len(v) > 2 && v[0] == '"' {
		r.say(unquote(v))
	}
}

func (r *Record) say(s string) {
	if s == "" {
		return
	}
	r.spoke = true
	if !r.room(len(r.text), len(s)) {
		return
	}
	r.text = append(r.text, s...)
	if !r.sentence {
		r.sentence = endsSentence(s)
	}
}

// endsSentence tells whether a delta completes a sentence: a mark at its end or before white space.
func endsSentence(s string) bool {
	for i, c := range s {
		switch c {
		case '。', '！', '？', '…', '\n':
			return true
		case '.', '!', '?':
			next, _ := utf8.DecodeRuneInString(s[i+1:])
			if i+1 == len(s) || unicode.IsSpace(next) {
				return true
			}
		}
	}
	return false
}

// toolCall adds one delta of a call. Calls are told apart by index; a server that leaves it out sends whole calls, each
// with an id of its own (reference/proxies.md rule 13).
func (r *Record) toolCall(delta []byte) {
	id := stringMember(delta, "id")
	raw, indexed := lookup(delta, "index")
	index, _ := strconv.ParseInt(textOf(raw), 10, 64) // anything but a number is 0
	var c *toolCall
	for i := range r.calls {
		if indexed && r.calls[i].index == index || !indexed && (id == "" || id == r.calls[i].id) {
			c = &r.calls[i]
		}
	}
	if c == nil && len(r.calls) == maxCalls {
		r.cut = true
		return
	}
	if c == nil {
		if !indexed {
			index = int64(len(r.calls))
		}
		r.calls = append(r.calls, toolCall{index: index})
		c = &r.calls[len(r.calls)-1]
	}
	if id != "" && c.id == "" {
		c.id = id
	}
	if kind := stringMember(delta, "type"); kind != "" && c.kind == "" {
		c.kind = kind
	}
	fn, _ := lookup(delta, "function")
	kept := 0
	for i := range r.calls {
		kept += len(r.calls[i].name) + len(r.calls[i].args)
	}
	if r.spoke = true; !r.room(kept, len(fn)) {
		return
	}
	if len(c.args) == 0 { // a server that repeats the name with each piece of the arguments must not double it
		c.name = append(c.name, stringMember(fn, "name")...)
	}
	switch args, ok := lookup(fn, "arguments"); {
	case !ok:
	case args[0] == '{': // some servers send an object
		c.args = append(c.args, args...)
	case args[0] == '"':
		c.args = append(c.args, unquote(args)...)
	}
}

// Unary reads the body of an answer that came in one piece. It tells whether it is one.
func (r *Record) Unary(body []byte) bool {
	if !isJSONObject(body) {
		return false
	}
	var id, choice, usage, failed []byte
	_ = walkObject(body, func(name, v []byte) error {
		switch string(name) {
		case `"id"`:
			id = v
		case `"usage"`:
			usage = v
		case `"error"`:
			failed = v
		case `"choices"`:
			choice = firstElement(v)
		}
		return nil
	})
	if len(failed) > 0 && failed[0] != 'n' {
		r.Error = bytes.Clone(failed)
	}
	if len(id) > 0 && id[0] == '"' {
		r.ID = unquote(id)
	}
	if len(usage) > 0 && usage[0] == '{' {
		r.Usage = bytes.Clone(usage)
	}
	if len(choice) == 0 || choice[0] != '{' {
		return r.Error != nil
	}
	r.message(choice)
	r.sentence = r.spoke
	r.Done = r.Error == nil
	return true
}

// message reads the choice of a whole answer.
func (r *Record) message(choice []byte) {
	_ = walkObject(choice, func(name, v []byte) error {
		switch string(name) {
		case `"finish_reason"`:
			if v[0] == '"' {
				r.Finish = unquote(v)
			}
		case `"message"`:
			if v[0] != '{' {
				return nil
			}
			r.unary = true
			r.said(v)
		}
		return nil
	})
}

// firstElement gives the first element of a JSON array; nil if v is none or empty.
func firstElement(v []byte) (first []byte) {
	if v[0] == '[' {
		walkArray(v, func(e []byte) {
			if first == nil {
				first = e
			}
		})
	}
	return first
}

// Delivered notes that all of an answer in one piece goes to the client now.
func (r *Record) Delivered(now time.Time) {
	r.flushed(func() time.Time { return now })
}
