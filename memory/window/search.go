package window

import "strings"

// DefaultSearchLimit is how many messages a search gives where nobody says (003-7).
const DefaultSearchLimit = 10

// SearchQuery is what Orbiter's search looks for.
type SearchQuery struct {
	Level    Level // "" = TaskLevel
	Scope    Scope // ids asked for
	Query    string
	Role     Role      // "" = any
	Status   Status    // "" = any: drafts and discarded messages are found too (003-9)
	Category string    // "" = any (003-21)
	Limit    int       // 0 = no limit
	Rounds   int       // 0 = no limit
	Pairs    Integrity // IntegrityTrailing takes incomplete pairs away from the end, "" is IntegrityNone
}

// Search gives the places of the messages found, in this order: scope and filters, keyword, rounds, integrity, limit (003-7). The limit takes from the front, so
// that of a longer list the oldest are given (003-8), and may part a call from its result (003-16). Nothing is changed (003-19).
func Search(list []Message, q SearchQuery) []int {
	s := make([]slot, 0, len(list))
	word := strings.ToLower(q.Query)
	for i := range list {
		m := &list[i]
		if q.matches(m) && (word == "" || strings.Contains(strings.ToLower(m.words()), word)) {
			s = append(s, newSlot(m, i, Kept))
		}
	}
	s = lastRounds(s, q.Rounds, true)
	r := rules{integrity: q.Pairs}
	s = r.mend(s, false)
	if q.Limit > 0 {
		s = s[:min(q.Limit, len(s))]
	}
	out := make([]int, len(s))
	for i, e := range s {
		out[i] = int(e.at)
	}
	return out
}

func (q *SearchQuery) matches(m *Message) bool {
	return q.Level.Matches(q.Scope, m.Scope) &&
		(q.Role == "" || q.Role == m.Role) &&
		(q.Status == "" || q.Status == m.Status.Named()) &&
		(q.Category == "" || q.Category == m.Category)
}
