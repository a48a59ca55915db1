package handlers

import (
	"context"
	"net/url"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/check"
	"github.com/heardlog/heardlog/memory"
)

// maxGlances is how many messages are read to show the calls of one page at a glance.
const maxGlances = 20_000

// glanceJSON is a call at a glance.
type glanceJSON struct {
	Shape   []shapePart  `json:"shape"`
	Moments []momentJSON `json:"moments"`
}

// shapePart is a pair: the kind of a part, and its length in ms.
type shapePart [2]any

// momentJSON is something that happened at a message.
type momentJSON struct {
	Kind     string  `json:"kind"`
	Seq      int64   `json:"seq"`
	TurnID   int64   `json:"turn_id"`
	MS       int64   `json:"ms,omitempty"`
	Words    int64   `json:"words,omitempty"`
	Text     string  `json:"text,omitempty"`
	Tool     string  `json:"tool,omitempty"`
	Error    *string `json:"error,omitempty"` // why an answer failed: nil for other kinds
	Status   int     `json:"status,omitempty"`
	Upstream string  `json:"upstream,omitempty"`
}

func newMomentJSON(m *check.Moment) momentJSON {
	out := momentJSON{Kind: m.Kind, Seq: m.Seq, TurnID: m.TurnID, MS: m.MS, Words: m.Words, Text: m.Text, Tool: m.Tool, Upstream: m.Upstream}
	if f := m.Failure; f != nil {
		out.Error, out.Status = &f.Error, f.Code
	}
	return out
}

// includeParam reports whether calls are to be shown at a glance.
func includeParam(v url.Values) (glance bool, err error) {
	for _, word := range listParam(v, "include") {
		if word != "shape" {
			return false, fault.At(fault.Invalid, "include", "must be shape, or left out, not %q", text.Clip(word, 20))
		}
		glance = true
	}
	return glance, nil
}

// glance adds to an agent what takes reading its messages, unless there are too many.
func (a agentAPI) glance(ctx context.Context, h *memory.Head, out *agentJSON) error {
	if h.NextSeq-1 > check.MaxGlance {
		return nil
	}
	msgs, err := a.memory.Messages.All(ctx, h.Agent.Project, h.Agent.ID)
	if fault.Is(err, fault.NotFound) {
		return nil // it was erased in the meantime
	}
	if err != nil {
		return err
	}
	g := check.GlanceAt(h.Agent.Settings.Memory.Own(msgs))
	out.glanceJSON = &glanceJSON{make([]shapePart, len(g.Shape)), each(g.Moments, newMomentJSON)}
	for i, p := range g.Shape {
		out.Shape[i] = shapePart{p.Kind, p.MS}
	}
	out.Tally.Silence = g.LongestSilenceMS
	if !h.Tally.Whole() {
		out.Tally.tallyWordsJSON = newTallyWords(&g.Tally)
	}
	return nil
}

// glances adds the same to the agents of a page, as far as that many messages may be read. The
// messages of calls in an archive are far away.
func (a agentAPI) glances(ctx context.Context, heads []memory.Head, out []agentJSON) error {
	left := int64(maxGlances)
	for i := range heads {
		h := &heads[i]
		if h.Agent.Cold != nil || h.NextSeq-1 > check.MaxGlance {
			continue
		}
		if left -= h.NextSeq - 1; left < 0 {
			return nil
		}
		if err := a.glance(ctx, h, &out[i]); err != nil {
			return err
		}
	}
	return nil
}
