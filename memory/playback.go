package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory/heard"
)

// Playback is what is known of an answer while it is played, put together from single reports. It is kept with the answer, since no single
// report tells what was heard: one platform says which words come when, and later only that the caller cut in. Its parts grow and never shrink, so
// that the order of the reports makes no difference.
type Playback struct {
	// Spoken is how many bytes of Message.Original are known to have been played.
	Spoken int `json:"spoken,omitempty"`
	// Account tells that the platform's account of the conversation says so.
	Account bool `json:"account,omitempty"`
	// Stretches are stretches of audio by their beginning; at most maxStretches, the latest.
	Stretches []Stretch `json:"stretches,omitempty"`
	Cut       bool      `json:"cut,omitempty"`
	CutMS     int64     `json:"cut_ms,omitempty"` // Unix ms of the latest cut; 0 = not told
	By        string    `json:"by,omitempty"`
}

// Stretch is a piece of audio that was begun.
type Stretch struct {
	StartMS int64   `json:"start"`          // Unix ms
	Text    string  `json:"text,omitempty"` // its words with a space between
	Ends    []int64 `json:"ends,omitempty"` // of each word, ms after StartMS; none = not known
}

// Bounds of a Playback.
const (
	maxStretches     = 64
	maxStretchWords  = 512
	maxStretchLength = 16 << 10 // bytes
)

// wordsUntil gives the words that had ended by ms.
func wordsUntil(words []WordTime, ms int64) string {
	var b strings.Builder
	for _, w := range words {
		if w.EndMS > ms {
			break
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strings.TrimSpace(w.Text))
	}
	return b.String()
}

// played gives m with a report of its playing, and with what was heard as far as that tells.
func (m Message) played(r Report, now int64) (Message, bool, error) {
	var p Playback
	was := m.Playback()
	if was != nil {
		p = *was
	}
	changed := p.add(r, m.Original())
	if !changed {
		return m, false, nil
	}
	e, says := p.evidence(m)
	if says {
		if p.Cut { // also where it turned out that all had been heard by then: the cut came, whatever came first
			m.noteCut(e, now)
		}
		before := m
		if was != nil && was.rules(m) { // what it said before counts no more
			before.Method, before.EvidenceMS, before.Confidence = "", 0, 0
		}
		is, won, err := applyEvidence(before, e, now)
		if err != nil {
			return m, false, err
		}
		if won {
			m = is
		}
	}
	m.Amend(func(r *Rare) { r.Playback = &p })
	return m, true, nil
}

// add takes a report in and tells whether that is any change. p shares its lists with a stored message: they are copied before they change.
func (p *Playback) add(r Report, whole string) bool {
	old := *p
	if r.Cut {
		p.Cut, p.CutMS = true, max(p.CutMS, r.AtMS)
		p.By = max(p.By, r.By)
	}
	if r.Playing && r.Heard != nil {
		if said, ok := heard.Align(whole, *r.Heard); ok {
			p.Spoken, p.Account = max(p.Spoken, len(said)), p.Account || r.Account
		}
	}
	added := false
	if r.Playing && r.StartMS > 0 {
		added = p.begin(r.stretch())
	}
	return added || p.Spoken != old.Spoken || p.Account != old.Account || p.Cut != old.Cut || p.CutMS != old.CutMS || p.By != old.By
}

// stretch gives the report's piece of audio.
func (r *Report) stretch() Stretch {
	s := Stretch{StartMS: r.StartMS}
	var b strings.Builder
	for _, w := range r.Words[:min(len(r.Words), maxStretchWords)] {
		if b.Len()+len(w.Text) > maxStretchLength {
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

// begin adds a stretch. Of two that began at one time the one with more words counts.
func (p *Playback) begin(s Stretch) bool {
	at, found := slices.BinarySearchFunc(p.Stretches, s, func(a, b Stretch) int { return cmp.Compare(a.StartMS, b.StartMS) })
	if found {
		old := p.Stretches[at]
		if cmp.Or(cmp.Compare(len(old.Ends), len(s.Ends)), cmp.Compare(old.Text, s.Text), slices.Compare(old.Ends, s.Ends)) >= 0 {
			return false
		}
	}
	if !found && at == 0 && len(p.Stretches) == maxStretches {
		return false
	}
	p.Stretches = slices.Clone(p.Stretches)
	if found {
		p.Stretches[at] = s
		return true
	}
	p.Stretches = slices.Insert(p.Stretches, at, s)
	p.Stretches = p.Stretches[max(0, len(p.Stretches)-maxStretches):]
	return true
}

// evidence gives what the playback tells of what was heard; false while it tells nothing.
func (p *Playback) evidence(m Message) (Evidence, bool) {
	whole := m.Original()
	e := Evidence{Seq: m.Seq, Method: WordTimes, AtMS: p.CutMS, By: p.By}
	if p.Account {
		e.Method = VendorText
	}
	if !p.Cut {
		e.Full = p.Spoken == len(whole) && !m.CutGenerated
		return e, e.Full
	}
	spoken, timed := min(p.Spoken, len(whole)), false
	for _, s := range slices.Backward(p.Stretches) {
		if s.StartMS > p.CutMS || len(s.Ends) == 0 {
			continue
		}
		timed = true
		if said, ok := heard.Align(whole, s.until(p.CutMS)); ok && said != "" {
			spoken = max(spoken, len(said))
			break
		}
	}
	switch {
	case p.Spoken > 0 || timed:
		e.Heard = whole[:spoken]
	case len(p.Stretches) > 0 && p.Stretches[0].StartMS <= p.CutMS:
		e.Method, e.Heard = AudioMS, heard.Estimate(whole, p.CutMS-p.Stretches[0].StartMS)
	default:
		e.Method, e.Heard = DisconnectOnly, m.SentText()
	}
	return e, true
}

// rules tells whether what the answer says was heard is what this playback says, by more than what left our socket.
func (p *Playback) rules(m Message) bool {
	e, says := p.evidence(m)
	if !says || e.Method == DisconnectOnly || m.Method != e.Method || m.EvidenceMS != e.AtMS {
		return false
	}
	if e.Full {
		return m.Content == m.Original()
	}
	heard, ok := heard.Align(m.Original(), e.Heard)
	return ok && heard == m.Content
}

// until gives the words that had ended at a moment, Unix ms.
func (s *Stretch) until(ms int64) string {
	n := 0
	for n < len(s.Ends) && s.StartMS+s.Ends[n] <= ms {
		n++
	}
	words := strings.Split(s.Text, " ")
	return strings.Join(words[:min(n, len(words))], " ")
}

// maxNotes is how many reports wait for one answer that is being made.
const maxNotes = 256

// note keeps a report for an answer until it is stored, which takes it in; false if that is over already. It is kept in the process alone, as the
// answer is until then. Of more than maxNotes the one before gives way: what is told of a playing grows.
func (f *flight) note(r Report) bool {
	f.agent.mu.Lock()
	defer f.agent.mu.Unlock()
	if f.taken {
		return false
	}
	if len(f.notes) == maxNotes {
		f.notes[maxNotes-1] = r
		return true
	}
	f.notes = append(f.notes, r)
	return true
}

// noted gives the answer with the reports that waited for it and speak of it, and takes no more.
func (f *flight) noted(m Message, now int64) Message {
	f.agent.mu.Lock()
	f.taken = true
	notes := f.notes
	f.agent.mu.Unlock()
	for i := range notes {
		if m.State == Superseded || !notes[i].fits(&m, 0) {
			continue
		}
		if is, changed, err := m.reported(notes[i], now); err == nil && changed {
			m = is
		}
	}
	return m
}

// recordOthers takes the reports that waited for an answer and speak of another one.
func (s *Service) recordOthers(ctx context.Context, t *Turn, m *Message) {
	f := t.flight
	if len(f.notes) == 0 || m.State == Superseded { // nobody adds to them since noted
		return
	}
	for i := range f.notes {
		if f.notes[i].fits(m, 0) {
			continue
		}
		if _, err := s.record(ctx, t.Agent.Project, t.Agent.ID, f.notes[i:i+1]); err != nil {
			s.cfg.OnError("record evidence", err)
			return
		}
	}
}
