package window

import (
	"container/heap"
	"encoding/json"
	"unicode/utf8"
)

// The hard limit.
const (
	// MinPiece is how many code points of a text are left at least when it is shortened.
	MinPiece = 400
	// ShortenedMark replaces the middle of a shortened text.
	ShortenedMark = "\n[… shortened …]\n"
)

// shorten shortens texts while the list costs more than n tokens: the largest text of the largest
// message first, down to MinPiece each. Inputs of calls, IDs and thinking stay as they are. It
// returns how many messages it shortened. If that is not enough, the list stays over budget.
func shorten(s []slot, c Counter, n int) ([]slot, int) {
	if n <= 0 {
		return s, 0
	}
	over := -n * c.PerToken()
	for _, e := range s {
		over += c.Size(e.m)
	}
	if over <= 0 {
		return s, 0
	}
	done := map[int]bool{}
	for h := largestFirst(s, c); over > 0 && len(h) > 0; {
		i := h[0].at
		p := s[i].m.largestPiece()
		if p == nil {
			heap.Pop(&h)
			continue
		}
		before := h[0].size
		length := utf8.RuneCountInString(p.text)
		// With exact counts the cost of a code point is unknown. Assume this message's average, and
		// cut a sixteenth more, so that the loop ends.
		cut := over
		if c.PerToken() == 1 {
			cut = max(over*p.chars/max(before, 1), length/16, 1)
		}
		m := p.in(*s[i].m, cutMiddle(p.text, max(MinPiece, length-cut)))
		s[i] = newSlot(&m, int(s[i].at), altered(s[i].kind))
		h[0].size = c.Size(&m)
		over += h[0].size - before
		heap.Fix(&h, 0)
		done[i] = true
	}
	return s, len(done)
}

// sized is a message and its cost. bySize is a heap of them, the largest first, and the oldest of
// equals.
type sized struct{ at, size int }

type bySize []sized

func (h bySize) Len() int      { return len(h) }
func (h bySize) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h bySize) Less(i, j int) bool {
	if h[i].size != h[j].size {
		return h[i].size > h[j].size
	}
	return h[i].at < h[j].at
}
func (h *bySize) Push(x any) { *h = append(*h, x.(sized)) }
func (h *bySize) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// largestFirst returns the messages that may have a text of more than MinPiece.
func largestFirst(s []slot, c Counter) bySize {
	var h bySize
	for i, e := range s {
		if e.m.size() > MinPiece {
			h = append(h, sized{i, c.Size(e.m)})
		}
	}
	heap.Init(&h)
	return h
}

func altered(k Kind) Kind {
	if k == Kept {
		return Altered
	}
	return k
}

// cutMiddle shortens a text to n code points: two thirds of what is left are its head, a third its
// tail, with ShortenedMark between.
func cutMiddle(text string, n int) string {
	r := []rune(text)
	left := n - utf8.RuneCountInString(ShortenedMark)
	head := left * 2 / 3
	return string(r[:head]) + ShortenedMark + string(r[len(r)-(left-head):])
}

// piece is one text of a message that may be shortened. block -1 is the message's own text; inner
// -1 is the block's text, else an element of the block's content.
type piece struct {
	text         string
	chars        int // of the whole message
	block, inner int
	field        string
}

// largestPiece returns the message's largest text of more than MinPiece, or nil.
func (m *Message) largestPiece() *piece {
	var best *piece
	most := MinPiece
	try := func(text string, block, inner int, field string) {
		if n := utf8.RuneCountInString(text); n > most {
			most, best = n, &piece{text: text, chars: m.size(), block: block, inner: inner, field: field}
		}
	}
	if len(m.Parts) == 0 {
		try(m.Text, -1, -1, "")
		return best
	}
	var list []json.RawMessage
	if json.Unmarshal(m.Parts, &list) != nil {
		return nil
	}
	for i, el := range list {
		var s string
		if json.Unmarshal(el, &s) == nil {
			try(s, i, -1, "")
			continue
		}
		var b struct {
			Type, Text string
			Content    json.RawMessage
		}
		if json.Unmarshal(el, &b) != nil || b.Type == "tool_use" || b.Type == "thinking" || b.Type == "redacted_thinking" {
			continue
		}
		try(b.Text, i, -1, "text")
		if json.Unmarshal(b.Content, &s) == nil {
			try(s, i, -1, "content")
			continue
		}
		var inner []struct{ Text string }
		if json.Unmarshal(b.Content, &inner) == nil {
			for j := range inner {
				try(inner[j].Text, i, j, "content")
			}
		}
	}
	return best
}

// in returns the message with another text in place of the piece.
func (p *piece) in(m Message, text string) Message {
	m.Chars, m.Tokens = 0, 0
	if p.block < 0 {
		m.Text = text
		return m
	}
	m.Parts = replaceAt(m.Parts, p.block, func(el json.RawMessage) json.RawMessage {
		if p.field == "" {
			return quote(text)
		}
		return replaceField(el, p.field, func(old json.RawMessage) json.RawMessage {
			if p.inner < 0 {
				return quote(text)
			}
			return replaceAt(old, p.inner, func(in json.RawMessage) json.RawMessage {
				return replaceField(in, "text", func(json.RawMessage) json.RawMessage { return quote(text) })
			})
		})
	})
	return m
}

// replaceAt returns an array with element i replaced. Broken JSON stays.
func replaceAt(raw json.RawMessage, i int, by func(json.RawMessage) json.RawMessage) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || i >= len(list) {
		return raw
	}
	list[i] = by(list[i])
	return encode(list, raw)
}

// replaceField returns an object with a field replaced. Its fields are then in alphabetical order.
func replaceField(raw json.RawMessage, name string, by func(json.RawMessage) json.RawMessage) json.RawMessage {
	var obj map[string]json.RawMessage
	if json.Unmarshal(raw, &obj) != nil {
		return raw
	}
	obj[name] = by(obj[name])
	return encode(obj, raw)
}

func encode(v any, otherwise json.RawMessage) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		return otherwise
	}
	return out
}

func quote(s string) json.RawMessage { return encode(s, json.RawMessage(`""`)) }
