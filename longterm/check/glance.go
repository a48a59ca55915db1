package check

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// Limits of a Glance.
const (
	MaxGlance = 2000 // messages of a call; a longer one has none
	maxParts  = 60
	maxQuote  = 120  // characters
	minPart   = 1000 // ms of a silence in Glance.Shape
	// MinGapMS is how long a Gap is at least that reports count, and that is a Moment.
	MinGapMS = 2000
)

// Glance is a call at a glance.
type Glance struct {
	// Shape is what happened, in order, at most 60 parts. The lengths of speech are estimated from
	// its text, as far as no report states them.
	Shape []Part
	// Moments are the worst of each kind, in the order of the kinds.
	Moments []Moment
	// LongestSilenceMS is the longest silence of at least MinGapMS, else 0.
	LongestSilenceMS int64
	Tally            memory.Tally // of the messages
}

// Part is a part of a call.
type Part struct {
	Kind PartKind
	MS   int64
}

// PartKind is who spoke in a part of a call, or what else there was.
type PartKind string

// The kinds.
const (
	PartCaller  PartKind = "caller"
	PartHeard   PartKind = "heard"
	PartUnheard PartKind = "unheard" // words that were not heard, so that they took no time
	PartSilence PartKind = "silence"
	PartTool    PartKind = "tool"
)

// The kinds of a Moment, the worst first.
const (
	MomentFailure    = "failure"             // the last answer that the LLM failed to make
	MomentUnheard    = "unheard"             // the answer of which the most words were not heard
	MomentSilence    = "silence"             // the longest one
	MomentTool       = "tool_without_result" // the last call of a tool without a result
	MomentFirstToken = "first_token"         // the slowest one
)

// Moment is something that happened at a message.
type Moment struct {
	Kind        string
	Seq, TurnID int64 // of a silence, of what was said next
	MS          int64 // of a silence or a first token
	Words       int64 // that were not heard
	Text        string
	Tool        string // its name; of a silence, of a tool that ran meanwhile
	Failure     *memory.Failure
	Upstream    string
}

// glancer makes a Glance.
type glancer struct {
	Glance
	gaps    map[int64]Gap // by the message that ends it
	open    []openTool    // calls of tools without a result so far
	tools   int64         // ms that tools took since the last words
	tool    string        // one of these
	toolEnd int64
	worst   map[string]Moment
}

type openTool struct {
	id, name string
	m        *memory.Message
}

// GlanceAt reads a call: its own messages, at most MaxGlance, in order of Seq.
func GlanceAt(own []memory.Message) Glance {
	g := glancer{gaps: map[int64]Gap{}, worst: map[string]Moment{}}
	for _, gap := range Gaps(own) {
		g.gaps[gap.Next.Seq] = gap
	}
	for i := range own {
		m := &own[i]
		if m.Filed().CopyOf != 0 || m.State == memory.Merged || m.State == memory.Removed {
			continue
		}
		g.Tally.Add(m, 1)
		g.message(m)
	}
	if n := len(g.open); n > 0 {
		last := g.open[n-1]
		g.worst[MomentTool] = Moment{Seq: last.m.Seq, TurnID: last.m.TurnID, Tool: last.name}
	}
	for _, kind := range []string{MomentFailure, MomentUnheard, MomentSilence, MomentTool, MomentFirstToken} {
		if m, ok := g.worst[kind]; ok {
			m.Kind = kind
			g.Moments = append(g.Moments, m)
		}
	}
	g.LongestSilenceMS = g.worst[MomentSilence].MS
	g.Shape = fewer(g.Shape)
	return g.Glance
}

func (g *glancer) message(m *memory.Message) {
	if m.Failure != nil {
		g.worst[MomentFailure] = Moment{Seq: m.Seq, TurnID: m.TurnID, Failure: m.Failure, Upstream: m.Made().Upstream}
	}
	switch {
	case m.Role == memory.Tool:
		g.result(m)
		return
	case byCaller(m):
		g.silence(m)
		g.add(PartCaller, spoken(m.Content))
		return
	case m.Role != memory.Assistant || m.State == memory.Superseded:
		return
	}
	if t := m.Timings; t != nil && t.FirstTokenMS > g.worst[MomentFirstToken].MS {
		g.worst[MomentFirstToken] = Moment{Seq: m.Seq, TurnID: m.TurnID, MS: t.FirstTokenMS}
	}
	if m.State != memory.Empty && m.Original() != "" {
		g.silence(m)
		g.answer(m)
	}
	var calls []struct {
		ID       string `json:"id"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if len(m.ToolCalls) > 0 && json.Unmarshal(m.ToolCalls, &calls) == nil {
		for _, c := range calls {
			g.open = append(g.open, openTool{c.ID, c.Function.Name, m})
		}
	}
}

// answer adds what was heard of an answer, and what was not.
func (g *glancer) answer(m *memory.Message) {
	made, unheard := m.Words()
	all, rest := spoken(m.Original()), int64(0)
	if made > 0 {
		rest = all * unheard / made
	}
	heard := all - rest
	if p := m.Heard().Playback; p != nil && p.Audio != nil && p.Audio.PlayedMS > 0 {
		heard = p.Audio.PlayedMS
	}
	g.add(PartHeard, heard)
	g.add(PartUnheard, rest)
	if unheard > g.worst[MomentUnheard].Words {
		g.worst[MomentUnheard] = Moment{Seq: m.Seq, TurnID: m.TurnID, Words: unheard, Text: quote(restOf(m, made, unheard))}
	}
}

// silence adds the silent time before the message, without that of tools.
func (g *glancer) silence(m *memory.Message) {
	gap := g.gaps[m.Seq]
	if gap.MS >= MinGapMS && gap.MS > g.worst[MomentSilence].MS {
		g.worst[MomentSilence] = Moment{Seq: m.Seq, TurnID: m.TurnID, MS: gap.MS, Tool: g.tool}
	}
	if ms := gap.MS - g.tools; ms >= minPart {
		g.add(PartSilence, ms)
	}
	g.tools, g.tool = 0, ""
}

// result ends the call of a tool.
func (g *glancer) result(m *memory.Message) {
	at := slices.IndexFunc(g.open, func(o openTool) bool { return o.id == m.ToolCallID })
	if at < 0 {
		return
	}
	call := g.open[at]
	g.open = slices.Delete(g.open, at, at+1)
	if ms := m.Timestamp - max(call.m.Timestamp, g.toolEnd); ms > 0 { // tools may run side by side
		g.add(PartTool, ms)
		g.tools, g.tool, g.toolEnd = g.tools+ms, call.name, m.Timestamp
	}
}

func (g *glancer) add(kind PartKind, ms int64) {
	if ms <= 0 {
		return
	}
	if n := len(g.Shape); n > 0 && g.Shape[n-1].Kind == kind {
		g.Shape[n-1].MS += ms
		return
	}
	g.Shape = append(g.Shape, Part{kind, ms})
}

// fewer returns at most maxParts parts of the same length together. Each is of the kind that takes
// the most of its time.
func fewer(parts []Part) []Part {
	if len(parts) <= maxParts {
		return parts
	}
	total := int64(0)
	for _, p := range parts {
		total += p.MS
	}
	out, at, used := make([]Part, 0, maxParts), 0, int64(0) // used of parts[at]
	for i := range int64(maxParts) {
		left := total*(i+1)/maxParts - total*i/maxParts
		slice, all := Part{}, left
		of := map[PartKind]int64{}
		for left > 0 && at < len(parts) {
			take := min(left, parts[at].MS-used)
			of[parts[at].Kind] += take
			if of[parts[at].Kind] > slice.MS {
				slice = Part{parts[at].Kind, of[parts[at].Kind]}
			}
			if left, used = left-take, used+take; used == parts[at].MS {
				at, used = at+1, 0
			}
		}
		if n := len(out); n > 0 && out[n-1].Kind == slice.Kind {
			out[n-1].MS += all
		} else if all > 0 {
			out = append(out, Part{slice.Kind, all})
		}
	}
	return out
}

// spoken estimates how long a text takes to say, in ms: 15 letters a second, and 5 of the scripts
// that write a syllable or a word as one sign.
func spoken(text string) (ms int64) {
	for _, r := range text {
		if r >= 0x2e80 {
			ms += 200
		} else {
			ms += 67
		}
	}
	return ms
}

// restOf returns the words of an answer that were not heard.
func restOf(m *memory.Message, made, unheard int64) string {
	text := m.Original()
	if unheard >= made {
		return text
	}
	if rest, ok := strings.CutPrefix(text, m.Content); ok {
		return rest
	}
	words := strings.Fields(text) // the platform reported other words
	return strings.Join(words[max(0, len(words)-int(unheard)):], " ")
}

// quote shortens a text to maxQuote characters.
func quote(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	n := 0
	for i := range text {
		if n++; n > maxQuote {
			return text[:i] + "…"
		}
	}
	return text
}
