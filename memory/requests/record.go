package requests

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// Limits of a record: of the body in bytes, of the records that are read for one, itself included,
// and of the parts of an earlier body with which a part is compared.
const (
	maxBody  = 1 << 20
	maxChain = 32
	maxAhead = 64
)

// split cuts a body before each message, behind the last one, and before each member after that. It
// returns how many of the parts are messages. A body that is cut elsewhere has a larger record.
func split(body []byte) (parts [][]byte, messages int) {
	parts = make([][]byte, 0, 16+len(body)/128)
	cut := func(n int) { parts, body = append(parts, body[:n]), body[n:] }
	for at := 0; ; at++ {
		n := bytes.Index(body[at:], []byte(`,{"`))
		if n < 0 {
			break
		}
		at += n
		if key := body[at+3:]; bytes.HasPrefix(key, []byte(`role":`)) || bytes.HasPrefix(key, []byte(`content":`)) {
			cut(at)
			at = 0
		}
	}
	n := bytes.Index(body, []byte(`}],"`))
	if n < 0 { // it may be the only member
		n = bytes.LastIndex(body, []byte(`}]}`))
	}
	if n >= 0 {
		cut(n + 1)
		messages = len(parts)
		for n := 0; n >= 0; n = bytes.Index(body[1:], []byte(`,"`)) {
			cut(n + 1)
		}
	}
	return append(parts, body), cmp.Or(messages, len(parts)+1)
}

// Parts returns the parts of a recorded body, none of them a repetition. It reports false if a
// record that it repeats parts of is gone. find returns the record of an answer, or nil. Parts may
// lack words that the ledger has; see memory.RequestPart.
func Parts(t *memory.Request, find func(seq int64) *memory.Request) (parts []*memory.RequestPart, ok bool) {
	chain := make([]*memory.Request, 0, maxChain)
	for chain = append(chain, t); t.Of != 0; chain = append(chain, t) {
		if t = find(t.Of); t == nil || len(chain) == maxChain {
			return nil, false
		}
	}
	type place struct{ record, part uint32 } // pointers would cost more to copy
	base, places := make([]place, 0, 64), make([]place, 0, 64)
	for k, t := range slices.Backward(chain) {
		base, places = places, base[:0]
		for i, p := range t.Parts {
			switch {
			case p.Count == 0:
				places = append(places, place{uint32(k), uint32(i)})
			case p.From < 0 || p.Count < 0 || p.Count > len(base)-p.From || len(places) > maxBody:
				return nil, false
			default:
				places = append(places, base[p.From:p.From+p.Count]...)
			}
		}
	}
	parts = make([]*memory.RequestPart, len(places))
	for i, at := range places {
		parts[i] = &chain[at.record].Parts[at.part]
	}
	return parts, true
}

// Record sets Rev, Of, Parts and Unplaced of a record. ledger has the newest messages of the
// ledger, and seqs are the messages of the ledger that the body has, in its order. Texts are stored
// as clean returns them. Of a body that is too long nothing but the messages is recorded.
func Record(t *memory.Request, body []byte, ledger []*memory.Message, seqs []int64, clean func([]byte) []byte) {
	records := make(map[int64]*memory.Request, maxChain)
	for _, m := range ledger {
		if t.Rev = max(t.Rev, m.Rev); m.Made().Request != nil && len(m.Made().Request.Parts) > 0 {
			records[m.Seq], t.Of = m.Made().Request, max(t.Of, m.Seq)
		}
	}
	if len(body) > maxBody {
		t.Of, t.Unplaced = 0, seqs
		return
	}
	if !utf8.Valid(body) {
		body = bytes.ToValidUTF8(body, []byte("\uFFFD"))
	}
	r := recorder{t: t, ledger: ledger, seqs: seqs}
	if base := records[t.Of]; base != nil {
		left := maxChain - 1 // this record needs one itself
		r.base, _ = Parts(base, func(seq int64) *memory.Request {
			if left--; left == 0 {
				return nil
			}
			return records[seq]
		})
	}
	if r.base == nil {
		t.Of = 0
	}
	parts, messages := split(body)
	for i, s := range parts {
		if r.repeat(s) || r.message(s) {
			continue
		}
		if kept := clean(s); bytes.Equal(s, kept) || !r.repeat(kept) {
			t.Parts, r.raw = append(t.Parts, memory.RequestPart{Text: string(kept)}), append(r.raw, s)
			if i >= messages {
				r.raw[len(r.raw)-1] = nil
			}
		}
	}
	r.place()
}

// recorder makes the parts of a record.
type recorder struct {
	t       *memory.Request
	ledger  []*memory.Message
	raw     [][]byte              // of each of its parts that is a new message, the text before it was cleaned
	base    []*memory.RequestPart // the parts of the body of Of
	at      int                   // where the base is expected to go on
	seqs    []int64               // messages of the ledger that come next in the body
	skipped []int64               // those before, as far as no part of the base has them
}

// repeat adds a part of the base with that text, and reports whether there is one.
func (r *recorder) repeat(s []byte) bool {
	for i := r.at; i < min(r.at+maxAhead, len(r.base)); i++ {
		b := r.base[i]
		if !b.Is(s, r.find) {
			continue
		}
		if n := len(b.Seqs); n > 0 {
			at := slices.Index(r.seqs, b.Seqs[0])
			if at < 0 || n > len(r.seqs)-at || !slices.Equal(r.seqs[at:at+n], b.Seqs) {
				continue
			}
			r.skipped, r.seqs = append(r.skipped, r.seqs[:at]...), r.seqs[at+n:]
		}
		if last := len(r.t.Parts) - 1; last >= 0 && r.t.Parts[last].Count > 0 && r.at == i {
			r.t.Parts[last].Count++
		} else {
			r.t.Parts, r.raw = append(r.t.Parts, memory.RequestPart{From: i, Count: 1}), append(r.raw, nil)
		}
		r.at = i + 1
		return true
	}
	return false
}

// message adds a part that is the next message of the ledger and no more, and reports whether it
// is. Its text needs no cleaning, since the ledger has it.
func (r *recorder) message(s []byte) bool {
	var m *memory.Message
	if len(r.seqs) > 0 {
		m = r.find(r.seqs[0])
	}
	if m == nil || len(m.Parts) > 0 || len(s) < len(m.Content) {
		return false
	}
	b := text.AppendJSON(append(make([]byte, 0, len(s)+8), `,{"role":`...), string(m.WireRole()))
	if b = append(text.AppendJSON(append(b, `,"content":`...), m.Content), '}'); !bytes.Equal(s, b) {
		return false
	}
	r.t.Parts, r.raw = append(r.t.Parts, memory.RequestPart{Text: string(s), Seqs: r.seqs[:1:1]}), append(r.raw, nil)
	r.seqs = r.seqs[1:]
	return true
}

func (r *recorder) find(seq int64) *memory.Message {
	for _, m := range slices.Backward(r.ledger) {
		if m.Seq == seq {
			return m
		}
	}
	return nil
}

// place sets Seqs of the new parts to the messages in them. The others are Unplaced.
func (r *recorder) place() {
	at := 0
	for _, seq := range append(r.skipped, r.seqs...) {
		i := -1
		if m := r.find(seq); m != nil {
			for _, words := range formsOf(m) {
				if i = slices.IndexFunc(r.raw[at:], func(s []byte) bool { return bytes.Contains(s, words) }); i >= 0 {
					break
				}
			}
		}
		if i < 0 {
			r.t.Unplaced = append(r.t.Unplaced, seq)
			continue
		}
		at += i
		r.t.Parts[at].Seqs = append(r.t.Parts[at].Seqs, seq)
	}
}

// formsOf returns the forms that the words of a message may have in a body. A JSON string that
// begins with them comes first, since a short text such as "42" may also stand in a number.
func formsOf(m *memory.Message) (forms [][]byte) {
	if len(m.Parts) > 0 {
		forms = append(forms, m.Parts)
	} else if m.Content != "" {
		s := text.AppendJSON(nil, m.Content)
		forms = append(forms, s[:len(s)-1], s[1:len(s)-1])
	}
	if len(m.ToolCalls) > 0 {
		forms = append(forms, m.ToolCalls)
	}
	return forms
}

// Drop drops the records of a ledger, oldest first, that may have words of removed messages: those
// of bodies with one of these, and those that repeat parts of them. It returns the answers that had
// them.
func Drop(ledger []memory.Message, removed func(seq int64) bool) (changed []memory.Message) {
	dropped := map[int64]bool{}
	for _, m := range ledger {
		if t := m.Made().Request; t != nil && !removed(m.Seq) && (removed(t.Of) || dropped[t.Of] || slices.ContainsFunc(t.Own(), removed)) {
			dropped[m.Seq] = true
			m.DropRequest()
			changed = append(changed, m)
		}
	}
	return changed
}
