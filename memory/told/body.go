package told

import (
	"slices"

	"github.com/heardlog/heardlog/memory"
)

// Part is a message of the ledger in a body.
type Part struct {
	Seq    int64
	Offset int // where it begins in the body; -1 if it was told in other words
	// Changed is set if the ledger may no longer have the text that was told. A run does not know
	// which of its messages it is if several were changed.
	Changed bool
}

// Span is a range of the ledger, both ends included.
type Span struct{ From, To int64 }

// Needs returns the messages that Body asks for.
func Needs(t *memory.Told) []Span {
	var out []Span
	for _, x := range t.Texts {
		if x.Of > 0 {
			out = append(out, Span{x.Of, x.Of})
		}
	}
	for i := 0; i+3 < len(t.Parts); i++ {
		if from := -t.Parts[i]; from > 0 {
			s := Span{from, from}
			if t.Parts[i+1] == runField {
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
func Body(t *memory.Told, ledger map[int64]*memory.Message) (body []byte, said []Part, exact bool) {
	for i := 0; i < len(t.Parts); i++ {
		if at := t.Parts[i]; at >= 0 {
			body = append(body, textAt(t, at, ledger)...)
			continue
		}
		if i+3 >= len(t.Parts) {
			break
		}
		p := Part{Seq: -t.Parts[i], Offset: len(body)}
		field, n, check := t.Parts[i+1], t.Parts[i+2], t.Parts[i+3]
		i += 3
		if field == runField {
			var parts []Part
			body, parts = appendRun(body, t.Rev, Span{p.Seq, n}, check, ledger)
			said = append(said, parts...)
			continue
		}
		if n == 0 && field != objectField {
			p.Offset = -1
			said = append(said, p)
			continue
		}
		m := ledger[p.Seq]
		if m == nil {
			m = &memory.Message{}
		}
		source := fieldOf(m, field)
		if int64(len(source)) >= n && checkOf(source[:n]) == check {
			source = source[:n]
		} else {
			p.Changed = true
		}
		body = appendField(body, m, field, source)
		said = append(said, p)
	}
	return body, said, sumOf(body) == t.Sum
}

// appendRun appends the messages of a run, without those that came between them later.
func appendRun(body []byte, rev int64, run Span, check int64, ledger map[int64]*memory.Message) ([]byte, []Part) {
	var seqs []int64
	for seq, m := range ledger {
		if seq >= run.From && seq <= run.To && m.BornRev() <= rev {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	start, said := len(body), []Part{}
	for i, seq := range seqs {
		if i > 0 {
			body = append(body, ',')
		}
		m := ledger[seq]
		said = append(said, Part{Seq: seq, Offset: len(body)})
		body = appendField(body, m, objectField, m.Original())
	}
	if sumOf(body[start:])&0xffff != check {
		for i := range said {
			said[i].Changed = ledger[said[i].Seq].Rev > rev
		}
	}
	return body, said
}

// textAt returns Texts[i], or "" if it is gone.
func textAt(t *memory.Told, i int64, ledger map[int64]*memory.Message) string {
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
