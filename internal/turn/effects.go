package turn

import (
	"slices"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// This file keeps what tools have done in front of the model. A caller who talks into an answer makes platforms drop the tool's result together with it,
// and a model that does not see the result runs the tool again: a second booking, a second payment (reference/platforms.md section 3, pain 2).
//
// Upstreams refuse a list in which an assistant message with tool_calls is not followed by the results of all of them, or a result follows
// no call. Whatever the platform and the ledger lack, the list that goes up has that form.

// effects is a list on its way up, with what the ledger knows of its tool calls.
type effects struct {
	shown
	recent []memory.Message // the ledger's newest, oldest first
	ids    [][]string       // of the calls of each of them
	turns  map[int64]int64  // of each of them, by Seq
	list   []llmadapter.Message
	seqs   []int64 // of each message of the list; 0 = not in the ledger
	// platforms tells that the list is the platform's own: the calls in it were made, and what it lacks was dropped.
	platforms bool
}

func newEffects(v shown, recent []memory.Message, list []llmadapter.Message, seqs []int64) *effects {
	e := &effects{shown: v, recent: recent, list: list, seqs: seqs, ids: make([][]string, len(recent)), turns: make(map[int64]int64, len(recent))}
	for i := range recent {
		m := &recent[i]
		e.turns[m.Seq] = m.TurnID
		if m.Role == memory.Assistant && len(m.ToolCalls) > 0 {
			e.ids[i] = llmadapter.CallIDs(m.ToolCalls)
		}
	}
	return e
}

// isResult tells whether a message is the result of a call that it names. The older form names a function only and is left alone.
func isResult(m *llmadapter.Message) bool {
	return (m.Role == "tool" || m.Role == "function") && m.ToolCallID != ""
}

func isCall(m *llmadapter.Message) bool { return m.Role == "assistant" && len(m.ToolCalls) > 0 }

// complete tells whether each call of a list is followed by its results, and nothing else is a result.
func complete(list []llmadapter.Message) bool {
	var open []string
	for i := range list {
		m := &list[i]
		if isResult(m) {
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				return false
			}
			open = slices.Delete(open, at, at+1)
			continue
		}
		if len(open) > 0 {
			return false
		}
		if isCall(m) {
			open = llmadapter.CallIDs(m.ToolCalls)
		}
	}
	return len(open) == 0
}

// results gives the ledger's results of the calls of recent[at], nil for each that it lacks. Ids may come again in a later turn.
func (e *effects) results(at int) []*memory.Message {
	ids := e.ids[at]
	out := make([]*memory.Message, len(ids))
	for i, id := range ids {
		for j := at + 1; j < len(e.recent) && !slices.Contains(e.ids[j], id); j++ {
			if m := &e.recent[j]; m.Role == memory.Tool && m.ToolCallID == id {
				out[i] = m
				break
			}
		}
	}
	return out
}

// call gives where in recent the call stands that a message of the list makes or answers: by its Seq, else the newest of that id. -1 for none.
func (e *effects) call(seq int64, id string) int {
	for i := len(e.recent) - 1; i >= 0; i-- {
		if slices.Contains(e.ids[i], id) && (seq == 0 || e.recent[i].Seq <= seq) {
			return i
		}
	}
	return -1
}

// restore puts back what the platform dropped when the caller talked into an answer: calls whose results the ledger has, and answers of which nothing was
// heard, where the view tells those. Calls of a turn whose answer was heard to its end stay away: it tells what they did.
func (e *effects) restore() {
	held := e.holds()
	var others []string // calls of the list that the ledger does not know by Seq
	for i, seq := range e.seqs {
		if seq == 0 && isCall(&e.list[i]) {
			others = append(others, llmadapter.CallIDs(e.list[i].ToolCalls)...)
		}
	}
	for at := range e.recent {
		g := &e.recent[at]
		switch {
		case held[g.Seq]:
		case e.dropped(at, held, others):
			if i := e.place(g); i >= 0 {
				e.insert(i, g.Seq, e.group(nil, at, e.note(at, held))...)
			}
		case len(e.ids[at]) == 0 && e.Shows(g) && !g.InContext():
			if i := e.place(g); i >= 0 {
				m := fromMemory(g, e.custom)
				e.rewrite(&m, g)
				e.insert(i, g.Seq, m)
			}
		}
	}
}

// dropped tells whether recent[at] is a call that has its result in the ledger, and neither in the list, nor an answer there that was heard to its end.
func (e *effects) dropped(at int, held map[int64]bool, others []string) bool {
	if len(e.ids[at]) == 0 || slices.ContainsFunc(e.ids[at], func(id string) bool { return slices.Contains(others, id) }) {
		return false
	}
	known := false
	for _, m := range e.results(at) {
		if m != nil && held[m.Seq] {
			return false
		}
		known = known || m != nil
	}
	return known && !e.heardOut(at, held)
}

// insert puts messages into the list, of which the first is seq of the ledger.
func (e *effects) insert(i int, seq int64, msgs ...llmadapter.Message) {
	e.list = slices.Insert(e.list, i, msgs...)
	e.seqs = slices.Insert(e.seqs, i, make([]int64, len(msgs))...)
	e.seqs[i] = seq
}

// place gives where in the list a message of the ledger belongs: behind what came before it, else in front of what came after it. The list must hold something of
// that turn or of one beside it; -1 otherwise: what a window or a summary took away stays away. The caller's words of the turn itself may be gone: some
// platforms put those that he spoke into the answer behind them, as one message.
func (e *effects) place(g *memory.Message) int {
	before, after := e.turnsAround(g)
	at, near, behind := 0, false, false
	for i, seq := range e.seqs {
		if seq == 0 {
			continue
		}
		turn := e.turns[seq]
		near = near || turn == g.TurnID || turn == before || turn == after
		if seq < g.Seq {
			at, behind = i+1, true
		} else if !behind {
			at, behind = i, true
		}
	}
	if !near {
		return -1
	}
	for at < len(e.list) && isResult(&e.list[at]) { // not between another call and its results
		at++
	}
	return at
}

// turnsAround gives the caller's turns before and after that of g; -1 for none.
func (e *effects) turnsAround(g *memory.Message) (before, after int64) {
	before, after = -1, -1
	for i := range e.recent {
		m := &e.recent[i]
		switch {
		case m.Role != memory.User:
		case m.TurnID < g.TurnID:
			before = max(before, m.TurnID)
		case m.TurnID > g.TurnID && after < 0:
			after = m.TurnID
		}
	}
	return before, after
}

// heardOut tells whether the list holds an answer to the calls of recent[at] that was heard to its end.
func (e *effects) heardOut(at int, held map[int64]bool) bool {
	a := e.answer(at)
	return a != nil && held[a.Seq] && a.State == memory.Final && a.Content != "" && !a.WasCut()
}

// answer gives what the model said last about the results of recent[at], before the caller's next words; nil for nothing.
func (e *effects) answer(at int) *memory.Message {
	var last *memory.Message
	for i := at + 1; i < len(e.recent); i++ {
		m := &e.recent[i]
		switch {
		case m.Role == memory.User && m.State == memory.Final:
			return last
		case m.Role != memory.Assistant || m.Source != memory.SourceLLM || m.TurnID != e.recent[at].TurnID:
		case m.State != memory.Superseded && m.State != memory.Empty && m.Original() != "":
			last = m
		}
	}
	return last
}

// note gives the words below a result that is put back. An answer that only our socket speaks for, and that the list lacks, was not heard.
func (e *effects) note(at int, held map[int64]bool) string {
	a := e.answer(at)
	if a != nil && !held[a.Seq] && a.Method.Rank() < memory.EchoDiff.Rank() {
		unheard := *a
		unheard.Content, unheard.Generated = "", a.Original()
		a = &unheard
	}
	return e.ToolNote(a)
}

// group appends the call of recent[at] and its results, with a note below the last that is known.
func (e *effects) group(out []llmadapter.Message, at int, note string) []llmadapter.Message {
	g := &e.recent[at]
	call := fromMemory(g, e.custom)
	if g.State == memory.Final {
		e.rewrite(&call, g)
	} else {
		call.Text, call.Content = "", nil // what a ghost said is told nowhere; what its tools did is
	}
	return e.answers(append(out, call), e.ids[at], e.results(at), note)
}

// answers appends the results of calls.
func (e *effects) answers(out []llmadapter.Message, ids []string, results []*memory.Message, note string) []llmadapter.Message {
	last := -1
	for i, m := range results {
		if m != nil {
			last = i
		}
	}
	for i, id := range ids {
		if results[i] == nil {
			out = append(out, llmadapter.Message{Role: "tool", ToolCallID: id, Text: e.NoResult()})
			continue
		}
		r := fromMemory(results[i], e.custom)
		if i == last && note != "" {
			r.Text, r.Content = results[i].Content+"\n"+note, nil
		}
		out = append(out, r)
	}
	return out
}

// mend gives the list with each call followed by its results: those of the list, wherever they stand in it, then the ledger's, then a word that none is known. A
// result without its call gets it from the ledger, or, where nobody knows it, one without arguments.
func (e *effects) mend() []llmadapter.Message {
	out := make([]llmadapter.Message, 0, len(e.list)+4)
	used := make([]bool, len(e.list))
	for i := range e.list {
		m := &e.list[i]
		switch {
		case used[i]:
		case isCall(m):
			out = e.withResults(out, i, used)
		case isResult(m):
			out = e.withCall(out, i, used)
		default:
			out = append(out, *m)
		}
	}
	return out
}

// withResults appends call i of the list and its results.
func (e *effects) withResults(out []llmadapter.Message, i int, used []bool) []llmadapter.Message {
	ids := llmadapter.CallIDs(e.list[i].ToolCalls)
	out = append(out, e.list[i])
	head := len(out) - 1
	open := slices.Clone(ids)
	for j := i + 1; j < len(e.list) && len(open) > 0; j++ {
		m := &e.list[j]
		if isCall(m) && slices.ContainsFunc(llmadapter.CallIDs(m.ToolCalls), func(id string) bool { return slices.Contains(open, id) }) {
			break // the same id again, of another call
		}
		if at := slices.Index(open, m.ToolCallID); at >= 0 && isResult(m) && !used[j] {
			out, used[j] = append(out, *m), true
			open = slices.Delete(open, at, at+1)
		}
	}
	if len(open) == 0 {
		return out
	}
	results, note := make([]*memory.Message, len(open)), ""
	known := len(open) < len(ids)
	if at := e.call(e.seqs[i], open[0]); at >= 0 {
		all := e.results(at)
		for k, id := range open {
			if n := slices.Index(e.ids[at], id); n >= 0 {
				results[k] = all[n]
				known = known || all[n] != nil
			}
		}
		if e.platforms {
			note = e.note(at, e.holds())
		} else if e.recent[at].CutGenerated && !known {
			return e.withoutCalls(out, head)
		}
	}
	return e.answers(out, open, results, note)
}

// withoutCalls takes back the calls of a message that was cut before they were complete: nobody can have made them.
func (e *effects) withoutCalls(out []llmadapter.Message, at int) []llmadapter.Message {
	out[at].ToolCalls = nil
	if out[at].Text == "" && (out[at].Content == nil || string(out[at].Content) == "null") {
		return out[:at]
	}
	return out
}

func (e *effects) holds() map[int64]bool {
	held := make(map[int64]bool, len(e.seqs))
	for _, seq := range e.seqs {
		held[seq] = true
	}
	return held
}

// withCall appends result i of the list, whose call does not stand in front of it, with its call. A result that comes twice is left out.
func (e *effects) withCall(out []llmadapter.Message, i int, used []bool) []llmadapter.Message {
	id := e.list[i].ToolCallID
	if slices.ContainsFunc(out, func(m llmadapter.Message) bool { return m.ToolCallID == id && isResult(&m) }) {
		return out
	}
	at := e.call(e.seqs[i], id)
	if at < 0 {
		return append(out, llmadapter.UnknownCall(id, e.list[i].Name), e.list[i])
	}
	group := e.group(nil, at, "")
	for k := range group {
		for j := i; j < len(e.list) && k > 0; j++ {
			if m := &e.list[j]; !used[j] && isResult(m) && m.ToolCallID == group[k].ToolCallID {
				group[k], used[j] = *m, true
				break
			}
		}
	}
	return append(out, group...)
}
