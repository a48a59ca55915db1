package llmadapter

import (
	"bytes"
	"regexp"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
)

// Shapes of the list of messages that an LLM accepts.
const (
	ShapeAsIs = "as_is" // the default
	// ShapeOneSystem has one system message, which comes first.
	ShapeOneSystem = "one_system"
	// ShapeAlternate is ShapeOneSystem, and then user and assistant in turn, the user first.
	// Neighbours of the same role are one message. Tool calls stay followed by their results.
	ShapeAlternate = "alternate"
)

// Caches: how a request is marked for the prompt cache of an LLM.
const (
	CacheOff       = "off"       // the default
	CacheOpenAI    = "openai"    // with a prompt_cache_key for each agent
	CacheAnthropic = "anthropic" // with cache_control at the ends of what stays the same
)

// opening is the user's message before a greeting, where an LLM wants the user to begin.
const opening = `{"role":"user","content":"…"}`

// complaint matches what chat templates and servers say of a list in an order that they do not
// accept.
var complaint = regexp.MustCompile(`(?i)must alternate|roles? (should|must) alternate|alternat(e|ing) (between|user)|` +
	`system message must be|system messages? (should|must|can) (only )?(be|appear|come)|only (the )?first message|multiple system|more than one system|` +
	`(first|last) (non-system )?message (must|should)|must (start|begin|end) with (a |an )?['"]?user|expected (last )?role|unexpected role|` +
	`conversation roles|invalid (role )?order|no user query|consecutive (messages|user|assistant)`)

// ComplainsOfOrder reports whether an upstream's error says that the roles of the messages stand in
// an order that it does not accept.
func (e *UpstreamError) ComplainsOfOrder() bool {
	return (e.Status == 400 || e.Status == 422 || e.Status == 500) && complaint.MatchString(e.Text)
}

// shaped is a message of a list that gets another shape.
type shaped struct {
	role string
	raw  []byte
}

// reshape appends a list of messages, elements of a JSON array, in a shape.
func reshape(dst, list []byte, shape string) []byte {
	var system []byte // the content of the system message
	var rest []shaped
	peek.Array(append(append([]byte{'['}, list...), ']'), func(raw []byte) {
		m := shaped{peek.At(raw, "role").Str(), raw}
		if m.role != "system" && m.role != "developer" {
			rest = append(rest, m)
			return
		}
		if content, ok := lookup(raw, "content"); ok {
			system = joinContent(system, content, "\n\n")
		}
	})
	from := len(dst)
	put := func(raw []byte) {
		if len(dst) > from {
			dst = append(dst, ',')
		}
		dst = append(dst, raw...)
	}
	if system != nil {
		put(append(append([]byte(`{"role":"system","content":`), system...), '}'))
	}
	if shape == ShapeAlternate {
		if len(rest) == 0 || rest[0].role != "user" {
			put([]byte(opening))
		}
		rest = joinNeighbours(rest)
	}
	for _, m := range rest {
		put(m.raw)
	}
	return dst
}

// joinNeighbours joins messages of the same role. An assistant's words right before its tool calls
// become the content of the calls.
func joinNeighbours(list []shaped) []shaped {
	out := list[:0]
	for _, m := range list {
		n := len(out) - 1
		if n < 0 || out[n].role != m.role || m.role != "user" && m.role != "assistant" {
			out = append(out, m)
			continue
		}
		if _, calls := lookup(out[n].raw, "tool_calls"); calls {
			out = append(out, m)
			continue
		}
		out[n].raw = joinMessages(out[n].raw, m.raw)
	}
	return out
}

// joinMessages returns one message for two of the same role: the contents of both, and the members
// of either.
func joinMessages(a, b []byte) []byte {
	first, _ := lookup(a, "content")
	second, _ := lookup(b, "content")
	content := joinContent(bytes.Clone(first), second, "\n")
	out := appendEdited(nil, a, func(dst, name, v []byte) []byte {
		if peek.NameIs(name, "content") {
			v = content
		}
		return append(append(append(dst, name...), ':'), v...)
	})
	out = out[:len(out)-1]
	_ = peek.Object(b, func(name, v []byte) error {
		if _, has := lookup(a, peek.Unquote(name)); !has {
			out = append(append(append(append(out, ','), name...), ':'), v...)
		}
		return nil
	})
	return append(out, '}')
}

// joinContent returns the contents a and b, JSON, as one: a text, or an array of parts if either is
// one. a may be nil.
func joinContent(a, b []byte, separator string) []byte {
	switch {
	case !hasContent(b):
		return a
	case !hasContent(a):
		return bytes.Clone(b)
	case a[0] == '"' && b[0] == '"':
		sep := text.AppendJSON(nil, separator)
		out := append(a[:len(a)-1:len(a)-1], sep[1:len(sep)-1]...)
		return append(out, b[1:]...)
	}
	out := appendParts([]byte{'['}, a)
	return append(appendParts(out, b), ']')
}

// hasContent reports whether a content is neither missing nor null nor an empty text.
func hasContent(v []byte) bool { return len(v) > 2 && v[0] != 'n' }

// markCache appends a list of messages, elements of a JSON array, with marks for Anthropic's prompt
// cache where the list stays the same from one request to the next: behind the system messages that
// it begins with, and before the newest words of the user and what was recalled for them. A list
// with marks of the client is left alone.
func markCache(dst, list []byte) []byte {
	if bytes.Contains(list, []byte(`"cache_control"`)) {
		return append(dst, list...)
	}
	var all []shaped
	peek.Array(append(append([]byte{'['}, list...), ']'), func(raw []byte) {
		all = append(all, shaped{peek.At(raw, "role").Str(), raw})
	})
	head, stable := -1, -1
	for i, m := range all {
		if m.role != "system" && m.role != "developer" {
			break
		}
		head = i
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].role == "user" {
			stable = i - 1
			break
		}
	}
	for stable > head && (bytes.Contains(all[stable].raw, []byte("memory id=")) || !markable(all[stable].raw)) {
		stable--
	}
	for i, m := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		if i == head || i == stable {
			dst = appendMarked(dst, m.raw)
			continue
		}
		dst = append(dst, m.raw...)
	}
	return dst
}

// markable reports whether a message has a text that can be marked.
func markable(raw []byte) bool {
	content, ok := lookup(raw, "content")
	return ok && hasContent(content) && peek.At(raw, "role").Str() != "tool"
}

// appendMarked appends a message with a mark at the end of its content.
func appendMarked(dst, raw []byte) []byte {
	if !markable(raw) {
		return append(dst, raw...)
	}
	const mark = `,"cache_control":{"type":"ephemeral"}}`
	return appendEdited(dst, raw, func(dst, name, v []byte) []byte {
		dst = append(append(dst, name...), ':')
		if !peek.NameIs(name, "content") {
			return append(dst, v...)
		}
		parts := append(appendParts([]byte{'['}, v), ']')
		if end := bytes.LastIndexByte(parts, '}'); end > 0 {
			return append(append(append(dst, parts[:end]...), mark...), parts[end+1:]...)
		}
		return append(dst, v...)
	})
}
