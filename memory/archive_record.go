package memory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
)

// agent gives the agent that the facts make of what is stored; now is for what no notice has told.
func (a *Archive) agent(old Agent, n Notice, now int64) Agent {
	out := old
	out.Settings.Archive = a
	out.Settings.Channel = max(old.Settings.Channel, n.Channel)
	out.Settings.Labels = mergeLabels(old.Settings.Labels, n.Labels)
	out.Settings.LLM.MaxHistory = max(DefaultMaxHistory, a.Messages) // history shows all there is
	if a.StartMS != 0 {
		out.StartMS = a.StartMS
	} else if out.StartMS == 0 {
		out.StartMS = now
	}
	switch {
	case a.ended():
		out.Status, out.Message, out.Name = Stopped, "", a.Name
		if a.Left != nil {
			out.Status, out.Message = a.Left.Status, a.Left.Message
		}
		if out.StopMS = a.StopMS; out.StopMS == 0 {
			out.StopMS = max(old.StopMS, out.StartMS)
		}
	case old.Status.Ended(): // no end was told within the longest time that an agent may run
	default:
		out.Status = Running
	}
	return out
}

// base gives what the history told of stored messages: what other facts added is taken away.
func (a *Archive) base(stored []Message) []Message {
	out := make([]Message, 0, len(stored))
	for i, m := range stored {
		if i >= len(a.Told) {
			break
		}
		t := a.Told[i]
		b := Message{Role: m.Role, Content: m.Content, Metadata: m.Metadata, Parts: m.Parts, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, ToolName: m.ToolName}
		if t&toldTime != 0 {
			b.Timestamp = m.Timestamp
		}
		if t&toldSource != 0 {
			b.Source = m.Source
		}
		if b.Interrupted = t&toldCut != 0; b.Interrupted && t&toldCutTime != 0 {
			b.InterruptMS = m.InterruptMS
		}
		if t&toldWhole != 0 {
			b.Generated = m.Original()
		}
		if b.GivenTurn = t&toldTurn != 0; b.GivenTurn {
			b.TurnID = m.TurnID
		}
		out = append(out, b)
	}
	return out
}

// record gives the messages that the facts make of a history: its words and what it told stand, other facts fill in what it did not.
func (a *Archive) record(base []Message, startMS int64) []Message {
	given := !slices.ContainsFunc(base, func(m Message) bool { return !m.GivenTurn })
	out := make([]Message, len(base))
	h := NewHead(Agent{}, nil, 0)
	for i, m := range base {
		if m.GivenTurn = given; given {
			m.TurnID = max(m.TurnID, h.LastTurn, 0)
		}
		out[i], _ = place(&h, m, 0, 0, false) // which refuses turns that go down, and none does
	}
	rows := a.rows(out, given)
	for from := 0; from < len(out); {
		to := from + 1
		for to < len(out) && out[to].TurnID == out[from].TurnID {
			to++
		}
		turn, row := out[from:to], rows[out[from].TurnID]
		if row == nil {
			row = &ArchiveTurn{}
		}
		row.fill(turn, startMS)
		from = to
	}
	return out
}

// rows finds the row of each turn that the messages make. Where the history has numbers they are Agora's, which may count from 0 here and from 1 there;
// that shift counts under which more turns have a row. Without numbers the turns must be as many as the rows, or, of a history that may have been
// cut, the last of them, and each must begin as its row says.
func (a *Archive) rows(msgs []Message, given bool) map[int64]*ArchiveTurn {
	byID := map[int64]*ArchiveTurn{}
	var list []*ArchiveTurn
	row := func(id int64) *ArchiveTurn {
		if byID[id] == nil {
			byID[id] = &ArchiveTurn{TurnID: id}
		}
		return byID[id]
	}
	for _, t := range a.Turns {
		*row(t.TurnID) = t
		if t.StartType != "" && t.EndType != "ignored" { // what was ignored is no part of the memory
			list = append(list, row(t.TurnID))
		}
	}
	for _, e := range a.Errors {
		if r := row(e.TurnID); r.EndType == "" || r.EndType == EndTurnError { // of several errors the first tells of the turn; all are kept
			r.EndType, r.Code = EndTurnError, cmp.Or(r.Code, e.Code)
			r.Reason, r.Details = cmp.Or(r.Reason, e.reason()), cmp.Or(r.Details, e.Message)
		}
	}
	turns, firsts := turnsOf(msgs)
	out := map[int64]*ArchiveTurn{}
	if given {
		var best int64
		most := -1
		for _, shift := range []int64{0, 1} {
			n := 0
			for _, t := range turns {
				if byID[t+shift] != nil {
					n++
				}
			}
			if n > most {
				best, most = shift, n
			}
		}
		for _, t := range turns {
			out[t] = byID[t+best]
		}
		return out
	}
	if len(turns) > len(list) || len(turns) < len(list) && len(msgs) < DefaultMaxHistory {
		return out
	}
	list = list[len(list)-len(turns):]
	for i, t := range turns {
		if (list[i].StartType == StartVoice || list[i].StartType == StartThink) != (firsts[i].Role == User) {
			return nil
		}
		out[t] = list[i]
	}
	return out
}

// turnsOf gives the turns of messages in order, and the first message of each.
func turnsOf(msgs []Message) (turns []int64, firsts []*Message) {
	for i := range msgs {
		if m := &msgs[i]; i == 0 || m.TurnID != msgs[i-1].TurnID {
			turns, firsts = append(turns, m.TurnID), append(firsts, m)
		}
	}
	return turns, firsts
}

// fill gives the messages of a turn what its row tells.
func (t *ArchiveTurn) fill(turn []Message, startMS int64) {
	last := -1
	for i := range turn {
		m := &turn[i]
		if m.Source == "" {
			m.Source = t.source(m.Role, i == 0)
		}
		if m.Timestamp == 0 {
			m.Timestamp = t.at(m.Role, i == 0, startMS)
		}
		if m.Role == Assistant {
			last = i
			m.Method = VendorText // what a notice has of an answer is what was spoken of it
			switch {
			case m.Interrupted && m.Generated == "":
				m.CutGenerated = true
			case m.Generated == m.Content:
				m.Generated = ""
			}
		}
	}
	if last < 0 {
		if t.EndType == EndTurnError {
			turn[len(turn)-1].Failure = t.failure()
		}
		return
	}
	m := &turn[last]
	if t.EndType == EndTurnInterrupted && !m.Interrupted {
		m.Interrupted, m.CutGenerated = true, true
	}
	for i := range turn {
		if c := &turn[i]; c.Interrupted {
			if c.InterruptMS == 0 {
				c.InterruptMS = max(t.EndMS, c.Timestamp)
			}
			c.EvidenceMS, c.InterruptBy = c.InterruptMS, ByStartOfSpeech
			if t.CausedBy != "" {
				c.InterruptBy = t.CausedBy
			}
		}
	}
	if t.EndType == EndTurnError {
		m.Failure = t.failure()
	}
	if t.StartMS != 0 && (t.EndMS != 0 || t.TokenMS != 0) {
		m.Timings = &Timings{StartMS: turn[0].Timestamp, FirstTokenMS: t.TokenMS, FirstSentenceMS: t.SentenceMS}
		if t.TokenMS != 0 { // the turn table makes the whole latency of these two
			m.Timings.StartMS += max(0, t.E2EMS-t.TokenMS)
		}
		m.Timings.TotalMS = max(0, t.EndMS-m.Timings.StartMS)
	}
}

func (t *ArchiveTurn) failure() *Failure {
	return &Failure{Reason: t.Reason, Code: t.Code, Message: t.Details}
}

// reason gives the turn table's word for the error.
func (e *ArchiveError) reason() string {
	if e.Module == "llm" {
		return "LLM_REQUEST_ERR"
	}
	return "INTERNAL_ERR"
}

// source gives how a message came about, as far as the row tells; "" where it does not.
func (t *ArchiveTurn) source(role Role, first bool) Source {
	switch {
	case role == User && t.StartType == StartVoice:
		return SourceASR
	case role == User && t.StartType == StartThink:
		return SourceCommand
	case role != Assistant || !first:
		return ""
	case t.StartType == StartGreeting:
		return SourceGreeting
	case t.StartType == StartSilence:
		return SourceSilence
	case t.StartType == StartSpeak:
		return SourceCommand
	}
	return ""
}

// at gives a message's time, as far as the row tells; else the agent's start.
func (t *ArchiveTurn) at(role Role, first bool, startMS int64) int64 {
	switch {
	case t.StartMS == 0:
		return startMS
	case first || role != Assistant:
		return t.StartMS
	}
	return t.StartMS + t.E2EMS
}

// differs tells whether two messages are not the same record; revisions and places do not count.
func (m Message) differs(o Message) bool {
	m.Rev, o.Rev, m.Seq, o.Seq, m.Marks, o.Marks = 0, 0, 0, 0, Marks{}, Marks{}
	a, errA := json.Marshal(m)
	b, errB := json.Marshal(o)
	return errA != nil || errB != nil || !bytes.Equal(a, b)
}
