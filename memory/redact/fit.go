package redact

import (
	"slices"
	"strings"
)

// maxGap limits, in bytes, what one name may stand for in Fit.
const maxGap = 160

// Fit reports whether a text, in which what is whole is replaced, is what a stored text was before
// more was replaced, and returns these pieces. The rules alone do not find a piece that is only a
// part of a number, which other messages have the rest of.
func Fit(stored, said string) (pieces []Piece, ok bool) {
	masks := masks(stored)
	at := 0 // in stored
	for i, m := range masks {
		if !strings.HasPrefix(said, stored[at:m.start]) {
			return nil, false
		}
		said = said[m.start-at:]
		at = m.end
		name := stored[m.start:m.end]
		if strings.HasPrefix(said, name) {
			said = said[len(name):]
			continue
		}
		end := len(stored) // of the words behind it
		if i+1 < len(masks) {
			end = masks[i+1].start
		}
		n := len(said)
		switch behind := stored[at:end]; {
		case i+1 < len(masks):
			n = strings.Index(said, behind)
		case strings.HasSuffix(said, behind):
			n -= len(behind)
		default:
			return nil, false
		}
		name = name[1 : len(name)-1]
		if n <= 0 || n > maxGap || !mayBe(said[:n], name) {
			return nil, false
		}
		pieces = append(pieces, Piece{said[:n], name})
		said = said[n:]
	}
	return pieces, said == stored[at:]
}

// mayBe reports whether a text may have been replaced by a name, as a part of what several messages
// have: it is a number, written or spoken, or an address.
func mayBe(s, name string) bool {
	switch name {
	case Card, Phone, Secret, IBAN:
		rest, last := "", 0
		for _, t := range tokenize(s) {
			rest += s[last:t.start]
			last = t.end
		}
		rest += s[last:]
		if name == IBAN {
			return last > 0 && len(strings.Fields(rest)) <= maxParts
		}
		for w := range strings.FieldsSeq(strings.ToLower(rest)) {
			if w = strings.Trim(w, ".,;:/()+-–"); w != "" && w != "plus" && timesOf[w] == 0 && name != Secret {
				return false
			}
		}
		return last > 0
	case Email:
		return strings.Contains(s, "@") || dotted(s) || slices.ContainsFunc(wordsOf(s), func(w span) bool { return slices.Contains(atWords, w.name) || slices.Contains(dotWords, w.name) })
	}
	return false
}

// dotted reports whether a dot stands between two letters or digits.
func dotted(s string) bool {
	for i := 1; i+1 < len(s); i++ {
		if s[i] == '.' && alnum(s[i-1]) && alnum(s[i+1]) {
			return true
		}
	}
	return false
}

// SpreadFrom is Spread for lines of which some are stored, with pieces replaced that other lines
// have the rest of. Those need not be among the lines.
func (r *Redactor) SpreadFrom(stored, lines []Line) [][]Piece {
	out := r.Spread(lines)
	if r == nil {
		return nil
	}
	var masked []Line
	known := map[Line]bool{}
	for _, s := range stored {
		known[Line{Speaker: s.Speaker, Text: s.Text}] = true
		if Masks(s.Text) {
			masked = append(masked, s)
		}
	}
	for i, l := range lines {
		if len(masked) == 0 || known[Line{Speaker: l.Speaker, Text: l.Text}] {
			continue
		}
		l.Text = r.Text(l.Text)
		var pieces []Piece
		for _, s := range masked {
			if s.Speaker == l.Speaker && pieces == nil {
				pieces, _ = Fit(s.Text, l.Text)
			}
		}
		if len(pieces) > 0 {
			if out == nil {
				out = make([][]Piece, len(lines))
			}
			out[i] = append(out[i], pieces...)
		}
	}
	return out
}
