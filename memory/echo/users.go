package echo

import (
	"slices"
	"strings"
)

// turnOf is a user message with the messages up to the next one. The first turn of a list has no
// user message.
type turnOf struct {
	user int // index; -1 in the first turn
	text string
	// norm is the normalized text, bare the same without the speaker's name. They are computed when
	// needed, since most texts come back unchanged.
	norm, bare string
	last       string // the last word of both
	unchanged  bool   // the other list has the same text, byte for byte
	computed   bool
	rest       []int
}

// normalized returns norm and bare.
func (t *turnOf) normalized() (norm, bare string) {
	if !t.computed && t.text != "" {
		t.norm, t.bare = normalizeUser(t.text)
		t.last = t.norm[strings.LastIndexByte(t.norm, ' ')+1:]
		t.computed = true
	}
	return t.norm, t.bare
}

// lastWord returns the last word. It differs in most messages that are not the same.
func (t *turnOf) lastWord() string {
	if !t.computed {
		t.normalized()
	}
	return t.last
}

// same reports whether two user messages have the same words. One of them may also name the
// speaker.
func (t *turnOf) same(o *turnOf) bool {
	if t.text == o.text {
		return true
	}
	norm, bare := t.normalized()
	other, unnamed := o.normalized()
	return norm == other || bare == other || norm == unnamed
}

// joinBack reports whether whole has the words of turns (from, last] joined, and returns from.
func joinBack(turns []turnOf, last int, whole *turnOf) (bool, int) {
	if last < 2 {
		return false, 0
	}
	norm, bare := whole.normalized()
	if ok, from := joins(turns, last, norm); ok || bare == norm {
		return ok, from
	}
	return joins(turns, last, bare)
}

// joins is joinBack for a normalized text.
func joins(turns []turnOf, last int, whole string) (bool, int) {
	rest, ok := cutSuffix(whole, &turns[last])
	for from := last - 1; ok && from >= 1 && last-from < maxMerge; from-- {
		if norm, bare := turns[from].normalized(); rest == norm || rest == bare {
			return true, from - 1
		}
		rest, ok = cutSuffix(rest, &turns[from])
	}
	return false, 0
}

// cutSuffix removes the words of a turn from the end, with or without the speaker's name.
func cutSuffix(words string, t *turnOf) (string, bool) {
	norm, bare := t.normalized()
	rest, ok := strings.CutSuffix(words, norm)
	if !ok && bare != norm {
		rest, ok = strings.CutSuffix(words, bare)
	}
	return strings.TrimSuffix(rest, " "), ok && rest != ""
}

// within reports whether part is the beginning or the end of whole, in words.
func within(whole, part string) bool {
	if front, ok := strings.CutSuffix(whole, part); ok && strings.HasSuffix(front, " ") {
		return true
	}
	behind, ok := strings.CutPrefix(whole, part)
	return ok && strings.HasPrefix(behind, " ") && part != ""
}

// kinship is how the words of a user message in a list relate to those in the ledger.
type kinship int

const (
	unrelated kinship = iota
	wrapped           // the list has something else around the ledger's words
	unwrapped         // the ledger has something else around the list's words
	tidied            // the same without hesitations, or with numbers written otherwise
	corrected         // another transcript: most words are the same
)

// kin compares the user message of a list with that of the ledger. It is used where the answers
// agree.
func (x *aligner) kin(u, v *turnOf) kinship {
	list, known := u.bareText(), v.bareText()
	switch {
	case list == "" || known == "":
		return unrelated
	case within(list, known):
		return wrapped
	case within(known, list):
		return unwrapped
	}
	if x.likens++; x.likens > maxLikened {
		return unrelated
	}
	g, h := fluent(likeWords(known)), fluent(likeWords(list))
	if len(g) == 0 || len(h) == 0 {
		return unrelated
	}
	n, cost := likeness(g, h)
	switch {
	case n < len(g) || 4*cost > len(h) || 2*shared(g, h) < len(g):
		return unrelated
	case cost > 0, !spelledAlike(g, h):
		return corrected
	}
	return tidied
}

// spelledAlike reports whether two texts without differing words have the same words, as far as
// there are no numbers, which either may have spelled.
func spelledAlike(g, h []likeWord) bool {
	number := func(w likeWord) bool { return w.number }
	return slices.ContainsFunc(g, number) || slices.ContainsFunc(h, number) || shared(g, h) == len(g) && shared(h, g) == len(h)
}

// labelled reports whether the ledger has a note of several words in brackets in front of the words
// of the list.
func (t *turnOf) labelled(list *turnOf) bool {
	norm, bare := t.normalized()
	words, _ := list.normalized()
	return norm != bare && words == bare && strings.IndexAny(t.text, "[(") == 0 && strings.Contains(t.text[:strings.IndexAny(t.text, "])")], " ")
}

// bareText returns the normal form of a user message.
func (t *turnOf) bareText() string {
	norm, _ := t.normalized()
	return norm
}

// newer reports whether the user message of turn i of the list is a newer transcript of that of
// turn j of the ledger.
func (x *aligner) newer(i, j int) bool {
	if !x.open(j) {
		return false
	}
	_, u := x.a[i].normalized()
	_, v := x.b[j].normalized()
	return v != "" && grown(u, v) && x.sameAnswer(i-1, j) <= 0
}

// wrappedIn reports whether the ledger's words are those of the list with something around them.
func (t *turnOf) wrappedIn(known *turnOf) bool {
	list, whole := t.bareText(), known.bareText()
	words := strings.Count(list, " ") + 1
	return words >= 2 && strings.Count(whole, " ")+1 >= words+3 && within(whole, list)
}

// open reports whether no answer in turn j of the ledger is known to have been heard.
func (x *aligner) open(j int) bool {
	rest := x.b[j].rest
	return !slices.ContainsFunc(rest, func(r int) bool {
		k := &x.known[r]
		return k.Role != "assistant" || !k.Provisional && !k.Aside && !k.Unheard && !k.Ghost && !x.ran(k, rest)
	})
}

// grown reports whether u may be what a recognizer made of v later: v with more words, with a few
// words changed, or a whole sentence in place of a hesitation or of a first word or two.
func grown(u, v string) bool {
	if strings.HasPrefix(u, v) || revised(u, v) {
		return true
	}
	a, b := strings.Fields(u), strings.Fields(v)
	if n := common(a, b); n >= 3 && 10*n >= 7*max(len(a), len(b)) {
		return true
	}
	if len(a) <= len(b) {
		return false
	}
	return len(fluent(likeWords(v))) == 0 || len(b) <= 2 && respelled(a[0], b[0])
}

// common returns how many words two texts have in the same order, from their beginnings and ends.
func common(a, b []string) int {
	n, m := 0, 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n+m < min(len(a), len(b)) && a[len(a)-1-m] == b[len(b)-1-m] {
		m++
	}
	return n + m
}

// maxRespelled is the longest word that is compared letter by letter.
const maxRespelled = 32

// revised reports whether u is a newer transcript of v: u has the words of v, at least two, in
// their order or in a similar spelling. One word in three may be missing, but not the last. A
// question that only begins with the same words is another question.
func revised(u, v string) bool {
	a, b := strings.Fields(u), strings.Fields(v)
	found, at, last := 0, 0, false
	for _, w := range b {
		next := at
		for next < len(a) && next <= at+1 && !respelled(a[next], w) {
			next++ // one word may have been added
		}
		if last = next < len(a) && next <= at+1; last {
			found, at = found+1, next+1
		}
	}
	return last && found >= 2 && 3*(len(b)-found) <= len(b)
}

// respelled reports whether a and b may be transcripts of one word: one is the beginning of the
// other, or at most about one letter in three differs.
func respelled(a, b string) bool {
	if a == b {
		return true
	}
	x, y := []rune(a), []rune(b)
	if len(x) > len(y) {
		x, y = y, x
	}
	if len(x) < 2 || len(y) > maxRespelled {
		return false
	}
	if slices.Equal(x, y[:len(x)]) {
		return true
	}
	row := make([]int, len(x)+1) // edit distance
	for i := range row {
		row[i] = i
	}
	for j := range y {
		before := row[0]
		row[0] = j + 1
		for i := range x {
			change := before
			if x[i] != y[j] {
				change++
			}
			before, row[i+1] = row[i+1], min(change, row[i]+1, row[i+1]+1)
		}
	}
	return row[len(x)] <= (len(x)+1)/3
}
