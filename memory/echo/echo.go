package echo

import (
	"cmp"
	"slices"
)

// Message is a message of the list that a platform sent.
type Message struct {
	Role      string // user, assistant, tool, function, system or developer
	Text      string
	CallID    string   // of the call whose result the message is
	CallIDs   []string // of the calls that an assistant message makes
	ToolCalls []byte   // the JSON array of these calls; nil for none
}

// IsSystem reports whether the message instructs the model instead of being part of the
// conversation.
func (m *Message) IsSystem() bool { return m.Role == "system" || m.Role == "developer" }

// Known is a message of the ledger. Superseded and empty answers are left out.
type Known struct {
	Role     string // user, assistant or tool
	Text     string // what was heard, as far as is known
	Original string // what was generated; Text if there is nothing else
	CallIDs  []string
	// ToolCalls is the JSON array of an assistant message's calls. Calls whose IDs a client has
	// replaced are recognized by it.
	ToolCalls []byte
	// Provisional is set for an answer that was sent but not confirmed by anything. An echo
	// confirms it, and a second request for the same user message replaces it unless it is an
	// Aside.
	Provisional bool
	// Aside is set for a message that the platform need not know: an assistant message that was not
	// requested (a greeting, speak), a user message that is not the caller's, and its answer. A
	// list may confirm or cut it, but its absence means nothing, and no request replaces it.
	Aside bool
	// Unheard is set for an answer that an earlier list left out or replaced. Only its words, if a
	// list has them after all, change that.
	Unheard bool
}

// Outcome is what happened to an answer.
type Outcome string

// The outcomes.
const (
	Full        Outcome = "full"        // heard to the end
	Interrupted Outcome = "interrupted" // heard up to a word
	Unplayed    Outcome = "unplayed"    // absent although the conversation went on: nothing was heard
	Replaced    Outcome = "replaced"    // absent; the platform said something else in its place
	Ghost       Outcome = "ghost"       // the list asks again for what it answered
	Unknown     Outcome = "unknown"     // the list does not show
)

// Method is the method of every finding that is evidence (memory.EchoDiff).
const Method = "echo_diff"

// Finding is what the list shows about one answer.
type Finding struct {
	Known   int // index into the known messages
	Outcome Outcome
	Heard   string // Interrupted: the beginning of Original that was heard
	Method  string // Method, or empty for Ghost and Unknown, which are not evidence
	// Confidence is how sure the comparison is, in percent; 0 for Unknown. It does not rate the
	// platform's own account.
	Confidence int
}

// Confidence by the kind of comparison, in percent. The values are estimates.
const (
	sureSame  = 99 // the same characters
	sureWords = 97 // the same words
	// The same words as a voice says them, or three words and more of their beginning.
	sureSpoken   = 95
	sureFew      = 85 // one or two words
	sureGone     = 90 // absent between two user messages that are there
	sureMerged   = 80 // found within a longer text, or absent where user messages were merged
	sureOther    = 75 // something else in its place
	sureLike     = 70 // alike, with a word here and there written otherwise
	sureRepeated = 95 // a ghost
)

// Extended is a known user message that the list has in a longer form.
type Extended struct {
	Known int
	Text  string
}

// Result is what a list adds to the ledger. Indices of incoming messages refer to the list with its
// system messages.
type Result struct {
	New  []int          // incoming messages that the ledger lacks, in order
	Part map[int]string // for messages in New that also hold words of ours: the text that is new
	// Place is, for assistant messages in New, the known answer in whose place the platform said
	// them.
	Place map[int]int
	Pair  []int // for each incoming message the known one that it is, or -1
	// Answers has a finding for each provisional answer, each ghost, and each unheard answer whose
	// words were found, sorted by Known.
	Answers []Finding
	Extend  *Extended
}

// Limits of the search. They keep the time for hostile lists bounded.
const (
	maxAlignUsers   = 256       // user messages compared in each list
	maxSkip         = 4         // newest known user messages that the list may lack
	maxMerge        = 8         // user messages that one side may have merged into one
	maxWeighed      = 16        // turns that are scored for a place where the lists may align
	maxAligned      = 64        // calls of heard.Align
	maxAlignedBytes = 512 << 10 // of text in these calls, except the first
	maxDeep         = 32        // texts that are not the words of one answer
	maxLikened      = 16        // comparisons word by word
	maxWork         = 8 << 20   // bytes of texts compared with the answers that they may hold
	maxLabels       = 4         // times and names in front of one text
)

// turnOf is a user message with the messages up to the next one. The first turn of a list has no
// user message.
type turnOf struct {
	user int // index; -1 in the first turn
	text string
	// norm is the normalized text, bare the same without the speaker's name. They are computed when
	// needed, since most texts come back unchanged.
	norm, bare string
	computed   bool
	rest       []int
}

// normalized returns norm and bare.
func (t *turnOf) normalized() (norm, bare string) {
	if !t.computed && t.text != "" {
		t.norm, t.bare = normalizeUser(t.text)
		t.computed = true
	}
	return t.norm, t.bare
}

// aligner is one comparison of a list with the ledger.
type aligner struct {
	in     []Message
	known  []Known
	inNorm []string          // normalized texts of in; "" until they are needed
	knNorm []string          // normalized Known.Original
	a, b   []turnOf          // turns of in and of known
	said   []bool            // of known: its words were found in the list
	told   []bool            // of known: it has a finding
	aligns int               // calls of heard.Align so far
	bytes  int               // of text in these calls
	likens int               // see maxLikened
	work   int               // see maxWork
	deep   int               // see maxDeep
	loose  bool              // see sameUsers
	called map[string]string // our IDs of calls, by the IDs that a client gave them
	calls  map[int][]string  // see callsOf
	result Result
}

// Reconcile compares a platform's list with the ledger.
func Reconcile(in []Message, known []Known) Result {
	norms, flags := make([]string, len(in)+len(known)), make([]bool, 2*len(known))
	x := aligner{
		in: in, known: known, inNorm: norms[:len(in)], knNorm: norms[len(in):],
		said: flags[:len(known)], told: flags[len(known):],
	}
	x.result.Pair = make([]int, len(in))
	for i := range in {
		x.result.Pair[i] = -1
	}
	x.a = turnsOf(len(in), func(i int) (role, text string, counts bool) { return in[i].Role, in[i].Text, !in[i].IsSystem() })
	x.b = turnsOf(len(known), func(j int) (role, text string, counts bool) { return known[j].Role, known[j].Text, true })
	x.run()
	x.unknown()
	return x.result
}

// turnsOf splits a list into turns.
func turnsOf(n int, at func(i int) (role, text string, counts bool)) []turnOf {
	users := 0
	for i := range n {
		if role, _, counts := at(i); counts && role == "user" {
			users++
		}
	}
	turns := make([]turnOf, 1, users+1)
	turns[0].user = -1
	rest := make([]int, 0, n-users) // shared by all turns
	from := 0
	for i := range n {
		role, text, counts := at(i)
		switch {
		case !counts:
		case role == "user":
			turns[len(turns)-1].rest = rest[from:len(rest):len(rest)]
			from = len(rest)
			turns = append(turns, turnOf{user: i, text: text})
		default:
			rest = append(rest, i)
		}
	}
	turns[len(turns)-1].rest = rest[from:len(rest):len(rest)]
	return turns
}

// run aligns the lists and fills in the result.
func (x *aligner) run() {
	m, n := len(x.a)-1, len(x.b)-1
	best, skip := x.place(m, n)
	if n > 0 && (best == nil || skip > 0) && !x.extends(m, n) {
		x.loose = true
		if loose, less := x.place(m, n); loose != nil && (best == nil || less < skip) {
			best, skip = loose, less
		}
	}
	switch {
	case best != nil:
		for at, s := range best { // newest first, so that the limits cut off the oldest
			x.pairUsers(s)
			in, known := x.between(s)
			if at > 0 {
				x.gap(in, known, nil, gapMiddle)
				continue
			}
			kind, more := gapTail, []int(nil)
			if s.a < m {
				kind = gapFollowed
			}
			// The list may have the answers of turns whose user messages it lacks, such as
			// reminders.
			for _, t := range x.b[n-skip+1:] {
				more = append(more, t.rest...)
			}
			x.gap(in, known, more, kind)
		}
		// If the last step reaches the beginning of both lists, a greeting may precede it.
		if first := best[len(best)-1]; first.aFrom == 0 && first.bFrom == 0 {
			x.gap(x.a[0].rest, x.b[0].rest, nil, gapHead)
		}
		x.tail(best[0].a, best[0].b, skip)
	case n > 0 && x.anchored(n):
		x.tail(0, n, 0)
	case n == 0, n == 1 && m >= 1 && x.extends(1, 1):
		kind := gapFirst
		if m == 0 {
			kind = gapTail
		}
		x.gap(x.a[0].rest, x.b[0].rest, nil, kind)
		x.tail(0, 0, n)
	default:
		x.onlyTrailing()
	}
}

// anchored reports whether a list without any known user message begins with the answer to the last
// one: a window or a summary has removed the others.
func (x *aligner) anchored(n int) bool {
	x.gap(x.a[0].rest, x.b[n].rest, nil, gapHead)
	return slices.ContainsFunc(x.a[0].rest, func(i int) bool { return x.result.Pair[i] >= 0 })
}

// between returns the messages after the user messages of a step in both lists. If one side merged
// user messages, it includes those between them.
func (x *aligner) between(s step) (in, known []int) {
	in, known = x.a[s.a].rest, x.b[s.b].rest
	if s.a-s.aFrom > 1 {
		in = nil
		for _, t := range x.a[s.aFrom+1 : s.a+1] {
			in = append(in, t.rest...)
		}
	}
	if s.b-s.bFrom > 1 {
		known = nil
		for _, t := range x.b[s.bFrom+1 : s.b+1] {
			known = append(known, t.rest...)
		}
	}
	return in, known
}

// addFinding adds a finding for a known message that has none yet and is not settled.
func (x *aligner) addFinding(f Finding) {
	if k := &x.known[f.Known]; x.told[f.Known] || !k.Provisional && !k.Unheard {
		return
	}
	x.told[f.Known] = true
	if f.Outcome != Ghost && f.Outcome != Unknown {
		f.Method = Method
	}
	x.result.Answers = append(x.result.Answers, f)
}

// unknown adds findings for the answers of which the list shows nothing, and sorts all findings.
func (x *aligner) unknown() {
	for j := range x.known {
		if k := &x.known[j]; k.Provisional && !x.told[j] && k.Role == "assistant" && k.Original != "" {
			x.addFinding(Finding{Known: j, Outcome: Unknown})
		}
	}
	slices.SortFunc(x.result.Answers, func(a, b Finding) int { return cmp.Compare(a.Known, b.Known) })
}
