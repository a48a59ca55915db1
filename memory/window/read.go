package window

// Kind says where an entry of a view is from.
type Kind uint8

// The kinds.
const (
	Kept      Kind = iota // a message of the list, as it is
	Altered               // a message of the list of which something was left out: shortened, or without calls or results that may not be shown
	StandIn               // the result of a call whose own is lost
	SystemMsg             // of Extras.System
	Summary               // Extras.Summary
	Utterance             // Extras.Utterance
)

// Entry is one message of a view.
type Entry struct {
	Kind Kind
	// Index is where the message stands in the list that was read; -1 of what is not of it.
	Index int
	// Message is what to tell: of Kept the list's own, which nobody may write to.
	Message *Message
}

// View is what an LLM is given.
type View struct {
	Entries []Entry
	// Dropped is how many messages of the list are not in the view though they are accepted and in scope.
	Dropped int
	// Tokens is what the entries cost that are of the list or stand in for a part of it: what max_tokens limits. AllTokens is what all entries cost.
	Tokens, AllTokens int
	// Healed are the ids of calls that got a stand-in for their result, in the order of the view.
	Healed []string
	// Shortened is how many messages were shortened inside, because what may not be cut was over max_tokens (001-14).
	Shortened int
}

// Extras is what goes into a view beside the list.
type Extras struct {
	// Scope, unless nil, leaves messages of other scopes out; Level says how far it is compared.
	Scope *Scope
	Level Level
	// System goes in front; of its texts the outer white space is cut, and blank ones add nothing (000-24). It is not counted against the budget.
	System []Message
	// Summary goes behind the system messages in front, as a system message under SummaryHeading; "" adds nothing. It costs nothing (001-20).
	Summary string
	// Utterance, unless nil, is what the user says now: it goes last. Outer white space is cut (000-24). It costs nothing.
	Utterance *string
}

// slot is a message on its way into a view.
type slot struct {
	m    *Message
	at   int32 // in the list; -1 = a stand-in
	kind Kind
	// What is asked of every message, so that lists are gone through without touching the messages: is it a system message, might it have links.
	system, links bool
}

func newSlot(m *Message, at int, kind Kind) slot {
	return slot{m: m, at: int32(at), kind: kind, system: m.IsSystem(), links: m.mayLink()}
}

// Read gives what the LLM is told of a list, in this order: status and scope, include flags, rounds, messages, tokens, integrity; then what x adds. c counts
// what tokens cost; nil is the estimate. List, extras and policy stay as they are. Without any limit in force the whole list comes back.
func (p Policy) Read(list []Message, c Counter, x Extras) View {
	v, _ := p.read(list, part{}, c, x)
	return v
}

// part says what a list is the part of: its first lead messages are the system messages of a longer list's beginning, all that follows is its end. missing is how many
// accepted messages of the longer list are not in it, none of them a system message unless bare.
type part struct {
	lead, missing int
	bare          bool // lead is 0 whether there are system messages in front or not
}

// ReadPart is Read of a long memory of which only a part is at hand: list begins with lead system messages, all that are in front, and goes on with the memory's end;
// missing accepted messages stand between the two. bare tells that the system messages in front are among the missing. sure tells whether the view is what Read would give of
// the whole: whether the policy cuts within the end, so that nothing before it matters. If it is not, more of the end is needed.
func (p Policy) ReadPart(list []Message, lead, missing int, bare bool, c Counter, x Extras) (v View, sure bool) {
	return p.read(list, part{lead, missing, bare}, c, x)
}

func (p Policy) read(list []Message, of part, c Counter, x Extras) (v View, sure bool) {
	if c == nil {
		c = Estimated{}
	}
	r := p.rules()
	s := accepted(list, x)
	inScope := len(s) + of.missing
	if of.missing > 0 && x.Scope != nil { // nobody knows how many of them are in scope
		return View{}, false
	}
	if !r.enabled {
		return memoryOff(c, x, inScope), true
	}
	s = r.include(s)
	var anchor int32 = -1
	if of.missing > 0 {
		if anchor = r.anchor(s, of); anchor < 0 {
			return View{}, false
		}
	}
	s = lastRounds(s, r.maxRounds, r.keepSystem)
	s = r.cut(s, c)
	if anchor >= 0 && holds(s, anchor) {
		return View{}, false
	}
	s, healed := r.mended(s, c, x.Utterance != nil)
	s, shortened := shorten(s, c, r.maxTokens)
	if x.Utterance != nil && r.dropHanging {
		s = dropTrailingUsers(s)
	}
	v = assemble(s, c, x)
	v.Dropped, v.Healed, v.Shortened = inScope-ofList(s), healed, shortened
	return v, true
}

// anchor gives the place in the list of the message of its end which, where a cut takes it away, tells that the cut is the same whatever stands in front: the first that is not
// of the system, and no result, whose call would have to be looked for. -1 where no cut could tell.
func (r *rules) anchor(s []slot, of part) int32 {
	if r.importance || of.bare && r.keepSystem && r.includeSystem {
		return -1
	}
	at := int32(-1)
	for i := range s {
		e := &s[i]
		if int(e.at) >= of.lead && !e.system && !e.isResult() {
			at = e.at
			break
		}
	}
	users := 0
	for i := range s {
		if int(s[i].at) >= of.lead && s[i].m.isRealUser() {
			users++
		}
	}
	switch {
	case users == 0 && r.maxTokens > 0 && r.keepLastUser: // the words that are kept stand further in front
		return -1
	case users > 0 && users == r.maxRounds: // whether there is a round in front decides whether the first of these begins the view
		return -1
	}
	return at
}

// holds tells whether the message at a place of the list is among s, in which places rise.
func holds(s []slot, at int32) bool {
	for i := range s {
		if s[i].at >= at {
			return s[i].at == at
		}
	}
	return false
}

// fit cuts to the budgets and mends what the cuts broke. Stand-ins count as well, so that where some came in it cuts once more. movedOn tells that something will
// stand behind the list.
func (r *rules) fit(s []slot, c Counter, movedOn bool) (out []slot, healed []string) {
	return r.mended(r.cut(s, c), c, movedOn)
}

// mended is fit of what is cut already.
func (r *rules) mended(s []slot, c Counter, movedOn bool) (out []slot, healed []string) {
	for had := 0; ; s = r.cut(s, c) {
		s = r.mend(s, movedOn)
		healed = standIns(s)
		if len(healed) <= had {
			return s, healed
		}
		had = len(healed)
	}
}

// cut cuts to the budgets, by the strategy.
func (r *rules) cut(s []slot, c Counter) []slot {
	if r.importance {
		return r.leastImportantOut(s, c)
	}
	s = newestMessages(s, r.maxMessages, r.keepSystem)
	return newestTokens(s, c, r.maxTokens, r.keepSystem, r.keepLastUser)
}

// accepted gives the messages that may be told at all: drafts and discarded ones never are.
func accepted(list []Message, x Extras) []slot {
	s := make([]slot, 0, len(list))
	for i := range list {
		m := &list[i]
		if m.Status.Named() != Accepted || x.Scope != nil && !x.Level.Matches(*x.Scope, m.Scope) {
			continue
		}
		s = append(s, newSlot(m, i, Kept))
	}
	return s
}

func ofList(s []slot) int {
	n := 0
	for _, e := range s {
		if e.at >= 0 {
			n++
		}
	}
	return n
}

func standIns(s []slot) []string {
	var ids []string
	for _, e := range s {
		if e.kind == StandIn {
			ids = append(ids, e.m.links().Results...)
		}
	}
	return ids
}

// memoryOff gives the context without a memory: the utterance as it came (000-7).
func memoryOff(c Counter, x Extras, dropped int) View {
	v := View{Dropped: dropped}
	if x.Utterance != nil {
		m := &Message{Ref: -1, Role: User, Text: *x.Utterance}
		v.Entries = []Entry{{Utterance, -1, m}}
		v.AllTokens = c.Size(m) / c.PerToken()
	}
	return v
}
