package evidence

import (
	"slices"

	"github.com/heardlog/heardlog/memory"
)

// How far back Record searches: messages for a list of reports, answers for a single report, and
// answers for each report of a list, counted from the answer of the report after it. The last limit
// keeps one odd report from pulling all earlier ones far back.
const (
	listDepth   = 4 * memory.MaxBatch
	singleDepth = 8
	rowDepth    = 16
	// maxCompared limits the bytes of text that the reports of one call are compared with, newest
	// first. It takes about half a second.
	maxCompared = 2 << 20
)

// match returns the answer of each report among the messages, or nil. Reports and messages are in
// the order of the conversation. Both are searched from the end, so that of answers with the same
// text the newest is found first.
func match(reports []Report, recent []memory.Message) []*memory.Message {
	out := make([]*memory.Message, len(reports))
	var answers, ghosts []*memory.Message
	for i := range recent {
		switch m := &recent[i]; {
		case m.Role != memory.Assistant || m.Original() == "":
		case m.State == memory.Superseded:
			ghosts = append(ghosts, m)
		default:
			answers = append(answers, m)
		}
	}
	offset := turnOffset(reports, answers)
	end, depth, ambiguous := len(answers), rowDepth, false
	if len(reports) == 1 {
		for _, list := range [][]*memory.Message{answers, ghosts} { // a ghost that was played after all
			if m, sure := reports[0].place(list); sure {
				out[0] = m
				return out
			}
		}
		depth = singleDepth
		end = reports[0].candidates(answers)
		if ambiguous = reports[0].ambiguous(); ambiguous {
			depth = 2
		}
	}
	compared := 0
	for i := len(reports) - 1; i >= 0; i-- {
		for j := end - 1; j >= max(0, end-depth); j-- {
			if compared += reports[i].size() + len(answers[j].Original()); compared > maxCompared && len(reports) > 1 {
				return out
			}
			if other := answers[j].Heard().PlatformID; other != "" && reports[i].Item != "" && other != reports[i].Item {
				continue
			}
			if reports[i].fits(answers[j], offset) && (!ambiguous || j == len(answers)-1 || reports[i].startsAnswer(answers[j])) {
				out[i], end = answers[j], j
				break
			}
		}
	}
	return out
}

// clockSlack is by how much, in ms, the platform's clock may be ahead of the server's.
const clockSlack = 250

// place finds the answer of a report that says when the answer was made, or names it: by the name
// that earlier reports gave it, then by its text among the answers that were asked for before that
// time. Otherwise it is one that has all of the text. It reports false if the report says neither,
// or if that finds nothing.
func (r *Report) place(answers []*memory.Message) (*memory.Message, bool) {
	if r.Item == "" && r.MadeMS == 0 {
		return nil, false
	}
	for _, m := range slices.Backward(answers) {
		if r.ItemID != "" && (r.ItemID == m.UpstreamID || r.ItemID == m.ID) || r.Item != "" && r.Item == m.Heard().PlatformID {
			return m, true
		}
	}
	if r.ItemID != "" { // an answer that is not stored yet
		return nil, false
	}
	var other *memory.Message // the second choice: all of its text, by a clock that is off or another name
	for _, m := range slices.Backward(answers) {
		if !r.fits(m, 0) {
			continue
		}
		late := r.MadeMS > 0 && m.Timings != nil && m.Timings.StartMS > r.MadeMS+clockSlack
		free := m.Heard().PlatformID == "" || r.Item == ""
		if free && !late {
			return m, true
		}
		if other == nil && r.Full && m.Original() == r.Generated && (free || m.Interrupted) {
			other = m
		}
	}
	return other, other != nil
}

// candidates returns how many of the answers a single report may be about. A late report that
// identifies no answer is not about answers that started after it.
func (r *Report) candidates(answers []*memory.Message) int {
	if r.AtMS == 0 || r.ItemID != "" || r.Generated != "" || r.Turn != nil || r.Heard != nil {
		return len(answers)
	}
	for i, m := range slices.Backward(answers) {
		if m.Timestamp <= r.AtMS {
			return i + 1
		}
	}
	return len(answers) // the platform's clock differs from ours
}

// turnOffset returns what to add to the turns of reports that identify their answers by turn only.
// Platforms count turns from 0 or from 1. The offset that fits most turns wins: an answer of that
// turn must have started after the turn before ended, and before this one did.
func turnOffset(reports []Report, answers []*memory.Message) int64 {
	var best, most int64
	for n, offset := range []int64{0, -1, 1} {
		var fits, before int64
		for i := range reports {
			r := &reports[i]
			if !r.Ordinal || r.Turn == nil {
				continue
			}
			if slices.ContainsFunc(answers, func(m *memory.Message) bool {
				return m.TurnID == *r.Turn+offset && (r.AtMS == 0 || before < m.Timestamp && m.Timestamp <= r.AtMS)
			}) {
				fits++
			}
			before = r.AtMS
		}
		if n == 0 || fits > most {
			best, most = offset, fits
		}
	}
	return best
}
