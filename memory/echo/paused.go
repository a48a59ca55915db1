package echo

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory/heard"
)

// Scores of matches in withPaused.
const (
	clearMatch  = 4 // of words that are known
	pausedMatch = 2 // of a message whose words are not known
	nextMatch   = 1 // added to a match right after another one
)

// maxPausedCells limits the work of withPaused. Of a longer list only the newest messages are
// compared; earlier lists had the others.
const maxPausedCells = 1 << 20

// withPaused returns the lists with the same words in each paused message and in the message of the
// list that it is by its place, so that the rest of the package finds them equal. A message of the
// list that stands beside paused ones, and is none of the ledger's by its words, becomes a system
// message, which is not stored: it may be a part of what was said then. Only what follows the
// list's last answer can be new.
func withPaused(in []Message, known []Known) ([]Message, []Known) {
	if !slices.ContainsFunc(known, func(k Known) bool { return k.Paused }) {
		return in, known
	}
	in, known = slices.Clone(in), slices.Clone(known)
	all, lastAnswer := []int{}, -1
	for i := range in {
		if !in[i].IsSystem() {
			all = append(all, i)
		}
		if in[i].Role == "assistant" {
			lastAnswer = i
		}
	}
	older := max(0, len(all)-maxPausedCells/(len(known)+1))
	pair := pairPaused(in, all[older:], known)
	for n, i := range all {
		if n >= older && pair[n-older] >= 0 {
			continue
		}
		before, after := -1, len(known) // the matches around it
		for m := n - 1; m >= older && before < 0; m-- {
			before = pair[m-older]
		}
		for m := max(n+1, older); m < len(all) && after == len(known); m++ {
			if j := pair[m-older]; j >= 0 {
				after = j
			}
		}
		beside := slices.ContainsFunc(known[max(before, 0):min(after+1, len(known))], func(k Known) bool { return k.Paused })
		if beside && (after < len(known) || i < lastAnswer || in[i].Role == "assistant") {
			in[i] = Message{Role: "system"}
		}
	}
	for n, j := range pair {
		if j < 0 || !known[j].Paused {
			continue
		}
		m := &in[all[older+n]]
		m.Text, m.CallIDs, m.ToolCalls = "", known[j].CallIDs, known[j].ToolCalls
		if known[j].Original != "" {
			m.Text = stand(j)
		}
		if m.CallID != "" && len(known[j].CallIDs) > 0 {
			m.CallID, m.CallIDs = known[j].CallIDs[0], nil
		}
	}
	for j := range known {
		if k := &known[j]; k.Paused && k.Original != "" {
			if k.Original = stand(j); k.Text != "" {
				k.Text = k.Original
			}
		}
	}
	return in, known
}

// stand returns words that stand for those of paused message j and are unlike any others.
func stand(j int) string {
	r := rand.New(rand.NewPCG(uint64(j), 0)) //nolint:gosec // no secret
	var b strings.Builder
	for n := range 26 {
		if n%9 == 8 {
			b.WriteByte(' ')
			continue
		}
		b.WriteByte(byte('a' + r.IntN(26)))
	}
	return b.String()
}

// pairPaused returns, for each of the messages all of the list, the known message that it is, or
// -1. Both lists are aligned in order, so that as much as possible matches.
func pairPaused(in []Message, all []int, known []Known) []int {
	texts, ours := make([]string, len(all)), make([]string, len(known))
	for n, i := range all {
		texts[n] = heard.Normalize(in[i].Text)
	}
	for j := range known {
		ours[j] = heard.Normalize(known[j].Original)
	}
	width := len(known) + 1
	best, at := make([]int32, (len(all)+1)*width), make([]int32, (len(all)+1)*width) // at: that end with a match
	for n := 1; n <= len(all); n++ {
		for j := 1; j <= len(known); j++ {
			c := n*width + j
			if s := in[all[n-1]].scorePaused(&known[j-1], texts[n-1], ours[j-1]); s > 0 {
				before := c - width - 1
				at[c] = s + best[before]
				if at[before] > 0 {
					at[c] = max(at[c], s+at[before]+nextMatch)
				}
			}
			best[c] = max(at[c], best[c-1], best[c-width])
		}
	}
	pair := slices.Repeat([]int{-1}, len(all))
	matched := false // the next cell must be a match
	for n, j := len(all), len(known); n > 0 && j > 0; {
		c := n*width + j
		switch {
		case !matched && best[c] == best[c-width]: // earlier messages of the list win
			n--
			continue
		case !matched && best[c] == best[c-1]:
			j--
			continue
		}
		pair[n-1] = j - 1
		before := c - width - 1
		s := in[all[n-1]].scorePaused(&known[j-1], texts[n-1], ours[j-1])
		matched = at[before] > 0 && at[c] == s+at[before]+nextMatch
		n, j = n-1, j-1
	}
	return pair
}

// scorePaused scores a message of the list as the known one; 0 means no match. text and ours are
// their normal forms.
func (m *Message) scorePaused(k *Known, text, ours string) int32 {
	if m.Role != k.Role || (m.ToolCalls == nil) != (k.ToolCalls == nil) {
		return 0
	}
	called := m.CallID != "" && slices.Contains(k.CallIDs, m.CallID) ||
		slices.ContainsFunc(m.CallIDs, func(id string) bool { return slices.Contains(k.CallIDs, id) })
	switch {
	case called:
		return clearMatch
	case k.Paused && !k.Ghost:
		return pausedMatch
	case k.Paused || text == "" || ours == "":
		return 0
	case text == ours, m.Role == "assistant" && strings.HasPrefix(ours, text):
		return clearMatch
	}
	return 0
}
