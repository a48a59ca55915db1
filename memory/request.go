package memory

import (
	"hash/crc32"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/text"
)

// Request is what an LLM was given for one answer. It has the body of the request in parts: those
// that the body for an earlier answer has too, and the texts of the others. What is learned later
// of the messages in it does not change it. Package requests makes and reads it.
type Request struct {
	Base   int64  `json:"base,omitempty"`   // Memory.BaseSeq then
	Resent bool   `json:"resent,omitempty"` // the list was the platform's own
	Policy Limits `json:"policy,omitzero"`
	URL    string `json:"url,omitempty"` // of the last attempt, without secrets
	Tries  []Try  `json:"tries,omitempty"`
	Rev    int64  `json:"rev,omitempty"` // the newest revision of a message then
	Of     int64  `json:"of,omitempty"`  // Seq of the earlier answer; 0 for none
	// Parts are the body; none if it was too long.
	Parts []RequestPart `json:"parts,omitempty"`
	// Unplaced are the messages of the ledger that were told in other words.
	Unplaced []int64 `json:"unplaced,omitempty"`
}

// RequestPart is either a text or, if Count is not 0, Count parts of the earlier answer's body. If
// Words is not 0, the text lacks words of the message Seqs[0], which the ledger has: see Whole.
type RequestPart struct {
	From  int     `json:"from,omitempty"`
	Count int     `json:"count,omitempty"`
	Text  string  `json:"text,omitempty"`
	At    int     `json:"at,omitempty"`    // where in Text the words belong
	Words int     `json:"words,omitempty"` // how many bytes of the message they are
	Sum   int64   `json:"sum,omitempty"`   // CRC-32 of these bytes
	Seqs  []int64 `json:"seqs,omitempty"`  // of the messages of the ledger in the text
}

// Referable is how many of the newest messages a record may leave words to.
const Referable = 48

// minWords is the shortest text, in bytes, that a record leaves to the ledger.
const minWords = 8

// Refer leaves the words of messages to the ledger: it takes them out of the texts of the record.
// find returns a message of the ledger, or nil.
func (t *Request) Refer(find func(seq int64) *Message) {
	parts := slices.Clone(t.Parts)
	for i := range parts {
		p := &parts[i]
		if len(p.Seqs) == 0 || p.Words > 0 {
			continue
		}
		m := find(p.Seqs[0])
		if m == nil || len(m.Content) < minWords {
			continue
		}
		if words := quoted(m.Content); strings.Contains(p.Text, words) {
			p.At, p.Words, p.Sum = strings.Index(p.Text, words), len(m.Content), sum(m.Content)
			p.Text = p.Text[:p.At] + p.Text[p.At+len(words):]
		}
	}
	t.Parts = parts
}

// Quotes reports whether the record has the words of a message as they are now.
func (t *Request) Quotes(m *Message) bool {
	words := quoted(m.Content)
	return slices.ContainsFunc(t.Parts, func(p RequestPart) bool {
		return slices.Contains(p.Seqs, m.Seq) && strings.Contains(p.Text, words)
	})
}

// Whole returns the text of a part. It reports false if the ledger lacks the words that belong into
// it. find returns a message of the ledger, or nil.
func (p *RequestPart) Whole(find func(seq int64) *Message) (string, bool) {
	if p.Words == 0 {
		return p.Text, true
	}
	words, ok := p.words(find)
	if !ok || p.At < 0 || p.At > len(p.Text) {
		return p.Text, false
	}
	return p.Text[:p.At] + quoted(words) + p.Text[p.At:], true
}

// Is reports whether a text is that of the part.
func (p *RequestPart) Is(s []byte, find func(seq int64) *Message) bool {
	if p.Words == 0 {
		return string(s) == p.Text
	}
	if len(s) < len(p.Text)+p.Words || p.At < 0 || p.At > len(p.Text) || string(s[:p.At]) != p.Text[:p.At] {
		return false
	}
	words, ok := p.words(find)
	end := len(s) - (len(p.Text) - p.At)
	return ok && string(s[end:]) == p.Text[p.At:] && string(s[p.At:end]) == quoted(words)
}

func (p *RequestPart) words(find func(seq int64) *Message) (string, bool) {
	if len(p.Seqs) == 0 {
		return "", false
	}
	m := find(p.Seqs[0])
	if m == nil {
		return "", false
	}
	return p.wordsOf(m)
}

// wordsOf returns the words of the part if the message has them or had them.
func (p *RequestPart) wordsOf(m *Message) (string, bool) {
	for s := range m.texts() {
		if len(s) >= p.Words && sum(s[:p.Words]) == p.Sum {
			return s[:p.Words], true
		}
	}
	return "", false
}

func sum(s string) int64 { return int64(crc32.ChecksumIEEE([]byte(s))) }

// quoted returns a text as JSON encodes it, without the quotes.
func quoted(s string) string {
	b := text.AppendJSON(make([]byte, 0, len(s)+16), s)
	return string(b[1 : len(b)-1])
}

// texts iterates over the texts that the message has and had.
func (m *Message) texts() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if !yield(m.Content) || !yield(m.Generated) || !yield(m.Sent) {
			return
		}
		for _, s := range m.Made().Was {
			if !yield(s) {
				return
			}
		}
	}
}

// Inline returns the record with the words that it leaves to the ledger in its texts again, as far
// as find returns messages that have them.
func (t *Request) Inline(find func(seq int64) *Message) *Request {
	out := *t
	out.Parts = slices.Clone(t.Parts)
	for i := range out.Parts {
		p := &out.Parts[i]
		if text, ok := p.Whole(find); ok {
			p.Text, p.At, p.Words, p.Sum = text, 0, 0, 0
		}
	}
	return &out
}

// keep keeps those texts of old, which m replaces, that m lacks and records refer to.
func (m *Message) keep(old *Message, records ...[]Message) {
	var was []string
	for _, list := range records {
		for i := range list {
			t := list[i].Made().Request
			if t == nil {
				continue
			}
			for _, p := range t.Parts {
				if p.Words == 0 || len(p.Seqs) == 0 || p.Seqs[0] != m.Seq {
					continue
				}
				if _, ok := p.wordsOf(m); ok {
					continue
				}
				if s, ok := p.wordsOf(old); ok && !slices.Contains(was, s) {
					was = append(was, s)
				}
			}
		}
	}
	if was != nil {
		m.Amend(func(d *Details) { d.Was = append(slices.Clip(d.Was), was...) })
	}
}

// begins reports whether m has all texts of old, as they were or with more words behind.
func (m *Message) begins(old *Message) bool {
	for s := range old.texts() {
		has := false
		for t := range m.texts() {
			has = has || strings.HasPrefix(t, s)
		}
		if !has {
			return false
		}
	}
	return true
}

// Own returns the messages of the ledger that the record itself may have words of.
func (t *Request) Own() []int64 {
	out := slices.Clone(t.Unplaced)
	for i := range t.Parts {
		out = append(out, t.Parts[i].Seqs...)
	}
	return out
}

// Limits is the part of a policy that limits a context; 0 means no limit.
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
