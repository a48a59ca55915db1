package report

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/heardlog/heardlog/longterm/check"
	"github.com/heardlog/heardlog/memory"
)

// The dimensions by which calls are told apart.
const (
	ByPlatform = "platform"
	ByModel    = "model"
	ByUpstream = "upstream"
	ByName     = "name"
	ByLanguage = "language"
	ByLabel    = "label." // and the label's name
)

// Value is what a call, or a part of it, has in a dimension.
type Value struct{ Dim, Value string }

// part is figures with what they are counted under: themselves, each value, and each two of them.
type part struct {
	Figures
	values []Value
	// must is how many values at the end have to be among those: 1 or 2 for the answers of a model
	// or an upstream, if a call had several.
	must int
}

// MaxValue limits the name and the value of a label, or another value, together, in bytes. Longer
// ones are not counted by themselves.
const MaxValue = 160

// call is what a call adds to the reports.
type call struct {
	rev     int64 // of the agent's head
	startMS int64
	parts   []part
}

// callOf counts a call that has ended: pure. msgs are its own messages, without copies, and checks
// the names of the checks that have found something in them.
func callOf(h *memory.Head, msgs []memory.Message, checks []string) call {
	a := h.Agent
	c := call{rev: h.Rev, startMS: a.StartMS}
	all := part{Figures: answersOf(msgs, nil), values: valuesOf(a)}
	f := &all.Figures
	f.Calls, f.LengthMS = 1, max(a.StopMS-a.StartMS, 0)
	f.Length.Add(f.LengthMS)
	longest := int64(0)
	if f.SilenceMS, longest = silences(msgs); longest > 0 {
		f.Longest.Add(longest)
	}
	for i := range a.Settings.Scores {
		s := &a.Settings.Scores[i]
		switch text, number, err := s.Parse(); {
		case err != nil:
		case number == nil:
			f.score(s.Name, text, 1, 0)
		default:
			f.score(s.Name, "", 1, int64(math.Round(max(-1e12, min(1e12, *number))*1000)))
		}
	}
	for _, name := range checks {
		f.score(checkMark+name, "", 1, 0)
	}
	made := makersOf(msgs)
	one := len(made[ByModel]) <= 1 && len(made[ByUpstream]) <= 1
	if one {
		all.values = slices.Concat(all.values, made[ByModel], made[ByUpstream])
	}
	if c.parts = []part{all}; one {
		return c
	}
	add := func(list ...Value) {
		p := part{Figures: answersOf(msgs, func(m *memory.Message) bool {
			return !slices.ContainsFunc(list, func(v Value) bool { return makerOf(m, v.Dim) != v.Value })
		}), values: all.values, must: len(list)}
		if p.Answers+p.Ghosts+p.Failures == 0 {
			return
		}
		p.Calls, p.LengthMS, p.Length = 1, f.LengthMS, f.Length
		if p.must == 2 {
			p.values = nil // all others are counted with one of the two
		}
		p.values = append(slices.Clone(p.values), list...)
		c.parts = append(c.parts, p)
	}
	for _, m := range made[ByModel] {
		add(m)
		for _, u := range made[ByUpstream] {
			add(m, u)
		}
	}
	for _, u := range made[ByUpstream] {
		add(u)
	}
	return c
}

// answersOf counts the answers that fit, and with them what else was said; nil means all.
func answersOf(msgs []memory.Message, fits func(*memory.Message) bool) (f Figures) {
	turns := map[int64]bool{}
	for i := range msgs {
		m := &msgs[i]
		if fits != nil {
			if m.Role != memory.Assistant && m.Failure == nil || !fits(m) {
				continue
			}
			turns[m.TurnID] = true
		}
		f.Tally.Add(m, 1)
		if m.Role != memory.Assistant || m.State == memory.Merged || m.State == memory.Removed {
			continue
		}
		f.Recalled += int64(len(m.Made().Recalled))
		if m.State == memory.Superseded {
			continue
		}
		if t := m.Timings; t != nil && t.FirstTokenMS > 0 {
			f.FirstToken.Add(t.FirstTokenMS)
			if t.FirstSentenceMS > 0 {
				f.FirstSentence.Add(t.FirstSentenceMS)
			}
		}
	}
	f.Words, f.UnheardWords, f.ToolCalls = f.Tally.Words, f.Tally.UnheardWords, f.Tally.ToolCalls
	f.Tally.FirstToken = nil
	if fits != nil {
		f.Turns = int64(len(turns))
	}
	return f
}

// silences returns the times between the caller's words and what was said next, in ms: all of
// MinSilenceMS and more together, and the longest of them.
func silences(msgs []memory.Message) (sum, longest int64) {
	for _, g := range check.Gaps(msgs) {
		if g.MS >= MinSilenceMS {
			sum, longest = sum+g.MS, max(longest, g.MS)
		}
	}
	return sum, longest
}

// makerOf returns the model or the upstream that wrote an answer, "" if it is not known.
func makerOf(m *memory.Message, dim string) string {
	made := m.Made()
	if dim == ByModel {
		return made.Model
	}
	return made.Upstream
}

// makersOf returns the models and the upstreams of the answers, in order.
func makersOf(msgs []memory.Message) map[string][]Value {
	out := map[string][]Value{}
	for i := range msgs {
		m := &msgs[i]
		if m.Role != memory.Assistant && m.Failure == nil || m.State == memory.Merged || m.State == memory.Removed {
			continue
		}
		for _, dim := range []string{ByModel, ByUpstream} {
			if v := (Value{dim, makerOf(m, dim)}); v.counts() && !slices.Contains(out[dim], v) {
				out[dim] = append(out[dim], v)
			}
		}
	}
	for _, list := range out {
		slices.SortFunc(list, Value.compare)
	}
	return out
}

func (v Value) compare(o Value) int {
	return cmp.Or(cmp.Compare(v.Dim, o.Dim), cmp.Compare(v.Value, o.Value))
}

// counts reports whether calls are counted by the value: it is there, not too long, and has no
// control characters, which separate the parts of keys.
func (v Value) counts() bool {
	return v.Value != "" && v.Dim != ByLabel && len(v.Dim)+len(v.Value) <= MaxValue && !strings.ContainsFunc(v.Dim+v.Value, unicode.IsControl)
}

// valuesOf returns what an agent has in the dimensions that do not depend on its answers, in order.
func valuesOf(a *memory.Agent) (out []Value) {
	list := []Value{{ByPlatform, a.Platform()}, {ByLanguage, languageOf(a)}}
	if name := a.ShownName(); name != a.ID && !slices.Contains(a.Settings.Call.Keys, name) {
		list = append(list, Value{ByName, name})
	}
	for name, value := range a.Settings.Labels {
		list = append(list, Value{ByLabel + name, value})
	}
	for _, v := range list {
		if v.counts() {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, Value.compare)
	return out
}

// languageOf returns the language that the join names, properties.asr.language, or the label
// language.
func languageOf(a *memory.Agent) string {
	var p struct {
		ASR struct {
			Language string `json:"language"`
		} `json:"asr"`
	}
	if json.Unmarshal(a.Properties, &p) == nil && p.ASR.Language != "" {
		return p.ASR.Language
	}
	return a.Settings.Labels["language"]
}
