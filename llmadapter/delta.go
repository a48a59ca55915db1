package llmadapter

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/text"
)

// MaxAnswer limits how many bytes of an answer's text, and of its tool calls, are kept: the first
// ones. The rest is passed on but not kept.
const MaxAnswer = 4 << 20

// maxCalls limits how many tool calls of one answer are kept.
const maxCalls = 128

// Record is what was read of one answer. It is not safe for concurrent use.
type Record struct {
	text []byte // all that the model said
	sent int    // how much of text was written and flushed

	ID     string // of the first chunk
	Model  string // that answers, as the upstream names it; "" if it names none
	Finish string // finish_reason
	Usage  []byte // JSON object; nil if the upstream sent none
	calls  []toolCall
	// callBytes is how much of calls is kept.
	callBytes int
	whole     []byte // tool_calls of an answer in one piece, as they came
	unary     bool   // the answer came in one piece

	// Error is the upstream's error object or text, if one came inside the answer.
	Error []byte
	// Done is set when [DONE] was read.
	Done bool
	// FirstTokenAt is when the client was first sent words or a tool call, FirstSentenceAt when it
	// was sent the end of the first sentence; zero before that.
	FirstTokenAt, FirstSentenceAt time.Time

	thinking        thinking
	raw             []byte // all that the model wrote, once it has thought
	spoke, sentence bool   // read, not yet written
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

// Generated returns all that the model said, without what it thought.
func (r *Record) Generated() string {
	if r.thinking.inside || len(r.thinking.held) == 0 {
		return string(r.text)
	}
	return string(r.text) + string(r.thinking.held) // it has become no tag
}

// WithThoughts returns all that the model wrote, if it also wrote what it thought, or "".
func (r *Record) WithThoughts() string { return strings.ToValidUTF8(string(r.raw), "") }

// Sent returns what was written to the client, in whole deltas.
func (r *Record) Sent() string { return string(r.text[:r.sent]) }

// Thinks reports whether the model is in the middle of a block that is not to be spoken.
func (r *Record) Thinks() bool { return r.thinking.inside }

// Spoke reports whether words of the answer were read, written or not.
func (r *Record) Spoke() bool { return r.spoke }

// Begun reports whether a part of the answer was read. An event that only says how the answer is to
// be spoken (Agora's chat.completion.custom_metadata) is not a part of it.
func (r *Record) Begun() bool { return r.begun }

// Calls reports whether the answer calls a tool, as far as it was read.
func (r *Record) Calls() bool { return r.whole != nil || len(r.calls) > 0 }

// Ended reports whether the upstream marked the end of the answer, by finish_reason or by [DONE]:
// some upstreams leave one of them out.
func (r *Record) Ended() bool { return r.Done || r.Finish != "" }

// Complete reports whether the upstream finished the answer, and all of it is kept.
func (r *Record) Complete() bool { return r.Ended() && r.Error == nil && !r.cut }

// Cut reports whether more was read than is kept.
func (r *Record) Cut() bool { return r.cut }

// room returns as much of s as may be kept beside kept bytes. Once something was cut, nothing more
// is kept, so that the text has no gap.
func (r *Record) room(kept int, s string) string {
	n := max(0, MaxAnswer-kept)
	switch {
	case r.cut:
		return ""
	case len(s) <= n:
		return s
	}
	r.cut = true
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
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
		out = append(text.AppendJSON(append(out, `{"id":`...), c.id), `,"type":`...)
		out = append(text.AppendJSON(out, kind), `,"function":{"name":`...)
		out = append(text.AppendJSON(out, string(c.name)), `,"arguments":`...)
		out = append(text.AppendJSON(out, string(c.args)), `}}`...)
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

// Tail reads the data of a last event that has no blank line after it. A stream that broke off may
// have cut it, so that it is ignored unless it is whole.
func (r *Record) Tail(data []byte) {
	if len(data) > 0 && data[0] == '{' && !validJSON(data) {
		return
	}
	r.Chunk(data)
}

// Chunk reads the data of one event. It ignores data that is not a chunk, and what comes after
// [DONE]. Of an event that SSE has cut it reads what is there.
func (r *Record) Chunk(data []byte) {
	if len(data) == 0 || r.Done {
		return
	}
	if data[0] != '{' {
		r.begun = true
		if string(bytes.TrimSpace(data)) == "[DONE]" {
			r.Done = true
		}
		return
	}
	var id, model, choices, errObj, usage []byte
	spoken := true
	_ = walkObject(data, func(name, v []byte) error {
		switch string(name) {
		case `"id"`:
			id = v
		case `"model"`:
			model = v
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
	if r.Model == "" && len(model) > 0 && model[0] == '"' {
		r.Model = unquote(model)
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
	r.cut = r.cut || len(data) >= MaxEvent
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
			if len(v) <= MaxAnswer && !emptyArray(v) {
				r.whole, r.spoke = bytes.Clone(v), true
				return
			}
			fallthrough
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
	held := string(r.thinking.held)
	spoken := r.thinking.spoken(s, len(r.text) == 0)
	if r.thinking.inside || r.thinking.closed {
		if r.raw == nil {
			r.raw = append(append(r.raw, r.text...), held...)
		}
		r.raw = append(r.raw, s[:min(len(s), max(0, MaxAnswer-len(r.raw)))]...)
	}
	if s = spoken; s == "" {
		return
	}
	r.spoke = true
	s = r.room(len(r.text), s)
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
	r.spoke = true
	keep := func(s string) string {
		s = r.room(r.callBytes, s)
		r.callBytes += len(s)
		return s
	}
	if c.id == "" {
		c.id = keep(id)
	}
	if c.kind == "" {
		c.kind = keep(stringMember(delta, "type"))
	}
	fn, _ := lookup(delta, "function")
	if len(c.args) == 0 { // some servers repeat the name with each piece of the arguments
		c.name = append(c.name, keep(stringMember(fn, "name"))...)
	}
	switch args, ok := lookup(fn, "arguments"); {
	case !ok:
	case args[0] == '{': // some servers send an object
		c.args = append(c.args, keep(string(args))...)
	case args[0] == '"':
		c.args = append(c.args, keep(unquote(args))...)
	}
}

// Unary reads the body of an answer in one piece. It reports whether the body is one.
func (r *Record) Unary(body []byte) bool {
	if !isJSONObject(body) {
		return false
	}
	var id, model, choice, usage, failed []byte
	_ = walkObject(body, func(name, v []byte) error {
		switch string(name) {
		case `"id"`:
			id = v
		case `"model"`:
			model = v
		case `"usage"`:
			usage = v
		case `"error"`:
			failed = v
		case `"choices"`:
			choice = answerOf(v)
		}
		return nil
	})
	if len(failed) > 0 && failed[0] != 'n' {
		r.Error = bytes.Clone(failed)
	}
	if len(id) > 0 && id[0] == '"' {
		r.ID = unquote(id)
	}
	if len(model) > 0 && model[0] == '"' {
		r.Model = unquote(model)
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

// answerOf returns the choice that is the answer: the first with index 0 or without an index, or
// else the first of all. It returns nil if there is none.
func answerOf(choices []byte) (answer []byte) {
	if choices[0] != '[' {
		return nil
	}
	found := false
	walkArray(choices, func(c []byte) {
		index, indexed := lookup(c, "index")
		is := !indexed || string(index) == "0"
		if answer == nil || is && !found {
			answer = c
		}
		found = found || is
	})
	return answer
}

// Delivered notes that an answer in one piece was sent to the client.
func (r *Record) Delivered(now time.Time) {
	r.flushed(func() time.Time { return now })
}
