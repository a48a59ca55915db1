package window

// Cut tells which messages of a memory leave it for good when it grew: their places in list, rising. It is empty unless the policy applies on write. It cuts to
// max_messages and max_tokens as reading does (000-18); max_rounds is one of reading, and bounds the memory to CapPerRound messages a round (003-20). With IntegrityAtomic
// or IntegrityHeal results leave with their calls. Drafts and discarded messages are not counted and not cut.
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

// CutsPart tells whether Read, of a memory that is long enough, leaves its beginning out whatever stands there, so that its end is enough: see ReadPart.
func (p Policy) CutsPart() bool {
	r := p.rules()
	return !r.enabled || !r.importance && (r.maxMessages > 0 || r.maxTokens > 0 || r.maxRounds > 0)
}

// Spares tells whether Cut takes nothing of a memory of so many accepted messages, whichever they are.
func (p Policy) Spares(messages int) bool {
	r := p.rules()
	if !r.write || !r.enabled {
		return true
	}
	return r.maxTokens == 0 && (r.maxMessages == 0 || messages <= r.maxMessages) && (r.maxRounds == 0 || messages <= CapPerRound*r.maxRounds)
}

// leaving gives the places of the accepted messages of list that are not in s.
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

// CapPerRound is how many messages a round of max_rounds may take of a memory that is cut on write (003-20).
const CapPerRound = 20
