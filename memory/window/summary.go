package window

// DefaultKeepRecent is the default of KeepRecent.
const DefaultKeepRecent = 6

// Summarizable returns the ascending places of the messages to summarize before they leave: all but
// the newest keepRecent, without system messages. keepRecent 0 keeps none. A call and its results
// are never separated; more is kept instead.
func Summarizable(list []Message, keepRecent int) []int {
	others, cut := recent(list, keepRecent)
	return others[:cut]
}

// TrimToRecent returns the places of what stays if a memory is cut to its newest keepRecent
// messages, in the new order: all system messages move to the front. keepRecent 0 keeps no others.
// A call and its results are never separated; more is kept instead.
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

// recent returns the places of the accepted messages that are not system messages, and the index of
// the first to keep.
func recent(list []Message, keepRecent int) (others []int, cut int) {
	for i := range list {
		if !list[i].IsSystem() && list[i].Status.Named() == Accepted {
			others = append(others, i)
		}
	}
	cut = max(0, len(others)-max(keepRecent, 0))
	return others, backToCall(list, others, cut)
}

// backToCall moves a cut back until no result after it has its call before it. If nothing is kept,
// it does nothing.
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
	// Insert are the stand-ins for lost results.
	Insert []Insertion
	// Tokens is what all of that costs.
	Tokens int
}

// Insertion are messages that go after the one at place After.
type Insertion struct {
	After    int
	Messages []Message
}

// TrimToTokens cuts a memory to a token budget, instead of the policy's. Exchanges leave, the
// oldest first; system messages and the user's last words stay, and lost results get stand-ins.
// maxTokens must be above 0. c nil is the estimate. Messages are not shortened, because the texts
// of a memory are never rewritten.
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

// The limits at which the memory of a window without limits is summarized.
const (
	UnboundedMessages = 20
	UnboundedTokens   = 4000
)

// Summarizes reports whether a policy with every field set asks for summaries.
func (p Policy) Summarizes() bool {
	return p.Strategy == Summarize && *p.Enabled && *p.SummarizeAt > 0
}

// SummaryDue reports whether a memory should be summarized: the strategy is Summarize, and its
// tokens reach summarize_at of max_tokens, or its messages that of max_messages, whichever comes
// first. Without either limit a summary is due above UnboundedMessages or UnboundedTokens. c nil is
// the estimate.
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

// Due is SummaryDue for a memory whose running size is known: all accepted messages; system
// messages count in units only.
func (p Policy) Due(t Tally) bool {
	p = p.Full()
	at := *p.SummarizeAt
	switch {
	case !p.Summarizes():
		return false
	case *p.MaxTokens > 0 && float64(t.Tokens()) >= at*float64(*p.MaxTokens), *p.MaxMessages > 0 && float64(t.Messages) >= at*float64(*p.MaxMessages):
		return true
	case *p.MaxTokens > 0 || *p.MaxMessages > 0:
		return false
	}
	return t.Messages > UnboundedMessages || t.Tokens() > UnboundedTokens
}
