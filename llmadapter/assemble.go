package llmadapter

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/heardlog/heardlog/platform"
)

// Assembly is all that one upstream request is made of.
type Assembly struct {
	// System are the agent's system messages, JSON objects, with variables not yet filled in.
	System    []json.RawMessage
	Variables map[string]string
	// Summary stands for what has left the memory; it goes behind the system messages, into the last of them where that is a text: a blank line, its
	// heading, itself (reference/memory-semantics.md 001-28). "" for none.
	Summary string
	// Request is the client's; nil for a turn that no client asked for.
	Request *Request
	// Messages are the conversation, oldest first, without system messages. Append merges runs of user messages, in place.
	Messages []Message
	// Custom asks for the form with every field (llm.vendor "custom").
	Custom bool
	// TurnID and TimestampMS are sent at top level in the custom form.
	TurnID, TimestampMS int64
	Params              []byte // llm.params: a JSON object, or nothing
	Model               string // where neither request nor params bring one
	OnlyModel           string // in place of every other; "" for none
	Stream              bool   // for a turn without a Request
}

// ModelGivesWay tells whether a model name of a request names none: clients that must send something send one of these.
func ModelGivesWay(model string) bool {
	return model == "" || model == "default" || model == "heardlog"
}

// Append appends the upstream body. Its keys stand in a fixed order, which lets upstreams reuse their prompt caches:
// messages, in the custom form turn_id, timestamp and interruptable, then llm.params, model, stream, then whatever else
// the request brought.
//
// For a key that both bring, the request wins over llm.params, and that over the default; messages and stream come from
// llm.params never. Top-level members that we do not know survive, but those that platforms add for their
// own ends do not (see platform.Extra).
func (a *Assembly) Append(dst []byte) []byte {
	dst = append(dst, `{"messages":[`...)
	dst = a.appendMessages(dst)
	dst = append(dst, ']')
	var req []member
	if a.Request != nil {
		req = a.Request.members
	}
	if a.Custom {
		dst = strconv.AppendInt(append(dst, `,"turn_id":`...), a.TurnID, 10)
		dst = strconv.AppendInt(append(dst, `,"timestamp":`...), a.TimestampMS, 10)
		dst = append(append(dst, `,"interruptable":`...), interruptable(req)...)
	}
	var buf [16]string
	done := buf[:0]
	hasModel := a.OnlyModel != ""
	if hasModel {
		dst = appendQuote(append(dst, `,"model":`...), a.OnlyModel)
	}
	if p := bytes.TrimSpace(a.Params); len(p) > 0 && p[0] == '{' {
		_ = walkObject(p, func(quoted, v []byte) error {
			name := unquote(quoted)
			if name == "messages" || name == "stream" || name == "model" && a.OnlyModel != "" || a.Custom && isTurnKey(name) {
				return nil
			}
			if own, ok := find(req, name); ok && !(name == "model" && ModelGivesWay(a.Request.Model)) {
				v = own
				if name == "metadata" {
					if v = a.forUpstream(v); v == nil {
						return nil
					}
				}
			}
			if name == "model" {
				hasModel = true
			}
			dst = append(append(append(append(dst, ','), quoted...), ':'), v...)
			done = append(done, name)
			return nil
		})
	}
	if !hasModel {
		if a.Request != nil && !ModelGivesWay(a.Request.Model) {
			dst = appendQuote(append(dst, `,"model":`...), a.Request.Model)
		} else if a.Model != "" {
			dst = appendQuote(append(dst, `,"model":`...), a.Model)
		} else if a.Request != nil && a.Request.Model != "" {
			dst = appendQuote(append(dst, `,"model":`...), a.Request.Model) // better a name that says little than none
		}
	}
	if _, ok := find(req, "stream"); ok || a.Stream {
		dst = append(dst, `,"stream":`...)
		dst = strconv.AppendBool(dst, a.Stream || a.Request != nil && a.Request.Stream)
	}
	for _, m := range req {
		if m.name == "model" || m.name == "stream" || m.name == OwnMember || slices.Contains(done, m.name) || isTurnKey(m.name) || platform.Extra(m.name, m.value, a.Custom) {
			continue
		}
		v := m.value
		if m.name == "metadata" {
			if v = a.forUpstream(v); v == nil {
				continue
			}
		}
		dst = append(append(appendQuote(append(dst, ','), m.name), ':'), v...)
	}
	return append(dst, '}')
}

func (a *Assembly) appendMessages(dst []byte) []byte {
	first := len(dst)
	sep := func() {
		if len(dst) > first {
			dst = append(dst, ',')
		}
	}
	filled, last := make([][]byte, 0, len(a.System)), -1 // last is where the last system message begins
	for _, s := range a.System {
		if len(s) == 0 || s[0] != '{' {
			continue
		}
		sep()
		last = len(dst)
		dst = fillJSON(dst, s, a.Variables)
		filled = append(filled, dst[last:])
	}
	if a.Request != nil {
		for i := range a.Request.Messages {
			in := &a.Request.Messages[i]
			if !in.IsSystem() || saysTheSame(filled, in) {
				continue
			}
			sep()
			last = len(dst)
			m := FromIncoming(in)
			dst = a.appendMessage(dst, &m)
		}
	}
	summary := a.Summary != ""
	for i, msgs := 0, MergeUsers(a.Messages); i < len(msgs); i++ {
		if summary && msgs[i].Role != "system" && msgs[i].Role != "developer" {
			dst, summary = appendSummary(dst, first, last, a.Summary), false
		}
		sep()
		last = len(dst)
		dst = a.appendMessage(dst, &msgs[i])
	}
	if summary {
		dst = appendSummary(dst, first, last, a.Summary)
	}
	return dst
}

func (a *Assembly) appendMessage(dst []byte, m *Message) []byte {
	if a.Custom {
		return m.appendCustom(dst)
	}
	return m.appendStandard(dst)
}

// OwnMember is the top-level member of a request that is ours alone and never goes upstream.
const OwnMember = "heardlog"

// SummaryHeading stands above a summary (reference/memory-semantics.md 001-28).
const SummaryHeading = "[Earlier conversation summary]"

// appendSummary puts a summary behind the system messages that dst ends in, the last of which begins at last, or below 0 where there are none. The list begins at first.
func appendSummary(dst []byte, first, last int, summary string) []byte {
	summary = SummaryHeading + "\n" + summary
	if last >= 0 {
		if content, ok := lookup(dst[last:], "content"); ok && len(content) > 2 && content[0] == '"' {
			end := cap(dst) - cap(content) + len(content) - 1 // of the text, before its quote; content is a part of dst
			quoted := appendQuote(nil, "\n\n"+summary)
			return slices.Insert(dst, end, quoted[1:len(quoted)-1]...)
		}
	}
	if len(dst) > first {
		dst = append(dst, ',')
	}
	return append(appendQuote(append(dst, `{"role":"system","content":`...), summary), '}')
}

// saysTheSame tells whether a client's system message repeats one of the agent's: a platform that was joined with the same
// settings sends them along.
func saysTheSame(system [][]byte, in *Incoming) bool {
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

func find(members []member, name string) ([]byte, bool) {
	for _, m := range members {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// isTurnKey tells whether a top-level key tells of the turn; in the custom form they are ours to set, in the standard form
// they do not go out.
func isTurnKey(name string) bool {
	return name == "turn_id" || name == "timestamp" || name == "interruptable"
}

// interruptable gives the request's own word on it, else true.
func interruptable(req []member) []byte {
	if v, ok := find(req, "interruptable"); ok && (v[0] == 't' || v[0] == 'f') {
		return v
	}
	return []byte("true")
}

// forUpstream gives the request's metadata without our own key, and in the standard form without what is no text, which OpenAI refuses and where
// platforms put whole objects; nil if nothing is left of it.
func (a *Assembly) forUpstream(metadata []byte) []byte {
	if metadata[0] != '{' {
		return metadata
	}
	keep := true
	_ = walkObject(metadata, func(name, v []byte) error {
		keep = keep && a.keeps(name, v)
		return nil
	})
	if keep {
		return metadata
	}
	out := []byte{'{'}
	_ = walkObject(metadata, func(name, v []byte) error {
		if !a.keeps(name, v) {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), v...)
		return nil
	})
	if len(out) == 1 {
		return nil
	}
	return append(out, '}')
}

func (a *Assembly) keeps(name, v []byte) bool {
	return !nameIs(name, "agent_id") && (a.Custom || v[0] != '{' && v[0] != '[')
}
