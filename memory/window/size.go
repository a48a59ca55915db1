package window

import (
	"encoding/json"
	"unicode/utf8"
)

// CharsPerToken is the estimated size of a token.
const CharsPerToken = 4

// Counter counts what messages cost. A budget of n tokens is n × PerToken units.
type Counter interface {
	// Size returns the cost of a message in units, at least 0. The same content always costs the
	// same.
	Size(m *Message) int
	// PerToken returns the units of a token, at least 1.
	PerToken() int
}

// Estimated is the Counter of the estimate: a quarter of the code points, floored once over the
// sum.
type Estimated struct{}

// Size returns the message's code points: its Chars if known.
func (Estimated) Size(m *Message) int { return m.size() }

// PerToken returns CharsPerToken.
func (Estimated) PerToken() int { return CharsPerToken }

func (m *Message) size() int {
	if m.Chars > 0 {
		return m.Chars
	}
	return Chars(m.Text, m.Parts)
}

// Chars returns the size of a content in code points. For text that is its length. For a list it
// is, for each block, its `text`, else its `content` if that is text, else the length of its JSON.
// For anything else it is the length of its JSON, so null costs 4. parts is nil if the content is
// text. Roles, IDs and calls cost nothing.
func Chars(text string, parts json.RawMessage) int {
	if len(parts) == 0 {
		return utf8.RuneCountInString(text)
	}
	var list []json.RawMessage
	if parts[0] != '[' || json.Unmarshal(parts, &list) != nil {
		return jsonChars(parts)
	}
	total := 0
	for _, el := range list {
		total += blockChars(el)
	}
	return total
}

func blockChars(el json.RawMessage) int {
	if s, ok := blockText(el); ok {
		return utf8.RuneCountInString(s)
	}
	var b struct{ Type string }
	if json.Unmarshal(el, &b) == nil && b.Type == "tool_use" {
		return 0
	}
	return jsonChars(el)
}

// blockText returns the text of an element of a content: of a string itself, of a block its `text`,
// else its `content` if that is text.
func blockText(el json.RawMessage) (string, bool) {
	var s string
	if len(el) > 0 && el[0] == '"' && json.Unmarshal(el, &s) == nil {
		return s, true
	}
	var b struct{ Text, Content json.RawMessage }
	if len(el) == 0 || el[0] != '{' || json.Unmarshal(el, &b) != nil {
		return "", false
	}
	for _, field := range []json.RawMessage{b.Text, b.Content} {
		if len(field) > 0 && field[0] == '"' && json.Unmarshal(field, &s) == nil {
			return s, true
		}
	}
	return "", false
}

// jsonChars returns the code points of a value's JSON without white space between its parts.
func jsonChars(raw json.RawMessage) int {
	n, inString, escaped := 0, false, false
	for _, r := range string(raw) {
		switch {
		case escaped:
			escaped = false
		case inString && r == '\\':
			escaped = true
		case r == '"':
			inString = !inString
		case !inString && (r == ' ' || r == '\t' || r == '\n' || r == '\r'):
			continue
		}
		n++
	}
	return n
}

// EstimateTokens returns the tokens of a list as counted by c; nil is the estimate.
func EstimateTokens(list []Message, c Counter) int {
	if c == nil {
		c = Estimated{}
	}
	sum := 0
	for i := range list {
		sum += c.Size(&list[i])
	}
	return sum / c.PerToken()
}

// Tally is the running size of a memory, so that adding or removing a message counts only that
// message. The zero value is an empty memory counted by the estimate.
type Tally struct {
	Counter  Counter // nil is the estimate
	Messages int
	Units    int
}

// Add counts a message in.
func (t *Tally) Add(m *Message) { t.Messages++; t.Units += t.counter().Size(m) }

// Remove counts a message out that was counted in.
func (t *Tally) Remove(m *Message) { t.Messages--; t.Units -= t.counter().Size(m) }

// Tokens returns the cost of the memory, rounded down once over the sum.
func (t *Tally) Tokens() int { return t.Units / t.counter().PerToken() }

func (t *Tally) counter() Counter {
	if t.Counter == nil {
		return Estimated{}
	}
	return t.Counter
}
