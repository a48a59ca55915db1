package told

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// Limits of a record. A body with more parts is not recorded, and texts beyond the limit are left
// out of the record. maxChain is how many records are read for one, itself included.
const (
	maxParts = 4096
	maxTexts = 256 << 10 // bytes
	maxChain = 32
)

// maxAhead is with how many parts of an earlier body a part is compared.
const maxAhead = 64

// split splits a body, a JSON object, into parts: a message each, and a member of the object each.
// It returns which of the parts are messages, from and to. It reads a body as fast as it can: a
// JSON decoder would cost more than all the rest of a record.
func split(body []byte) (parts [][]byte, from, to int) {
	parts = make([][]byte, 0, 16+len(body)/128)
	var key []byte
	at, depth, list := 0, 0, false
	cut := func(end int) {
		if end > at {
			parts, at = append(parts, body[at:end]), end
		}
	}
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			end := stringEnd(body, i)
			if depth == 1 {
				key = body[i:end]
			}
			i = end - 1
		case '{', '[':
			if depth++; depth == 2 && to == 0 && string(key) == `"messages"` && body[i] == '[' {
				cut(i + 1)
				from, list = len(parts), true
			}
		case '}', ']':
			depth--
			switch {
			case list && depth == 2:
				cut(i + 1)
			case list && depth == 1:
				cut(i)
				to, list = len(parts), false
			}
		case ',':
			if depth == 1 {
				cut(i)
			}
		}
	}
	cut(len(body))
	return parts, from, to
}

// stringEnd returns where the JSON string ends that begins at i.
func stringEnd(s []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(s[i:], '"')
		if n < 0 {
			return len(s)
		}
		end := i + n
		slashes := end
		for slashes > i && s[slashes-1] == '\\' {
			slashes--
		}
		if i = end; (end-slashes)%2 == 0 {
			return end + 1
		}
	}
}

// chain returns a record, the one that it repeats parts of, and so on. It reports false if one of
// them is gone.
func chain(t *memory.Told, find func(seq int64) *memory.Told) (list []*memory.Told, ok bool) {
	list = make([]*memory.Told, 0, maxChain)
	for list = append(list, t); t.Of != 0; list = append(list, t) {
		if t = find(t.Of); t == nil || len(list) == maxChain {
			return nil, false
		}
	}
	return list, true
}

// Parts returns the parts of a recorded body, none of them a repetition. It reports false if a
// record that it repeats parts of is gone. find returns the record of an answer, or nil.
func Parts(t *memory.Told, find func(seq int64) *memory.Told) (parts []*memory.ToldPart, ok bool) {
	list, ok := chain(t, find)
	if !ok {
		return nil, false
	}
	return expand(list)
}

// expand returns the parts of the body of the first record of a chain.
func expand(chain []*memory.Told) (parts []*memory.ToldPart, ok bool) {
	base := make([]*memory.ToldPart, 0, 64)
	parts = make([]*memory.ToldPart, 0, 64)
	for _, t := range slices.Backward(chain) {
		base, parts = parts, base[:0]
		for i := range t.Parts {
			p := &t.Parts[i]
			switch {
			case p.Count == 0:
				parts = append(parts, p)
			case p.From < 0 || p.Count < 0 || p.Count > len(base)-p.From || len(parts) > maxParts:
				return nil, false
			default:
				parts = append(parts, base[p.From:p.From+p.Count]...)
			}
		}
	}
	return parts, true
}

// Record sets Rev, Of, Parts, Unplaced and Cut of a record. ledger has the newest messages of the
// ledger, and seqs are the messages of the ledger that the body has, in its order. Texts are stored
// as clean returns them. Record reports false for a body with too many parts.
func Record(t *memory.Told, body []byte, ledger []*memory.Message, seqs []int64, clean func([]byte) []byte) bool {
	if !utf8.Valid(body) {
		body = bytes.ToValidUTF8(body, []byte("\uFFFD"))
	}
	texts, from, to := split(body)
	if len(texts) > maxParts {
		return false
	}
	records := make(records, 0, maxChain)
	for _, m := range ledger {
		if t.Rev = max(t.Rev, m.Rev); m.Told() != nil {
			t.Of = max(t.Of, m.Seq)
			records = append(records, record{m.Seq, m.Told()})
		}
	}
	p := packer{Told: t}
	if list, ok := chain(t, records.find); ok {
		p.base, _ = expand(list[1:])
	}
	if p.base == nil {
		t.Of = 0
	}
	var skipped []int64 // messages before those in seqs that have no part of the base
	repeat := func(s []byte) bool {
		return p.repeat(func(b *memory.ToldPart) bool {
			if b.Text != string(s) || len(b.Seqs) == 0 {
				return b.Text == string(s)
			}
			at, n := slices.Index(seqs, b.Seqs[0]), len(b.Seqs)
			if at < 0 || n > len(seqs)-at || !slices.Equal(seqs[at:at+n], b.Seqs) {
				return false
			}
			skipped, seqs = append(skipped, seqs[:at]...), seqs[at+n:]
			return true
		})
	}
	size, messages := 0, 0
	raw := make([][]byte, 0, 16) // of each of t.Parts; nil for a repetition
	for i, s := range texts {
		if i == to {
			messages = len(t.Parts)
		}
		if repeat(s) {
			raw = append(raw, nil)[:len(t.Parts)]
			continue
		}
		kept := clean(s)
		if size+len(kept) > maxTexts {
			kept, t.Cut = nil, true
			if i >= from && i < to {
				kept = cutMessage(s)
			}
		}
		if !bytes.Equal(kept, s) && repeat(kept) {
			raw = append(raw, nil)[:len(t.Parts)]
			continue
		}
		size += len(kept)
		t.Parts, raw = append(t.Parts, memory.ToldPart{Text: string(kept)}), append(raw, s)
	}
	t.Unplaced = place(t.Parts[:messages], raw, append(skipped, seqs...), ledger)
	return true
}

// cutMessage returns what is kept of a message that is too long.
func cutMessage(s []byte) []byte {
	m := bytes.TrimLeft(s, ",")
	return fmt.Appendf(nil, `%s{"role":%q,"content":"[%d bytes]"}`, s[:len(s)-len(m)], gjson.GetBytes(m, "role").Str, len(s))
}

// records are the records of a ledger.
type records []record

type record struct {
	seq int64 // of the answer
	*memory.Told
}

func (r records) find(seq int64) *memory.Told {
	for i := range slices.Backward(r) {
		if r[i].seq == seq {
			return r[i].Told
		}
	}
	return nil
}

// packer makes the parts of a record.
type packer struct {
	*memory.Told
	base []*memory.ToldPart // of the body of Of
	at   int                // where the base is expected to go on
}

// repeat adds a part of the base that is the same, and reports whether there is one.
func (p *packer) repeat(same func(*memory.ToldPart) bool) bool {
	ahead := p.base[p.at:min(p.at+maxAhead, len(p.base))]
	i := slices.IndexFunc(ahead, same)
	if i < 0 {
		return false
	}
	i += p.at
	p.at = i + 1
	if last := len(p.Parts) - 1; last >= 0 && p.Parts[last].Count > 0 && p.Parts[last].From+p.Parts[last].Count == i {
		p.Parts[last].Count++
	} else {
		p.Parts = append(p.Parts, memory.ToldPart{From: i, Count: 1})
	}
	return true
}

// place sets Seqs of the parts, whose texts are raw, and returns the messages that have no part.
func place(parts []memory.ToldPart, raw [][]byte, seqs []int64, ledger []*memory.Message) (unplaced []int64) {
	at := 0
	for _, seq := range seqs {
		i := -1
		if m := slices.IndexFunc(ledger, func(m *memory.Message) bool { return m.Seq == seq }); m >= 0 {
			for _, words := range formsOf(ledger[m]) {
				if i = slices.IndexFunc(raw[at:len(parts)], func(s []byte) bool { return bytes.Contains(s, words) }); i >= 0 {
					break
				}
			}
		}
		if i < 0 {
			unplaced = append(unplaced, seq)
			continue
		}
		at += i
		parts[at].Seqs = append(parts[at].Seqs, seq)
	}
	return unplaced
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

// Forget returns the messages of a ledger whose records change when messages are removed: records
// that name one of these are dropped, and others repeat no parts of them any more.
func Forget(ledger []memory.Message, removed func(seq int64) bool) (changed []memory.Message) {
	bySeq, depth := map[int64]*memory.Told{}, map[int64]int{}
	for i := range ledger {
		bySeq[ledger[i].Seq] = ledger[i].Told()
	}
	find := func(seq int64) *memory.Told { return bySeq[seq] }
	var last int64 // the newest record that is kept
	var lastParts []*memory.ToldPart
	for _, m := range ledger {
		t := m.Told()
		if t == nil || removed(m.Seq) {
			continue
		}
		parts, ok := Parts(t, find)
		if !ok || slices.ContainsFunc(append(seqsOf(parts), t.Unplaced...), removed) {
			m.DropTold()
			changed = append(changed, m)
			continue
		}
		of := t.Of
		if of != 0 && depth[of] == 0 { // it is dropped
			of = last
		}
		if depth[of] == maxChain {
			of = 0
		}
		if of != t.Of {
			p := packer{Told: new(*t)}
			if p.Of, p.Parts = of, nil; of != 0 {
				p.base = lastParts
			}
			for _, part := range parts {
				if !p.repeat(func(b *memory.ToldPart) bool { return b.Text == part.Text && slices.Equal(b.Seqs, part.Seqs) }) {
					p.Parts = append(p.Parts, *part)
				}
			}
			m.Amend(func(r *memory.Rare) { r.Told = p.Told })
			changed = append(changed, m)
		}
		depth[m.Seq], last, lastParts = depth[of]+1, m.Seq, parts
	}
	return changed
}

// seqsOf returns the messages of the ledger that are in parts.
func seqsOf(parts []*memory.ToldPart) (out []int64) {
	for _, p := range parts {
		out = append(out, p.Seqs...)
	}
	return out
}
