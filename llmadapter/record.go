package llmadapter

import (
	"bytes"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/peek"
)

// MaxAnswer limits how many bytes of an answer's text, and of its tool calls, are kept: the first
// ones. The rest is passed on but not kept.
const MaxAnswer = 4 << 20

// usualText is the length in bytes of most answers of a voice agent.
const usualText = 256

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
	callBytes  int
	wholeCalls []byte // tool_calls of an answer in one piece, as they came
	unary      bool   // the answer came in one piece

	// Error is the upstream's error object or text, if one came inside the answer.
	Error []byte
	// Done is set when [DONE] was read.
	Done bool
	// FirstTokenAt is when the client was first sent words or a tool call, FirstSentenceAt when it
	// was sent the end of the first sentence; zero before that.
	FirstTokenAt, FirstSentenceAt time.Time

	// Changed is called with each piece of the answer as it is read; nil calls nothing.
	Changed func(Change)

	said            pieces // what was read of the text, without what it holds
	thinking        thinking
	raw             []byte // all that the model wrote, once it has thought
	members         merged // of the message, beside those that have a field above
	budget          budget
	thoughts        string // the member whose text is the model's thoughts; others repeat it
	thought         bool   // thoughts were read, in the text or beside it
	spoke, sentence bool   // read, not yet written

	chunks bool // a chunk of the answer was read
	cut    bool // more was read than is kept
}

// Change is what a piece of an answer adds to it.
type Change struct {
	Kind ChangeKind
	Text string // of all but CallBegun; of an Annotation, JSON
	Call int    // the index of the tool call
}

// ChangeKind is the kind of a Change.
type ChangeKind int

// The kinds of changes.
const (
	Words ChangeKind = iota
	Refusal
	Thought
	CallBegun
	CallArguments
	Annotation
	// Retracted means that all words so far were thoughts.
	Retracted
)

func (r *Record) changed(kind ChangeKind, text string, call int) {
	if r.Changed != nil && (text != "" || kind == CallBegun || kind == Retracted) {
		r.Changed(Change{kind, text, call})
	}
}

// Call returns the ID and the name of a tool call, as far as they were read.
func (r *Record) Call(i int) (id, name string) { return r.calls[i].id, string(r.calls[i].name) }

// Generated returns all that the model said, without what it thought.
func (r *Record) Generated() string {
	if r.thinking.inside || len(r.thinking.held) == 0 && len(r.said.held) == 0 {
		return string(r.text)
	}
	return string(r.text) + r.thinking.rest() + r.said.rest()
}

// Rest returns the end of Generated that no Change has had: the beginning of a tag or a character.
func (r *Record) Rest() string { return r.Generated()[len(r.text):] }

// WithThoughts returns all that the model wrote, if it also wrote what it thought, or "".
func (r *Record) WithThoughts() string { return strings.ToValidUTF8(string(r.raw), "") }

// Members returns the members of the answer's message beside its role, text, tool calls and
// refusal, joined from all deltas, as a JSON object: what the upstream wants to get back with the
// answer, such as reasoning_content. It returns "" for none, and if they are too large to be kept.
func (r *Record) Members() string {
	if r.budget.exceeded {
		return ""
	}
	out := []byte{'{'}
	for i, name := range r.members.names {
		if m := r.members.of[i]; !m.empty() {
			one := merged{kind: '{', names: []string{name}, of: []*merged{m}}
			out = one.appendMembers(out)
		}
	}
	if len(out) == 1 {
		return ""
	}
	return string(append(out, '}'))
}

// Message returns the answer as a message for the upstream that wrote it.
func (r *Record) Message(to *Recipient) []byte {
	m := Message{Role: "assistant", Text: r.Generated(), ToolCalls: r.ToolCalls(), Members: r.Members(), Origin: to.Origin}
	return m.appendTo(nil, to)
}

// Sent returns what was written to the client, in whole deltas.
func (r *Record) Sent() string { return string(r.text[:r.sent]) }

// Thinks reports whether the model is in the middle of a block that is not to be spoken.
func (r *Record) Thinks() bool { return r.thinking.inside }

// Spoke reports whether words of the answer were read, written or not.
func (r *Record) Spoke() bool { return r.spoke }

// Begun reports whether something of the answer was read: words, a tool call or a thought, or its
// end. A chunk that has only a role, a filter's result, or says how the answer is to be spoken
// (Agora's chat.completion.custom_metadata) does not begin it.
func (r *Record) Begun() bool {
	return r.spoke || r.thought || r.Error != nil || r.Ended()
}

// HasChunks reports whether a chunk of the answer was read, even one without words.
func (r *Record) HasChunks() bool { return r.chunks }

// Empty reports whether the answer has neither words nor tool calls nor thoughts.
func (r *Record) Empty() bool { return !r.spoke && !r.thought && !r.Calls() }

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

// Chunk reads the data of one event. It ignores data that is not a chunk, and what comes after
// [DONE].
func (r *Record) Chunk(data []byte) {
	if len(data) == 0 || r.Done {
		return
	}
	if data[0] != '{' {
		r.Done = string(bytes.TrimSpace(data)) == "[DONE]"
		return
	}
	a := readAnswer(data)
	if string(a.object) == `"chat.completion.custom_metadata"` { // it says how the answer is to be spoken
		return
	}
	r.chunks = true
	r.head(&a)
	if len(a.choices) > 2 && a.choices[0] == '[' {
		peek.Array(a.choices, func(c []byte) {
			if c[0] == '{' {
				r.choice(c)
			}
		})
	}
}

// head reads what an answer has beside its choices.
func (r *Record) head(a *answer) {
	if r.ID == "" && len(a.id) > 0 && a.id[0] == '"' {
		r.ID = peek.Unquote(a.id)
	}
	if r.Model == "" && len(a.model) > 0 && a.model[0] == '"' {
		r.Model = peek.Unquote(a.model)
	}
	if a.failed != nil && r.Error == nil {
		r.Error = bytes.Clone(a.failed)
	}
	if a.usage != nil {
		r.Usage = append(r.Usage[:0], a.usage...)
	}
}

// choice reads one choice. Only the one with index 0, or without one, is what the caller hears.
func (r *Record) choice(c []byte) {
	var delta, finish []byte
	first := true
	_ = peek.Object(c, func(name, v []byte) error {
		switch string(name) {
		case `"index"`:
			first = string(v) == "0" || v[0] == 'n'
		case `"delta"`:
			delta = v
		case `"message"`: // some servers end a stream with the whole answer, others send only that
			if delta == nil && r.Empty() {
				delta = v
			}
		case `"finish_reason"`:
			finish = v
		case `"usage"`: // of Moonshot
			if v[0] == '{' && r.Usage == nil {
				r.Usage = bytes.Clone(v)
			}
		case `"error"`: // of OpenRouter
			if r.Error == nil && says(v) {
				r.Error = bytes.Clone(v)
			}
		}
		return nil
	})
	if !first && !r.unary {
		return
	}
	if len(delta) > 2 && delta[0] == '{' {
		r.message(delta)
	}
	if len(finish) > 2 && finish[0] == '"' {
		r.Finish = peek.Unquote(finish)
		r.sentence = r.sentence || len(r.text) > 0
	}
}

// message reads a delta, or the message of a whole answer. If it has both text and a transcript,
// they are the same words, and the text counts.
func (r *Record) message(delta []byte) {
	var audio []byte
	before := len(r.text)
	_ = peek.Object(delta, func(name, v []byte) error {
		switch string(name) {
		case `"role"`:
		case `"content"`:
			if v[0] == '[' {
				r.parts(v)
				return nil
			}
			r.sayJSON(v, Words)
		case `"refusal"`: // a refusal is spoken like any other text
			r.sayJSON(v, Refusal)
		case `"audio"`:
			audio = v
			r.spoke = r.spoke || peek.At(v, "data").Str() != ""
			r.member(name, v)
		case `"tool_calls"`:
			switch {
			case v[0] != '[':
			case r.unary && len(v) <= MaxAnswer: // kept as they came
				if !emptyArray(v) {
					r.wholeCalls, r.spoke = bytes.Clone(v), true
				}
				if r.Changed != nil {
					peek.Array(v, r.toolCall)
				}
			default:
				peek.Array(v, r.toolCall)
			}
		default:
			r.member(name, v)
		}
		return nil
	})
	if len(audio) > 0 && audio[0] == '{' && len(r.text) == before {
		r.say(peek.At(audio, "transcript").Str(), Words)
	}
}

// member reads a member that has no field of its own.
func (r *Record) member(name, v []byte) {
	if v[0] == 'n' {
		return
	}
	n := peek.Unquote(name)
	switch {
	case isThought(n):
		r.thought = r.thought || len(v) > 2
		if v[0] == '"' && len(v) > 2 && (r.thoughts == "" || r.thoughts == n) {
			r.thoughts = n
			r.changed(Thought, peek.Unquote(v), 0)
		}
	case n == functionCall:
		r.spoke = r.spoke || len(v) > 2
	case n == "audio": // what was heard is kept as words; the upstream knows the sound by its ID
		v = bytes.Clone(v)
		if id, ok := lookup(v, "id"); ok {
			v = append(append([]byte(`{"id":`), id...), '}')
		} else {
			return
		}
	}
	if n == "annotations" && v[0] == '[' {
		peek.Array(v, func(a []byte) { r.changed(Annotation, string(a), 0) })
	}
	r.members.kind = '{'
	r.members.member(n).merge(n, v, &r.budget, 1)
}

// parts reads content that is an array of parts. One that has more than texts goes back to the
// upstream as it came.
func (r *Record) parts(v []byte) {
	other := false
	peek.Array(v, func(part []byte) {
		kind := peek.At(part, "type").Str()
		r.thought = r.thought || isThought(kind)
		other = other || kind != "" && kind != "text" && kind != "output_text"
	})
	if other || r.members.get("content") != nil {
		r.members.kind = '{'
		r.members.member("content").merge("content", v, &r.budget, 1)
	}
	if said := ContentText(v); said != "" {
		r.say(said, Words)
	}
}

// sayJSON is say for a JSON string. It ignores other values.
func (r *Record) sayJSON(v []byte, kind ChangeKind) {
	if len(v) > 2 && v[0] == '"' {
		r.say(r.said.next(v), kind)
	}
}

// say adds text.
func (r *Record) say(s string, kind ChangeKind) {
	held := r.thinking.rest()
	spoken, thought, retract := r.thinking.next(s, len(r.text) == 0)
	if r.thinking.thought() {
		r.thought = true
		if r.raw == nil {
			r.raw = append(append(r.raw, r.text...), held...)
		}
		r.raw = append(r.raw, s[:min(len(s), max(0, MaxAnswer-len(r.raw)))]...)
	}
	if retract {
		r.text, r.sent, r.spoke, r.sentence = r.text[:0], 0, false, false
		r.changed(Retracted, "", 0)
	}
	r.changed(Thought, thought, 0)
	if s = spoken; s == "" {
		return
	}
	r.spoke = true
	s = r.room(len(r.text), s)
	if r.text == nil {
		r.text = make([]byte, 0, max(len(s), usualText))
	}
	r.text = append(r.text, s...)
	r.changed(kind, s, 0)
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

// Unary reads the body of an answer in one piece. It reports whether the body is one.
func (r *Record) Unary(body []byte) bool {
	if !isJSONObject(body) {
		return false
	}
	a := readAnswer(body)
	r.head(&a)
	choice := answerOf(a.choices)
	if len(choice) == 0 || choice[0] != '{' {
		return r.Error != nil
	}
	r.unary = true
	r.choice(choice)
	r.sentence = r.spoke
	r.Done = r.Error == nil
	return true
}

// Delivered notes that an answer in one piece was sent to the client.
func (r *Record) Delivered(now time.Time) {
	r.flushed(func() time.Time { return now })
}
