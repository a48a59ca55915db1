package window

// Cut returns the ascending places of the messages that leave a memory for good after it grew.
// There are none unless the policy applies on write. It cuts to max_messages and max_tokens as Read
// does; max_rounds is for reading, and limits the memory to CapPerRound messages for each round.
// With IntegrityAtomic or IntegrityHeal results leave with their calls. Drafts and discarded
// messages are neither counted nor cut.
func (p Policy) Cut(list []Message, c Counter) []int {
	r := p.rules()
	if !r.write || !r.enabled {
		return nil
	}
	if c == nil {
		c = Estimated{}
	}
	all := accepted(list, Extras{})
	total := len(all)
	s := all
	if r.maxRounds > 0 {
		s = newestMessages(s, CapPerRound*r.maxRounds, true)
	}
	s = r.cut(s, c)
	if len(s) == total {
		return nil
	}
	if r.integrity == IntegrityAtomic || r.integrity == IntegrityHeal {
		s = withoutOrphans(s)
	}
	return leaving(list, s)
}

// KeepsEnd reports whether Read of a long list keeps its end, whatever is before that.
func (p Policy) KeepsEnd() bool {
	r := p.rules()
	return !r.enabled || !r.importance && (r.maxMessages > 0 || r.maxTokens > 0 || r.maxRounds > 0)
}

// Spares reports whether Cut removes nothing from any memory of so many accepted messages.
func (p Policy) Spares(messages int) bool {
	r := p.rules()
	if !r.write || !r.enabled {
		return true
	}
	return r.maxTokens == 0 && (r.maxMessages == 0 || messages <= r.maxMessages) && (r.maxRounds == 0 || messages <= CapPerRound*r.maxRounds)
}

// leaving returns the places of the accepted messages of list that are not in s.
func leaving(list []Message, s []slot) []int {
	var out []int
	next := 0
	for i := range list {
		if next < len(s) && int(s[next].at) == i {
			next++
			continue
		}
		if list[i].Status.Named() == Accepted {
			out = append(out, i)
		}
	}
	return out
}

// CapPerRound is how many messages a memory that is cut on write may have for each round of
// max_rounds.
const CapPerRound = 20
