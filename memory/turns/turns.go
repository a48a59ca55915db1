// Package turns derives Agora's turn table from a ledger: when each turn of a conversation
// began and ended, why, and how long the answer took. Of makes it from messages, Read from an
// agent.
package turns

import (
	"cmp"
	"context"
	"slices"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// Row is one turn of Agora's turn table: one exchange with its beginning, its end, why both
// happened, and how long the answer took. It has no text.
type Row struct {
	TurnID int64

	StartMS   int64
	StartType string // voice_input, greeting, silence_timeout, api_speak, api_think
	GreetNth  int    // greeting: which one, from 1
	Action    string // silence_timeout: speak or think

	EndMS    int64
	EndType  string // ok, interrupted, error; "" while the turn is open
	CausedBy string // interrupted: one of memory's By constants
	// Clamped is set if the turn ended before it began by the clock of a platform: EndMS is not
	// before StartMS.
	Clamped bool
	Failure *memory.Failure
	// Finish is the finish_reason of an answer that ended well, if the model was limited; else "".
	Finish string

	// What the proxy measured, in ms; 0 is not measured. E2E is the time from the user's message to
	// the first token sent.
	E2EMS, FirstTokenMS, FirstSentenceMS int64
}

// The ways a turn starts and ends.
const (
	StartVoice    = "voice_input"
	StartGreeting = "greeting"
	StartSilence  = "silence_timeout"
	StartSpeak    = "api_speak"
	StartThink    = "api_think"

	EndOK          = "ok"
	EndInterrupted = "interrupted"
	EndError       = "error"
)

// Of returns the turns of a ledger, which is in order of Seq. It is a pure function of the
// messages.
func Of(msgs []memory.Message) []Row {
	t := table{}
	t.add(msgs)
	return t.rows()
}

// table is made of messages in order of Seq, some at a time.
type table map[int64]*shownTurn

// shownTurn is a turn and how it is shown if the memory was rebuilt with copies. Copies make no
// second turn, and do not belong to the turn that was open then. A message added to a turn of
// copies belongs to the turn that they were copied from. own is set for a turn that has more than
// copies, started for one that started without a copy.
type shownTurn struct {
	started, own bool
	row          *Row // nil before its first message that is shown
}

func (t table) add(msgs []memory.Message) {
	for i := range msgs {
		m := &msgs[i]
		own := m.Filed().CopyOf == 0
		turn := t[m.TurnID]
		if turn == nil {
			turn = &shownTurn{started: own}
			t[m.TurnID] = turn
		}
		turn.own = turn.own || own
		if m.State == memory.Superseded || m.Role.Instructs() || !own && turn.started {
			continue
		}
		if turn.row == nil {
			turn.row = &Row{TurnID: m.TurnID, StartMS: m.Timestamp, StartType: startType(m)}
			if turn.row.StartType == StartSilence {
				turn.row.Action = "speak"
				if m.Role == memory.User {
					turn.row.Action = "think"
				}
			}
		}
		if m.Role == memory.Assistant || m.Failure != nil {
			turn.row.end(m)
		}
	}
}

func (t table) rows() []Row {
	var rows []Row
	for _, turn := range t {
		if turn.own && turn.row != nil {
			rows = append(rows, *turn.row)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.TurnID, b.TurnID) })
	greetings := 0
	for i := range rows {
		if rows[i].StartType == StartGreeting {
			greetings++
			rows[i].GreetNth = greetings
		}
	}
	return rows
}

func startType(m *memory.Message) string {
	switch {
	case m.Source == memory.SourceGreeting:
		return StartGreeting
	case m.Source == memory.SourceSilence:
		return StartSilence
	case m.Source == memory.SourceCommand && m.Role == memory.User:
		return StartThink
	case m.Role == memory.Assistant && (m.Source == memory.SourceCommand || m.Timings != nil && !m.TurnHasUser):
		return StartSpeak
	}
	return StartVoice
}

func (r *Row) end(m *memory.Message) {
	r.EndMS, r.EndType, r.Clamped = m.Timestamp, EndOK, false
	if t := m.Timings; t != nil {
		r.EndMS = max(r.EndMS, t.StartMS+t.TotalMS)
		if r.FirstTokenMS == 0 {
			r.FirstTokenMS, r.FirstSentenceMS = t.FirstTokenMS, t.FirstSentenceMS
			if t.FirstTokenMS > 0 {
				r.E2EMS = max(0, t.StartMS+t.FirstTokenMS-r.StartMS)
			}
		}
	}
	r.Finish = ""
	switch {
	case m.Failure != nil:
		r.EndType, r.Failure = EndError, m.Failure
	case m.Interrupted:
		r.EndType, r.CausedBy, r.EndMS = EndInterrupted, m.InterruptBy, m.InterruptMS
	case memory.Limited(m.FinishRsn):
		r.Finish = m.FinishRsn
	}
	if r.EndMS < r.StartMS {
		r.EndMS, r.Clamped = r.StartMS, true
	}
}

// Read returns an agent's turn table, also after its end.
func Read(ctx context.Context, s *agents.Messages, project, id string) (memory.Agent, []Row, error) {
	h, err := s.Head(ctx, project, id)
	if err != nil {
		return memory.Agent{}, nil, err
	}
	const row = 512
	if err := s.Room(ctx, &h, h.Agent.Settings.Memory.OwnSince(), row); err != nil {
		return memory.Agent{}, nil, err
	}
	t := table{}
	err = s.Each(ctx, project, id, h.Agent.Settings.Memory.OwnSince(), func(msgs []memory.Message) error {
		t.add(msgs)
		return nil
	})
	return *h.Agent, t.rows(), err
}

// StartMetadata returns start.metadata of the turn table.
func (r Row) StartMetadata() map[string]any {
	switch r.StartType {
	case StartGreeting:
		return map[string]any{"greeting_nth": r.GreetNth}
	case StartSilence:
		return map[string]any{"action": r.Action}
	case StartSpeak, StartThink:
		return map[string]any{"transport": "http"}
	}
	return map[string]any{}
}

// EndMetadata returns end.metadata of the turn table.
func (r Row) EndMetadata() map[string]any {
	m := map[string]any{}
	switch r.EndType {
	case EndInterrupted:
		m["caused_by"] = r.CausedBy
		if r.CausedBy == memory.ByAPISpeak || r.CausedBy == memory.ByAPIInterrupt {
			m["transport"] = "http"
		}
	case EndError:
		m["reason"], m["details"] = r.Failure.Reason, r.Failure.Message
		if r.Failure.Error != "" {
			m["error"] = r.Failure.Error
		}
	case EndOK:
		if r.Finish != "" {
			m["finish_reason"] = r.Finish
		}
	}
	if r.Clamped {
		m["clamped"] = true
	}
	return m
}

// Latency is one part of a turn's latency.
type Latency struct {
	Name string // llm_ttft, llm_ftfs
	MS   int64
}

// Latencies returns the parts of the turn's latency that the proxy can measure.
func (r Row) Latencies() []Latency {
	var out []Latency
	if r.FirstTokenMS > 0 {
		out = append(out, Latency{"llm_ttft", r.FirstTokenMS})
	}
	if r.FirstSentenceMS > 0 {
		out = append(out, Latency{"llm_ftfs", r.FirstSentenceMS})
	}
	return out
}
