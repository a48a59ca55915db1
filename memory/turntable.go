package memory

import "context"

// TurnRow is one turn of Agora's turn table. It has no text.
type TurnRow struct {
	TurnID int64

	StartMS   int64
	StartType string // voice_input, greeting, silence_timeout, api_speak, api_think
	GreetNth  int    // greeting: which one, from 1
	Action    string // silence_timeout: speak or think

	EndMS    int64
	EndType  string // ok, interrupted, error; "" while the turn is open
	CausedBy string // interrupted: one of the By constants
	Failure  *Failure

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

	EndTurnOK          = "ok"
	EndTurnInterrupted = "interrupted"
	EndTurnError       = "error"
)

// TurnTable returns the turns of a ledger in order. It is a pure function of the messages.
func TurnTable(msgs []Message) []TurnRow {
	var rows []TurnRow
	greetings := 0
	told := shownTurns(msgs)
	for _, m := range ByTurn(msgs) {
		if m.State == Superseded || instructs(m.Role) || !told[m.TurnID].shows(&m) {
			continue
		}
		if len(rows) == 0 || rows[len(rows)-1].TurnID != m.TurnID {
			row := TurnRow{TurnID: m.TurnID, StartMS: m.Timestamp, StartType: startType(m)}
			switch row.StartType {
			case StartGreeting:
				greetings++
				row.GreetNth = greetings
			case StartSilence:
				row.Action = "speak"
				if m.Role == User {
					row.Action = "think"
				}
			}
			rows = append(rows, row)
		}
		if m.Role == Assistant || m.Failure != nil {
			rows[len(rows)-1].end(m)
		}
	}
	return rows
}

// shownTurn is how a turn is shown if the memory was rebuilt with copies. Copies make no second
// turn, and do not belong to the turn that was open then. A message added to a turn of copies
// belongs to the turn that they were copied from.
type shownTurn struct{ started, own bool }

func (t shownTurn) shows(m *Message) bool { return t.own && (m.CopyOf() == 0 || !t.started) }

// shownTurns returns the turns: own are those with more than copies, started those that started
// without a copy.
func shownTurns(msgs []Message) map[int64]shownTurn {
	out := map[int64]shownTurn{}
	for i := range msgs { // in order of Seq
		m := &msgs[i]
		t, known := out[m.TurnID]
		own := m.CopyOf() == 0
		t.started, t.own = t.started || !known && own, t.own || own
		out[m.TurnID] = t
	}
	return out
}

func startType(m Message) string {
	switch {
	case m.Source == SourceGreeting:
		return StartGreeting
	case m.Source == SourceSilence:
		return StartSilence
	case m.Source == SourceCommand && m.Role == User:
		return StartThink
	case m.Role == Assistant && m.Source == SourceCommand:
		return StartSpeak
	}
	return StartVoice
}

func (r *TurnRow) end(m Message) {
	r.EndMS, r.EndType = m.Timestamp, EndTurnOK
	if t := m.Timings; t != nil {
		r.EndMS = max(r.EndMS, t.StartMS+t.TotalMS)
		if r.FirstTokenMS == 0 {
			r.FirstTokenMS, r.FirstSentenceMS = t.FirstTokenMS, t.FirstSentenceMS
			if t.FirstTokenMS > 0 {
				r.E2EMS = max(0, t.StartMS+t.FirstTokenMS-r.StartMS)
			}
		}
	}
	switch {
	case m.Failure != nil:
		r.EndType, r.Failure = EndTurnError, m.Failure
	case m.Interrupted:
		r.EndType, r.CausedBy, r.EndMS = EndTurnInterrupted, m.InterruptBy, m.InterruptMS
	}
}

// Turns returns an agent's turn table, also after its end.
func (s *Service) Turns(ctx context.Context, project, id string) (Agent, []TurnRow, error) {
	h, err := s.cfg.Store.Head(ctx, project, id)
	if err != nil {
		return Agent{}, nil, err
	}
	msgs, err := s.all(ctx, project, id)
	return h.Agent, TurnTable(h.Agent.Settings.Memory.own(msgs)), err
}

// StartMetadata returns start.metadata of the turn table.
func (r TurnRow) StartMetadata() map[string]any {
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
func (r TurnRow) EndMetadata() map[string]any {
	switch r.EndType {
	case EndTurnInterrupted:
		m := map[string]any{"caused_by": r.CausedBy}
		if r.CausedBy == ByAPISpeak || r.CausedBy == ByAPIInterrupt {
			m["transport"] = "http"
		}
		return m
	case EndTurnError:
		return map[string]any{"reason": r.Failure.Reason, "details": r.Failure.Message}
	}
	return map[string]any{}
}

// Latency is one part of a turn's latency.
type Latency struct {
	Name string // llm_ttft, llm_ftfs
	MS   int64
}

// Latencies returns the parts of the turn's latency that the proxy can measure.
func (r TurnRow) Latencies() []Latency {
	var out []Latency
	if r.FirstTokenMS > 0 {
		out = append(out, Latency{"llm_ttft", r.FirstTokenMS})
	}
	if r.FirstSentenceMS > 0 {
		out = append(out, Latency{"llm_ftfs", r.FirstSentenceMS})
	}
	return out
}
