package sqlite

import (
	"encoding/binary"
	"encoding/json"
	"reflect"
	"sync"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
)

// A packed message is what is kept in memory of one that may be asked for: some 40 bytes and its texts, where memory.Message takes ten times that and
// a map. It begins with what is searched for, in varints, and the texts follow. What only few messages have stands at the end as package
// codec encodes it, so that a field which the packed form does not know is kept all the same.
//
// A packed message is read by the process that made it alone; its form may change with every version.
type packed string

// What is noted in the number behind the id: flags and, in sixteens, where its role, source and method stand in the lists of known ones.
const (
	packedUserTurn = 1 << iota // TurnHasUser
	packedTimings
	packedRest  // there is an encoded message at the end
	packedOpens // Opens

	packedRole   = 1 << 4
	packedSource = 1 << 8
	packedMethod = 1 << 12
)

// Known values, told by their place; others stand in the encoded message. The empty one is known too.
var (
	packedRoles   = [...]memory.Role{"", memory.User, memory.Assistant, memory.Tool, memory.System, memory.Developer}
	packedSources = [...]memory.Source{
		"", memory.SourceASR, memory.SourceMessage, memory.SourceCommand, memory.SourceLLM, memory.SourceGreeting, memory.SourceLLMFailure, memory.SourceSilence,
	}
	packedMethods = [...]memory.Method{
		"", memory.VendorText, memory.WordTimes, memory.AudioMS, memory.EchoDiff, memory.DisconnectOnly, memory.AssumedFull,
	}
)

// packer is what a message is packed in. packers has no state but reusable memory.
type packer struct {
	rest        memory.Message // what is not packed yet
	b, metadata []byte
}

var packers = sync.Pool{New: func() any { return new(packer) }}

// maxPacker is how much memory in bytes is kept for the next message.
const maxPacker = 64 << 10

// pack gives a stored message's packed form. Raw JSON in it is valid: the message could not have been stored otherwise.
func pack(m *memory.Message) packed {
	w := packers.Get().(*packer)
	p := w.pack(m)
	if w.rest = (memory.Message{}); cap(w.b)+cap(w.metadata) <= maxPacker {
		packers.Put(w)
	}
	return p
}

func (w *packer) pack(m *memory.Message) packed {
	w.rest = *m
	rest, flags := &w.rest, 0
	take(&rest.Role, packedRoles[:], packedRole, &flags)
	take(&rest.Source, packedSources[:], packedSource, &flags)
	take(&rest.Method, packedMethods[:], packedMethod, &flags)
	if m.TurnHasUser {
		rest.TurnHasUser, flags = false, flags|packedUserTurn
	}
	if m.Opens {
		rest.Opens, flags = false, flags|packedOpens
	}
	if m.Timings != nil {
		rest.Timings, flags = nil, flags|packedTimings
	}
	rest.Content, rest.Timestamp, rest.AnswerSeq, rest.FinishRsn, rest.UpstreamID, rest.Metadata, rest.Chars = "", 0, 0, "", "", nil, 0
	rest.Seq, rest.Rev, rest.TurnID, rest.ID, rest.GivenTurn = 0, 0, 0, "", false
	others := ""
	if !reflect.ValueOf(rest).Elem().IsZero() {
		others, _ = codec.EncodeMessage(rest)
		flags |= packedRest
	}
	b := w.b[:0]
	for _, n := range [...]int64{m.Seq, m.Rev, m.TurnID} {
		b = binary.AppendVarint(b, n)
	}
	b = append(binary.AppendUvarint(b, uint64(len(m.ID))), m.ID...)
	for _, n := range [...]int64{int64(flags), m.Timestamp, m.AnswerSeq, m.Chars} {
		b = binary.AppendVarint(b, n)
	}
	if m.Timings != nil {
		t := packedTimes(*m.Timings)
		for _, n := range [...]int64{t.StartMS, t.FirstTokenMS, t.FirstSentenceMS, t.TotalMS, t.UpstreamFirstByteMS, t.UpstreamBytes} {
			b = binary.AppendVarint(b, n)
		}
	}
	for _, s := range [...]string{m.Content, m.FinishRsn, m.UpstreamID} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	md := w.metadata[:0]
	for k, v := range m.Metadata {
		if v == nil {
			v = json.RawMessage("null") // as it is stored
		}
		md = append(binary.AppendUvarint(md, uint64(len(k))), k...)
		md = append(binary.AppendUvarint(md, uint64(len(v))), v...)
	}
	w.metadata = md
	b = append(binary.AppendUvarint(b, uint64(len(md))), md...)
	if flags&packedRest != 0 {
		b = append(b, others...)
	}
	w.b = b
	return packed(b)
}

// packedTimes is memory.Timings; where that grows, the conversions do not compile until this does.
type packedTimes struct {
	StartMS, FirstTokenMS, FirstSentenceMS, TotalMS, UpstreamFirstByteMS, UpstreamBytes int64
}

// take notes the place of a known value and takes it out of v.
func take[T ~string](v *T, known []T, unit int, flags *int) {
	for i, k := range known {
		if *v == k {
			*v, *flags = "", *flags|i*unit
			return
		}
	}
}

// seq gives the message's Seq.
func (p packed) seq() int64 {
	r := packedReader{s: string(p)}
	return r.number()
}

// found gives what a message is searched by.
func (p packed) found() (rev, turn int64, id string) {
	r := packedReader{s: string(p)}
	r.number()
	return r.number(), r.number(), r.text()
}

// unpacker unpacks messages one after the other. It remembers the metadata of the last one that had some: a caller's messages mostly carry the same, and
// a map for each would take longer than all the rest.
type unpacker struct {
	metadata string
	shared   map[string]json.RawMessage
}

// unpack writes the message to m, which is zero. Its texts are parts of p.
func (u *unpacker) unpack(p packed, m *memory.Message) {
	r := packedReader{s: string(p)}
	m.Seq, m.Rev, m.TurnID = r.number(), r.number(), r.number()
	id, flags := r.text(), int(r.number())
	timestamp, answer, chars := r.number(), r.number(), r.number()
	var timings *memory.Timings
	if flags&packedTimings != 0 {
		timings = &memory.Timings{
			StartMS: r.number(), FirstTokenMS: r.number(), FirstSentenceMS: r.number(), TotalMS: r.number(),
			UpstreamFirstByteMS: r.number(), UpstreamBytes: r.number(),
		}
	}
	content, finish, upstream := r.text(), r.text(), r.text()
	md := r.text()
	if flags&packedRest != 0 {
		_ = codec.DecodeMessage(r.s, m) // what pack has written is whole
	}
	if md != "" {
		if md != u.metadata {
			u.metadata, u.shared = md, map[string]json.RawMessage{}
			for r := (packedReader{s: md}); r.s != ""; {
				k := r.text()
				u.shared[k] = json.RawMessage(r.text())
			}
		}
		m.Metadata = u.shared
	}
	if timings != nil {
		m.Timings = timings
	}
	m.Timestamp, m.AnswerSeq, m.ID, m.Content, m.FinishRsn, m.UpstreamID = timestamp, answer, id, content, finish, upstream
	m.TurnHasUser, m.Opens, m.Chars = flags&packedUserTurn != 0, flags&packedOpens != 0, chars
	if known := flags / packedRole % 16; known != 0 {
		m.Role = packedRoles[known]
	}
	if known := flags / packedSource % 16; known != 0 {
		m.Source = packedSources[known]
	}
	if known := flags / packedMethod % 16; known != 0 {
		m.Method = packedMethods[known]
	}
}

// packedReader walks over a packed message. What pack has written is whole, so that nothing is checked.
type packedReader struct{ s string }

func (r *packedReader) uvarint() uint64 {
	var n uint64
	for i := 0; i < len(r.s); i++ {
		c := r.s[i]
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			r.s = r.s[i+1:]
			return n
		}
	}
	return n
}

func (r *packedReader) number() int64 {
	n := r.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *packedReader) text() string {
	n := r.uvarint()
	s := r.s[:n]
	r.s = r.s[n:]
	return s
}
