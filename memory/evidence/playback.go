package evidence

import (
	"cmp"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
)

// playback is what is known about the playing of an answer. Its parts only ever grow, so that the
// order of reports makes no difference.
type playback memory.Playback

// Limits of a playback.
const (
	maxSegments      = 64
	maxSegmentWords  = 512
	maxSegmentLength = 16 << 10 // bytes
)

// applyPlayback returns the answer with a report of its playing added, and with the heard text that
// follows from all such reports so far.
func applyPlayback(m memory.Message, r *Report, now int64) (memory.Message, bool, error) {
	var p playback
	old := (*playback)(m.Heard().Playback)
	if old != nil {
		p = *old
	}
	if !p.add(r, m.Original()) {
		return m, false, nil
	}
	if e, ok := p.evidence(&m); ok {
		if p.Cut { // also if all had been heard by then: the cut happened
			m.NoteCut(e, now)
		}
		base := m
		if old != nil && old.decided(&m) { // it is replaced, not compared with
			base.Method, base.EvidenceMS, base.Confidence = "", 0, 0
		}
		updated, changed, err := base.WithEvidence(e, now)
		if err != nil {
			return m, false, err
		}
		if changed {
			m = updated
		}
	}
	m.Amend(func(r *memory.Details) { r.Playback = (*memory.Playback)(&p) })
	return m, true, nil
}

// add adds a report and reports whether that changes anything. p shares its lists with a stored
// message, so they are copied before they change.
func (p *playback) add(r *Report, whole string) bool {
	old := *p
	if r.Cut {
		p.Cut, p.CutMS = true, max(p.CutMS, r.AtMS)
		p.By = max(p.By, r.By)
	}
	p.Over = p.Over || r.Over
	if r.Playing && r.Heard != nil {
		if prefix, ok := heard.Align(whole, *r.Heard); ok {
			p.Spoken, p.Account = max(p.Spoken, len(prefix)), p.Account || r.Account
		}
	}
	added := false
	if r.Playing && r.StartMS > 0 {
		added = p.addSegment(r.segment())
	}
	return added || p.Over != old.Over || p.Spoken != old.Spoken || p.Account != old.Account || p.Cut != old.Cut || p.CutMS != old.CutMS || p.By != old.By
}

// segment returns the report's piece of audio.
func (r *Report) segment() memory.Stretch {
	s := memory.Stretch{StartMS: r.StartMS}
	var b strings.Builder
	for _, w := range r.Words[:min(len(r.Words), maxSegmentWords)] {
		if b.Len()+len(w.Text) > maxSegmentLength {
			break
		}
		if len(s.Ends) > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strings.Join(strings.Fields(w.Text), ""))
		s.Ends = append(s.Ends, w.EndMS)
	}
	s.Text = b.String()
	return s
}

// addSegment adds a segment. Of two that start at the same time the one with more words wins.
func (p *playback) addSegment(s memory.Stretch) bool {
	at, found := slices.BinarySearchFunc(p.Stretches, s, func(a, b memory.Stretch) int { return cmp.Compare(a.StartMS, b.StartMS) })
	if found {
		old := p.Stretches[at]
		if cmp.Or(cmp.Compare(len(old.Ends), len(s.Ends)), cmp.Compare(old.Text, s.Text), slices.Compare(old.Ends, s.Ends)) >= 0 {
			return false
		}
	}
	if !found && at == 0 && len(p.Stretches) == maxSegments {
		return false
	}
	p.Stretches = slices.Clone(p.Stretches)
	if found {
		p.Stretches[at] = s
		return true
	}
	p.Stretches = slices.Insert(p.Stretches, at, s)
	p.Stretches = p.Stretches[max(0, len(p.Stretches)-maxSegments):]
	return true
}

// evidence returns what follows from the playback about what was heard; ok is false if nothing does
// yet.
func (p *playback) evidence(m *memory.Message) (e memory.Evidence, ok bool) {
	whole := m.Original()
	e = memory.Evidence{Seq: m.Seq, Method: memory.WordTimes, AtMS: p.CutMS, By: p.By}
	if p.Account {
		e.Method = memory.VendorText
	}
	if !p.Cut {
		e.Full = p.Spoken == len(whole) && !m.CutGenerated
		if p.Over && !e.Full && p.Spoken > 0 { // the end of the call cut it
			e.Heard, e.By = whole[:min(p.Spoken, len(whole))], memory.ByAPILeave
			return e, true
		}
		return e, e.Full
	}
	spoken, timed := min(p.Spoken, len(whole)), false
	for _, s := range slices.Backward(p.Stretches) {
		if s.StartMS > p.CutMS || len(s.Ends) == 0 {
			continue
		}
		timed = true
		if prefix, ok := heard.Align(whole, textUntil(s, p.CutMS)); ok && prefix != "" {
			spoken = max(spoken, len(prefix))
			break
		}
	}
	switch {
	case p.Spoken > 0 || timed:
		e.Heard = whole[:spoken]
	case len(p.Stretches) > 0 && p.Stretches[0].StartMS <= p.CutMS:
		e.Method, e.Heard = memory.AudioMS, heard.Estimate(whole, p.CutMS-p.Stretches[0].StartMS)
	default:
		e.Method, e.Heard = memory.DisconnectOnly, m.SentText()
	}
	return e, true
}

// decided reports whether the heard text of the answer is the one that follows from this playback,
// by better evidence than what left our socket.
func (p *playback) decided(m *memory.Message) bool {
	e, ok := p.evidence(m)
	if !ok || e.Method == memory.DisconnectOnly || m.Method != e.Method || m.EvidenceMS != e.AtMS {
		return false
	}
	if e.Full {
		return m.Content == m.Original()
	}
	prefix, ok := heard.Align(m.Original(), e.Heard)
	return ok && prefix == m.Content
}

// textUntil returns the words of a segment that had ended at ms (Unix ms).
func textUntil(s memory.Stretch, ms int64) string {
	n := 0
	for n < len(s.Ends) && s.StartMS+s.Ends[n] <= ms {
		n++
	}
	words := strings.Split(s.Text, " ")
	return strings.Join(words[:min(n, len(words))], " ")
}
