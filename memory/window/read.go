package window

// Kind is the origin of an entry of a view.
type Kind uint8

// The kinds.
const (
	Kept Kind = iota // a message of the list, as it is
	// A message of the list of which something was left out: shortened, or without calls or results
	// that may not be shown.
	Altered
	StandIn   // the result of a call whose own is lost
	SystemMsg // of Extras.System
	Summary   // Extras.Summary
	Utterance // Extras.Utterance
)

// Entry is one message of a view.
type Entry struct {
	Kind Kind
	// Index is the message's place in the list; -1 if it is not from the list.
	Index int
	// Message is the message to show. If Kept, it is the list's own: do not change it.
	Message *Message
}

// View is what an LLM is given.
type View struct {
	Entries []Entry
	// Dropped is how many accepted messages in scope are not in the view.
	Dropped int
	// Tokens is the cost of the entries from the list and of their stand-ins: what max_tokens
	// limits. AllTokens is the cost of all entries.
	Tokens, AllTokens int
	// Healed are the IDs of calls that got a stand-in for their result, in the order of the view.
	Healed []string
	// Shortened is how many messages were shortened because what must stay exceeded max_tokens.
	Shortened int
}

// Extras is what goes into a view beside the list.
type Extras struct {
	// Scope, if not nil, removes messages of other scopes; Level is how far scopes are compared.
	Scope *Scope
	Level Level
	// System goes first. Outer white space is removed, and blank messages are skipped. It does not
	// count against the budget.
	System []Message
	// Summary follows the system messages at the front, as a system message under SummaryHeading;
	// "" adds nothing. It costs nothing.
	Summary string
	// Utterance, if not nil, is what the user says now, and goes last. Outer white space is
	// removed. It costs nothing.
	Utterance *string
	// Question is set if the list ends with what the user says now. A policy that drops hanging
	// user messages then treats these words like Utterance, so that none stand before them and they
	// take no place of the memory.
	Question bool
}

// slot is a message on its way into a view.
type slot struct {
	m    *Message
	at   int32 // in the list; -1 is a stand-in
	kind Kind
	// Copies of what every step needs, so that it need not touch the messages: whether it is a
	// system message, and whether it may have links.
	system, links bool
}

func newSlot(m *Message, at int, kind Kind) slot {
	return slot{m: m, at: int32(at), kind: kind, system: m.IsSystem(), links: m.mayLink()}
}

// Read returns what the LLM is given of a list. The steps are, in this order: status and scope,
// include flags, rounds, messages, tokens, integrity, and then what x adds. c counts tokens; nil is
// the estimate. Without any limit the whole list is returned.
func (p Policy) Read(list []Message, c Counter, x Extras) View {
	if c == nil {
		c = Estimated{}
	}
	r := p.rules()
	s := accepted(list, x)
	inScope := len(s)
	if !r.enabled {
		return memoryOff(c, x, inScope)
	}
	s, asked := r.question(r.include(s), x)
	now := x.Utterance != nil || len(asked) > 0
	s = lastRounds(s, r.maxRounds, r.keepSystem)
	s, healed := r.fit(s, c, now)
	s, shortened := shorten(s, c, r.maxTokens)
	if now && r.dropHanging {
		s = dropTrailingUsers(s)
	}
	s = append(s, asked...)
	v := assemble(s, c, x)
	v.Dropped, v.Healed, v.Shortened = inScope-ofList(s), healed, shortened
	return v
}

// question cuts the words that are asked now off the end of a list; see Extras.Question.
func (r *rules) question(s []slot, x Extras) (rest, asked []slot) {
	if n := len(s) - 1; x.Question && r.dropHanging && n >= 0 && s[n].m.isUtterance() {
		return s[:n], []slot{s[n]}
	}
	return s, nil
}

// fit cuts to the budgets and repairs what the cuts broke. Stand-ins count too, so it cuts again
// after adding some. movedOn is set if something will follow the list.
func (r *rules) fit(s []slot, c Counter, movedOn bool) (out []slot, healed []string) {
	for had := 0; ; {
		s = r.mend(r.cut(s, c), movedOn)
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

// accepted returns the accepted messages in scope.
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

// memoryOff returns the context without a memory: the utterance as received.
func memoryOff(c Counter, x Extras, dropped int) View {
	v := View{Dropped: dropped}
	if x.Utterance != nil {
		m := &Message{Ref: -1, Role: User, Text: *x.Utterance}
		v.Entries = []Entry{{Utterance, -1, m}}
		v.AllTokens = c.Size(m) / c.PerToken()
	}
	return v
}
