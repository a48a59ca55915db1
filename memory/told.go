package memory

import (
	"bytes"
	"cmp"
	"hash/crc32"
	"slices"
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

// Told is what an LLM was given for one answer. It has the body of the request in parts: messages
// of the ledger, by their places, and the texts between them. Evidence that comes later does not
// change it.
type Told struct {
	Base   int64  `json:"base,omitempty"`   // Memory.BaseSeq then
	Resent bool   `json:"resent,omitempty"` // the list was the platform's own
	Policy Limits `json:"policy,omitzero"`
	URL    string `json:"url,omitempty"` // of the last attempt, without secrets
	Tries  []Try  `json:"tries,omitempty"`
	// Rev is the newest revision of a message then.
	Rev   int64      `json:"rev,omitempty"`
	Sum   int64      `json:"sum"` // CRC-32 of the body
	Texts []ToldText `json:"texts,omitempty"`
	// Parts are numbers: i is Texts[i]. Four numbers that begin with -seq stand for messages. The
	// second is one of the told constants, the fourth a checksum of 16 bits; the third is the last
	// message's Seq for toldRun, else the length of the message's text. A length of 0 stands for a
	// message that was told in other words, which are in Texts.
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

// What a part of a body has of a message: the beginning of one of its fields, or the message as a
// JSON object with a role and a content.
const (
	toldContent = iota
	toldOriginal
	toldParts
	toldCalls
	toldObject // with the beginning of the original content
	toldRun    // all messages of the ledger up to another, as objects with their original contents
)

// toldField returns a text of the message as it stands in the ledger.
func (m *Message) toldField(field int64) string {
	switch field {
	case toldOriginal, toldObject:
		return m.Original()
	case toldParts:
		return string(m.Parts)
	case toldCalls:
		return string(m.ToolCalls)
	}
	return m.Content
}

// appendTold appends a text of a message as it stands in a body.
func (m *Message) appendTold(dst []byte, field int64, s string) []byte {
	switch field {
	case toldParts, toldCalls:
		return append(dst, s...)
	case toldObject:
		dst = text.AppendJSON(append(dst, `{"role":`...), string(m.WireRole()))
		return append(text.AppendJSON(append(dst, `,"content":`...), s), '}')
	}
	quoted := text.AppendJSON(make([]byte, 0, len(s)+8), s)
	return append(dst, quoted[1:len(quoted)-1]...)
}

// find returns where a part of a body stands, or -1. It looks for the start of a JSON string first,
// since a short text such as "42" may also stand in a number before it.
func find(body, part []byte) int {
	if at := bytes.Index(body, append([]byte{'"'}, part...)); at >= 0 {
		return at + 1
	}
	return bytes.Index(body, part)
}

// sumOf returns the CRC-32 of a text.
func sumOf(s []byte) int64 { return addSum(0, s) }

// addSum returns the CRC-32 of a text with a sum and b behind it.
func addSum(sum int64, b []byte) int64 {
	return int64(crc32.Update(uint32(sum), crc32.IEEETable, b))
}

// checkOf returns the checksum of a text in Parts.
func checkOf(s string) int64 { return sumOf([]byte(s)) & 0xffff }

// Record sets Rev, Sum, Texts and Parts to those of a body. ledger has the newest messages of the
// ledger, and seqs are those of them that the body has, in its order. Texts that the answer before
// has are not stored again; the others are stored as clean returns them. Record reports false for
// a body with too many messages.
func (t *Told) Record(body []byte, ledger []*Message, seqs []int64, clean func([]byte) []byte) bool {
	slices.SortFunc(ledger, func(a, b *Message) int { return cmp.Compare(a.Seq, b.Seq) })
	r := recorder{Told: t, body: body, clean: clean, own: map[string]int64{}}
	for _, m := range ledger {
		if t.Rev = max(t.Rev, m.Rev); m.Told() != nil {
			r.last = m
		}
	}
	for _, seq := range seqs {
		at, ok := slices.BinarySearchFunc(ledger, seq, func(m *Message, seq int64) int { return cmp.Compare(m.Seq, seq) })
		if !ok {
			continue
		}
		if r.message(ledger[at], at, at < len(ledger)-2); len(t.Parts) > maxToldParts {
			return false
		}
	}
	r.between(len(r.body))
	return true
}

// recorder reads a body from its start, and collects the parts of a Told.
type recorder struct {
	*Told
	body   []byte // what is left of it
	last   *Message
	clean  func([]byte) []byte
	own    map[string]int64 // the index of each text
	size   int
	object []byte // reused
	// The run at the end of Parts: the index of its last message in the ledger, and its checksum.
	run  bool
	at   int
	rsum int64
}

// message adds the parts for the message with that index in the ledger. Old is set if its text does
// not grow any more, as that of the newest question and answer may.
func (r *recorder) message(m *Message, index int, old bool) {
	source, whole := m.Content, m.Original()
	if strings.HasPrefix(whole, source) {
		r.object = m.appendTold(r.object[:0], toldObject, source)
		if at := bytes.Index(r.body, r.object); at >= 0 {
			r.addObject(m, index, at, old && len(source) == len(whole))
			return
		}
	}
	found := false
	for _, field := range []int64{toldParts, toldContent, toldCalls} {
		source := m.toldField(field)
		if source == "" || field == toldContent && len(m.Parts) > 0 {
			continue
		}
		part := m.appendTold(nil, field, source)
		at := find(r.body, part)
		if at < 0 {
			continue
		}
		if field == toldContent && strings.HasPrefix(whole, source) {
			field = toldOriginal // which later evidence does not change
		}
		r.between(at)
		r.take(len(part))
		r.Parts, found = append(r.Parts, -m.Seq, field, int64(len(source)), checkOf(source)), true
	}
	if !found {
		r.run = false
		r.Parts = append(r.Parts, -m.Seq, toldContent, 0, 0)
	}
}

// addObject adds a message that the body has as r.object, to a run if that is wanted.
func (r *recorder) addObject(m *Message, index, at int, run bool) {
	if r.run && run && index == r.at+1 && at == 1 && r.body[0] == ',' {
		r.rsum = addSum(addSum(r.rsum, r.body[:1]), r.object)
		r.take(1 + len(r.object))
		n := len(r.Parts)
		r.at, r.Parts[n-2], r.Parts[n-1] = index, m.Seq, r.rsum&0xffff
		return
	}
	r.between(at)
	r.take(len(r.object))
	if run {
		r.run, r.at, r.rsum = true, index, sumOf(r.object)
		r.Parts = append(r.Parts, -m.Seq, toldRun, m.Seq, r.rsum&0xffff)
		return
	}
	r.Parts = append(r.Parts, -m.Seq, toldObject, int64(len(m.Content)), checkOf(m.Content))
}

// take moves past n bytes of the body, which the ledger has.
func (r *recorder) take(n int) {
	r.Sum = addSum(r.Sum, r.body[:n])
	r.body = r.body[n:]
}

// between adds the next n bytes of the body, which are not in the ledger. They are cut where the
// rest is often the same as in other prompts.
func (r *recorder) between(n int) {
	r.run = false
	if n == 0 {
		return
	}
	b := r.body[:n]
	r.body = r.body[n:]
	if at := bytes.LastIndex(b, []byte(`{"role":`)); at > 0 && len(b)-at < minShared && len(b) > minShared {
		r.add(b[:at])
		b = b[at:]
	}
	const turn = `"interruptable":`
	if at := bytes.Index(b, []byte(turn)); at > 0 { // numbers of the turn precede it
		r.add(b[:at])
		b = b[at:]
	}
	r.add(b)
}

func (r *recorder) add(b []byte) {
	x, had := r.shared(b)
	if !had {
		b = r.clean(b)
		x, had = r.shared(b)
	}
	r.Sum = addSum(r.Sum, b)
	at, ok := r.own[string(b)]
	if !ok {
		at = int64(len(r.Texts))
		r.own[string(b)] = at
		if !had {
			if r.size += len(b); r.size > maxToldTexts {
				x.Text = ""
			}
		}
		r.Texts = append(r.Texts, x)
	}
	r.Parts = append(r.Parts, at)
}

// shared returns a text to be stored, and whether the answer before has it.
func (r *recorder) shared(b []byte) (ToldText, bool) {
	if r.last != nil {
		sum := sumOf(b)
		for i, x := range r.last.Told().Texts {
			switch {
			case x.Of > 0 && x.Sum == sum && len(b) >= minShared:
				return x, true
			case x.Of == 0 && x.Text == string(b) && len(b) >= minShared:
				return ToldText{Of: r.last.Seq, At: i, Sum: sum}, true
			case x.Of == 0 && x.Text == string(b):
				return x, true
			}
		}
	}
	return ToldText{Text: string(b)}, false
}

// ToldPart is a message of the ledger in a body.
type ToldPart struct {
	Seq    int64
	Offset int // where it begins in the body; -1 if it was told in other words
	// Changed is set if the ledger may no longer have the text that was told. A run does not know
	// which of its messages it is if several were changed.
	Changed bool
}

// Span is a range of the ledger, both ends included.
type Span struct{ From, To int64 }

// Needs returns the messages that Body asks for.
func (t *Told) Needs() []Span {
	var out []Span
	for _, x := range t.Texts {
		if x.Of > 0 {
			out = append(out, Span{x.Of, x.Of})
		}
	}
	for i := 0; i+3 < len(t.Parts); i++ {
		if from := -t.Parts[i]; from > 0 {
			s := Span{from, from}
			if t.Parts[i+1] == toldRun {
				s.To = t.Parts[i+2]
			}
			out = append(out, s)
			i += 3
		}
	}
	return out
}

// Body returns the body and the ledger's messages in it. ledger has the messages that it needs.
// Texts that the ledger no longer has are as they are now; exact reports that there are none.
func (t *Told) Body(ledger map[int64]*Message) (body []byte, said []ToldPart, exact bool) {
	for i := 0; i < len(t.Parts); i++ {
		if at := t.Parts[i]; at >= 0 {
			body = append(body, t.textAt(at, ledger)...)
			continue
		}
		if i+3 >= len(t.Parts) {
			break
		}
		p := ToldPart{Seq: -t.Parts[i], Offset: len(body)}
		field, n, check := t.Parts[i+1], t.Parts[i+2], t.Parts[i+3]
		i += 3
		if field == toldRun {
			var parts []ToldPart
			body, parts = t.appendRun(body, Span{p.Seq, n}, check, ledger)
			said = append(said, parts...)
			continue
		}
		if n == 0 && field != toldObject {
			p.Offset = -1
			said = append(said, p)
			continue
		}
		m := ledger[p.Seq]
		if m == nil {
			m = &Message{}
		}
		source := m.toldField(field)
		if int64(len(source)) >= n && checkOf(source[:n]) == check {
			source = source[:n]
		} else {
			p.Changed = true
		}
		body = m.appendTold(body, field, source)
		said = append(said, p)
	}
	return body, said, sumOf(body) == t.Sum
}

// appendRun appends the messages of a run, without those that came between them later.
func (t *Told) appendRun(body []byte, run Span, check int64, ledger map[int64]*Message) ([]byte, []ToldPart) {
	var seqs []int64
	for seq, m := range ledger {
		if seq >= run.From && seq <= run.To && m.BornRev() <= t.Rev {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	start, said := len(body), []ToldPart{}
	for i, seq := range seqs {
		if i > 0 {
			body = append(body, ',')
		}
		m := ledger[seq]
		said = append(said, ToldPart{Seq: seq, Offset: len(body)})
		body = m.appendTold(body, toldObject, m.Original())
	}
	if sumOf(body[start:])&0xffff != check {
		for i := range said {
			said[i].Changed = ledger[said[i].Seq].Rev > t.Rev
		}
	}
	return body, said
}

// textAt returns Texts[i], or "" if it is gone.
func (t *Told) textAt(i int64, ledger map[int64]*Message) string {
	if i >= int64(len(t.Texts)) {
		return ""
	}
	x := t.Texts[i]
	if x.Of == 0 {
		return x.Text
	}
	if m := ledger[x.Of]; m != nil && m.Told() != nil && x.At < len(m.Told().Texts) {
		return m.Told().Texts[x.At].Text
	}
	return ""
}
