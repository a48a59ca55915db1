package llmadapter

import "strings"

// The tags around what a reasoning model thinks, as DeepSeek-R1, Qwen and others write it into the
// content of an answer. It is not spoken.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// thinking removes what a model thinks from a text that comes in pieces. The zero value is ready to
// use.
type thinking struct {
	inside bool
	closed bool   // a block has ended
	held   []byte // the end of the text so far, which may be the beginning of a tag
}

// spoken returns what of the next piece is spoken. first reports that nothing was before: the white
// space between a block and the answer is then removed too.
func (t *thinking) spoken(s string, first bool) string {
	if !t.inside && len(t.held) == 0 && strings.IndexByte(s, '<') < 0 && !(first && t.closed) {
		return s
	}
	s = string(t.held) + s
	t.held = t.held[:0]
	var out strings.Builder
	for {
		tag := thinkOpen
		if t.inside {
			tag = thinkClose
		}
		before, rest, found := strings.Cut(s, tag)
		if !found {
			n := len(s) - tagStart(s, tag)
			t.held = append(t.held, s[len(s)-n:]...)
			before = s[:len(s)-n]
		}
		if !t.inside {
			if first && t.closed {
				before = strings.TrimLeft(before, " \t\r\n")
			}
			out.WriteString(before)
			first = first && before == ""
		}
		if !found {
			return out.String()
		}
		t.closed = t.closed || t.inside
		t.inside = !t.inside
		s = rest
	}
}

// tagStart returns where s ends with a beginning of the tag, or its length.
func tagStart(s, tag string) int {
	for n := min(len(tag)-1, len(s)); n > 0; n-- {
		if strings.HasSuffix(s, tag[:n]) {
			return len(s) - n
		}
	}
	return len(s)
}

// Spoken returns a text without what a reasoning model thought in it.
func Spoken(text string) string {
	if !strings.Contains(text, thinkOpen) {
		return text
	}
	var t thinking
	out := t.spoken(text, true)
	if !t.inside {
		out += string(t.held)
	}
	return out
}
