package window

import "slices"

// The default score, in thousandths, of a message that has no importance of its own.
const (
	scoreSystem    = 1000
	scoreUser      = 500
	scoreAssistant = 350
	scoreTools     = 550 // what a tool did cannot be said again without doing it again
	scoreCut       = 100 // taken off an answer that was not heard to its end
	scoreRecency   = 400 // spread over the list, the newest message getting all of it
)

// Score gives how important a message is, from 0 to 1000: a thousand times its Importance where it has one, else by role (system 1000, user 500, assistant 350), by what tools did
// (550 for a call or a result), less 100 for an answer that was interrupted, and up to 400 more the newer it is: at is its place in a list of n.
// A score is cut to 0 and 1000. The same message at the same place always has the same score.
func Score(m *Message, at, n int) int {
	if m.Importance != nil {
		if f := *m.Importance; f >= 0 && f <= 1 {
			return int(f*1000 + 0.5)
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
	return min(base, 1000)
}

// bundle is what leaves together: a call and its results, wherever they stand, or one message.
type bundle struct {
	members []int
	score   int
	pinned  bool
}

// leastImportantOut takes bundles away, the least important first and of equals the oldest, until both limits are kept. A bundle is as important as its
// most important message. System messages stay if asked, and then count as tokens only. If asked, the user's newest words stay and all that follows them.
func (r *rules) leastImportantOut(s []slot, c Counter) []slot {
	if r.maxMessages <= 0 && r.maxTokens <= 0 {
		return s
	}
	messages, units := 0, 0
	for _, e := range s {
		if r.maxTokens > 0 {
			units += c.Size(e.m)
		}
		if !r.keepSystem || !e.m.IsSystem() {
			messages++
		}
	}
	over := func() bool {
		return r.maxMessages > 0 && messages > r.maxMessages || r.maxTokens > 0 && units > r.maxTokens*c.PerToken()
	}
	if !over() {
		return s
	}
	may := r.bundles(s)
	slices.SortStableFunc(may, func(a, b bundle) int { return a.score - b.score })
	out := make([]bool, len(s))
	for _, x := range may {
		if !over() {
			break
		}
		for _, i := range x.members {
			out[i] = true
			messages--
			if r.maxTokens > 0 {
				units -= c.Size(s[i].m)
			}
		}
	}
	kept := s[:0]
	for i, e := range s {
		if !out[i] {
			kept = append(kept, e)
		}
	}
	return kept
}

// bundles gives what may leave, in order of the first message of each.
func (r *rules) bundles(s []slot) []bundle {
	pinned := len(s)
	if r.keepLastUser {
		pinned = lastWords(s, r.keepSystem)
	}
	var all []bundle
	caller := map[string]int{} // by the id of a call, the bundle of its message
	for i, e := range s {
		if r.keepSystem && e.m.IsSystem() {
			continue
		}
		at := len(all)
		if e.m.mayLink() {
			l := e.m.links()
			for _, id := range l.Results {
				if j, ok := caller[id]; ok && e.m.isResult() {
					at = j
					break
				}
			}
			for _, id := range l.Calls {
				caller[id] = at
			}
		}
		if at == len(all) {
			all = append(all, bundle{})
		}
		b := &all[at]
		b.members = append(b.members, i)
		b.score = max(b.score, Score(e.m, i, len(s)))
		b.pinned = b.pinned || i >= pinned
	}
	return slices.DeleteFunc(all, func(b bundle) bool { return b.pinned })
}
