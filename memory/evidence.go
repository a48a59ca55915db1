package memory

import (
	"context"
	"slices"
	"unicode"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/heard"
)

// MaxReports is how many reports one call of Record takes.
const MaxReports = 1000

// How far back Record looks: for the answers of a list of reports, in messages; for that of each of them, in answers, from where the one behind it was
// found, since a stray row that stands far back too must not carry all before it away; for that of a single report, in answers.
const (
	recordDepth = 4 * MaxBatch
	rowDepth    = 16
	reportDepth = 8
	maxMatched  = 2 << 20 // bytes of texts that the reports of one call are compared with, the newest first: about half a second
)

// Report is what somebody who knows the audio says of one answer. A zero field says nothing.
type Report struct {
	// Which answer, best first: its Message.ID or UpstreamID, its text (of one that is Playing, as far as it is known), its turn. With none of them
	// it is the newest answer that Heard is part of.
	ItemID    string
	Generated string
	Turn      *int64
	// Ordinal tells that Turn may count from another number than ours.
	Ordinal bool

	Heard   *string
	HeardMS *int64 // looked at where Heard is nil
	Words   []WordTime
	Full    bool // heard to its end
	Cut     bool // the caller cut it
	// Playing tells that the answer is being played: Heard is the least that was heard of it so far, Words a stretch of it that began at StartMS
	// (Unix ms). Such reports are kept with the answer and count together, see Playback.
	Playing bool
	Account bool // with Playing: Heard is from the platform's account of the conversation, which counts as its text
	StartMS int64
	AtMS    int64  // Unix ms that the report speaks of
	By      string // Message.InterruptBy; "" = start_of_speech
}

// WordTime is a word's place in the audio, in ms from its start.
type WordTime struct {
	Text           string
	StartMS, EndMS int64
}

// Recorded tells of a report whose answer was found.
type Recorded struct {
	Report  int     // its index
	Message Message // as it stands now; zero with Pending
	Changed bool
	Pending bool // the answer is still being made; the report counts when it is stored
}

// Record takes the reports of one event, in the order of the conversation, and tells which answers were found for them, in the same order; no
// answer is taken for two. Better evidence replaces weaker and the same reports again change nothing, in whatever order they come; an agent that
// has ended takes them too. An answer that is being sent to the client is cut by a report of a cut that speaks of it. fault.NotFound if the project
// has no such agent, fault.Invalid for more than MaxReports.
func (s *Service) Record(ctx context.Context, project, id string, reports []Report) ([]Recorded, error) {
	if len(reports) > MaxReports {
		return nil, fault.New(fault.Invalid, "more than %d reports in one call", MaxReports)
	}
	last := len(reports) - 1
	if last < 0 {
		return s.record(ctx, project, id, reports) // which knows whether there is such an agent
	}
	if reports[last].ofNow() {
		switch flown, done, err := s.recordFlight(ctx, project, id, reports[last]); {
		case err != nil:
			return nil, err
		case done && last == 0:
			return flown, nil
		case done: // of a list the last speaks of the answer that is being sent, and the others of those before
			out, err := s.record(ctx, project, id, reports[:last])
			for i := range flown {
				flown[i].Report = last
			}
			return append(out, flown...), err
		}
	}
	out, err := s.record(ctx, project, id, reports)
	if err != nil || len(out) > 0 || last > 0 || !reports[0].Cut {
		return out, err
	}
	if flown, done, err := s.recordFlight(ctx, project, id, reports[0]); done || err != nil {
		return flown, err
	}
	return out, nil
}

// wordsToKnow is from how many words on a heard text is taken for that of a stored answer while another is being sent: fewer may stand in any.
const wordsToKnow = 3

// ofNow tells whether the report speaks of the answer that is being sent, if one is, sooner than of a stored one.
func (r *Report) ofNow() bool {
	switch {
	case r.Playing:
		return !r.Cut
	case !r.Cut || r.ItemID != "" || r.Generated != "" || r.Turn != nil:
		return false
	}
	return r.Heard == nil || countWords(*r.Heard) < wordsToKnow
}

// countWords counts the words of a text; where they are written without spaces between, each letter is one.
func countWords(s string) (n int) {
	within := false
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
			n, within = n+1, false
		case unicode.IsSpace(r):
			within = false
		case !within:
			n, within = n+1, true
		}
	}
	return n
}

// stray tells whether the report has nothing to know its answer by but a few words, which may stand in any answer. It is then taken for the newest answer, or
// for the one before where they are the beginning of that.
func (r *Report) stray() bool {
	return r.ItemID == "" && r.Generated == "" && r.Turn == nil && r.Heard != nil && countWords(*r.Heard) < wordsToKnow
}

// begins tells whether the heard text is the beginning of an answer.
func (r *Report) begins(m *Message) bool {
	said, ok := heard.Align(m.Original(), *r.Heard)
	return ok && countWords(said) <= countWords(*r.Heard)
}

// recordFlight takes a report for the answer that is being sent; done is false if there is none that it may speak of. An answer of which
// nothing was sent yet cannot have been played.
func (s *Service) recordFlight(ctx context.Context, project, id string, r Report) (out []Recorded, done bool, err error) {
	k := agentKey{project, id}
	for _, f := range s.live.flying(k) {
		if Phase(f.phase.Load()) != Speaking || r.AtMS != 0 && r.AtMS < f.began || !f.says(r.Heard) {
			continue
		}
		if r.Cut {
			s.cutFlights(ctx, k, ErrBargeIn, func(other *flight) bool { return other == f })
		}
		if f.note(r) { // unless it is stored by now
			return []Recorded{{Pending: true}}, true, nil
		}
		select {
		case <-f.done: // a matter of one commit
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
		out, err = s.record(ctx, project, id, []Report{r})
		return out, true, err
	}
	if r.Cut && r.AtMS == 0 { // what another process cuts is stored when it says so, and found there
		s.elsewhere(ctx, k, ErrBargeIn, nil, r.Heard)
	}
	return nil, false, nil
}

// record applies reports to stored answers. Answers are found and evidence is weighed before the decision, which holds up all other writes of the
// server: it looks again only at those that have changed meanwhile.
func (s *Service) record(ctx context.Context, project, id string, reports []Report) ([]Recorded, error) {
	depth := recordDepth
	if len(reports) == 1 {
		depth = 8 * reportDepth
	}
	head, recent, err := s.cfg.Store.Recent(ctx, project, id, depth, false)
	if err == nil && head.Agent.Archived() { // its record is made of its notices alone, in whatever order they come
		err = head.Agent.MustBeActive(fault.NotFound)
	}
	if err != nil {
		return nil, err
	}
	now := s.nowMS()
	var found []weighed
	changes := false
	for i, m := range match(reports, recent) {
		if m == nil {
			continue
		}
		is, changed, err := m.reported(reports[i], now)
		if err != nil {
			continue // its words are no part of that answer: it speaks of another one
		}
		found = append(found, weighed{was: m, Recorded: Recorded{Report: i, Message: is, Changed: changed}})
		changes = changes || changed
	}
	if !changes {
		return recorded(found), nil
	}
	err = s.update(ctx, project, id, func(view AgentView) (Change, error) {
		var c Change
		for i := range found {
			w := found[i] // a copy: the decision may run again
			m, err := view.Seq(w.was.Seq)
			if err != nil {
				return Change{}, err
			}
			if m.Rev != w.was.Rev {
				if w.Message, w.Changed, err = m.reported(reports[w.Report], now); err != nil {
					w.Message, w.Changed = m, false
				}
			}
			if w.Changed {
				w.Message.Rev = view.Head().Rev + 1
				c.Replace = append(c.Replace, w.Message)
			}
			found[i].Recorded = w.Recorded
			found[i].was = &m
		}
		return c, nil
	})
	return recorded(found), err
}

// weighed is a report whose answer was found, as the answer was and as the report has it.
type weighed struct {
	was *Message
	Recorded
}

func recorded(list []weighed) []Recorded {
	out := make([]Recorded, 0, len(list))
	for _, w := range list {
		out = append(out, w.Recorded)
	}
	return out
}

// match finds the answer of each report among messages, nil where there is none. Reports and messages are in the order of the conversation; they
// are gone through from the end, so that of answers of one text the newest is taken first.
func match(reports []Report, recent []Message) []*Message {
	out := make([]*Message, len(reports))
	var answers []*Message
	for i := range recent {
		if m := &recent[i]; m.Role == Assistant && m.State != Superseded && m.Original() != "" {
			answers = append(answers, m)
		}
	}
	shift := turnShift(reports, answers)
	end, depth, stray := len(answers), rowDepth, false
	if len(reports) == 1 {
		depth = reportDepth
		end = reports[0].before(answers)
		if stray = reports[0].stray(); stray {
			depth = 2
		}
	}
	work := 0
	for i := len(reports) - 1; i >= 0; i-- {
		for j := end - 1; j >= max(0, end-depth); j-- {
			if work += reports[i].size() + len(answers[j].Original()); work > maxMatched && len(reports) > 1 {
				return out
			}
			if reports[i].fits(answers[j], shift) && (!stray || j == len(answers)-1 || reports[i].begins(answers[j])) {
				out[i], end = answers[j], j
				break
			}
		}
	}
	return out
}

// size gives the length of the report's texts.
func (r *Report) size() int {
	n := len(r.Generated)
	if r.Heard != nil {
		n += len(*r.Heard)
	}
	return n
}

// before gives how many of the answers may be meant by a single report: one that names none and comes late speaks of none that was begun since.
func (r *Report) before(answers []*Message) int {
	if r.AtMS == 0 || r.ItemID != "" || r.Generated != "" || r.Turn != nil || r.Heard != nil {
		return len(answers)
	}
	for i, m := range slices.Backward(answers) {
		if m.Timestamp <= r.AtMS {
			return i + 1
		}
	}
	return len(answers) // its clock is not ours
}

// fits tells whether the report may speak of the answer.
func (r *Report) fits(m *Message, shift int64) bool {
	whole := m.Original()
	switch {
	case r.ItemID != "" && (r.ItemID == m.ID || r.ItemID == m.UpstreamID):
		return true
	case r.Generated != "":
		said, ok := heard.Align(whole, r.Generated)
		if !ok || !r.Playing && !m.CutGenerated && said != whole {
			return false
		}
	case r.Heard != nil && *r.Heard != "":
		// looked at below
	case r.ItemID != "":
		return false
	case r.Turn != nil:
		return m.TurnID == *r.Turn+shift
	}
	if r.Heard != nil {
		_, ok := heard.Align(whole, *r.Heard)
		return ok
	}
	return true
}

// turnShift gives what is to be added to the turns of reports that have nothing else to know their answers by. Platforms count from 0 or from 1
// (reference/agora-api.md section 3): that shift counts under which most turns hold an answer that was begun after the turn before had ended, and
// before this one did.
func turnShift(reports []Report, answers []*Message) int64 {
	var best, most int64
	for n, shift := range []int64{0, -1, 1} {
		var fits int64
		var before int64
		for i := range reports {
			r := &reports[i]
			if !r.Ordinal || r.Turn == nil {
				continue
			}
			for _, m := range answers {
				if m.TurnID == *r.Turn+shift && (r.AtMS == 0 || before < m.Timestamp && m.Timestamp <= r.AtMS) {
					fits++
					break
				}
			}
			before = r.AtMS
		}
		if n == 0 || fits > most {
			best, most = shift, fits
		}
	}
	return best
}

// reported gives m as the report has it.
func (m Message) reported(r Report, now int64) (Message, bool, error) {
	whole := m.Original()
	e := Evidence{Seq: m.Seq, AtMS: r.AtMS, By: r.By}
	switch {
	case r.Playing, r.Cut && r.Heard == nil && r.HeardMS == nil:
		return m.played(r, now)
	case r.Full:
		e.Method, e.Full = VendorText, true
		if r.Generated == "" {
			e.Method = AudioMS // it says that all was played and not what it was
		}
	case r.Heard != nil:
		e.Method, e.Heard = VendorText, *r.Heard
	case len(r.Words) > 0 && r.HeardMS != nil:
		e.Method, e.Heard = WordTimes, wordsUntil(r.Words, *r.HeardMS)
		if _, ok := heard.Align(whole, e.Heard); !ok {
			e.Method, e.Heard = AudioMS, heard.Estimate(whole, *r.HeardMS)
		}
	case r.HeardMS != nil:
		e.Method, e.Heard = AudioMS, heard.Estimate(whole, *r.HeardMS)
	default:
		return m, false, nil
	}
	return applyEvidence(m, e, now)
}
