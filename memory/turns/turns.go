// Package turns derives Agora's turn table from a ledger: when each turn of a conversation
// began and ended, why, and how long the answer took. Of makes it from messages, Read from an
// agent.
package turns

import (
	"context"

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

// Of returns the turns of a ledger in order. It is a pure function of the messages.
func Of(msgs []memory.Message) []Row {
	var rows []Row
	greetings := 0
	told := shownTurns(msgs)
	for _, m := range memory.ByTurn(msgs) {
		if m.State == memory.Superseded || m.Role.Instructs() || !told[m.TurnID].shows(&m) {
			continue
		}
		if len(rows) == 0 || rows[len(rows)-1].TurnID != m.TurnID {
			row := Row{TurnID: m.TurnID, StartMS: m.Timestamp, StartType: startType(m)}
			switch row.StartType {
			case StartGreeting:
				greetings++
				row.GreetNth = greetings
			case StartSilence:
				row.Action = "speak"
				if m.Role == memory.User {
					row.Action = "think"
				}
			}
			rows = append(rows, row)
		}
		if m.Role == memory.Assistant || m.Failure != nil {
			rows[len(rows)-1].end(m)
		}
	}
	return rows
}

// shownTurn is how a turn is shown if the memory was rebuilt with copies. Copies make no second
// turn, and do not belong to the turn that was open then. A message added to a turn of copies
// belongs to the turn that they were copied from.
type shownTurn struct{ started, own bool }

func (t shownTurn) shows(m *memory.Message) bool {
	return t.own && (m.Filed().CopyOf == 0 || !t.started)
}

// shownTurns returns the turns: own are those with more than copies, started those that started
// without a copy.
func shownTurns(msgs []memory.Message) map[int64]shownTurn {
	out := map[int64]shownTurn{}
	for i := range msgs { // in order of Seq
		m := &msgs[i]
		t, known := out[m.TurnID]
		own := m.Filed().CopyOf == 0
		t.started, t.own = t.started || !known && own, t.own || own
		out[m.TurnID] = t
	}
	return out
}

func startType(m memory.Message) string {
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

func (r *Row) end(m memory.Message) {
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
	msgs, err := s.All(ctx, project, id)
	return *h.Agent, Of(h.Agent.Settings.Memory.Own(msgs)), err
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
