package heard

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Costs of a comparison word by word. A plain word costs plainCost if the other text lacks it.
const (
	plainCost = 20
	formCost  = 5   // a written form, such as a number, that was said in other words
	saidCost  = 2   // a word said for a written form
	equalCost = -15 // a word that both have
	newCost   = 6   // a word said for a plain word
	nearCost  = 6   // a plain word that is spelled much like it sounds, in all
	nameCost  = 10  // a name in the middle of a sentence
)

// Limits of a comparison word by word.
const (
	maxRespoken = 160_000 // pairs of words, behind what both texts begin with
	maxJoined   = 96      // bytes of words that are written together on one side
	maxReadings = 2 << 20 // readings compared
)

// token is a word of a speech, or a symbol, for the comparison word by word.
type token struct {
	from int32
	cost int32 // of saying it otherwise
	form bool  // it is likely said otherwise: a number, an abbreviation, a part of an address
	num  bool
}

// block is what happens between two runs of words that both texts have: nothing, a written form is
// said in other words, a plain word is, or a form of heard was generated in words.
type block uint8

const (
	matching block = iota
	formSaid
	wordSaid
	formHeard
	blocks
)

// respoken compares two texts word by word. Words that differ between two runs of equal words are
// taken for a written form and how it was said. heard is a part of generated only if nearly all
// plain words agree.
type respoken struct {
	g, h   *speech
	gt, ht []token // behind what both begin with
	equal  int     // words at the beginning that are equal
	cost   []int32
	back   []int32
	budget int // readings that may still be compared
}

// align returns the place in g up to which h was heard, and whether it was. It ends with a word of
// g, or inside one if h does and the letters agree.
func (r *respoken) align() (end int32, ok bool) {
	gat, hat := r.common()
	r.gt, r.ht = r.g.tokens(gat), r.h.tokens(hat)
	if len(r.ht) == 0 {
		return 0, false
	}
	if most := 3*len(r.ht) + 64; len(r.gt) > most {
		r.gt = r.gt[:most]
	}
	if len(r.gt)*len(r.ht) > maxRespoken {
		return 0, false
	}
	return r.solve()
}

// common skips the words that both texts begin with.
func (r *respoken) common() (gat, hat int32) {
	for int(gat) < len(r.g.text) && int(hat) < len(r.h.text) {
		a, b, ok := r.joined(gat, hat)
		if !ok {
			break
		}
		gat, hat = a, b
		r.equal++
	}
	return gat, hat
}

// joined reports whether words of both texts at two places have the same letters, however they are
// divided, and returns where they end.
func (r *respoken) joined(gat, hat int32) (gto, hto int32, ok bool) {
	g, h := r.g, r.h
	for n := int32(0); n < maxJoined; n++ {
		i, j := gat+n, hat+n
		if n > 0 && g.marks[i]&markWord != 0 && h.marks[j]&markWord != 0 {
			return i, j, true
		}
		if int(i) >= len(g.text) || int(j) >= len(h.text) || g.text[i] != h.text[j] {
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// tokens returns the words from a place on.
func (s *speech) tokens(at int32) []token {
	var list []token
	for int(at) < len(s.text) {
		to := int32(s.wordEnd(int(at)))
		list = append(list, s.token(at, to))
		at = to
	}
	return append(list, token{from: at})[:len(list)]
}

// token classifies the word between two places by how it is written.
func (s *speech) token(from, to int32) token {
	t := token{from: from, cost: formCost, form: true}
	if s.marks[from]&markSymbol != 0 {
		t.cost = saidCost
		return t
	}
	if s.marks[from]&markDigits != 0 {
		t.num = true
		return t
	}
	at, end := int(s.start[from]), len(s.src)
	for n := to; n > from; n-- {
		if s.end[n-1] >= 0 {
			end = int(s.end[n-1])
			break
		}
	}
	word := s.src[at:end]
	before, _ := utf8.DecodeLastRuneInString(s.src[:at])
	after, size := utf8.DecodeRuneInString(s.src[end:])
	behind, _ := utf8.DecodeRuneInString(s.src[min(len(s.src), end+size):])
	switch {
	case strings.ContainsRune("@/.:_+", before), unicode.IsDigit(before), unicode.IsDigit(after),
		strings.ContainsRune("@/_", after), after == '.' && unicode.IsLetter(behind):
		return t // part of an address, or joined to a number
	case abbreviated(word), len(word) <= 3 && s.behindNumber(from), after == '.' && len(word) <= 5 && unicode.IsSpace(behind) && !s.endsSentence(end+size):
		return t
	}
	t.form, t.cost = false, plainCost
	if first, _ := utf8.DecodeRuneInString(word); unicode.IsUpper(first) && (before == ' ' || before == '-') && !s.startsSentence(at) {
		t.cost = nameCost
	}
	return t
}

// abbreviated reports whether a word has no vowel or a capital letter behind its first.
func abbreviated(word string) bool {
	latin, vowel := false, false
	for i, r := range word {
		if i > 0 && unicode.IsUpper(r) {
			return true
		}
		if !unicode.Is(unicode.Latin, r) {
			continue
		}
		latin = true
		if f := foldLetter(unicode.ToLower(r)); strings.ContainsRune("aeiouy", f) || f > unicode.MaxASCII {
			vowel = true
		}
	}
	return latin && !vowel
}

// startsSentence reports whether a sentence, or a line, begins at an offset of the source.
func (s *speech) startsSentence(at int) bool {
	before := strings.TrimRight(s.src[:at], " \t\"'“„«(*_")
	return before == "" || strings.ContainsRune(".!?:\n", rune(before[len(before)-1]))
}

// endsSentence reports whether what follows an offset of the source begins with a capital letter.
func (s *speech) endsSentence(at int) bool {
	for _, r := range s.src[at:] {
		if !unicode.IsSpace(r) {
			return unicode.IsUpper(r) || unicode.IsDigit(r)
		}
	}
	return true
}

const unreached = 1 << 20

// solve finds the cheapest way to say a beginning of gt as ht.
func (r *respoken) solve() (end int32, ok bool) {
	n, m := len(r.gt), len(r.ht)
	size := (n + 1) * (m + 1) * int(blocks)
	r.cost, r.back = make([]int32, size), make([]int32, size)
	for i := range r.cost {
		r.cost[i] = unreached
	}
	r.cost[0], r.budget = 0, maxReadings
	// The best place inside a word or a number, its cost and its state.
	half, inside, halfAt := int32(-1), int32(unreached), 0
	for j := range m {
		least := int32(unreached)
		for i := range n + 1 {
			for b := range blocks {
				at := r.index(i, j, b)
				c := r.cost[at]
				if c >= unreached {
					continue
				}
				least = min(least, c)
				if i < n && b == matching || i < n && c < inside {
					if to, cut := r.match(i, j, at); cut && c < inside {
						half, inside, halfAt = to, c, at
					}
				}
				r.step(i, j, b, at)
			}
		}
		if r.budget < 0 {
			return 0, false
		}
		if j == 12 && least > equalCost && r.equal == 0 {
			return 0, false // another text
		}
	}
	return r.choose(half, inside, halfAt)
}

func (r *respoken) index(i, j int, b block) int {
	return (j*(len(r.gt)+1)+i)*int(blocks) + int(b)
}

func (r *respoken) relax(i, j int, b block, from int, cost int32) {
	at := r.index(i, j, b)
	if c := r.cost[from] + cost; c < r.cost[at] {
		r.cost[at], r.back[at] = c, int32(from)
	}
}

// step goes on without one word of either text.
func (r *respoken) step(i, j int, b block, from int) {
	if i < len(r.gt) {
		t := &r.gt[i]
		switch {
		case b == formHeard:
			r.relax(i+1, j, b, from, saidCost)
		case t.form:
			r.relax(i+1, j, formSaid, from, t.cost)
		case b == formSaid:
			r.relax(i+1, j, b, from, t.cost)
		default:
			r.relax(i+1, j, wordSaid, from, t.cost)
		}
	}
	t := &r.ht[j]
	switch {
	case b == formSaid && !t.num, b == formHeard:
		r.relax(i, j+1, b, from, saidCost)
	case b == wordSaid && !t.num:
		r.relax(i, j+1, b, from, newCost)
	case t.form && b == matching:
		r.relax(i, j+1, formHeard, from, t.cost)
	default:
		r.relax(i, j+1, wordSaid, from, plainCost)
	}
}

// match goes on behind words that are equal, or that are readings of one another. It returns where
// h ends inside a word or a number of g, if it does.
func (r *respoken) match(i, j, from int) (to int32, cut bool) {
	gat, hat := r.gt[i].from, r.ht[j].from
	if a, b, ok := r.joined(gat, hat); ok {
		reward := int32(equalCost)
		if a-gat < 3 || r.g.marks[gat+1]&markWord != 0 {
			reward /= 3
		}
		r.relax(r.tokenAt(r.gt, a), r.tokenAt(r.ht, b), matching, from, reward)
	}
	rest := r.h.text[hat:]
	if len(rest) < maxJoined && strings.HasPrefix(r.g.text[gat:], rest) {
		to, cut = gat+int32(len(rest)), r.g.marks[gat+int32(len(rest))]&markWord == 0
	}
	reward := int32(equalCost)
	if (r.g.marks[gat]|r.h.marks[hat])&markSymbol != 0 {
		reward = 0 // a short word may be said for it, or stand elsewhere
	}
	if r.g.marks[gat]&markChoice != 0 {
		for _, alt := range r.readings(r.g, gat) {
			switch {
			case alt.text == "":
				if alt.to-gat > 1 && r.g.marks[alt.to]&markWord != 0 {
					r.relax(r.tokenAt(r.gt, alt.to), j, matching, from, saidCost)
				}
			case strings.HasPrefix(rest, alt.text):
				if k := hat + int32(len(alt.text)); r.h.marks[k]&markWord != 0 && r.g.marks[alt.to]&markWord != 0 {
					r.relax(r.tokenAt(r.gt, alt.to), r.tokenAt(r.ht, k), matching, from, reward)
				}
			case strings.HasPrefix(alt.text, rest) && !cut:
				to, cut = gat, true
			}
		}
	}
	if r.h.marks[hat]&markChoice != 0 {
		for _, alt := range r.readings(r.h, hat) {
			if k := gat + int32(len(alt.text)); alt.text != "" && strings.HasPrefix(r.g.text[gat:], alt.text) && r.g.marks[k]&markWord != 0 && r.h.marks[alt.to]&markWord != 0 {
				r.relax(r.tokenAt(r.gt, k), r.tokenAt(r.ht, alt.to), matching, from, reward)
			}
		}
	}
	return to, cut
}

// readings returns the choices at a place, at their cost.
func (r *respoken) readings(s *speech, at int32) []choice {
	if r.budget < 0 || s.said > matchBudget {
		return nil
	}
	list := s.choicesAt(at)
	r.budget -= len(list)
	return list
}

// tokenAt returns the index of the token that starts at a place.
func (r *respoken) tokenAt(list []token, at int32) int {
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; list[mid].from < at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// choose returns the best place where h may end in g: behind a word that both have, in the middle
// of one, or behind the form that the last words of h were said for. A place at the end of both is
// taken if it costs little more.
func (r *respoken) choose(half, halfCost int32, halfAt int) (end int32, ok bool) {
	n, m := len(r.gt), len(r.ht)
	best, at := int32(unreached), -1
	for i := range n + 1 {
		for b := range blocks {
			k := r.index(i, m, b)
			c := r.cost[k]
			if c >= unreached {
				continue
			}
			if c < best || i == n && b == matching && c <= best+plainCost/2 {
				best, at = c, k
			}
		}
	}
	if half >= 0 && halfCost <= best {
		return half, r.likely(halfAt, false)
	}
	if at < 0 {
		return 0, false
	}
	i := at / int(blocks) % (n + 1)
	if block(at%int(blocks)) != matching {
		i = r.ending(at)
	}
	return r.gt[:n+1][i].from, r.likely(at, i == n && block(at%int(blocks)) == matching)
}

// ending returns how many words of g are heard if h ends in a block: by how long the forms in it
// take to say.
func (r *respoken) ending(at int) int {
	n := len(r.gt)
	i0, j0 := r.blockStart(at)
	i := i0
	for i < n && (r.gt[i].form || i == i0) {
		i++
	}
	total, said := int32(0), int32(0)
	for k := i0; k < i; k++ {
		total += r.g.sayingLength(r.gt, k)
	}
	for k := j0; k < len(r.ht); k++ {
		said += r.h.sayingLength(r.ht, k)
	}
	if 4*said >= 3*total || i == n && 2*said >= total {
		return i
	}
	for k := i0; k < i; k++ {
		if said -= r.g.sayingLength(r.gt, k); said < 0 {
			return k
		}
	}
	return i
}

// blockStart returns the words of both texts at which the block begins that a state is in.
func (r *respoken) blockStart(at int) (i, j int) {
	for at > 0 && block(at%int(blocks)) != matching {
		at = int(r.back[at])
	}
	cell := at / int(blocks)
	return cell % (len(r.gt) + 1), cell / (len(r.gt) + 1)
}

// sayingLength estimates how many letters it takes to say a word.
func (s *speech) sayingLength(list []token, k int) int32 {
	t := list[k]
	to := list[:len(list)+1][k+1].from
	n := int32(utf8.RuneCountInString(s.text[t.from:to]))
	switch {
	case s.marks[t.from]&markSymbol != 0:
		return 4
	case t.num && n < 3:
		return 5 * n
	case t.num:
		return 4 * n
	case t.form:
		return 3 * n
	}
	return n
}

// likely reports whether the way to a state is that of a text that was said: nearly all plain words
// agree. If both texts end with the same words, fewer do.
func (r *respoken) likely(at int, whole bool) bool {
	same, bad, last := r.equal, int32(0), 0
	n := len(r.gt) + 1
	toI, toJ := at/int(blocks)%n, at/int(blocks)/n
	for at > 0 {
		b := block(at % int(blocks))
		from := int(r.back[at])
		i, j := from/int(blocks)%n, from/int(blocks)/n
		if b == matching {
			if j < toJ {
				same++
				if bad == 0 {
					last++
				}
			}
			at, toI, toJ = from, i, j
			continue
		}
		for at > 0 && block(at%int(blocks)) != matching {
			at = int(r.back[at])
		}
		i, j = at/int(blocks)%n, at/int(blocks)/n
		if toJ == len(r.ht) && !whole && !r.unfinished(i, j) {
			return false
		}
		bad += r.doubt(i, toI, j, toJ)
		toI, toJ = i, j
	}
	if same == 0 {
		return false
	}
	allowed := int32(plainCost * same / 6)
	if whole && last >= 2 {
		allowed = int32(plainCost * same / 4)
	}
	return bad <= allowed
}

// unfinished reports whether the last words of h, from word j on, may be said for what begins with
// word i of g.
func (r *respoken) unfinished(i, j int) bool {
	for i+1 < len(r.gt) && r.g.marks[r.gt[i].from]&markSymbol != 0 {
		i++
	}
	letters, number := 0, false
	for k := j; k < len(r.ht); k++ {
		if r.h.marks[r.ht[k].from]&markSymbol == 0 {
			letters += int(r.ht[:len(r.ht)+1][k+1].from - r.ht[k].from)
		}
		number = number || r.ht[k].num
	}
	switch {
	case i >= len(r.gt) || letters < 2:
		return false
	case r.gt[i].num:
		return !number && (!r.g.sure || !r.known(i))
	case r.gt[i].form:
		return true
	case r.gt[i].cost == nameCost:
		return r.sound(i, i+1, j, len(r.ht))
	case i == len(r.gt)-1 && j == len(r.ht)-1 && letters > 2 && r.equal+len(r.ht) > 8:
		return true // the last word of both, written otherwise
	}
	return (j+1 < len(r.ht) || r.abbreviates(i, j)) && r.sound(i, i+1, j, len(r.ht))
}

// abbreviates reports whether word i of g is short for word j of h.
func (r *respoken) abbreviates(i, j int) bool {
	word := r.g.text[r.gt[i].from:r.gt[:len(r.gt)+1][i+1].from]
	said := r.h.text[r.ht[j].from:]
	return 2*len(word) <= len(said) || len(said) > len(word)+1 && strings.HasPrefix(said, word)
}

// known reports whether the ways to say word i of g are known.
func (r *respoken) known(i int) bool {
	for _, alt := range r.g.choicesAt(r.gt[i].from) {
		if alt.text != "" && alt.text != "." {
			return true
		}
	}
	return false
}

// doubt returns what speaks against the words between two places of g being said as those of h: 0
// if they are written forms.
func (r *respoken) doubt(i, toI, j, toJ int) int32 {
	var room, plain, digits, theirs int32
	for k := i; k < toI; k++ {
		t := r.gt[k]
		if !t.form {
			plain += t.cost
		}
		if t.num {
			digits++
		}
		room += r.g.sayingLength(r.gt, k)
	}
	var said, saidForm int32
	for k := j; k < toJ; k++ {
		if r.ht[k].num {
			theirs++
		}
		if r.ht[k].form {
			saidForm++
		}
		said += r.h.sayingLength(r.ht, k)
	}
	values := toJ > j
	for k := j; k < toJ && values; k++ {
		values = r.names(r.h, r.ht, k)
	}
	switch {
	case toJ == j: // left out
		return 2*plain + plainCost*digits
	case values && (digits == 0 && toI == i+1 && r.names(r.g, r.gt, i) || digits > 0 && r.g.sure):
		return 3 * plainCost // another number, or another day
	case digits > 0 && theirs > 0:
		return plainCost * min(digits, theirs) // another number
	case toI == i:
		return plainCost * int32(toJ-j)
	case plain > 0 && saidForm == 0:
		if r.sound(i, toI, j, toJ) {
			return nearCost
		}
		return plain + max(0, said-3*room-12)
	}
	return max(0, said-3*room-24)
}

// names reports whether word k of a text names a number, a month or a day.
func (r *respoken) names(s *speech, list []token, k int) bool {
	word := s.text[list[k].from:list[:len(list)+1][k+1].from]
	return slices.ContainsFunc(s.langs, func(l *language) bool { return l.values[word] })
}

// sound reports whether the words of two blocks have most of their letters in common, in order.
func (r *respoken) sound(i, toI, j, toJ int) bool {
	a := r.g.text[r.gt[:len(r.gt)+1][i].from:r.gt[:len(r.gt)+1][toI].from]
	b := r.h.text[r.ht[:len(r.ht)+1][j].from:r.ht[:len(r.ht)+1][toJ].from]
	if len(a) > maxJoined || len(b) > maxJoined {
		return false
	}
	var row [maxJoined + 1]int // the longest common subsequence
	for x := range len(a) {
		corner := 0
		for y := range len(b) {
			above := row[y+1]
			if a[x] == b[y] {
				row[y+1] = corner + 1
			} else {
				row[y+1] = max(above, row[y])
			}
			corner = above
		}
	}
	if same := row[len(b)]; same == len(a) && same > 1 && a[0] == b[0] && len(b) <= 4*len(a) {
		return true // an abbreviation
	}
	return a[0] == b[0] && 2*row[len(b)] > max(len(a), len(b)) || 3*row[len(b)] >= 2*max(len(a), len(b))
}
