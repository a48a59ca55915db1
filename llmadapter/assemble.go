package llmadapter

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/platform"
)

// Assembly is what an upstream request is made of.
type Assembly struct {
	// System are the agent's system messages: JSON objects, with variables not filled in yet.
	System    []json.RawMessage
	Variables map[string]string
	// Summary stands for what has left the memory. It follows the system messages, inside the last
	// of them if that is a text: a blank line, SummaryHeading, the summary. "" for none.
	Summary string
	// Request is the client's; nil for a turn without a client.
	Request *Request
	// Trailing is set if the request's system messages after its last other message stay there. All
	// others come before the conversation.
	Trailing bool
	// InPlace is set if Messages are those of the request, so that its system messages after the
	// first other message stay where they are.
	InPlace bool
	// Messages are the conversation, oldest first, without system messages. Append merges runs of
	// user messages in place.
	Messages []Message
	// To is the upstream. The form of To.Custom has every field.
	To Recipient
	// Shape and Cache are one of those of shape.go; "" is as_is and off. CacheKey is the same for
	// all requests whose prompts begin alike.
	Shape, Cache, CacheKey string
	// TurnID and TimestampMS are top-level members in the custom form.
	TurnID, TimestampMS int64
	Params              []byte // llm.params: a JSON object, or nothing
	Model               string // if neither request nor params have one
	OnlyModel           string // replaces every other; "" for none
	Stream              bool   // for a turn without a Request
}

// modelGivesWay reports whether a request's model is a placeholder: clients that must send
// something send one of these.
func modelGivesWay(model string) bool {
	return model == "" || model == "default" || model == "heardlog"
}

// Append appends the upstream body. Its keys have a fixed order, which lets upstreams reuse their
// prompt caches: messages; in the custom form turn_id, timestamp and interruptable; llm.params,
// model, stream; then the other members of the request.
//
// If both have a key, the request wins over llm.params, and that over the default. messages and
// stream never come from llm.params. Unknown top-level members are kept, except those that
// platforms add for their own use (see platform.PlatformOnly).
func (a *Assembly) Append(dst []byte) []byte {
	dst = append(dst, `{"messages":[`...)
	from := len(dst)
	dst = a.appendMessages(dst)
	if a.Shape == ShapeOneSystem || a.Shape == ShapeAlternate {
		dst = reshape(dst[:from], bytes.Clone(dst[from:]), a.Shape)
	}
	if a.Cache == CacheAnthropic {
		dst = markCache(dst[:from], bytes.Clone(dst[from:]))
	}
	dst = append(dst, ']')
	var req []Member
	if a.Request != nil {
		req = a.Request.members
	}
	if a.To.Custom {
		dst = strconv.AppendInt(append(dst, `,"turn_id":`...), a.TurnID, 10)
		dst = strconv.AppendInt(append(dst, `,"timestamp":`...), a.TimestampMS, 10)
		dst = append(append(dst, `,"interruptable":`...), interruptable(req)...)
	}
	if a.OnlyModel != "" {
		dst = text.AppendJSON(append(dst, `,"model":`...), a.OnlyModel)
	}
	dst, done := a.appendParams(dst, req)
	if model := a.model(); a.OnlyModel == "" && model != "" && !slices.Contains(done, "model") {
		dst = text.AppendJSON(append(dst, `,"model":`...), model)
	}
	if _, ok := find(req, "stream"); ok || a.Stream {
		dst = append(dst, `,"stream":`...)
		dst = strconv.AppendBool(dst, a.Stream || a.Request != nil && a.Request.Stream)
	}
	for _, m := range req {
		if a.isExtra(&m) && !slices.Contains(done, m.Name) {
			if v := a.value(m.Name, m.Value); v != nil {
				dst = append(append(text.AppendJSON(append(dst, ','), m.Name), ':'), v...)
			}
		}
	}
	if _, own := find(req, cacheKey); a.Cache == CacheOpenAI && !own && !slices.Contains(done, cacheKey) {
		dst = text.AppendJSON(append(dst, `,"`+cacheKey+`":`...), a.CacheKey)
	}
	return append(dst, '}')
}

// cacheKey is the member by which OpenAI finds the cache that has a prompt's beginning.
const cacheKey = "prompt_cache_key"

// appendParams appends llm.params, with the request's values where it has the same keys. It also
// returns the names of the keys.
func (a *Assembly) appendParams(dst []byte, req []Member) (_ []byte, names []string) {
	_ = peek.Object(bytes.TrimSpace(a.Params), func(quoted, v []byte) error {
		name := peek.Unquote(quoted)
		if name == "messages" || name == "stream" || name == "model" && a.OnlyModel != "" || a.To.Custom && isTurnKey(name) {
			return nil
		}
		if other := otherLimit[name]; other != "" {
			if _, ok := find(req, other); ok { // upstreams refuse both
				return nil
			}
		}
		if own, ok := find(req, name); ok && (name != "model" || !modelGivesWay(a.Request.Model)) {
			v = a.value(name, own)
		}
		if v != nil {
			dst = append(append(append(append(dst, ','), quoted...), ':'), v...)
			names = append(names, name)
		}
		return nil
	})
	return dst, names
}

// otherLimit has the older and the newer name of the limit of an answer's tokens.
var otherLimit = map[string]string{"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}

// value returns what of the value of a request's member may go upstream, or nil for nothing.
func (a *Assembly) value(name string, v []byte) []byte {
	if name == "metadata" {
		return a.forUpstream(v)
	}
	return v
}

// Size returns about how long the body is.
func (a *Assembly) Size() int {
	size := 512 + len(a.Summary) + len(a.Params)
	for _, s := range a.System {
		size += len(s)
	}
	if a.Request != nil {
		for i := range a.Request.members {
			m := &a.Request.members[i]
			size += len(m.Name) + len(m.Value) + len(`,"":`)
		}
		for i := range a.Request.Messages {
			if in := &a.Request.Messages[i]; in.IsSystem() {
				size += len(in.Raw)
			}
		}
	}
	for i := range a.Messages {
		m := &a.Messages[i]
		size += 48 + len(m.Text) + len(m.Content) + len(m.ToolCalls) + len(m.Raw) + len(m.Members)
	}
	return size
}

// model returns the model to use if neither OnlyModel nor llm.params have one. A placeholder in the
// request is better than no model at all.
func (a *Assembly) model() string {
	switch {
	case a.Request != nil && !modelGivesWay(a.Request.Model):
		return a.Request.Model
	case a.Model != "":
		return a.Model
	case a.Request != nil:
		return a.Request.Model
	}
	return ""
}

// isExtra reports whether a member of the request has no place of its own in the body and may go
// upstream.
func (a *Assembly) isExtra(m *Member) bool {
	switch {
	case m.Name == "model", m.Name == "stream", m.Name == OwnMember, isTurnKey(m.Name):
		return false
	}
	return !platform.PlatformOnly(m.Name, m.Value, a.To.Custom)
}

// appendMessages appends the elements of messages.
func (a *Assembly) appendMessages(dst []byte) []byte {
	first := len(dst)
	sep := func() {
		if len(dst) > first {
			dst = append(dst, ',')
		}
	}
	// Last is the start of the last system message.
	filled, last := make([][]byte, 0, len(a.System)), -1
	for _, s := range a.System {
		if len(s) == 0 || s[0] != '{' {
			continue
		}
		sep()
		last = len(dst)
		dst = fillJSON(dst, s, a.Variables)
		filled = append(filled, dst[last:])
	}
	front, end := a.requestSystem()
	for i := range front {
		in := &front[i]
		if !in.IsSystem() || repeats(filled, in) {
			continue
		}
		sep()
		last = len(dst)
		m := FromIncoming(in)
		dst = a.appendMessage(dst, &m)
	}
	summary, late := a.Summary != "", a.lateSystem()
	for i, msgs := 0, mergeUsers(a.Messages); i < len(msgs); i++ {
		if summary && msgs[i].Role != "system" && msgs[i].Role != "developer" {
			dst, summary = appendSummary(dst, first, last, a.Summary), false
		}
		for _, in := range late.before(&msgs[i]) {
			if !repeats(filled, in) {
				sep()
				m := FromIncoming(in)
				dst = a.appendMessage(dst, &m)
			}
		}
		sep()
		last = len(dst)
		dst = a.appendMessage(dst, &msgs[i])
	}
	if summary {
		dst = appendSummary(dst, first, last, a.Summary)
	}
	for _, in := range late.list {
		if !repeats(filled, in) {
			sep()
			m := FromIncoming(in)
			dst = a.appendMessage(dst, &m)
		}
	}
	for i := range end {
		sep()
		m := FromIncoming(&end[i])
		dst = a.appendMessage(dst, &m)
	}
	return dst
}

// requestSystem returns the parts of the request's list whose system messages come before the
// conversation and after it.
func (a *Assembly) requestSystem() (front, end []Incoming) {
	if a.Request == nil {
		return nil, nil
	}
	list := a.Request.Messages
	if a.InPlace {
		return list[:a.leading()], nil
	}
	n := len(list)
	for a.Trailing && n > 0 && list[n-1].IsSystem() {
		n--
	}
	if n == 0 { // there is nothing for them to follow
		return list, nil
	}
	return list[:n], list[n:]
}

// leading returns how many system messages the request begins with.
func (a *Assembly) leading() int {
	list := a.Request.Messages
	n := slices.IndexFunc(list, func(m Incoming) bool { return !m.IsSystem() })
	if n < 0 {
		return len(list)
	}
	return n
}

// lateSystem are the system messages that stay among the conversation.
type lateSystem struct {
	list  []*Incoming   // in their order, those that are appended left out
	after map[*byte]int // how many of them precede a message, by the first byte of its object
	done  int
}

// lateSystem returns the request's system messages after its first other message. Without InPlace
// it returns none.
func (a *Assembly) lateSystem() *lateSystem {
	l := &lateSystem{}
	if !a.InPlace || a.Request == nil {
		return l
	}
	list := a.Request.Messages
	for i := a.leading(); i < len(list); i++ {
		in := &list[i]
		switch {
		case in.IsSystem():
			l.list = append(l.list, in)
		case len(l.list) > 0:
			if l.after == nil {
				l.after = map[*byte]int{}
			}
			l.after[&in.Raw[0]] = len(l.list)
		}
	}
	return l
}

// before returns the system messages that stand before a message of the request and after those
// that were returned already.
func (l *lateSystem) before(m *Message) []*Incoming {
	if len(m.Raw) == 0 || l.after[&m.Raw[0]] <= l.done {
		return nil
	}
	n := l.after[&m.Raw[0]] - l.done
	out := l.list[:n]
	l.list, l.done = l.list[n:], l.done+n
	return out
}

func (a *Assembly) appendMessage(dst []byte, m *Message) []byte { return m.appendTo(dst, &a.To) }

// OwnMember is the top-level member of a request that is for Heardlog and never goes upstream.
const OwnMember = "heardlog"

// SummaryHeading is the line above a summary.
const SummaryHeading = "[Earlier conversation summary]"

// appendSummary adds a summary after the system messages at the end of dst. The last of them begins
// at last, which is negative if there are none; the list begins at first.
func appendSummary(dst []byte, first, last int, summary string) []byte {
	summary = SummaryHeading + "\n" + summary
	if last >= 0 {
		if content, ok := lookup(dst[last:], "content"); ok && len(content) > 2 && content[0] == '"' {
			// Of the text, before its closing quote: content is a part of dst.
			end := cap(dst) - cap(content) + len(content) - 1
			quoted := text.AppendJSON(nil, "\n\n"+summary)
			return slices.Insert(dst, end, quoted[1:len(quoted)-1]...)
		}
	}
	if len(dst) > first {
		dst = append(dst, ',')
	}
	return append(text.AppendJSON(append(dst, `{"role":"system","content":`...), summary), '}')
}

// repeats reports whether a client's system message is one of the agent's: a platform with the same
// settings sends them too.
func repeats(system [][]byte, in *Incoming) bool {
	text := ""
	for _, s := range system {
		content, ok := lookup(s, "content")
		if !ok {
			continue
		}
		if text == "" {
			text = in.Text()
		}
		if ContentText(content) == text {
			return true
		}
	}
	return false
}

// find returns the value of the member with a name.
func find(members []Member, name string) ([]byte, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Value, true
		}
	}
	return nil, false
}

// isTurnKey reports whether a top-level key describes the turn. In the custom form we set these
// keys; in the standard form they are not sent.
func isTurnKey(name string) bool {
	return name == "turn_id" || name == "timestamp" || name == "interruptable"
}

// interruptable returns the request's value of that name, or true.
func interruptable(req []Member) []byte {
	if v, ok := find(req, "interruptable"); ok && (v[0] == 't' || v[0] == 'f') {
		return v
	}
	return []byte("true")
}

// forUpstream returns the request's metadata without our own key, or nil if nothing is left. In the
// standard form it also removes objects and arrays, which OpenAI refuses and platforms send.
func (a *Assembly) forUpstream(metadata []byte) []byte {
	if metadata[0] != '{' {
		return metadata
	}
	dropped, out := false, []byte{'{'}
	_ = peek.Object(metadata, func(name, v []byte) error {
		if peek.NameIs(name, "agent_id") || !a.To.Custom && (v[0] == '{' || v[0] == '[') {
			dropped = true
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), v...)
		return nil
	})
	switch {
	case !dropped:
		return metadata
	case len(out) == 1:
		return nil
	}
	return append(out, '}')
}
