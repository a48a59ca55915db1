package sqlite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory"
)

// A message's body is the JSON that encoding/json makes of memory.Message, without what has its own column (seq, rev, turn_id
// and id), so that a shell on the file shows it and any JSON library reads it. It is written and read by hand because both stand on
// the hottest paths: about a sixth of encoding/json's time. FuzzCodec holds the two to the same result.

// appendBody writes the body of m to b. It fails where raw JSON in m is not JSON, which would make the row unreadable.
func appendBody(b []byte, m *memory.Message) ([]byte, error) {
	w := bodyWriter{b: append(b, '{')}
	w.text("role", string(m.Role), true)
	w.text("content", m.Content, true)
	w.number("timestamp", m.Timestamp, true)
	w.text("source", string(m.Source), false)
	w.text("state", string(m.State), false)
	w.metadata(m.Metadata)
	w.flag("interrupted", m.Interrupted)
	w.number("interrupt_ms", m.InterruptMS, false)
	w.text("interrupt_by", m.InterruptBy, false)
	w.text("generated", m.Generated, false)
	w.text("sent", m.Sent, false)
	w.flag("cut_generated", m.CutGenerated)
	w.text("method", string(m.Method), false)
	w.number("evidence_ms", m.EvidenceMS, false)
	w.number("confidence", m.Confidence, false)
	w.raw("tool_calls", m.ToolCalls)
	w.text("tool_call_id", m.ToolCallID, false)
	w.text("name", m.ToolName, false)
	w.raw("parts", m.Parts)
	w.number("answer_seq", m.AnswerSeq, false)
	w.flag("turn_has_user", m.TurnHasUser)
	if t := m.Timings; t != nil {
		w.open("timings")
		w.number("start_ms", t.StartMS, true)
		w.number("first_token_ms", t.FirstTokenMS, false)
		w.number("first_sentence_ms", t.FirstSentenceMS, false)
		w.number("total_ms", t.TotalMS, false)
		w.number("upstream_first_byte_ms", t.UpstreamFirstByteMS, false)
		w.number("upstream_bytes", t.UpstreamBytes, false)
		w.b = append(w.b, '}')
	}
	if f := m.Failure; f != nil {
		w.open("failure")
		w.text("reason", f.Reason, true)
		w.number("code", int64(f.Code), true)
		w.text("message", f.Message, true)
		w.b = append(w.b, '}')
	}
	w.text("finish_reason", m.FinishRsn, false)
	w.raw("usage", m.Usage)
	w.text("upstream_id", m.UpstreamID, false)
	w.text("status", string(m.Status), false)
	w.number("chars", m.Chars, false)
	w.flag("opens", m.Opens)
	w.marks(m.Marks)
	w.rare(m.Rare)
	return append(w.b, '}'), w.err
}

// rare writes what few messages have.
func (w *bodyWriter) rare(r *memory.Rare) {
	if r == nil {
		return
	}
	w.text("interrupt_ms_from", string(r.InterruptMSFrom), false)
	w.text("interrupt_by_from", string(r.InterruptByFrom), false)
	w.playback(r.Playback)
	w.number("unheard_tokens", r.UnheardTokens, false)
	w.text("upstream", r.Upstream, false)
	w.text("filler", r.Filler, false)
	if r.Scope != (memory.Scope{}) {
		w.open("scope")
		w.text("user_id", r.Scope.UserID, false)
		w.text("session_id", r.Scope.SessionID, false)
		w.text("task_id", r.Scope.TaskID, false)
		w.b = append(w.b, '}')
	}
	if r.Importance != nil {
		w.key("importance")
		w.value("importance", json.RawMessage(strconv.FormatFloat(*r.Importance, 'g', -1, 64)))
	}
	w.text("category", r.Category, false)
	w.text("raw", r.Raw, false)
	w.number("copy_of", r.CopyOf, false)
	w.item(r.Item)
}

type bodyWriter struct {
	b   []byte
	err error
}

func (w *bodyWriter) key(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

func (w *bodyWriter) open(name string) {
	w.key(name)
	w.b = append(w.b, '{')
}

func (w *bodyWriter) text(name, v string, always bool) {
	if v != "" || always {
		w.key(name)
		w.b = appendString(w.b, v)
	}
}

func (w *bodyWriter) number(name string, v int64, always bool) {
	if v != 0 || always {
		w.key(name)
		w.b = strconv.AppendInt(w.b, v, 10)
	}
}

func (w *bodyWriter) flag(name string, v bool) {
	if v {
		w.key(name)
		w.b = append(w.b, "true"...)
	}
}

func (w *bodyWriter) raw(name string, v json.RawMessage) {
	if len(v) == 0 {
		return
	}
	w.key(name)
	w.value(name, v)
}

// playback writes what few answers have, and is left to encoding/json.
func (w *bodyWriter) playback(p *memory.Playback) {
	if p == nil {
		return
	}
	raw, err := json.Marshal(p)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.raw("playback", raw)
}

// marks writes what messages have that changed.
func (w *bodyWriter) marks(k memory.Marks) {
	if k == (memory.Marks{}) {
		return
	}
	w.open("marks")
	w.number("born", k.Born, false)
	w.number("cut", k.Cut, false)
	w.number("heard", k.Heard, false)
	w.number("turn", k.Turn, false)
	w.number("state", k.State, false)
	w.b = append(w.b, '}')
}

// item writes what few messages have.
func (w *bodyWriter) item(it *memory.Item) {
	if it == nil {
		return
	}
	w.open("item")
	w.text("id", it.ID, false)
	w.text("agent_id", it.AgentID, false)
	w.raw("extra", it.Extra)
	w.number("updated_ms", it.UpdatedMS, false)
	w.flag("is_error", it.IsError)
	w.b = append(w.b, '}')
}

func (w *bodyWriter) value(name string, v json.RawMessage) {
	if !utf8.Valid(v) { // encoding/json lets it pass in strings; the column is text
		v = json.RawMessage(string([]rune(string(v))))
	}
	if !json.Valid(v) {
		if w.err == nil {
			w.err = fmt.Errorf("message field %s is not JSON", name)
		}
		v = json.RawMessage("null")
	}
	w.b = append(w.b, v...)
}

func (w *bodyWriter) metadata(md map[string]json.RawMessage) {
	if len(md) == 0 {
		return
	}
	w.open("metadata")
	if len(md) == 1 {
		for k, v := range md {
			w.member(k, v)
		}
	} else {
		keys := make([]string, 0, len(md))
		for k := range md {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			w.member(k, md[k])
		}
	}
	w.b = append(w.b, '}')
}

func (w *bodyWriter) member(k string, v json.RawMessage) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = appendString(w.b, k)
	w.b = append(w.b, ':')
	if v == nil {
		v = json.RawMessage("null") // as encoding/json writes it
	}
	w.value("metadata", v)
}

const hex = "0123456789abcdef"

// appendString writes s as a JSON string; bytes that are not UTF-8 become U+FFFD, as with encoding/json.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(b, s[start:i]...)
				b = append(b, "\uFFFD"...)
				i++
				start = i
				continue
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
