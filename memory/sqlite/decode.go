package sqlite

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// readBody reads into m what appendBody wrote; fields that it does not know are passed over. The strings of m are parts of
// body wherever they hold no escape, so that a message costs one allocation.
func readBody(body string, m *memory.Message) error {
	r := bodyReader{s: body}
	if !r.take('{') {
		return r.failed()
	}
	r.members(m)
	r.space()
	if r.bad || r.i != len(r.s) {
		return r.failed()
	}
	return nil
}

// members reads a message's fields, to the end of their object.
func (r *bodyReader) members(m *memory.Message) {
	for r.more() {
		switch name := r.name(); name {
		case "role":
			m.Role = memory.Role(r.text())
		case "content":
			m.Content = r.text()
		case "timestamp":
			m.Timestamp = r.number()
		case "source":
			m.Source = memory.Source(r.text())
		case "state":
			m.State = memory.State(r.text())
		case "metadata":
			m.Metadata = r.metadata()
		case "interrupted":
			m.Interrupted = r.flag()
		case "interrupt_ms":
			m.InterruptMS = r.number()
		case "interrupt_by":
			m.InterruptBy = r.text()
		case "generated":
			m.Generated = r.text()
		case "sent":
			m.Sent = r.text()
		case "cut_generated":
			m.CutGenerated = r.flag()
		case "method":
			m.Method = memory.Method(r.text())
		case "evidence_ms":
			m.EvidenceMS = r.number()
		case "confidence":
			m.Confidence = r.number()
		case "tool_calls":
			m.ToolCalls = r.raw()
		case "tool_call_id":
			m.ToolCallID = r.text()
		case "name":
			m.ToolName = r.text()
		case "parts":
			m.Parts = r.raw()
		case "answer_seq":
			m.AnswerSeq = r.number()
		case "turn_has_user":
			m.TurnHasUser = r.flag()
		case "timings":
			m.Timings = r.timings()
		case "failure":
			m.Failure = r.failure()
		case "finish_reason":
			m.FinishRsn = r.text()
		case "usage":
			m.Usage = r.raw()
		case "upstream_id":
			m.UpstreamID = r.text()
		case "status":
			m.Status = memory.MessageStatus(r.text())
		case "chars":
			m.Chars = r.number()
		case "opens":
			m.Opens = r.flag()
		case "marks":
			m.Marks = r.marks()
		default:
			r.rare(name, m)
		}
	}
}

// rare reads a member that few messages have; of others it passes over the value. The message is new and shared with nobody.
func (r *bodyReader) rare(name string, m *memory.Message) {
	rare := func() *memory.Rare {
		if m.Rare == nil {
			m.Rare = new(memory.Rare)
		}
		return m.Rare
	}
	switch name {
	case "interrupt_ms_from":
		rare().InterruptMSFrom = memory.Method(r.text())
	case "interrupt_by_from":
		rare().InterruptByFrom = memory.Method(r.text())
	case "playback":
		rare().Playback = r.playback()
	case "unheard_tokens":
		rare().UnheardTokens = r.number()
	case "upstream":
		rare().Upstream = r.text()
	case "filler":
		rare().Filler = r.text()
	case "scope":
		rare().Scope = r.scope()
	case "importance":
		rare().Importance = r.fraction()
	case "category":
		rare().Category = r.text()
	case "raw":
		rare().Raw = r.text()
	case "copy_of":
		rare().CopyOf = r.number()
	case "item":
		rare().Item = r.item()
	default:
		r.skip()
	}
}

// bodyReader walks over JSON that this package wrote. After a mistake bad stays set and everything reads as zero.
type bodyReader struct {
	s   string
	i   int
	bad bool
}

func (r *bodyReader) failed() error {
	return fmt.Errorf("stored message is unreadable at byte %d", r.i)
}

func (r *bodyReader) space() {
	for r.i < len(r.s) && (r.s[r.i] == ' ' || r.s[r.i] == '\n' || r.s[r.i] == '\t' || r.s[r.i] == '\r') {
		r.i++
	}
}

// take passes over c, the next byte that is not white space.
func (r *bodyReader) take(c byte) bool {
	r.space()
	if !r.bad && r.i < len(r.s) && r.s[r.i] == c {
		r.i++
		return true
	}
	r.bad = true
	return false
}

// more tells whether the object goes on, and passes over its comma or its end.
func (r *bodyReader) more() bool {
	r.space()
	if r.bad || r.i >= len(r.s) {
		r.bad = true
		return false
	}
	switch r.s[r.i] {
	case '}':
		r.i++
		return false
	case ',':
		r.i++
		r.space()
	}
	return true
}

func (r *bodyReader) name() string {
	s := r.text()
	r.take(':')
	return s
}

func (r *bodyReader) text() string {
	if !r.take('"') {
		return ""
	}
	end := strings.IndexByte(r.s[r.i:], '"')
	if end < 0 {
		r.bad = true
		return ""
	}
	if s := r.s[r.i : r.i+end]; strings.IndexByte(s, '\\') < 0 {
		r.i += end + 1
		return s
	}
	return r.escaped()
}

// escaped reads the rest of a string that holds an escape.
func (r *bodyReader) escaped() string {
	start := r.i
	for r.i < len(r.s) && r.s[r.i] != '"' {
		if r.s[r.i] == '\\' {
			r.i++
		}
		r.i++
	}
	if r.i >= len(r.s) {
		r.bad = true
		return ""
	}
	quoted := r.s[start:r.i]
	r.i++
	b := make([]byte, 0, len(quoted))
	for i := 0; i < len(quoted); i++ {
		c := quoted[i]
		if c != '\\' {
			b = append(b, c)
			continue
		}
		i++
		switch quoted[i] {
		case '"', '\\', '/':
			b = append(b, quoted[i])
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		default: // \u and what appendString never writes: one place that knows all the rules
			var s string
			if json.Unmarshal([]byte(`"`+quoted+`"`), &s) != nil {
				r.bad = true
			}
			return s
		}
	}
	return string(b)
}

func (r *bodyReader) number() int64 {
	r.space()
	start := r.i
	for r.i < len(r.s) && (r.s[r.i] == '-' || r.s[r.i] >= '0' && r.s[r.i] <= '9') {
		r.i++
	}
	n, err := strconv.ParseInt(r.s[start:r.i], 10, 64)
	if err != nil {
		r.bad = true
	}
	return n
}

func (r *bodyReader) flag() bool {
	r.space()
	switch {
	case strings.HasPrefix(r.s[r.i:], "true"):
		r.i += 4
		return true
	case strings.HasPrefix(r.s[r.i:], "false"):
		r.i += 5
		return false
	}
	r.bad = true
	return false
}

// skip passes over one value of any kind and gives its text.
func (r *bodyReader) skip() string {
	r.space()
	start, depth := r.i, 0
	for r.i < len(r.s) {
		switch r.s[r.i] {
		case '"':
			for r.i++; r.i < len(r.s) && r.s[r.i] != '"'; r.i++ {
				if r.s[r.i] == '\\' {
					r.i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // the end of the object that holds the value
				return r.s[start:r.i]
			}
			depth--
		case ',':
			if depth == 0 {
				return r.s[start:r.i]
			}
		}
		r.i++
	}
	r.i = min(r.i, len(r.s))
	r.bad = true
	return ""
}

func (r *bodyReader) raw() json.RawMessage {
	s := r.skip()
	if r.bad || s == "" {
		r.bad = true
		return nil
	}
	return json.RawMessage(s)
}

func (r *bodyReader) playback() *memory.Playback {
	raw := r.raw()
	if string(raw) == "null" {
		return nil
	}
	p := new(memory.Playback)
	if !r.bad && json.Unmarshal(raw, p) != nil {
		r.bad = true
	}
	return p
}

func (r *bodyReader) metadata() map[string]json.RawMessage {
	if !r.take('{') {
		return nil
	}
	md := map[string]json.RawMessage{}
	for r.more() {
		k := r.name()
		md[k] = r.raw()
	}
	return md
}

func (r *bodyReader) timings() *memory.Timings {
	t := new(memory.Timings)
	if !r.take('{') {
		return nil
	}
	for r.more() {
		switch r.name() {
		case "start_ms":
			t.StartMS = r.number()
		case "first_token_ms":
			t.FirstTokenMS = r.number()
		case "first_sentence_ms":
			t.FirstSentenceMS = r.number()
		case "total_ms":
			t.TotalMS = r.number()
		case "upstream_first_byte_ms":
			t.UpstreamFirstByteMS = r.number()
		case "upstream_bytes":
			t.UpstreamBytes = r.number()
		default:
			r.skip()
		}
	}
	return t
}

func (r *bodyReader) item() *memory.Item {
	it := new(memory.Item)
	if !r.take('{') {
		return it
	}
	for r.more() {
		switch r.name() {
		case "id":
			it.ID = r.text()
		case "agent_id":
			it.AgentID = r.text()
		case "extra":
			it.Extra = r.raw()
		case "updated_ms":
			it.UpdatedMS = r.number()
		case "is_error":
			it.IsError = r.flag()
		default:
			r.skip()
		}
	}
	return it
}

func (r *bodyReader) scope() (s memory.Scope) {
	if !r.take('{') {
		return s
	}
	for r.more() {
		switch r.name() {
		case "user_id":
			s.UserID = r.text()
		case "session_id":
			s.SessionID = r.text()
		case "task_id":
			s.TaskID = r.text()
		default:
			r.skip()
		}
	}
	return s
}

// fraction reads a number that need not be whole.
func (r *bodyReader) fraction() *float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(string(r.raw())), 64)
	if err != nil {
		r.bad = true
		return nil
	}
	return &n
}

func (r *bodyReader) marks() (k memory.Marks) {
	if !r.take('{') {
		return k
	}
	for r.more() {
		switch r.name() {
		case "born":
			k.Born = r.number()
		case "cut":
			k.Cut = r.number()
		case "heard":
			k.Heard = r.number()
		case "turn":
			k.Turn = r.number()
		case "state":
			k.State = r.number()
		default:
			r.skip()
		}
	}
	return k
}

func (r *bodyReader) failure() *memory.Failure {
	f := new(memory.Failure)
	if !r.take('{') {
		return nil
	}
	for r.more() {
		switch r.name() {
		case "reason":
			f.Reason = r.text()
		case "code":
			f.Code = int(r.number())
		case "message":
			f.Message = r.text()
		default:
			r.skip()
		}
	}
	return f
}
