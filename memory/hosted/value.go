package hosted

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/platform"
)

// reader reads one body into a Call.
type reader struct {
	root value
	Call
}

// value is a value of a body with its path. What it is not can be told from Call.Omitted.
type value struct {
	v    peek.Value
	path string
	o    *input.Omitted
}

// at returns the value at the first of several paths that exists and is not null.
func (v value) at(paths ...string) value {
	for _, p := range paths {
		if found := v.v.Path(p); !found.IsNull() {
			return value{found, strings.TrimPrefix(v.path+"."+p, "."), v.o}
		}
	}
	return value{nil, strings.TrimPrefix(v.path+"."+paths[0], "."), v.o}
}

func (v value) exists() bool { return !v.v.IsNull() }

// str returns a string of maxField bytes at most.
func (v value) str() string { return v.text(maxField) }

// text returns a string of limit bytes at most. Numbers are taken as their digits, since some IDs
// are numbers.
func (v value) text(limit int) string {
	switch {
	case !v.exists():
		return ""
	case !v.v.IsString() && !v.v.IsNumber():
		v.o.Add(v.path, "is not a string")
		return ""
	}
	return v.o.Cut(v.path, v.v.Text(), limit)
}

// raw returns a string as text does, and any other value as its JSON.
func (v value) raw(limit int) string {
	if v.v.IsString() || !v.exists() {
		return v.text(limit)
	}
	return v.o.Cut(v.path, string(v.v), limit)
}

// number returns a number, also one in a string. ok is false for anything else.
func (v value) number() (f float64, ok bool) {
	if !v.exists() {
		return 0, false
	}
	f = v.v.Float()
	text := strings.Trim(v.v.Text(), " ")
	if !v.v.IsNumber() && (!v.v.IsString() || text == "" || f == 0 && strings.Trim(text, "+-0.") != "") || math.IsInf(f, 0) {
		v.o.Add(v.path, "is not a number")
		return 0, false
	}
	return f, true
}

// flag returns true or false. Anything else is false.
func (v value) flag() bool {
	if !v.exists() {
		return false
	}
	if s := string(v.v); s != "true" && s != "false" {
		v.o.Add(v.path, "is not true or false")
		return false
	}
	return string(v.v) == "true"
}

// list returns the elements of an array.
func (v value) list() (out []value) {
	if !v.exists() {
		return nil
	}
	if !v.v.IsArray() {
		v.o.Add(v.path, "is not a list")
		return nil
	}
	for _, e := range v.v.List() {
		out = append(out, value{e, v.path + "[]", v.o})
	}
	return out
}

// objects returns the elements of an array that are objects.
func (v value) objects() (out []value) {
	for _, e := range v.list() {
		if !e.v.IsObject() {
			v.o.Add(e.path, "is not an object")
			continue
		}
		out = append(out, e)
	}
	return out
}

// The times that are believed, Unix ms: from 2001 to 2096. Later numbers are microseconds.
const (
	firstMS = 1e12
	lastMS  = 4e12
)

// time returns a time in Unix ms: a number of seconds or milliseconds, or a text in the form of RFC
// 3339 or, as Twilio writes it, RFC 2822.
func (v value) time() int64 {
	if !v.exists() {
		return 0
	}
	ms := int64(0)
	switch f := v.v.Float(); {
	case f >= firstMS && f < lastMS:
		ms = int64(f)
	case f >= firstMS/1000 && f < lastMS/1000:
		ms = int64(math.Round(f * 1000))
	case v.v.IsString():
		for _, form := range []string{time.RFC3339, time.RFC1123Z, time.RFC1123, "2006-01-02T15:04:05.999999999"} {
			if t, err := time.Parse(form, strings.TrimSpace(v.v.Str())); err == nil {
				ms = t.UnixMilli()
				break
			}
		}
	}
	if ms < firstMS || ms >= lastMS {
		v.o.Add(v.path, "is not a time")
		return 0
	}
	return ms
}

// duration returns a number of units as ms: unit is how many ms one is. Negative ones and those of
// more than three days are left out.
func (v value) duration(unit float64) int64 {
	f, ok := v.number()
	if f *= unit; !ok {
		return 0
	}
	if f < 0 || f > float64(memory.Lifetime/time.Millisecond) {
		v.o.Add(v.path, "is not a duration")
		return 0
	}
	return int64(math.Round(f))
}

// url returns an http or https URL. A link is shown to people, so nothing else is kept.
func (v value) url() string {
	s := v.text(maxURL)
	if s != "" && !strings.HasPrefix(s, "https://") && !strings.HasPrefix(s, "http://") {
		v.o.Add(v.path, "is not a URL")
		return ""
	}
	return s
}

// cost returns an amount; unit is how many US dollars one is.
func (v value) cost(unit float64) *float64 {
	f, ok := v.number()
	if f *= unit; !ok || f < 0 {
		return nil
	}
	f = math.Round(f*1e9) / 1e9
	return &f
}

// caller returns the name of a caller by a telephone number or an ID, "" if it is withheld.
func (v value) caller() string {
	name, ok := platform.Name(v.str())
	if !ok {
		return ""
	}
	return name
}

// latencies returns the durations at the paths, by stage.
func (v value) latencies(unit float64, paths map[string]string) map[string]int64 {
	var out map[string]int64
	for stage, path := range paths {
		at := v.at(path)
		if !at.exists() {
			continue
		}
		if ms := at.duration(unit); ms > 0 {
			if out == nil {
				out = map[string]int64{}
			}
			out[stage] = ms
		}
	}
	return out
}

// add adds a message that says or does something.
func (r *reader) add(m Message) {
	if m.Text != "" || m.Original != "" || len(m.ToolCalls) > 0 || m.Role == memory.Tool {
		r.Messages = append(r.Messages, m)
	}
}

// toolCalls reads the calls of tools in the form of OpenAI's chat completions.
func (v value) toolCalls() (out []ToolCall) {
	for i, c := range v.objects() {
		if i == maxTools {
			v.o.Add(v.path, "has more than %d entries", maxTools)
			break
		}
		out = append(out, ToolCall{c.at("id").str(), c.at("function.name").str(), c.at("function.arguments").raw(memory.MaxContent)})
	}
	return out
}

// content reads the content of a message that is a text or a list of parts with texts.
func (v value) content() string {
	if !v.v.IsArray() {
		return v.text(memory.MaxContent)
	}
	var texts []string
	for _, p := range v.list() {
		switch {
		case p.v.IsString():
			texts = append(texts, p.text(memory.MaxContent))
		case p.v.IsObject(): // others than texts, such as pictures, have no text
			if t := p.at("text", "transcript").text(memory.MaxContent); t != "" {
				texts = append(texts, t)
			}
		default:
			v.o.Add(p.path, "is neither a text nor an object")
		}
	}
	return strings.Join(texts, "\n")
}

// firstAnswers returns the answers that were the first to what the caller said.
func (c *Call) firstAnswers() (out []*Message) {
	asked := false
	for i := range c.Messages {
		m := &c.Messages[i]
		switch {
		case m.Role == memory.User:
			asked = true
		case asked && m.Role == memory.Assistant && m.Text != "":
			out, asked = append(out, m), false
		}
	}
	return out
}

// turnLatencies adds rows of latencies to the answers of turns. The platforms do not say which row
// belongs to which answer, so nothing is added unless there are as many of both.
func (r *reader) turnLatencies(rows []value, unit float64, paths map[string]string) {
	answers := r.firstAnswers()
	if len(answers) != len(rows) {
		return
	}
	for i, row := range rows {
		answers[i].Latency = row.latencies(unit, paths)
	}
}

// hash returns an ID for a log that names none. The same log has the same.
func (v value) hash() string {
	sum := sha256.Sum256(v.v)
	return "sha256-" + hex.EncodeToString(sum[:16])
}
