package llmadapter

import (
	"bytes"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxAnswer limits how many bytes of an answer's text, and of its tool calls, are kept. The rest is
// passed on but not kept.
const MaxAnswer = MaxEvent

// maxCalls limits how many tool calls of one answer are kept.
const maxCalls = 128

// Record is what was read of one answer. It is not safe for concurrent use.
type Record struct {
	text []byte // all that the model said
	sent int    // how much of text was written and flushed

	ID     string // of the first chunk
	Finish string // finish_reason
	Usage  []byte // JSON object; nil if the upstream sent none
	calls  []toolCall
	whole  []byte // tool_calls of an answer in one piece, as they came
	unary  bool   // the answer came in one piece

	// Error is the upstream's error object or text, if one came inside the answer.
	Error []byte
	// Done is set when [DONE] was read.
	Done bool
	// FirstTokenAt is when the client was first sent words or a tool call, FirstSentenceAt when it
	// was sent the end of the first sentence; zero before that.
	FirstTokenAt, FirstSentenceAt time.Time

	spoke, sentence bool // read, not yet written
	begun           bool
	cut             bool // more was read than is kept
}

// toolCall is one call, joined from its deltas.
type toolCall struct {
	index    int64
	id, kind string
	name     []byte
	args     []byte
}

// Generated returns all that the model said.
func (r *Record) Generated() string { return string(r.text) }

// Sent returns what was written to the client, in whole deltas.
func (r *Record) Sent() string { return string(r.text[:r.sent]) }

// Spoke reports whether words of the answer were read, written or not.
func (r *Record) Spoke() bool { return r.spoke }

// Begun reports whether a part of the answer was read. An event that only says how the answer is to
// be spoken (Agora's chat.completion.custom_metadata) is not a part of it.
func (r *Record) Begun() bool { return r.begun }

// Calls reports whether the answer calls a tool, as far as it was read.
func (r *Record) Calls() bool { return r.whole != nil || len(r.calls) > 0 }

// Complete reports whether the upstream finished the answer.
func (r *Record) Complete() bool { return (r.Done || r.Finish != "") && r.Error == nil && !r.cut }

// Cut reports whether more was read than is kept.
func (r *Record) Cut() bool { return r.cut }

// room reports whether n more bytes may be kept. After the first that may not, nothing more is
// kept, so that the text has no gap.
func (r *Record) room(kept, n int) bool {
	if kept+n > MaxAnswer {
		r.cut = true
	}
	return !r.cut
}

// ToolCalls returns the calls as an OpenAI tool_calls array, or nil.
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

// flushed notes that all that was read has been written.
func (r *Record) flushed(now func() time.Time) {
	r.sent = len(r.text)
	if r.spoke && r.FirstTokenAt.IsZero() {
		r.FirstTokenAt = now()
	}
	if r.sentence && r.FirstSentenceAt.IsZero() {
		r.FirstSentenceAt = now()
	}
}

// Chunk reads the data of one event. It ignores data that is not a chunk.
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
		case `"object"`: // see Begun
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

// choice reads one choice. Only the one with index 0, or without one, is what the caller hears.
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

// said reads a delta, or the message of a whole answer. If it has both text and a transcript, they
// are the same words, and the text counts.
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
	if len(audio) > 0 && audio[0] == '{' && len(r.text) == before {
		r.say(stringMember(audio, "transcript"))
	}
}

// delta reads one member of a delta, or of the message of a whole answer. name is quoted.
func (r *Record) delta(name, v []byte) {
	switch string(name) {
	case `"content"`:
		if v[0] == '[' {
			r.say(ContentText(v))
			return
		}
		r.sayJSON(v)
	case `"refusal"`: // a refusal is spoken like any other text
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

// say adds text.
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

// endsSentence reports whether a delta completes a sentence: it has a mark at its end or before
// white space.
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

// toolCall adds one delta of a call. Deltas of a call have the same index; a server without indexes
// sends whole calls, each with an ID of its own.
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
	if len(c.args) == 0 { // some servers repeat the name with each piece of the arguments
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

// Unary reads the body of an answer in one piece. It reports whether the body is one.
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

// message reads the choice of an answer in one piece.
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

// firstElement returns the first element of a JSON array, or nil.
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

// Delivered notes that an answer in one piece was sent to the client.
func (r *Record) Delivered(now time.Time) {
	r.flushed(func() time.Time { return now })
}
