package report

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/record"
)

// All records of a project's reports are in one space, so that a call and what it adds are changed
// together. The first letter of an ID says what it is:
//
//	c  a call, with what it has added
//	m  figures of a month, d of a day, h of an hour, in UTC, by no value, by one or by two
//	l  the labels, v the values of a dimension, by which calls of a month are counted
//
// The IDs of figures end with the time, so that a report reads one range for each value.

// Space is the name of the space of a project's reports.
const Space = memory.ReportSpace

func spaceOf(project string) record.Space { return record.Space{Project: project, Name: Space} }

const (
	sep  = "\x1f" // between the parts of an ID
	pair = "\x1e" // between the two dimensions, and their values
)

// The widths of stored figures.
const (
	monthKey = "m"
	dayKey   = "d"
	hourKey  = "h"
)

var layouts = map[string]string{monthKey: "200601", dayKey: "20060102", hourKey: "2006010215"}

// monthOf returns the month of a time in IDs.
func monthOf(ms int64) string { return time.UnixMilli(ms).UTC().Format("200601") }

// Other is the value of calls that are not counted by their own, because the month has MaxValues
// others.
const Other = "(other)"

// Limits of what calls of a month are counted by. Others are counted in all sums, and as Other.
const (
	MaxValues = 200 // of a dimension
	MaxLabels = 8   // names
)

// keyOf returns what the ID of figures has between its width and its time. The values are in order
// of their dimensions.
func keyOf(values ...Value) string {
	dims, texts := make([]string, len(values)), make([]string, len(values))
	for i, v := range values {
		dims[i], texts[i] = v.Dim, v.Value
	}
	return sep + strings.Join(dims, pair) + sep + strings.Join(texts, pair) + sep
}

// keys returns the keys that a part is counted under.
func (p *part) keys() (out []string) {
	n := len(p.values)
	free := n - p.must // values before it need not be in a key
	switch p.must {
	case 0:
		out = append(out, keyOf())
	case 2:
		return []string{keyOf(sorted(p.values[free], p.values[free+1])...)}
	}
	for i := range n {
		if p.must == 0 || i >= free {
			out = append(out, keyOf(p.values[i]))
		}
		for j := range i {
			if p.must == 0 || i >= free {
				out = append(out, keyOf(sorted(p.values[j], p.values[i])...))
			}
		}
	}
	return out
}

func sorted(list ...Value) []Value {
	slices.SortFunc(list, Value.compare)
	return list
}

// each calls f with the IDs of the figures that a call adds to, and what it adds to each.
func (c *call) each(f func(id string, add *Figures)) {
	at := time.UnixMilli(c.startMS).UTC()
	for i := range c.parts {
		p := &c.parts[i]
		for _, key := range p.keys() {
			for width, layout := range layouts {
				f(width+key+at.Format(layout), &p.Figures)
			}
		}
	}
}

// callVersion begins the stored form of a call.
const callVersion = 1

// encode returns the stored form of a call. Equal calls have the same form, but for rev.
func (c *call) encode() []byte {
	b := binary.AppendUvarint(nil, callVersion)
	b = binary.AppendVarint(binary.AppendVarint(b, c.rev), c.startMS)
	b = binary.AppendUvarint(b, uint64(len(c.parts)))
	for i := range c.parts {
		p := &c.parts[i]
		figures := p.Encode()
		b = append(binary.AppendUvarint(b, uint64(len(figures))), figures...)
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.must)), uint64(len(p.values)))
		for _, v := range p.values {
			b = appendText(appendText(b, v.Dim), v.Value)
		}
	}
	return b
}

// decodeCall reads what encode has returned.
func decodeCall(b []byte) (call, error) {
	r := reader{b: b}
	if r.uvarint() != callVersion {
		return call{}, errStored
	}
	c := call{rev: r.varint(), startMS: r.varint()}
	for range r.length() {
		figures, err := decodeFigures(r.bytes())
		if err != nil {
			return call{}, err
		}
		p := part{Figures: figures, must: int(r.uvarint())}
		for range r.length() {
			p.values = append(p.values, Value{string(r.bytes()), string(r.bytes())})
		}
		if p.must < 0 || p.must > min(2, len(p.values)) {
			r.fail()
		}
		c.parts = append(c.parts, p)
	}
	if !r.ok() {
		return call{}, errStored
	}
	return c, nil
}
