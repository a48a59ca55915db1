package ingest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/turns"
)

// agent returns the agent that the facts describe, based on the stored one. now is the start time
// if no notice has reported one.
func (f facts) agent(old memory.Agent, n Notice, now int64) memory.Agent {
	out := old
	out.Settings.Archive = (*memory.Archive)(&f)
	out.Settings.Channel = max(old.Settings.Channel, n.Channel)
	out.Settings.Labels = mergeLabels(old.Settings.Labels, n.Labels)
	if n.Hosted != nil {
		// A caller that is known stays: what was stored is sealed with that caller's key.
		out.Settings.Scope.UserID = cmp.Or(old.Settings.Scope.UserID, n.User)
		if n.Key != "" {
			out.Settings.Call.Keys = []string{n.Key}
		}
	}
	// So that history returns all messages.
	out.Settings.LLM.MaxHistory = max(memory.DefaultMaxHistory, f.Messages)
	if f.StartMS != 0 {
		out.StartMS = f.StartMS
	} else if out.StartMS == 0 {
		out.StartMS = now
	}
	switch {
	case f.ended():
		out.Status, out.Message, out.Name = memory.Stopped, "", f.Name
		if f.Left != nil {
			out.Status, out.Message = f.Left.Status, f.Left.Message
		}
		if out.StopMS = f.StopMS; out.StopMS == 0 {
			out.StopMS = max(old.StopMS, out.StartMS)
		}
	case old.Status.Ended(): // ended here because no notice reported an end in time
	default:
		out.Status = memory.Running
	}
	return out
}

// history returns the history that the stored messages derive from, without what other facts added.
func (f *facts) history(stored []memory.Message) []memory.Message {
	if f.Hosted != nil {
		out := slices.Clone(stored[:min(len(stored), f.Messages)])
		for i := range out {
			out[i].GivenTurn = true
		}
		return out
	}
	out := make([]memory.Message, 0, len(stored))
	for i, m := range stored {
		if i >= len(f.Told) {
			break
		}
		t := f.Told[i]
		b := memory.Message{Role: m.Role, Content: m.Content, Metadata: m.Metadata, Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, ToolName: m.ToolName}
		if t&hasTime != 0 {
			b.Timestamp = m.Timestamp
		}
		if t&hasSource != 0 {
			b.Source = m.Source
		}
		if b.Interrupted = t&hasCut != 0; b.Interrupted && t&hasCutTime != 0 {
			b.InterruptMS = m.InterruptMS
		}
		if t&hasGenerated != 0 {
			b.Generated = m.Original()
		}
		if b.GivenTurn = t&hasTurn != 0; b.GivenTurn {
			b.TurnID = m.TurnID
		}
		out = append(out, b)
	}
	return out
}

// messages returns the agent's messages: those of the history, with fields that it lacks filled in
// from the other facts.
func (f *facts) messages(history []memory.Message, a *memory.Agent) []memory.Message {
	given := !slices.ContainsFunc(history, func(m memory.Message) bool { return !m.GivenTurn })
	out := make([]memory.Message, len(history))
	h := memory.NewHead(memory.Agent{Settings: memory.Settings{Scope: a.Settings.Scope}}, nil, 0)
	for i, m := range history {
		if m.GivenTurn = given; given {
			m.TurnID = max(m.TurnID, h.LastTurn, 0)
		}
		out[i], _ = h.Place(m, 0, 0, false) // it refuses decreasing turns only
	}
	if f.Hosted != nil {
		return out
	}
	rows := f.rows(out, given)
	for from := 0; from < len(out); {
		to := from + 1
		for to < len(out) && out[to].TurnID == out[from].TurnID {
			to++
		}
		turn, row := out[from:to], rows[out[from].TurnID]
		if row == nil {
			row = &turnRow{}
		}
		row.fill(turn, a.StartMS)
		from = to
	}
	return out
}

// turnRow holds the facts about one turn.
type turnRow memory.ArchiveTurn

// rows finds the facts about each turn of the messages.
//
// If the history has turn numbers, they are Agora's, which may count from 0 in one place and from 1
// in another; the offset that matches more turns is used. Without numbers the turns are matched in
// order. There must be as many turns as rows, unless the history may have been truncated; then the
// rows of the last turns are used. Each turn must begin as its row says.
func (f *facts) rows(msgs []memory.Message, given bool) map[int64]*turnRow {
	byID, list := f.turnRows()
	numbers, firsts := turnsOf(msgs)
	out := map[int64]*turnRow{}
	if given {
		offset := turnOffset(numbers, byID)
		for _, t := range numbers {
			out[t] = byID[t+offset]
		}
		return out
	}
	if len(numbers) > len(list) || len(numbers) < len(list) && len(msgs) < memory.DefaultMaxHistory {
		return out
	}
	list = list[len(list)-len(numbers):]
	for i, t := range numbers {
		byUser := list[i].StartType == turns.StartVoice || list[i].StartType == turns.StartThink
		if byUser != (firsts[i].Role == memory.User) {
			return nil
		}
		out[t] = list[i]
	}
	return out
}

// turnRows returns the rows by Agora's turn number, with their errors, and in order those of turns
// that are part of the memory.
func (f *facts) turnRows() (byID map[int64]*turnRow, list []*turnRow) {
	byID = map[int64]*turnRow{}
	row := func(id int64) *turnRow {
		if byID[id] == nil {
			byID[id] = &turnRow{TurnID: id}
		}
		return byID[id]
	}
	for _, t := range f.Turns {
		*row(t.TurnID) = turnRow(t)
		if t.StartType != "" && t.EndType != "ignored" { // an ignored turn is not in the memory
			list = append(list, row(t.TurnID))
		}
	}
	for _, e := range f.Errors {
		// The first of several errors counts.
		if r := row(e.TurnID); r.EndType == "" || r.EndType == turns.EndError {
			r.EndType, r.Code = turns.EndError, cmp.Or(r.Code, e.Code)
			r.Reason, r.Details = cmp.Or(r.Reason, reasonOf(e)), cmp.Or(r.Details, e.Message)
		}
	}
	return byID, list
}

// turnOffset returns what to add to the numbers of turns to find most rows: 0 or 1.
func turnOffset(turns []int64, byID map[int64]*turnRow) int64 {
	var found [2]int
	for offset := range found {
		for _, t := range turns {
			if byID[t+int64(offset)] != nil {
				found[offset]++
			}
		}
	}
	if found[1] > found[0] {
		return 1
	}
	return 0
}

// turnsOf returns the turns of messages in order, and the first message of each.
func turnsOf(msgs []memory.Message) (turns []int64, firsts []*memory.Message) {
	for i := range msgs {
		if m := &msgs[i]; i == 0 || m.TurnID != msgs[i-1].TurnID {
			turns, firsts = append(turns, m.TurnID), append(firsts, m)
		}
	}
	return turns, firsts
}

// fill adds the facts about a turn to its messages.
func (t *turnRow) fill(turn []memory.Message, startMS int64) {
	last := -1
	for i := range turn {
		m := &turn[i]
		if m.Source == "" {
			m.Source = t.source(m.Role, i == 0)
		}
		if m.Timestamp == 0 {
			m.Timestamp = t.at(m.Role, i == 0, startMS)
		}
		if m.Role != memory.Assistant {
			continue
		}
		last = i
		m.Method = memory.VendorText // a notification has what was spoken of an answer
		switch {
		case m.Interrupted && m.Generated == "":
			m.CutGenerated = true
		case m.Generated == m.Content:
			m.Generated = ""
		}
	}
	if last < 0 {
		if t.EndType == turns.EndError {
			turn[len(turn)-1].Failure = t.failure()
		}
		return
	}
	m := &turn[last]
	if t.EndType == turns.EndInterrupted && !m.Interrupted {
		m.Interrupted, m.CutGenerated = true, true
	}
	for i := range turn {
		if c := &turn[i]; c.Interrupted {
			c.InterruptMS = cmp.Or(c.InterruptMS, max(t.EndMS, c.Timestamp))
			c.EvidenceMS, c.InterruptBy = c.InterruptMS, cmp.Or(t.CausedBy, memory.ByStartOfSpeech)
		}
	}
	if t.EndType == turns.EndError {
		m.Failure = t.failure()
	}
	if t.StartMS != 0 && (t.EndMS != 0 || t.TokenMS != 0) {
		m.Timings = t.timings(turn[0].Timestamp)
	}
}

// timings returns the measures of a turn that began at startMS.
func (t *turnRow) timings(startMS int64) *memory.Timings {
	out := &memory.Timings{StartMS: startMS, FirstTokenMS: t.TokenMS, FirstSentenceMS: t.SentenceMS}
	if t.TokenMS != 0 { // the turn table adds the two to the whole latency
		out.StartMS += max(0, t.E2EMS-t.TokenMS)
	}
	out.TotalMS = max(0, t.EndMS-out.StartMS)
	return out
}

func (t *turnRow) failure() *memory.Failure {
	return &memory.Failure{Reason: t.Reason, Code: t.Code, Message: t.Details}
}

// reasonOf returns the name that the turn table has for an error.
func reasonOf(e memory.ArchiveError) string {
	if e.Module == "llm" {
		return "LLM_REQUEST_ERR"
	}
	return "INTERNAL_ERR"
}

// source returns the source of a message, or "" if the row does not tell it apart.
func (t *turnRow) source(role memory.Role, first bool) memory.Source {
	switch {
	case role == memory.User && t.StartType == turns.StartVoice:
		return memory.SourceASR
	case role == memory.User && t.StartType == turns.StartThink:
		return memory.SourceCommand
	case role != memory.Assistant || !first:
		return ""
	case t.StartType == turns.StartGreeting:
		return memory.SourceGreeting
	case t.StartType == turns.StartSilence:
		return memory.SourceSilence
	case t.StartType == turns.StartSpeak:
		return memory.SourceCommand
	}
	return ""
}

// at returns the time of a message, or the agent's start if the row has no times.
func (t *turnRow) at(role memory.Role, first bool, startMS int64) int64 {
	switch {
	case t.StartMS == 0:
		return startMS
	case first || role != memory.Assistant:
		return t.StartMS
	}
	return t.StartMS + t.E2EMS
}

// differ reports whether two messages differ in more than their revisions and places.
func differ(m, o memory.Message) bool {
	m.Rev, o.Rev, m.Seq, o.Seq, m.Marks, o.Marks = 0, 0, 0, 0, memory.Marks{}, memory.Marks{}
	a, errA := json.Marshal(m)
	b, errB := json.Marshal(o)
	return errA != nil || errB != nil || !bytes.Equal(a, b)
}
