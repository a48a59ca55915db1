package llmadapter

import (
	"cmp"
	"slices"
)

// This file tells what a platform's own list of messages brings to a memory that has kept a ledger of the same
// conversation. All of it is pure functions over message lists (reference/platforms.md 2.2 and 2.3).
//
// Lists are aligned by user messages, from the end: windows drop old turns, summaries replace them, and the platform cuts
// or rewrites what we said, but what the caller said last stays as it was. Where nothing aligns, only what follows the
// last answer counts as new, so that no list, however strange, is stored twice.

// Known is a message that the ledger has. Superseded and empty answers are left out of the list.
type Known struct {
	Role     string // user, assistant or tool
	Text     string // content: what was heard, as far as is known
	Original string // what was generated; Text where that is all there is
	CallIDs  []string
	// ToolCalls is the JSON array of an assistant message that called tools: clients that make new ids for old calls are known by it.
	ToolCalls []byte
	// Provisional is an assistant message that nothing but our own socket speaks for: an echo confirms it, and a second
	// request for the same user message replaces it unless it is an Aside.
	Provisional bool
	// Aside is a message that the platform did not get from us or send to us: an assistant message that was not asked for (a greeting, speak), words that
	// were not the caller's, and what was answered to them. A list may confirm or cut it, but its absence says nothing, and no request replaces it.
	Aside bool
	// Unheard is an answer that an earlier list left out or replaced. Only its words, found after all, say more of it.
	Unheard bool
}

// Outcome is what an answer of ours turned out to be.
type Outcome string

// The outcomes.
const (
	Full        Outcome = "full"        // heard to the end
	Interrupted Outcome = "interrupted" // heard up to a word
	Unplayed    Outcome = "unplayed"    // not there, although the call went on: nobody heard a word of it
	Replaced    Outcome = "replaced"    // not there; the platform said something else in its place
	Ghost       Outcome = "ghost"       // this request asks anew for what it answered
	Unknown     Outcome = "unknown"     // the list says nothing of it
)

// EchoMethod is the method of every finding that has one: the list is the platform's echo (memory.EchoDiff).
const EchoMethod = "echo_diff"

// Finding is what the list tells of one answer.
type Finding struct {
	Known   int // index into the known messages
	Outcome Outcome
	Heard   string // Interrupted: the beginning of Original that was heard
	Method  string // EchoMethod; empty for Ghost and Unknown, which are no evidence of what was heard
	// Confidence is how sure the comparison is, in percent; 0 for Unknown. It says nothing of how good the platform's own
	// account is.
	Confidence int
}

// How sure the kinds of comparison are, in percent: judged, not measured.
const (
	sureSame     = 99 // the same characters
	sureWords    = 97 // the same words
	sureSpoken   = 95 // the same words as a voice says them, or three words and more of their beginning
	sureFew      = 85 // one or two words
	sureGone     = 90 // absent between two user messages that are there
	sureMerged   = 80 // found within a longer text, or absent where user messages were merged
	sureOther    = 75 // something else in its place
	sureLike     = 70 // alike, with a word here and there written otherwise
	sureRepeated = 95 // a ghost
)

// Extended is a known user message that came again with more behind it.
type Extended struct {
	Known int
	Text  string
}

// Reconciliation is what a list brings. Indices of incoming messages refer to the list with its system messages.
type Reconciliation struct {
	New  []int          // incoming messages that the ledger lacks, in order
	Part map[int]string // of New: the text that is new, where the message holds words of ours as well
	// Place gives, of the assistant messages in New, the known answer in whose place the platform said them.
	Place   map[int]int
	Pair    []int     // for each incoming message the known one that it is, -1 for none
	Answers []Finding // one for each provisional or unheard answer, and each ghost, by Known; an unheard one only where its words were found
	Extend  *Extended
}

// AlignFunc finds the beginning of generated that heard stands for; ok is false if heard is no part of it.
type AlignFunc func(generated, heard string) (prefix string, ok bool)

// limits of the search: what is further back decides nothing.
const (
	maxAlignUsers   = 256       // user messages looked at in each list
	maxSkip         = 4         // newest known user messages that the platform may have dropped
	maxMerge        = 8         // user messages that one side may have merged into one
	maxWeighed      = 16        // turns that decide between two places where the lists could align
	maxAligned      = 64        // calls of AlignFunc
	maxAlignedBytes = 512 << 10 // of text given to them, but for the first
	maxDeep         = 32        // texts that are not one answer's words, the newest
	maxLikened      = 16        // comparisons word by word
	maxWork         = 8 << 20   // bytes of the list's texts that are looked at for each answer that they may hold
	maxLabels       = 4         // times and names in front of one text
	maxCallIDs      = 256       // calls of one message
)

// turnOf is a user message with what follows it up to the next one. The first turn of a list has no user message.
type turnOf struct {
	user int // index; -1 in the first
	text string
	// norm is its words, bare the same without the name of who speaks: see words. Most texts come back as they were and need neither.
	norm, bare string
	worked     bool
	rest       []int
}

// words works norm and bare out, once.
func (t *turnOf) words() (norm, bare string) {
	if !t.worked && t.text != "" {
		t.norm, t.bare = normaliseSaid(t.text)
		t.worked = true
	}
	return t.norm, t.bare
}

type aligner struct {
	in     []Incoming
	known  []Known
	align  AlignFunc
	texts  []string // of in
	inNorm []string // Normalise of the texts that were compared, "" for those that were not
	knNorm []string // the same of Known.Original
	a, b   []turnOf // incoming, known; [0] is what comes before the first user message
	said   []bool   // of known: the list has its words
	told   []bool   // of known: Answers holds a finding
	aligns int      // calls of AlignFunc so far
	bytes  int      // of text given to them
	likens int
	work   int               // see maxWork
	deep   int               // texts looked at for more than one answer, or for one that was written otherwise
	loose  bool              // see sameUsers
	called map[string]string // ids that a client gave to calls of ours, and our ids
	calls  map[int][]string  // what known messages call: see callsOf
	result Reconciliation
}

// Reconcile compares a platform's list with the ledger. align may be nil: then PrefixOf is used.
func Reconcile(in []Incoming, known []Known, align AlignFunc) Reconciliation {
	if align == nil {
		align = PrefixOf
	}
	norms, flags := make([]string, 2*len(in)+len(known)), make([]bool, 2*len(known))
	x := aligner{
		in: in, known: known, align: align,
		texts: norms[:len(in)], inNorm: norms[len(in) : 2*len(in)], knNorm: norms[2*len(in):],
		said: flags[:len(known)], told: flags[len(known):],
	}
	x.result.Pair = make([]int, len(in))
	for i := range in {
		x.result.Pair[i] = -1
		if !in[i].IsSystem() {
			x.texts[i] = in[i].Text()
		}
	}
	x.a = turnsOf(len(in), func(i int) (role, text string, counts bool) { return in[i].Role, x.texts[i], !in[i].IsSystem() })
	x.b = turnsOf(len(known), func(j int) (role, text string, counts bool) { return known[j].Role, known[j].Text, true })
	x.run()
	x.unknown()
	return x.result
}

// turnsOf cuts a list into turns.
func turnsOf(n int, at func(i int) (role, text string, counts bool)) []turnOf {
	users := 0
	for i := range n {
		if role, _, counts := at(i); counts && role == "user" {
			users++
		}
	}
	turns := make([]turnOf, 1, users+1)
	turns[0].user = -1
	rest := make([]int, 0, n-users) // all of them in one piece of memory
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
		for at, s := range best { // the newest first: what is left of the bounds is for the old
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
			for _, t := range x.b[n-skip+1:] { // the platform left out the words, which perhaps were its own (a reminder), but not what was answered
				more = append(more, t.rest...)
			}
			x.gap(in, known, more, kind)
		}
		// The last step may reach the beginning of both lists, where a greeting stands.
		if first := best[len(best)-1]; first.aFrom == 0 && first.bFrom == 0 {
			x.gap(x.a[0].rest, x.b[0].rest, nil, gapHead)
		}
		x.tail(best[0].a, best[0].b, skip)
	case n > 0 && x.anchored(n): // before what looks like longer words: an answer stands in front of them
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

// anchored tells whether a list whose user messages are none of ours, since a window or a summary took them, still begins with what followed
// the last of them.
func (x *aligner) anchored(n int) bool {
	x.gap(x.a[0].rest, x.b[n].rest, nil, gapHead)
	return slices.ContainsFunc(x.a[0].rest, func(i int) bool { return x.result.Pair[i] >= 0 })
}

// between gives what stands behind the users of a step in both lists, all of it where one side merged them.
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

// find notes what the list tells of a known message, if that is asked: once, and never of what is settled.
func (x *aligner) find(f Finding) {
	if k := &x.known[f.Known]; x.told[f.Known] || !k.Provisional && !k.Unheard {
		return
	}
	x.told[f.Known] = true
	if f.Outcome != Ghost && f.Outcome != Unknown {
		f.Method = EchoMethod
	}
	x.result.Answers = append(x.result.Answers, f)
}

// unknown names the answers of which the list says nothing, and puts all in order.
func (x *aligner) unknown() {
	for j := range x.known {
		if k := &x.known[j]; k.Provisional && !x.told[j] && k.Role == "assistant" && k.Original != "" {
			x.find(Finding{Known: j, Outcome: Unknown})
		}
	}
	slices.SortFunc(x.result.Answers, func(a, b Finding) int { return cmp.Compare(a.Known, b.Known) })
}

// CallIDs gives the ids of a tool_calls array, at most maxCallIDs.
func CallIDs(toolCalls []byte) []string {
	var out []string
	if len(toolCalls) > 0 && toolCalls[0] == '[' {
		walkArray(toolCalls, func(call []byte) {
			if call[0] != '{' {
				return
			}
			if id := stringMember(call, "id"); id != "" && len(out) < maxCallIDs {
				out = append(out, id)
			}
		})
	}
	return out
}
