package told

import (
	"bytes"
	"cmp"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// Limits of a record. A prompt with more messages is not recorded, and texts beyond the limit are
// left out of the record.
const (
	maxTexts = 64 << 10 // bytes
	maxParts = 16 << 10 // numbers
)

// minShared is the length in bytes from which a text is not stored again if the answer before has
// it too.
const minShared = 64

// What a part of a body has of a message: the beginning of one of its fields, or the message as a
// JSON object with a role and a content.
const (
	contentField = iota
	originalField
	partsField
	callsField
	objectField // with the beginning of the original content
	runField    // all messages of the ledger up to another, as objects with their original contents
)

// fieldOf returns the stored text of a field.
func fieldOf(m *memory.Message, field int64) string {
	switch field {
	case originalField, objectField:
		return m.Original()
	case partsField:
		return string(m.Parts)
	case callsField:
		return string(m.ToolCalls)
	}
	return m.Content
}

// appendField appends the text of a field in the form that it has in a request.
func appendField(dst []byte, m *memory.Message, field int64, s string) []byte {
	switch field {
	case partsField, callsField:
		return append(dst, s...)
	case objectField:
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

// Record sets Rev, Sum, Texts and Parts of a record to those of a body. ledger has the newest
// messages of the ledger, and seqs are those of them that the body has, in its order. Texts that
// the answer before has are not stored again; the others are stored as clean returns them. Record
// reports false for a body with too many messages.
func Record(t *memory.Told, body []byte, ledger []*memory.Message, seqs []int64, clean func([]byte) []byte) bool {
	slices.SortFunc(ledger, func(a, b *memory.Message) int { return cmp.Compare(a.Seq, b.Seq) })
	r := recorder{Told: t, body: body, clean: clean, own: map[string]int64{}}
	for _, m := range ledger {
		if t.Rev = max(t.Rev, m.Rev); m.Told() != nil {
			r.last = m
		}
	}
	for _, seq := range seqs {
		at, ok := slices.BinarySearchFunc(ledger, seq, func(m *memory.Message, seq int64) int { return cmp.Compare(m.Seq, seq) })
		if !ok {
			continue
		}
		if r.message(ledger[at], at, at < len(ledger)-2); len(t.Parts) > maxParts {
			return false
		}
	}
	r.between(len(r.body))
	return true
}

// recorder reads a body from its start, and collects the parts of a record.
type recorder struct {
	*memory.Told
	body   []byte // what is left of it
	last   *memory.Message
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
func (r *recorder) message(m *memory.Message, index int, old bool) {
	source, whole := m.Content, m.Original()
	if strings.HasPrefix(whole, source) {
		r.object = appendField(r.object[:0], m, objectField, source)
		if at := bytes.Index(r.body, r.object); at >= 0 {
			r.addObject(m, index, at, old && len(source) == len(whole))
			return
		}
	}
	found := false
	for _, field := range []int64{partsField, contentField, callsField} {
		source := fieldOf(m, field)
		if source == "" || field == contentField && len(m.Parts) > 0 {
			continue
		}
		part := appendField(nil, m, field, source)
		at := find(r.body, part)
		if at < 0 {
			continue
		}
		if field == contentField && strings.HasPrefix(whole, source) {
			field = originalField // which later evidence does not change
		}
		r.between(at)
		r.take(len(part))
		r.Parts, found = append(r.Parts, -m.Seq, field, int64(len(source)), checkOf(source)), true
	}
	if !found {
		r.run = false
		r.Parts = append(r.Parts, -m.Seq, contentField, 0, 0)
	}
}

// addObject adds a message that the body has as r.object, to a run if that is wanted.
func (r *recorder) addObject(m *memory.Message, index, at int, run bool) {
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
		r.Parts = append(r.Parts, -m.Seq, runField, m.Seq, r.rsum&0xffff)
		return
	}
	r.Parts = append(r.Parts, -m.Seq, objectField, int64(len(m.Content)), checkOf(m.Content))
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
			if r.size += len(b); r.size > maxTexts {
				x.Text = ""
			}
		}
		r.Texts = append(r.Texts, x)
	}
	r.Parts = append(r.Parts, at)
}

// shared returns a text to be stored, and whether the answer before has it.
func (r *recorder) shared(b []byte) (memory.ToldText, bool) {
	if r.last != nil {
		sum := sumOf(b)
		for i, x := range r.last.Told().Texts {
			switch {
			case x.Of > 0 && x.Sum == sum && len(b) >= minShared:
				return x, true
			case x.Of == 0 && x.Text == string(b) && len(b) >= minShared:
				return memory.ToldText{Of: r.last.Seq, At: i, Sum: sum}, true
			case x.Of == 0 && x.Text == string(b):
				return x, true
			}
		}
	}
	return memory.ToldText{Text: string(b)}, false
}
