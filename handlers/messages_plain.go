package handlers

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// readPlain reads an append of one message as nearly all are: an object of our own names, each once, whose values are strings without escapes, whole
// numbers, and in metadata true and false too. It gives what encoding/json would, in a fifth of its time; anything else it leaves alone,
// right or wrong, and returns false. Raw values are parts of body.
func (m *messageRequest) readPlain(body []byte) bool {
	if !utf8.Valid(body) {
		return false
	}
	var in messageRequest
	r := plainReader{b: body}
	if !r.object(in.plainField) {
		return false
	}
	if r.space(); r.i != len(body) {
		return false
	}
	*m = in
	return true
}

// plainField reads one field's value; false for one that it does not know, or has seen.
func (m *messageRequest) plainField(r *plainReader, name []byte) bool {
	switch string(name) {
	case "role":
		return m.Role == "" && r.word(&m.Role)
	case "source":
		return m.Source == "" && r.word(&m.Source)
	case "id":
		return m.ID == "" && r.word(&m.ID)
	case "content":
		from := r.i
		if m.Content != nil || !r.text() {
			return false
		}
		m.Content = json.RawMessage(r.b[from:r.i:r.i])
		return true
	case "timestamp":
		return m.Timestamp == 0 && r.number(&m.Timestamp)
	case "turn_id":
		if m.TurnID != nil {
			return false
		}
		m.TurnID = new(int64)
		return r.number(m.TurnID)
	case "metadata":
		if m.Metadata != nil {
			return false
		}
		m.Metadata = map[string]json.RawMessage{}
		return r.object(func(r *plainReader, name []byte) bool {
			from := r.i
			if !r.scalar() {
				return false
			}
			m.Metadata[string(name)] = json.RawMessage(r.b[from:r.i:r.i])
			return true
		})
	}
	return false
}

// plainReader walks over the JSON that readPlain understands.
type plainReader struct {
	b []byte
	i int
}

func (r *plainReader) space() {
	for r.i < len(r.b) && (r.b[r.i] == ' ' || r.b[r.i] == '\n' || r.b[r.i] == '\t' || r.b[r.i] == '\r') {
		r.i++
	}
}

// next passes over white space and c.
func (r *plainReader) next(c byte) bool {
	r.space()
	if r.i < len(r.b) && r.b[r.i] == c {
		r.i++
		return true
	}
	return false
}

// object reads an object; member is called where the value of a name begins, and passes over it.
func (r *plainReader) object(member func(r *plainReader, name []byte) bool) bool {
	if !r.next('{') {
		return false
	}
	if r.next('}') {
		return true
	}
	for {
		r.space()
		from := r.i + 1
		if !r.text() {
			return false
		}
		name := r.b[from : r.i-1]
		if !r.next(':') {
			return false
		}
		if r.space(); !member(r, name) {
			return false
		}
		if r.next('}') {
			return true
		}
		if !r.next(',') {
			return false
		}
	}
}

// text passes over a string without escapes.
func (r *plainReader) text() bool {
	if r.i >= len(r.b) || r.b[r.i] != '"' {
		return false
	}
	n := bytes.IndexByte(r.b[r.i+1:], '"')
	if n < 0 {
		return false
	}
	for _, c := range r.b[r.i+1 : r.i+1+n] {
		if c < ' ' || c == '\\' {
			return false
		}
	}
	r.i += n + 2
	return true
}

// word reads a string; an empty one is left to encoding/json, which knows it from none.
func (r *plainReader) word(to *string) bool {
	from := r.i + 1
	if !r.text() || r.i == from+1 {
		return false
	}
	switch w := r.b[from : r.i-1]; string(w) { // what stands in every message is not copied each time
	case "user":
		*to = "user"
	case "assistant":
		*to = "assistant"
	case "asr":
		*to = "asr"
	case "llm":
		*to = "llm"
	default:
		*to = string(w)
	}
	return true
}

// number reads a whole number above 0, of at most 18 digits.
func (r *plainReader) number(to *int64) bool {
	from, n := r.i, int64(0)
	for r.i < len(r.b) && r.b[r.i] >= '0' && r.b[r.i] <= '9' {
		n = n*10 + int64(r.b[r.i]-'0')
		if r.i++; r.i-from > 18 {
			return false
		}
	}
	if r.i == from || r.b[from] == '0' {
		return false
	}
	if r.i < len(r.b) { // a fraction or an exponent, or no number at all
		if c := r.b[r.i]; c != ',' && c != '}' && c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return false
		}
	}
	*to = n
	return true
}

// scalar passes over a string, a number above 0, true or false.
func (r *plainReader) scalar() bool {
	if r.text() {
		return true
	}
	for _, word := range []string{"true", "false"} {
		if bytes.HasPrefix(r.b[r.i:], []byte(word)) {
			r.i += len(word)
			return true
		}
	}
	var n int64
	return r.number(&n)
}
