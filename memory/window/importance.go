package window

// The default score, in thousandths, of a message that has no importance of its own.
const (
	maxScore       = 1000
	scoreSystem    = maxScore
	scoreUser      = 500
	scoreAssistant = 350
	scoreTools     = 550 // the effect of a tool cannot be repeated
	scoreCut       = 100 // taken off an answer that was not heard to its end
	scoreRecency   = 400 // spread over the list, the newest message getting all of it
)

// Score returns the importance of a message, from 0 to 1000: a thousand times its Importance if
// that is set, else by role (system 1000, user 500, assistant 350), 550 for a tool call or result,
// less 100 for an interrupted answer, and up to 400 more the newer it is. at is its index in a list
// of n. The result is limited to 0 to 1000 and depends on nothing else.
func Score(m *Message, at, n int) int {
	if m.Importance != nil {
		if f := *m.Importance; f >= 0 && f <= 1 {
			return int(f*maxScore + 0.5)
		}
	}
	base := scoreAssistant
	switch {
	case m.IsSystem():
		return scoreSystem
	case m.Role == Tool || m.makesCalls() || m.isResult():
		base = scoreTools
	case m.Role == User:
		base = scoreUser
	}
	if m.Interrupted {
		base -= scoreCut
	}
	if n > 1 {
		base += scoreRecency * at / (n - 1)
	} else {
		base += scoreRecency
	}
	return min(base, maxScore)
}

// bundle is what leaves together: a call and its results, wherever they are, or one message. Its
// place is that of its first message.
type bundle struct {
	head            int32 // of each message, the place of its bundle
	messages, units int
	score           int
	pinned          bool
}

// leastImportantOut removes bundles until both limits are met, the least important first, and the
// oldest of equals. A bundle is as important as its most important message. With keepSystem system
// messages stay, and count as tokens only. With keepLastUser the user's last words and all that
// follows them stay.
func (r *rules) leastImportantOut(s []slot, c Counter) []slot {
	if r.maxMessages <= 0 && r.maxTokens <= 0 {
		return s
	}
	messages, units := 0, 0
	for _, e := range s {
		if r.maxTokens > 0 {
			units += c.Size(e.m)
		}
		if !r.keepSystem || !e.system {
			messages++
		}
	}
	over := func() bool {
		return r.maxMessages > 0 && messages > r.maxMessages || r.maxTokens > 0 && units > r.maxTokens*c.PerToken()
	}
	if !over() {
		return s
	}
	all := r.bundles(s, c)
	for _, i := range byScore(all) {
		if !over() {
			break
		}
		messages -= all[i].messages
		units -= all[i].units
		all[i].messages = 0 // gone
	}
	kept := s[:0]
	for i, e := range s {
		if all[all[i].head].messages > 0 {
			kept = append(kept, e)
		}
	}
	return kept
}

// bundles returns the bundle of each message.
func (r *rules) bundles(s []slot, c Counter) []bundle {
	pinned := len(s)
	if r.keepLastUser {
		pinned = lastWords(s, r.keepSystem)
	}
	all := make([]bundle, len(s))
	caller := map[string]int32{} // by the id of a call, the bundle of its message
	for i, e := range s {
		head := int32(i)
		if e.links {
			l := e.m.links()
			if e.m.isResult() {
				for _, id := range l.Results {
					if j, ok := caller[id]; ok && id != "" {
						head = j
						break
					}
				}
			}
			for _, id := range l.Calls {
				caller[id] = head
			}
		}
		all[i].head = head
		b := &all[head]
		b.messages++
		if r.maxTokens > 0 {
			b.units += c.Size(e.m)
		}
		b.score = max(b.score, Score(e.m, i, len(s)))
		b.pinned = b.pinned || i >= pinned || r.keepSystem && e.system
	}
	return all
}

// byScore returns the places of the bundles that may leave, the least important first, and the
// oldest of equals.
func byScore(all []bundle) []int32 {
	var start [maxScore + 2]int32 // by score, how many are less important
	for i := range all {
		if b := &all[i]; b.messages > 0 && !b.pinned {
			start[b.score+1]++
		}
	}
	for i := 1; i < len(start); i++ {
		start[i] += start[i-1]
	}
	out := make([]int32, start[maxScore+1])
	for i := range all {
		if b := &all[i]; b.messages > 0 && !b.pinned {
			out[start[b.score]] = int32(i)
			start[b.score]++
		}
	}
	return out
}
