package echo

import (
	"cmp"
	"slices"
)

// Message is a message of the list that a platform sent.
type Message struct {
	Role      string // user, assistant, tool, function, system or developer
	Text      string
	ID        string   // of the answer of ours that it is, if the client has kept it
	Hidden    bool     // its words must not be stored
	Own       bool     // it is what the platform had said by itself: no answer of the model
	CallID    string   // of the call whose result the message is
	CallIDs   []string // of the calls that an assistant message makes
	ToolCalls []byte   // the JSON array of these calls; nil for none
}

// IsSystem reports whether the message instructs the model instead of being part of the
// conversation.
func (m *Message) IsSystem() bool { return m.Role == "system" || m.Role == "developer" }

// Known is a message of the ledger. Empty answers are left out.
type Known struct {
	Role     string // user, assistant or tool
	Text     string // what was heard, as far as is known
	Original string // what was generated; Text if there is nothing else
	ID       string // of an answer; "" for none
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
	// Echoed is set for an answer of which only earlier lists show what was heard, so that a later
	// one may show it otherwise.
	Echoed bool
	// Ghost is set for an answer that a later one replaced. Its words show that it was played.
	Ghost bool
	// First is set for the messages of the agent's first turn.
	First bool
	// Reported is set for the platform's own words, which only its lists have shown. A list without
	// them takes them back.
	Reported bool
	// Paused is set for a message whose texts were not stored. Any message of its role may be the
	// same one.
	Paused bool
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

// Extended is a known user message that the list has in a newer form: with more words, or
// corrected.
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
	// Answers has a finding for each provisional answer, each ghost, and each other answer of which
	// the list shows something new, sorted by Known.
	Answers []Finding
	Extend  []Extended
	// Gone are known messages that were never said: the caller's words where a later request has
	// them again, and words of the platform that its list has no more.
	Gone []int
}

// Limits of the comparisons of texts. They keep the time for hostile lists bounded.
const (
	maxAligned      = 64        // calls of heard.Align
	maxAlignedBytes = 512 << 10 // of text in these calls, except the first
	maxDeep         = 32        // texts that are not the words of one answer
	maxLikened      = 32        // comparisons word by word
	maxWork         = 8 << 20   // bytes of texts compared with the answers that they may hold
	maxLabels       = 4         // times and names in front of one text
)

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
	orders int               // see maxOrdered
	called map[string]string // our IDs of calls, by the IDs that a client gave them
	calls  map[int][]string  // see callsOf
	spans  []span            // newest first
	why    Account
	result Result
}

// Account is why a list came. It decides what the end of the list means.
type Account int

// The kinds of lists.
const (
	Asked Account = iota // with a call for an answer to its last words
	Noted                // it only tells what was said so far
	Final                // the call is over: an answer that the list lacks was not played
)

// Reconcile compares a platform's list with the ledger.
func (why Account) Reconcile(in []Message, known []Known) Result {
	in, known = withPaused(in, known)
	norms, flags := make([]string, len(in)+len(known)), make([]bool, 2*len(known))
	x := aligner{
		in: in, known: known, why: why, inNorm: norms[:len(in)], knNorm: norms[len(in):],
		said: flags[:len(known)], told: flags[len(known):],
	}
	x.result.Pair = make([]int, len(in))
	for i := range in {
		x.result.Pair[i] = -1
	}
	x.a = turnsOf(len(in), func(i int) (role, text string, counts bool) { return in[i].Role, in[i].Text, !in[i].IsSystem() })
	x.b = turnsOf(len(known), func(j int) (role, text string, counts bool) { return known[j].Role, known[j].Text, true })
	x.pairNamed()
	x.run()
	if why == Final {
		x.over()
	}
	x.unknown()
	x.result.Extend = slices.DeleteFunc(x.result.Extend, func(e Extended) bool { return known[e.Known].Paused })
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
	n := len(x.b) - 1
	steps := x.align()
	a, b := 0, 0 // the newest turns that both lists have
	switch {
	case steps != nil:
		a, b = steps[0].a, steps[0].b
		x.split(steps)
	case n == 0:
		x.split(nil)
	default:
		if b = x.anchored(); b == 0 {
			x.onlyTrailing()
			return
		}
	}
	for i := range x.spans {
		x.pairSpan(&x.spans[i])
	}
	x.link(steps)
	x.strays(a, b)
	for i := range x.spans {
		x.absent(&x.spans[i])
	}
	x.tail(a, b, steps)
	x.repeats(steps)
	slices.Sort(x.result.New)
}

// anchored returns the newest turn of the ledger whose answer a list begins with that has no known
// user message: a window or a summary has removed the others. It returns 0 if there is none.
func (x *aligner) anchored() int {
	for b := len(x.b) - 1; b >= 1 && b > len(x.b)-maxMoved; b-- {
		x.pairSpan(&span{in: x.a[0].rest, known: x.b[b].rest})
		if slices.ContainsFunc(x.a[0].rest, func(i int) bool { return x.result.Pair[i] >= 0 }) {
			return b
		}
	}
	return 0
}

// unsettled reports whether a list may tell something new about an answer.
func unsettled(k *Known) bool { return k.Provisional || k.Unheard || k.Echoed }

// tells reports whether a finding about k is news.
func (x *aligner) tells(k *Known, f *Finding) bool {
	words := f.Outcome == Full || f.Outcome == Interrupted
	switch {
	case k.Provisional:
		return true
	case k.Unheard, k.Ghost:
		return words
	case !k.Echoed || !words:
		return false
	case f.Outcome == Full:
		return k.Text != k.Original
	}
	// Platforms shorten old messages: only a recent answer can turn out to have been cut earlier.
	return f.Heard != k.Text && (len(f.Heard) > len(k.Text) || f.Confidence >= sureFew && f.Known >= x.recent())
}

// recent returns the first message of the newest turns.
func (x *aligner) recent() int {
	if len(x.b) <= maxMoved {
		return 0
	}
	return x.b[len(x.b)-maxMoved].user
}

// addFinding adds a finding for a known message that has none yet and is not settled.
func (x *aligner) addFinding(f Finding) {
	if k := &x.known[f.Known]; x.told[f.Known] || !unsettled(k) && !k.Ghost {
		return
	}
	x.told[f.Known] = true
	if f.Outcome != Ghost && f.Outcome != Unknown {
		f.Method = Method
	}
	x.result.Answers = append(x.result.Answers, f)
}

// unknown adds findings for the answers of which the list shows nothing, removes those that are not
// new, and sorts all.
func (x *aligner) unknown() {
	x.result.Answers = slices.DeleteFunc(x.result.Answers, func(f Finding) bool { return !x.tells(&x.known[f.Known], &f) })
	for j := range x.known {
		if k := &x.known[j]; k.Provisional && !x.told[j] && k.Role == "assistant" && k.Original != "" {
			x.addFinding(Finding{Known: j, Outcome: Unknown})
		}
	}
	slices.SortFunc(x.result.Answers, func(a, b Finding) int { return cmp.Compare(a.Known, b.Known) })
}
