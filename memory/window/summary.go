package window

// DefaultKeepRecent is how many messages are kept where nobody says (001-21).
const DefaultKeepRecent = 6

// Summarizable gives the places of the messages to be summarised before they leave, rising: all but the newest keepRecent that are not of the system; none if there
// are no more than that (001-21). keepRecent 0 takes all (001-23). A call and its results are never parted: more is kept then (001-24).
func Summarizable(list []Message, keepRecent int) []int {
	others, cut := recent(list, keepRecent)
	return others[:cut]
}

// TrimToRecent gives the places of what stays when a memory is cut to its newest keepRecent messages, in the new order: all system messages are moved to the front
// (001-22). keepRecent 0 keeps none of the others (001-23). A call and its results are never parted: more is kept then (001-24).
func TrimToRecent(list []Message, keepRecent int) []int {
	others, cut := recent(list, keepRecent)
	var out []int
	for i := range list {
		if list[i].IsSystem() {
			out = append(out, i)
		}
	}
	return append(out, others[cut:]...)
}

// recent gives the places of the accepted messages that are not of the system, and which of them is the first to be kept.
func recent(list []Message, keepRecent int) (others []int, cut int) {
	for i := range list {
		if !list[i].IsSystem() && list[i].Status.Named() == Accepted {
			others = append(others, i)
		}
	}
	cut = max(0, len(others)-max(keepRecent, 0))
	return others, backToCall(list, others, cut)
}

// backToCall moves a cut back until no result behind it has its call in front of it. Where nothing is kept nothing is parted.
func backToCall(list []Message, others []int, cut int) int {
	if cut == len(others) {
		return cut
	}
	made := map[string]int{} // by the call's id, its place in others
	first := make([]int, len(others))
	for k, i := range others {
		first[k] = k
		m := &list[i]
		if !m.mayLink() {
			continue
		}
		l := m.links()
		for _, id := range l.Results {
			if at, ok := made[id]; ok {
				first[k] = min(first[k], at)
			}
		}
		for _, id := range l.Calls {
			made[id] = k
		}
	}
	for k := len(others) - 1; k >= cut; k-- {
		cut = min(cut, first[k])
	}
	return cut
}

// Trimmed is what a trim to a budget leaves.
type Trimmed struct {
	Keep []int // places, rising
	// Insert are the stand-ins for results that are lost (001-15), each behind a place of the list.
	Insert []Insertion
	// Tokens is what all of that costs.
	Tokens int
}

// Insertion is messages that go behind the one at place After.
type Insertion struct {
	After    int
	Messages []Message
}

// TrimToTokens cuts a memory to a budget of its own, whatever its policy says (001-11): exchanges leave, the oldest first, system messages and the user's newest words stay, and lost results get stand-ins. maxTokens
// must be above 0. c nil is the estimate. What may not be cut is not shortened inside: a memory's texts are not rewritten.
func TrimToTokens(list []Message, maxTokens int, c Counter) Trimmed {
	if c == nil {
		c = Estimated{}
	}
	r := rules{enabled: true, keepSystem: true, keepLastUser: true, maxTokens: maxTokens, integrity: IntegrityHeal}
	s, _ := r.fit(accepted(list, Extras{}), c, false)
	var out Trimmed
	units := 0
	for _, e := range s {
		units += c.Size(e.m)
		if e.kind != StandIn {
			out.Keep = append(out.Keep, int(e.at))
			continue
		}
		after := out.Keep[len(out.Keep)-1]
		if n := len(out.Insert); n > 0 && out.Insert[n-1].After == after {
			out.Insert[n-1].Messages = append(out.Insert[n-1].Messages, *e.m)
		} else {
			out.Insert = append(out.Insert, Insertion{After: after, Messages: []Message{*e.m}})
		}
	}
	out.Tokens = units / c.PerToken()
	return out
}

// What a window without limits is taken for where its memory is to be summarised: more messages than that, or more tokens (003-22).
const (
	UnboundedMessages = 20
	UnboundedTokens   = 4000
)

// SummaryDue tells whether a memory has grown so far that it should be summarised: the strategy is Summarize, and its tokens reach summarize_at of max_tokens
// (001-29), or its messages that of max_messages: whichever limit comes first would cut unsummarised what stands beyond it. A window without either is due when
// it passes UnboundedMessages or UnboundedTokens. c nil is the estimate.
func (p Policy) SummaryDue(list []Message, c Counter) bool {
	t := Tally{Counter: c}
	for i := range list {
		if m := &list[i]; m.Status.Named() == Accepted {
			t.Add(m)
			if m.IsSystem() {
				t.Messages--
			}
		}
	}
	return p.Due(t)
}

// Due is SummaryDue of a memory whose running size is known: all its accepted messages, system messages counted in units only.
func (p Policy) Due(t Tally) bool {
	p = p.Full()
	at := *p.SummarizeAt
	switch {
	case p.Strategy != Summarize || !*p.Enabled || at <= 0:
		return false
	case *p.MaxTokens > 0 && float64(t.Tokens()) >= at*float64(*p.MaxTokens), *p.MaxMessages > 0 && float64(t.Messages) >= at*float64(*p.MaxMessages):
		return true
	case *p.MaxTokens > 0 || *p.MaxMessages > 0:
		return false
	}
	return t.Messages > UnboundedMessages || t.Tokens() > UnboundedTokens
}
