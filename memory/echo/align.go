package echo

import (
	"strings"

	"github.com/heardlog/heardlog/memory/heard"
)

// step is a match: turns (aFrom, a] of the list and (bFrom, b] of the ledger are the same.
type step struct{ aFrom, a, bFrom, b int }

// Scores of a matched turn: for the caller's words, and for the answer to them.
const (
	sameWords  = 4
	sameWord   = 3 // a single word may be said often
	newerWords = 3 // the words are a newer transcript of the ledger's
	sameReply  = 2
	onlyReply  = 2 // other words of the caller, but our answer
	otherReply = 3 // subtracted for another answer than ours
)

// Costs of what only one side has.
const (
	olderWords  = 4 // words of the list would precede the whole ledger
	noBeginning = 1 // the alignment begins inside both lists
	skipList    = 4 // a turn of the list, between matches: rare, since earlier lists had it
	skipLedger  = 1 // a turn of the ledger, between matches
	skipNewest  = 3 // one of the ledger's newest turns
	maxSkip     = 12
)

// Limits of the search. They keep the time for hostile lists bounded.
const (
	maxAlignTurns = 256 // of each list
	maxMerge      = 8   // user messages that one side may have merged into one
	maxNewest     = 16  // turns from the end that are also compared by their answers
	maxEqual      = 8   // turns by which a list may differ in length from a ledger that it begins like
)

// cell is the best alignment of all turns up to a pair of turns. It ends with a step of the given
// size, or with a turn that only one list has.
type cell struct {
	score  int32
	da, db uint8 // turns of a step; one of them is 0 if there is none
	first  bool  // the step is the first one
}

const none = -1 << 20 // score without any step

// align finds the alignment of all turns that costs the least. Turns may be missing on both sides.
// It returns the steps, newest first, or nil if nothing aligns.
func (x *aligner) align() []step {
	same := x.sameBeginning()
	a0, b0 := max(same, len(x.a)-1-maxAlignTurns), max(same, len(x.b)-1-maxAlignTurns)
	m, n := len(x.a)-1-a0, len(x.b)-1-b0
	x.compareTexts(a0, b0)
	width := n + 1
	cells := make([]cell, (m+1)*width)
	cells[0].score = none
	best, bi, bj, found := int32(0), 0, 0, false
	if same > 0 {
		cells[0].score = int32(same) * (sameWords + sameReply)
		best, found = cells[0].score-min(maxSkip, int32(n)*skipNewest), true
	}
	for j := 1; j <= n; j++ {
		cells[j] = cell{score: cells[j-1].score - skipLedger, db: 1}
	}
	for i := 1; i <= m; i++ {
		row, before := cells[i*width:(i+1)*width], cells[(i-1)*width:i*width]
		row[0] = cell{score: before[0].score - skipList, da: 1}
		for j := 1; j <= n; j++ {
			c := cell{score: before[j].score - skipList, da: 1}
			if left := row[j-1].score - skipLedger; left > c.score {
				c = cell{score: left, db: 1}
			}
			if score, s, ok := x.match(a0+i, b0+j); ok && s.aFrom >= a0 && s.bFrom >= b0 {
				from, first := cells[(s.aFrom-a0)*width+s.bFrom-b0].score, int32(-noBeginning)
				switch {
				case s.aFrom == 0:
					first = 0
				case s.bFrom == 0:
					first = -olderWords
				}
				score += max(from, first)
				if score >= c.score {
					c = cell{score, uint8(s.a - s.aFrom), uint8(s.b - s.bFrom), first > from}
				}
				// All newer turns of the ledger are missing in the list.
				end := score - min(maxSkip, int32(n-j)*skipNewest)
				if !found || end > best || end == best && j >= bj {
					best, bi, bj, found = end, i, j, true
				}
			}
			row[j] = c
		}
	}
	var steps []step
	for i, j := bi, bj; i > 0 || j > 0; {
		c := cells[i*width+j]
		if c.da > 0 && c.db > 0 {
			steps = append(steps, step{a0 + i - int(c.da), a0 + i, b0 + j - int(c.db), b0 + j})
			if c.first {
				return steps
			}
		}
		i, j = i-int(c.da), j-int(c.db)
	}
	for k := same; k >= 1; k-- {
		steps = append(steps, step{k - 1, k, k - 1, k})
	}
	return steps
}

// sameBeginning returns how many turns at the beginning of both lists are the same and need no
// search. Lists usually grow at the end only.
func (x *aligner) sameBeginning() int {
	m, n := len(x.a)-1, len(x.b)-1
	if m-n > maxEqual || n-m > maxEqual {
		return 0
	}
	k := 0
	for k < min(m, n) && x.a[k+1].text == x.b[k+1].text && x.sameAnswer(k+1, k+1) > 0 {
		k++
	}
	return max(0, k-maxEqual)
}

// compareTexts notes which texts come back unchanged. They need no other comparison with each
// other.
func (x *aligner) compareTexts(a0, b0 int) {
	ours := make(map[string]int, len(x.b)-b0)
	for j := b0 + 1; j < len(x.b); j++ {
		ours[x.b[j].text] = 0
	}
	for i := a0 + 1; i < len(x.a); i++ {
		if _, ok := ours[x.a[i].text]; ok {
			x.a[i].unchanged = true
			ours[x.a[i].text] = 1
		}
	}
	for j := b0 + 1; j < len(x.b); j++ {
		x.b[j].unchanged = ours[x.b[j].text] == 1
	}
}

// match scores turns that end with a of the list and b of the ledger as one step.
func (x *aligner) match(i, j int) (int32, step, bool) {
	u, v := &x.a[i], &x.b[j]
	one := step{i - 1, i, j - 1, j}
	newest := len(x.a)-i <= maxNewest && len(x.b)-j <= maxNewest
	if u.text != v.text && (u.unchanged && v.unchanged || !newest && u.lastWord() != v.lastWord()) {
		return 0, one, false
	}
	if u.same(v) {
		score := sameWords
		if norm, _ := v.normalized(); strings.IndexByte(norm, ' ') < 0 {
			score = sameWord
		}
		return int32(score + x.sameAnswer(i, j)), one, true
	}
	if joined, from := joinBack(x.b, j, u); joined {
		one.bFrom = from
		return int32(sameWords + x.sameAnswer(i, j)), one, true
	}
	if joined, from := joinBack(x.a, i, v); joined {
		one.aFrom = from
		return int32(sameWords + x.sameAnswer(i, j)), one, true
	}
	if !newest {
		return 0, one, false
	}
	reply := x.sameAnswer(i, j)
	switch {
	case reply > 0 && x.kin(u, v) != unrelated && !x.twin(i, x.a, x.b):
		return int32(sameWords + reply), one, true
	case reply > 0 && x.longReply(i) && !x.twin(i, x.a, x.b) && !x.twin(j, x.b, x.a):
		return onlyReply, one, true
	case reply == 0 && x.open(j) && u.wrappedIn(v):
		return sameWords, one, true
	case reply == 0 && x.newer(i, j):
		return newerWords, one, true
	}
	return 0, one, false
}

// twin reports whether one of the newest turns of the other list has the words of turn i. Only
// words without a twin can be another transcript of the words at their place.
func (x *aligner) twin(i int, turns, others []turnOf) bool {
	for j := max(1, len(others)-maxNewest); j < len(others); j++ {
		if turns[i].same(&others[j]) {
			return true
		}
	}
	return false
}

// longReply reports whether the answer in turn i of the list has enough words to be recognized
// without the caller's.
func (x *aligner) longReply(i int) bool {
	at := x.replyOf(i)
	return at >= 0 && strings.Count(x.normIn(at), " ") >= 2
}

// replyOf returns the first answer in turn i of the list, or -1.
func (x *aligner) replyOf(i int) int {
	for _, at := range x.a[i].rest {
		if x.in[at].Role == "assistant" && x.in[at].Text != "" {
			return at
		}
	}
	return -1
}

// sameAnswer scores the answers to turns i and j. It decides between places where the caller said
// the same. It runs very often for lists that repeat themselves, and therefore compares only normal
// forms.
func (x *aligner) sameAnswer(i, j int) int {
	first := x.replyOf(i)
	if first < 0 {
		return 0
	}
	said := 0
	for _, at := range x.b[j].rest {
		if k := &x.known[at]; k.Role == "assistant" && k.Original != "" {
			if id := x.in[first].ID; id != "" && k.ID != "" {
				if id == k.ID {
					return sameReply
				}
				said = -otherReply
				continue
			}
			if strings.HasPrefix(k.Original, x.in[first].Text) {
				return sameReply
			}
			ours, theirs := x.normKnown(at), x.normIn(first)
			if strings.HasPrefix(ours, theirs) || strings.HasPrefix(theirs, ours) || sameLetters(ours, theirs) {
				return sameReply
			}
			if said == 0 && !k.Ghost {
				said = -otherReply
			}
			if n := strings.IndexByte(ours, ' '); n > 0 && strings.HasPrefix(theirs, ours[:n]) && !k.Ghost {
				said = -1 // it begins with the same word: a number may be written differently
			}
		}
	}
	return said
}

// noWords marks an empty normal form in inNorm and knNorm. heard.Normalize never returns it.
const noWords = " "

// once returns the normal form of a text, which it keeps in norm.
func once(norm *string, text string) string {
	if *norm == "" {
		if *norm = heard.Normalize(text); *norm == "" {
			*norm = noWords
		}
	}
	if *norm == noWords {
		return ""
	}
	return *norm
}

// normIn returns the normal form of an incoming text.
func (x *aligner) normIn(i int) string { return once(&x.inNorm[i], x.in[i].Text) }

// normKnown returns the normal form of what was generated.
func (x *aligner) normKnown(j int) string { return once(&x.knNorm[j], x.known[j].Original) }
