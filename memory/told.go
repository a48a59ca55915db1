package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"strings"

	"github.com/heardlog/heardlog/internal/text"
)

// Limits of a Told. A prompt with more messages is not recorded, and texts beyond the limit are
// left out of the record.
const (
	maxToldTexts = 64 << 10 // bytes
	maxToldParts = 16 << 10 // numbers
)

// minShared is the length in bytes from which a text is not stored again if the answer before has
// it too.
const minShared = 64

// Told is what an LLM was given for one answer. It has the body of the request in parts: texts of
// the ledger, by their places, and the texts between them. Evidence that comes later does not
// change it.
type Told struct {
	Base   int64  `json:"base,omitempty"`   // Memory.BaseSeq then
	Resent bool   `json:"resent,omitempty"` // the list was the platform's own
	Policy Limits `json:"policy,omitzero"`
	URL    string `json:"url,omitempty"` // of the last attempt, without secrets
	Tries  []Try  `json:"tries,omitempty"`
	// Sum is the first half of the body's SHA-256, in hex.
	Sum   string     `json:"sum"`
	Texts []ToldText `json:"texts,omitempty"`
	// Parts are numbers: i is Texts[i]; -seq, field, n, check is the beginning of a message's
	// text, n bytes long, with a checksum of 16 bits. With n = 0 the message was told in other
	// words, which are in Texts.
	Parts []int64 `json:"parts"`
}

// Limits is the part of a policy that limits a context; 0 is no limit.
type Limits struct {
	Strategy    string `json:"strategy,omitempty"`
	MaxMessages int    `json:"max_messages,omitempty"`
	MaxTokens   int    `json:"max_tokens,omitempty"`
}

// Try is one attempt to get an answer.
type Try struct {
	Upstream string `json:"upstream,omitempty"`
	SentMS   int64  `json:"sent_ms"`         // ms after the request's arrival
	Error    string `json:"error,omitempty"` // without secrets; "" for the attempt that was answered
}

// ToldText is a text of a prompt that is not in the ledger: its own, or one that an earlier answer
// has.
type ToldText struct {
	Text string `json:"text,omitempty"`
	Of   int64  `json:"of,omitempty"`  // Seq of the answer with the text
	At   int    `json:"at,omitempty"`  // its index there
	Sum  int64  `json:"sum,omitempty"` // CRC-32 of the text
}

// The fields of a message that a Told refers to.
const (
	toldContent = iota
	toldOriginal
	toldParts
	toldCalls
)

// field returns a text of the message as it stands in the ledger.
func (m *Message) toldField(field int64) string {
	switch field {
	case toldOriginal:
		return m.Original()
	case toldParts:
		return string(m.Parts)
	case toldCalls:
		return string(m.ToolCalls)
	}
	return m.Content
}

// inBody returns a text as it stands in a body.
func inBody(field int64, s string) []byte {
	if field == toldParts || field == toldCalls {
		return []byte(s)
	}
	quoted := text.AppendJSON(make([]byte, 0, len(s)+8), s)
	return quoted[1 : len(quoted)-1]
}

// find returns where a part of a body stands, or -1. It looks for the start of a JSON string first,
// since a short text such as "42" may also stand in a number before it.
func find(body, part []byte) int {
	if at := bytes.Index(body, append([]byte{'"'}, part...)); at >= 0 {
		return at + 1
	}
	return bytes.Index(body, part)
}

// checkOf returns the checksum of a text in Parts.
func checkOf(s string) int64 { return int64(crc32.ChecksumIEEE([]byte(s)) & 0xffff) }

// sumOf returns Told.Sum of a body.
func sumOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:len(sum)/2])
}

// Record sets Sum, Texts and Parts to those of a body. said are the ledger's messages in it, in
// their order, and last is an earlier answer, whose texts are not stored again; it may be nil.
// Record reports false for a body with too many messages.
func (t *Told) Record(body []byte, said []*Message, last *Message) bool {
	r := recorder{Told: t, last: last, own: map[string]int64{}}
	pos := 0
	for _, m := range said {
		found := false
		for _, field := range []int64{toldParts, toldContent, toldCalls} {
			source := m.toldField(field)
			if source == "" || field == toldContent && len(m.Parts) > 0 {
				continue
			}
			part := inBody(field, source)
			at := find(body[pos:], part)
			if at < 0 {
				continue
			}
			if field == toldContent && strings.HasPrefix(m.Original(), source) {
				field = toldOriginal // which later evidence does not change
			}
			r.text(body[pos : pos+at])
			t.Parts = append(t.Parts, -m.Seq, field, int64(len(source)), checkOf(source))
			pos, found = pos+at+len(part), true
		}
		if !found {
			t.Parts = append(t.Parts, -m.Seq, toldContent, 0, 0)
		}
		if len(t.Parts) > maxToldParts {
			return false
		}
	}
	r.text(body[pos:])
	t.Sum = sumOf(body)
	return true
}

// recorder collects the texts of a Told.
type recorder struct {
	*Told
	last *Message
	own  map[string]int64 // the index of each text
	size int
}

// text adds a piece of the body that is not in the ledger. It is cut where the rest is often the
// same as in other prompts.
func (r *recorder) text(b []byte) {
	if len(b) == 0 {
		return
	}
	if at := bytes.LastIndex(b, []byte(`{"role":`)); at > 0 && len(b)-at < minShared && len(b) > minShared {
		r.add(string(b[:at]))
		b = b[at:]
	}
	const turn = `"interruptable":`
	if at := bytes.Index(b, []byte(turn)); at > 0 { // numbers of the turn precede it
		r.add(string(b[:at]))
		b = b[at:]
	}
	r.add(string(b))
}

func (r *recorder) add(s string) {
	at, ok := r.own[s]
	if !ok {
		at = int64(len(r.Texts))
		r.own[s] = at
		r.Texts = append(r.Texts, r.shared(s))
	}
	r.Parts = append(r.Parts, at)
}

// shared returns a text, or where an earlier answer has it.
func (r *recorder) shared(s string) ToldText {
	sum := int64(crc32.ChecksumIEEE([]byte(s)))
	if r.last != nil && len(s) >= minShared {
		for i, had := range r.last.Told().Texts {
			switch {
			case had.Of > 0 && had.Sum == sum:
				return had
			case had.Of == 0 && had.Text == s:
				return ToldText{Of: r.last.Seq, At: i, Sum: sum}
			}
		}
	}
	if r.size += len(s); r.size > maxToldTexts {
		return ToldText{Sum: sum}
	}
	return ToldText{Text: s}
}

// ToldPart is a message of the ledger in a body.
type ToldPart struct {
	Seq    int64
	Offset int // where its text begins in the body; -1 if it was told in other words
	// Changed is set if the ledger no longer has the text that was told.
	Changed bool
}

// Needs returns the Seq of each message that Body asks for.
func (t *Told) Needs() []int64 {
	var out []int64
	for _, x := range t.Texts {
		if x.Of > 0 {
			out = append(out, x.Of)
		}
	}
	for i := 0; i < len(t.Parts); i++ {
		if t.Parts[i] < 0 {
			out = append(out, -t.Parts[i])
			i += 3
		}
	}
	return out
}

// Body returns the body and the ledger's messages in it. find returns a message of the ledger, or
// nil. Texts that the ledger no longer has are as they are now; exact reports that there are none.
func (t *Told) Body(find func(seq int64) *Message) (body []byte, said []ToldPart, exact bool) {
	for i := 0; i < len(t.Parts); i++ {
		if at := t.Parts[i]; at >= 0 {
			body = append(body, t.textAt(at, find)...)
			continue
		}
		if i+3 >= len(t.Parts) {
			break
		}
		p := ToldPart{Seq: -t.Parts[i], Offset: len(body)}
		field, n, check := t.Parts[i+1], t.Parts[i+2], t.Parts[i+3]
		i += 3
		if n == 0 {
			p.Offset = -1
			said = append(said, p)
			continue
		}
		source := ""
		if m := find(p.Seq); m != nil {
			source = m.toldField(field)
		}
		if int64(len(source)) >= n && checkOf(source[:n]) == check {
			source = source[:n]
		} else {
			p.Changed = true
		}
		body = append(body, inBody(field, source)...)
		said = append(said, p)
	}
	return body, said, sumOf(body) == t.Sum
}

// textAt returns Texts[i], or "" if it is gone.
func (t *Told) textAt(i int64, find func(seq int64) *Message) string {
	if i >= int64(len(t.Texts)) {
		return ""
	}
	x := t.Texts[i]
	if x.Of == 0 {
		return x.Text
	}
	if m := find(x.Of); m != nil && m.Told() != nil && x.At < len(m.Told().Texts) {
		return m.Told().Texts[x.At].Text
	}
	return ""
}
