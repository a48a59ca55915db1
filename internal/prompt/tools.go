package prompt

import (
	"slices"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/view"
)

// toolCalls completes the tool calls of a list for an upstream, with what the ledger knows of them.
//
// If a caller talks into an answer, platforms drop the tool's result together with the answer. A
// model that does not see the result runs the tool again: a second booking, a second payment.
// Upstreams also refuse a list in which an assistant message with tool_calls is not followed by the
// results of all of them, or in which a result follows no call.
type toolCalls struct {
	texts
	recent []memory.Message // the ledger's newest, oldest first
	ids    [][]string       // call IDs of each message in recent
	turns  map[int64]int64  // turn of each message in recent, by Seq
	list   []llmadapter.Message
	seqs   []int64 // Seq of each message in list; 0 if it is not in the ledger
	// fromPlatform is set if the list is the platform's own: the calls in it were made, and what it
	// lacks was dropped.
	fromPlatform bool
}

func newToolCalls(v texts, recent []memory.Message, list []llmadapter.Message, seqs []int64) *toolCalls {
	e := &toolCalls{texts: v, recent: recent, list: list, seqs: seqs, ids: make([][]string, len(recent)), turns: make(map[int64]int64, len(recent))}
	for i := range recent {
		m := &recent[i]
		e.turns[m.Seq] = m.TurnID
		if m.Role == memory.Assistant && len(m.ToolCalls) > 0 {
			e.ids[i] = llmadapter.CallIDs(m.ToolCalls)
		}
	}
	return e
}

// isResult reports whether a message is the result of a call that it names. The older form, which
// names only a function, is left alone.
func isResult(m *llmadapter.Message) bool {
	return (m.Role == "tool" || m.Role == "function") && m.ToolCallID != ""
}

func isCall(m *llmadapter.Message) bool { return m.Role == "assistant" && len(m.ToolCalls) > 0 }

// toolCallsComplete reports whether each call of a list is followed by its results, and no result
// stands elsewhere.
func toolCallsComplete(list []llmadapter.Message) bool {
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

// results returns the ledger's results of the calls of recent[at], nil for each that it lacks. A
// later turn may use the same IDs again.
func (e *toolCalls) results(at int) []*memory.Message {
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

// call returns the index in recent of the call that a message of the list makes or answers, or -1.
// If the message has no Seq, it is the newest call with that ID.
func (e *toolCalls) call(seq int64, id string) int {
	for i := len(e.recent) - 1; i >= 0; i-- {
		if slices.Contains(e.ids[i], id) && (seq == 0 || e.recent[i].Seq <= seq) {
			return i
		}
	}
	return -1
}

// heardByReport reports whether a report of the platform, and not only its lists, says what was
// heard of an answer.
func heardByReport(m *memory.Message) bool {
	return m.Role == memory.Assistant && m.InContext() && sentByProxy(m) && m.Content != "" && m.Method.Rank() > memory.EchoDiff.Rank()
}

// greets reports whether the agent said something that no caller asked for.
func greets(m *memory.Message) bool {
	return m.Role == memory.Assistant && m.InContext() && m.Source == memory.SourceGreeting
}

// placeGreetings moves greetings to their places in the ledger. Platforms that commit a text once
// it was played have it behind the caller's words that came meanwhile.
func (e *toolCalls) placeGreetings() {
	for at := range e.recent {
		g := &e.recent[at]
		i := slices.Index(e.seqs, g.Seq)
		if i < 1 || !greets(g) {
			continue
		}
		to := slices.IndexFunc(e.seqs[:i], func(seq int64) bool { return seq > g.Seq })
		if to < 0 {
			continue
		}
		m := e.list[i]
		e.list, e.seqs = slices.Delete(e.list, i, i+1), slices.Delete(e.seqs, i, i+1)
		e.insert(to, g.Seq, m)
	}
}

// restore puts back what the platform dropped when the caller talked into an answer: calls whose
// results the ledger has, answers of which a report says what was heard, and unheard answers, if
// the view shows those. Calls of a turn whose answer was heard to its end stay away: the answer
// says what they did.
func (e *toolCalls) restore() {
	present := e.present()
	var others []string // IDs of calls in the list that are not in the ledger
	for i, seq := range e.seqs {
		if seq == 0 && isCall(&e.list[i]) {
			others = append(others, llmadapter.CallIDs(e.list[i].ToolCalls)...)
		}
	}
	noted := map[int64]bool{}
	for at := range e.recent {
		g := &e.recent[at]
		switch {
		case present[g.Seq]:
		case e.dropped(at, present, others):
			if i := e.place(g); i >= 0 {
				if a := e.answer(at); a != nil {
					noted[a.Seq] = true
				}
				e.insert(i, g.Seq, e.group(nil, at, e.note(at, present))...)
			}
		case noted[g.Seq]: // its words stand below the result that they are about
		case len(e.ids[at]) == 0 && g.ShownBy(e.View) && (!g.InContext() || heardByReport(g)):
			if i := e.place(g); i >= 0 {
				m := fromMemory(g, e.custom)
				e.rewrite(&m, g)
				e.insert(i, g.Seq, m)
			}
		}
	}
}

// dropped reports whether recent[at] is a call whose result is in the ledger but not in the list,
// and whose answer was not heard to its end.
func (e *toolCalls) dropped(at int, present map[int64]bool, others []string) bool {
	if len(e.ids[at]) == 0 || slices.ContainsFunc(e.ids[at], func(id string) bool { return slices.Contains(others, id) }) {
		return false
	}
	known := false
	for _, m := range e.results(at) {
		if m != nil && present[m.Seq] {
			return false
		}
		known = known || m != nil
	}
	return known && !e.heardOut(at, present)
}

// insert puts messages into the list at i. The first has the given Seq in the ledger.
func (e *toolCalls) insert(i int, seq int64, msgs ...llmadapter.Message) {
	e.list = slices.Insert(e.list, i, msgs...)
	e.seqs = slices.Insert(e.seqs, i, make([]int64, len(msgs))...)
	e.seqs[i] = seq
}

// place returns the index at which a message of the ledger belongs in the list: after what came
// before it, else in front of what came after it. It returns -1 unless the list has a message of
// that turn or of one beside it, so that what a window or a summary removed stays away. The user
// message of the turn itself may be gone: some platforms merge it with what the caller said into
// the answer.
func (e *toolCalls) place(g *memory.Message) int {
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

// turnsAround returns the caller's turns before and after that of g, or -1.
func (e *toolCalls) turnsAround(g *memory.Message) (before, after int64) {
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

// heardOut reports whether the list has an answer to the calls of recent[at] that was heard to its
// end.
func (e *toolCalls) heardOut(at int, present map[int64]bool) bool {
	a := e.answer(at)
	return a != nil && present[a.Seq] && a.State == memory.Final && a.Content != "" && !a.Answer().Cut
}

// answer returns what the model said last about the results of recent[at] before the caller's next
// words, or nil.
func (e *toolCalls) answer(at int) *memory.Message {
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

// note returns the words to put below a restored result. An answer that was sent, that the platform
// did not confirm and that the list lacks was not heard.
func (e *toolCalls) note(at int, present map[int64]bool) string {
	a := e.answer(at)
	if a != nil && !present[a.Seq] && a.Method.Rank() < memory.EchoDiff.Rank() {
		unheard := *a
		unheard.Content, unheard.Generated = "", a.Original()
		a = &unheard
	}
	if a == nil {
		return e.ToolNote(view.Answer{})
	}
	return e.ToolNote(a.Answer())
}

// group appends the call of recent[at] and its results, with a note below the last that is known.
func (e *toolCalls) group(out []llmadapter.Message, at int, note string) []llmadapter.Message {
	g := &e.recent[at]
	call := fromMemory(g, e.custom)
	if g.State == memory.Final {
		e.rewrite(&call, g)
	} else {
		// A replaced answer is never shown, but what its tools did is.
		call.Text, call.Content = "", nil
	}
	return e.answers(append(out, call), e.ids[at], e.results(at), note)
}

// answers appends the results of calls.
func (e *toolCalls) answers(out []llmadapter.Message, ids []string, results []*memory.Message, note string) []llmadapter.Message {
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

// mend returns the list with each call followed by its results: those of the list, wherever they
// stand, else the ledger's, else a text that says that the result is unknown. A result without a
// call gets the ledger's, or one without arguments.
func (e *toolCalls) mend() []llmadapter.Message {
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
func (e *toolCalls) withResults(out []llmadapter.Message, i int, used []bool) []llmadapter.Message {
	ids := llmadapter.CallIDs(e.list[i].ToolCalls)
	out = append(out, e.list[i])
	head := len(out) - 1
	open := slices.Clone(ids)
	for j := i + 1; j < len(e.list) && len(open) > 0; j++ {
		m := &e.list[j]
		if isCall(m) && slices.ContainsFunc(llmadapter.CallIDs(m.ToolCalls), func(id string) bool { return slices.Contains(open, id) }) {
			break // another call with the same ID
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
		if e.fromPlatform {
			note = e.note(at, e.present())
		} else if e.recent[at].CutGenerated && !known {
			return e.withoutCalls(out, head)
		}
	}
	return e.answers(out, open, results, note)
}

// withoutCalls removes the calls of a message that was cut before they were complete: they cannot
// have been made.
func (e *toolCalls) withoutCalls(out []llmadapter.Message, at int) []llmadapter.Message {
	out[at].ToolCalls = nil
	if out[at].Text == "" && (out[at].Content == nil || string(out[at].Content) == "null") {
		return out[:at]
	}
	return out
}

// present returns the Seq numbers that the list has.
func (e *toolCalls) present() map[int64]bool {
	out := make(map[int64]bool, len(e.seqs))
	for _, seq := range e.seqs {
		out[seq] = true
	}
	return out
}

// withCall appends result i of the list, which does not follow its call, together with the call. A
// result that appears twice is left out.
func (e *toolCalls) withCall(out []llmadapter.Message, i int, used []bool) []llmadapter.Message {
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
