package llmadapter

import (
	"bytes"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// thinking separates what a model thinks from what it says, in a text that comes in pieces. What a
// model thinks is not spoken. It stands
//
//   - in tags, as <think>…</think>: DeepSeek-R1, Qwen; <mm:think>: MiniMax; <thought>, <thinking>,
//     <reasoning>: others; [THINK]: Magistral; ◁think▷: Kimi
//   - before a closing tag without an opening one, since templates of chats open the block in the
//     prompt
//   - in gpt-oss's channels other than final: <|channel|>analysis<|message|>…<|end|>
//
// Tags within marks of code are text. The zero value is ready to use.
type thinking struct {
	inside  bool
	closed  bool // something that was thought has ended
	channel bool // the text has channels; then inside is what the channel says
	header  bool // between <|start|> or <|channel|> and <|message|>
	head    []byte
	held    []byte // the end of the text so far, which may be the beginning of a tag
	code    int    // the number of backticks that opened the code that the text is in; 0 outside
	ticks   int    // the number of backticks that the text ends with
}

// maxTag is the length of the longest tag that is looked for.
const maxTag = 32

// next returns what of the next piece is spoken, and what is thought. retract reports that all that
// was spoken before was thought. first is set if nothing was spoken before: the white space between
// a block and the answer is then removed too.
func (t *thinking) next(s string, first bool) (spoken, thought string, retract bool) {
	if !t.inside && !t.header && len(t.held) == 0 && t.ticks == 0 && t.code == 0 && !strings.ContainsAny(s, "<[`\u25c1") && !(first && t.closed) {
		return s, "", false
	}
	b := append(t.held, s...)
	t.held = nil
	var out, hidden []byte
	say := func(text []byte) {
		switch {
		case t.header:
			t.head = append(t.head, text[:min(len(text), maxTag)]...)
		case !t.inside:
			if first && t.closed {
				text = bytes.TrimLeft(text, " \t\r\n")
			}
			out = append(out, text...)
			first = first && len(text) == 0
		default:
			hidden = append(hidden, text...)
		}
	}
	for len(b) > 0 {
		i := bytes.IndexAny(b, "<[`\u25c1\n")
		if i != 0 {
			t.endTicks()
		}
		switch {
		case i < 0:
			say(b)
			return string(out), string(hidden), retract
		case i > 0:
			say(b[:i])
			b = b[i:]
			continue
		case b[0] == '`':
			t.ticks++
			say(b[:1])
			b = b[1:]
			continue
		}
		if b[0] != '\n' {
			t.endTicks()
		}
		if b[0] == '\n' {
			t.endTicks()
			if t.code < 3 { // code within a line ends with it
				t.code = 0
			}
			say(b[:1])
			b = b[1:]
			continue
		}
		n, tag, more := tagAt(b)
		switch {
		case more:
			t.held = bytes.Clone(b)
			return string(out), string(hidden), retract
		case n == 0 || t.code > 0 && !t.inside:
			n = max(n, 1)
			if b[0] >= 0x80 {
				n = max(n, len("\u25c1"))
			}
			say(b[:min(n, len(b))])
			b = b[min(n, len(b)):]
			continue
		}
		b = b[n:]
		if t.tag(tag) {
			hidden = append(hidden, out...)
			out, retract, first = out[:0], true, true
		}
	}
	return string(out), string(hidden), retract
}

// endTicks notes that a run of backticks has ended. It opens code, or closes code that as many have
// opened.
func (t *thinking) endTicks() {
	switch {
	case t.ticks == 0 || t.inside:
	case t.code == 0:
		t.code = t.ticks
	case t.code == t.ticks:
		t.code = 0
	}
	t.ticks = 0
}

// tag changes the state at a tag, and reports whether all that was spoken before was thought.
func (t *thinking) tag(tag string) (retract bool) {
	switch tag {
	case "open":
		t.inside = true
	case "close":
		retract = !t.inside && !t.closed
		t.inside, t.closed = false, true
	case "channel", "start":
		retract = tag == "start" && !t.channel && !t.closed
		t.channel, t.header, t.head = true, true, t.head[:0]
	case "message":
		retract = !t.channel // the prompt had the beginning of the header
		t.inside = retract || !bytes.HasPrefix(bytes.TrimSpace(t.head), []byte("final"))
		t.channel, t.header, t.closed = true, false, true
	case "end":
		t.channel, t.inside, t.header, t.closed = true, true, false, true // until the next header
	}
	return retract
}

// tagAt returns the length and the meaning of the tag that b begins with, or 0. more is set if b is
// too short to tell.
func tagAt(b []byte) (n int, tag string, more bool) {
	opening, closing := byte('<'), ">"
	rest := b[1:]
	switch {
	case b[0] == '[':
		opening, closing = '[', "]"
	case b[0] >= 0x80:
		if len(b) < len("\u25c1") {
			return 0, "", true
		}
		opening, closing, rest = 0, "\u25b7", b[len("\u25c1"):]
	}
	end := bytes.Index(rest, []byte(closing))
	if end < 0 {
		name := rest
		if opening == 0 { // the first bytes of the closing mark
			name = bytes.TrimRight(name, "\xe2\x96")
		}
		return 0, "", len(rest) < maxTag && mayBeTag(opening, name)
	}
	name := string(rest[:end])
	switch n = len(b) - len(rest) + end + len(closing); {
	case end > maxTag:
		return 0, "", false
	case opening == '<' && strings.HasPrefix(name, "|"):
		switch strings.Trim(name, "|") {
		case "channel", "message", "start":
			return n, strings.Trim(name, "|"), false
		case "end", "return", "call":
			return n, "end", false
		case "START_THINKING", "begin_of_thought":
			return n, "open", false
		case "END_THINKING", "end_of_thought":
			return n, "close", false
		}
		return 0, "", false
	case opening == '[' && name != strings.ToUpper(name):
		return 0, "", false
	}
	name, closes := strings.CutPrefix(name, "/")
	if opening == '<' {
		if _, after, ok := strings.Cut(name, ":"); ok { // a name space
			name = after
		}
	}
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "think", "thinking", "thought", "reasoning":
		if closes {
			return n, "close", false
		}
		return n, "open", false
	}
	return 0, "", false
}

// mayBeTag reports whether name may be the beginning of a tag's name.
func mayBeTag(opening byte, name []byte) bool {
	for i, c := range name {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		case c == '/' && i == 0, opening == '<' && (c == ':' || c == '|' || c == '_') && i < maxTag:
		default:
			return false
		}
	}
	return true
}

// rest returns the end of the text that has become no tag.
func (t *thinking) rest() string {
	if t.inside || t.header {
		return ""
	}
	return string(t.held)
}

// thought reports whether a part of the text was thought.
func (t *thinking) thought() bool { return t.inside || t.closed }

// Spoken returns a text without what a reasoning model thought in it.
func Spoken(text string) string {
	if !strings.ContainsAny(text, "<[\u25c1") {
		return text
	}
	var t thinking
	out, _, _ := t.next(text, true)
	if !t.thought() {
		return text
	}
	return out + t.rest()
}

// Thoughts returns what a model thought for an answer: members are those of its message, a JSON
// object or "", and text is all that it wrote as its text.
func Thoughts(members, text string) string {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if s := peek.At([]byte(members), name).Str(); s != "" {
			return s
		}
	}
	var t thinking
	_, hidden, _ := t.next(text, true)
	return hidden
}
