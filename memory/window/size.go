package window

import (
	"encoding/json"
	"unicode/utf8"
)

// CharsPerToken is what the estimate takes a token for (001-2).
const CharsPerToken = 4

// Counter says what messages cost. A budget of n tokens is n × PerToken units, and what is over it by one unit is over it (001-2).
type Counter interface {
	// Size gives the units that a message costs, not below 0. The same content always costs the same.
	Size(m *Message) int
	// PerToken gives how many units a token has, at least 1.
	PerToken() int
}

// Estimated is the Counter of the estimate: a quarter of the code points, floored once over the sum.
type Estimated struct{}

// Size gives the message's code points: its Chars where they are known.
func (Estimated) Size(m *Message) int { return m.size() }

// PerToken gives CharsPerToken.
func (Estimated) PerToken() int { return CharsPerToken }

func (m *Message) size() int {
	if m.Chars > 0 {
		return m.Chars
	}
	return Chars(m.Text, m.Parts)
}

// Chars gives the size of a content in code points (001-3): of text its length; of a list, for each block its `text`, else its `content` if that is text, else
// the length of its JSON; of anything else the length of its JSON, so that null costs 4. parts is nil where the content is text. Roles, ids and calls cost nothing.
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

// blockText gives the text of an element of a content: of a text itself, of a block its `text`, else its `content` if that is text.
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

// jsonChars gives the code points of a value's JSON without the white space between its parts.
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

// EstimateTokens gives the tokens of a list by c; nil is the estimate.
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

// Tally is the running size of a memory, so that what it costs is known without counting it again when a message comes or goes.
// The zero value is an empty memory counted by the estimate.
type Tally struct {
	Counter  Counter // nil is the estimate
	Messages int
	Units    int
}

// Add counts a message in.
func (t *Tally) Add(m *Message) { t.Messages++; t.Units += t.counter().Size(m) }

// Remove counts a message out that was counted in.
func (t *Tally) Remove(m *Message) { t.Messages--; t.Units -= t.counter().Size(m) }

// Tokens gives what the memory costs, floored once over the sum.
func (t *Tally) Tokens() int { return t.Units / t.counter().PerToken() }

func (t *Tally) counter() Counter {
	if t.Counter == nil {
		return Estimated{}
	}
	return t.Counter
}
