package window

import "strings"

// DefaultSearchLimit is how many messages a search returns by default.
const DefaultSearchLimit = 10

// SearchQuery is a search as Orbiter defines it.
type SearchQuery struct {
	Level    Level // "" = TaskLevel
	Scope    Scope // the IDs to match
	Query    string
	Role     Role   // "" = any
	Status   Status // "" is any: drafts and discarded messages too
	Category string // "" is any
	Limit    int    // 0 = no limit
	Rounds   int    // 0 = no limit
	// IntegrityTrailing takes incomplete pairs away from the end, "" is IntegrityNone.
	Pairs Integrity
}

// Search returns the places of the messages found. The steps are, in this order: scope and filters,
// keyword, rounds, integrity, limit. The limit keeps the oldest, and may separate a call from its
// result.
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
