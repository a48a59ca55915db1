package recall

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// weights are those of the parts of a score. They were tuned on long-term conversations of short
// turns, and checked on long messages.
type weights struct {
	before1, after1, before2, after2     float64 // of neighbors
	call, grams, party, self, when, date float64
	k1, b, gk1, gb, cb                   float64
	turnLen, blockLen, related           float64
	asked                                float64 // of the turn before, if it asks and this one does not
}

var w0 = weights{
	before1: .55, after1: .5, before2: .45, after2: .1, call: .8, grams: .4, party: .35, self: 1.2, when: .45, date: 1.2,
	k1: .8, b: .45, gk1: 1.2, gb: .5, cb: .4, turnLen: 30, blockLen: 600, related: .3,
	asked: .5,
}

// maxTerms is how many words of a query are searched, those of the highest idf.
const maxTerms = 16

// Query selects turns.
type Query struct {
	Text string
	K    int       // how many hits at most
	Now  time.Time // resolves relative dates
	// What the turns must be; zero values are any.
	Call, Session, Role string
	FromMS, ToMS        int64
	NotCall             string // leaves a call out
	// Except, if not nil, reports whether a turn is left out.
	Except func(*Turn) bool
	// Searched, if not nil, reports whether a call may be searched.
	Searched func(call string) bool
	// Budget is how many tokens the texts of hits and the turns around them may have; hits beyond
	// it are left out. 0 means no limit, and no turns around.
	Budget int
}

// Parts are what a score is the sum of.
type Parts struct {
	Words     float64 `json:"words"`     // the query's words in the turn, and those of the best turns
	Neighbors float64 `json:"neighbors"` // and in the turns around it
	Call      float64 `json:"call"`      // and in its part of the call
	Grams     float64 `json:"grams"`     // pieces of words
	Party     float64 `json:"party"`     // said by the one whom the query names
	Self      float64 `json:"self"`      // said by the caller, who asks about themself
	When      float64 `json:"when"`      // has a word of time, and the query asks when
	Date      float64 `json:"date"`      // from the time that the query names
}

func (s Parts) sum() float64 {
	return s.Words + s.Neighbors + s.Call + s.Grams + s.Party + s.Self + s.When + s.Date
}

// Hit is a found turn.
type Hit struct {
	Turn
	Score float64
	Parts Parts
	// Also are turns that say the same and are not hits of their own.
	Also []Turn
	// Context are the turns right before and after, if a budget is set.
	Context []Turn
	doc     int32
}

type term struct {
	lists [][]posting // of its stems
	idf   float64
}

// The strengths of what a search found, by the share of the query's words that the best hit and
// its neighbors cover. They do not follow from scores, which are relative to the best hit.
const (
	Strong = "strong" // at least half
	Weak   = "weak"   // at least a fifth
	None   = "none"
)

// gramScores returns how well each turn fits by parts of words, the best with 1.
func (x *Index) gramScores(lists [][]posting) []float64 {
	g := make([]float64, len(x.docs))
	avg := float64(x.total[1]) / float64(max(x.live, 1))
	for _, list := range lists {
		w := idf(x.live, len(list))
		for _, po := range list {
			f := float64(po.n)
			g[po.doc] += w * f * (w0.gk1 + 1) / (f + w0.gk1*(1-w0.gb+w0.gb*float64(x.docs[po.doc].grams)/avg))
		}
	}
	normalize(g)
	return g
}

// Search returns the best turns, best first, and how much of the query they cover.
func (x *Index) Search(q Query) ([]Hit, string) {
	x.prepare()
	words := wordsOf(q.Text)
	p := x.parse(words, q.Now)
	n := len(x.docs)
	if x.live == 0 {
		return nil, None
	}
	s := make([]float64, n)
	cover := make([]uint32, n)
	avg := float64(x.total[0]) / float64(max(x.live, 1))
	for ti, t := range p.terms {
		for _, list := range t.lists {
			for _, po := range list {
				f := float64(po.n)
				s[po.doc] += t.idf * f * (w0.k1 + 1) / (f + w0.k1*(1-w0.b+w0.b*float64(x.docs[po.doc].words)/avg))
				cover[po.doc] |= 1 << ti
			}
		}
	}
	normalize(s)
	x.relate(s)
	g := x.gramScores(p.grams)
	calls := x.blockScores(p.terms)
	var found []ranked
	k := max(q.K, 1) + spare
	var on date       // of the turn before
	var dated float64 // its score
	for i := range x.docs {
		d := &x.docs[i]
		if d.call == nil || !q.fits(d) {
			continue
		}
		sc := Parts{Words: s[i], Grams: w0.grams * g[i], Neighbors: x.neighbors(d, s)}
		b := x.blocks[d.block]
		sc.Call = w0.call * calls[d.block] * min(1, w0.blockLen/float64(max(b.words, 1)))
		if p.party != "" && d.Role == p.party {
			sc.Party = w0.party
		}
		if p.self && p.party == "" && d.Role == roleUser {
			sc.Self = w0.self
		}
		if p.when && d.when {
			sc.When = w0.when
		}
		if len(p.dates) > 0 && d.date != on {
			on, dated = d.date, 0
			for _, asked := range p.dates {
				dated = max(dated, w0.date*asked.near(on))
			}
		}
		sc.Date = dated
		if sc.Words+sc.Neighbors+sc.Grams+sc.Call+sc.Date == 0 {
			continue
		}
		sum := sc.sum()
		if len(found) == k && sum <= found[k-1].score || q.excepts(d) {
			continue
		}
		r := ranked{int32(i), d.At, sum, sc}
		at, _ := slices.BinarySearchFunc(found, r, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.at, a.at), -1) })
		found = slices.Insert(found[:min(len(found), k-1)], at, r)
	}
	hits := make([]Hit, len(found))
	for i, r := range found {
		hits[i] = Hit{Turn: x.docs[r.doc].Turn, Score: r.score, Parts: r.parts, doc: r.doc}
	}
	strength := None
	if len(hits) > 0 {
		c := p.coverage(x, &q, hits[0].doc, cover)
		if hits[0].Parts.Date > 0 { // asked for by its time
			c = max(c, .2)
		}
		switch {
		case c >= .5:
			strength = Strong
		case c >= .2:
			strength = Weak
		}
	}
	hits = collapse(hits, max(q.K, 1))
	return x.surround(hits, &q), strength
}

// ranked is a turn among the best so far.
type ranked struct {
	doc   int32
	at    int64
	score float64
	parts Parts
}

// The roles of turns.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

func normalize(s []float64) {
	best := 0.
	for _, v := range s {
		best = max(best, v)
	}
	if best > 0 {
		factor := 1 / best
		for i := range s {
			s[i] *= factor
		}
	}
}

func (q *Query) fits(d *doc) bool {
	return (q.Call == "" || d.Turn.Call == q.Call) && (q.Session == "" || d.Session == q.Session) && (q.Role == "" || d.Role == q.Role) &&
		(q.FromMS == 0 || d.At >= q.FromMS) && (q.ToMS == 0 || d.At <= q.ToMS) && (q.NotCall == "" || d.Turn.Call != q.NotCall) &&
		(q.Searched == nil || q.Searched(d.Turn.Call))
}

func (q *Query) excepts(d *doc) bool { return q.Except != nil && q.Except(&d.Turn) }

func (x *Index) neighbors(d *doc, s []float64) (sum float64) {
	for _, n := range [...]struct {
		off    int
		weight float64
	}{{-1, w0.before1}, {1, w0.after1}, {-2, w0.before2}, {2, w0.after2}} {
		if at := int(d.at) + n.off; at >= 0 && at < len(d.call.docs) {
			if j := d.call.docs[at]; s[j] > 0 {
				weight := n.weight
				if n.off == -1 && x.docs[j].asks && !d.asks {
					weight += w0.asked
				}
				sum += weight * s[j] * min(1, w0.turnLen/float64(max(x.docs[j].words, 1)))
			}
		}
	}
	return sum
}

// blockScores returns the BM25 scores of blocks.
func (x *Index) blockScores(terms []term) []float64 {
	out, n := make([]float64, len(x.blocks)), make([]float64, len(x.blocks))
	avg := float64(x.total[0]) / float64(max(len(x.blocks), 1))
	for _, t := range terms {
		clear(n)
		with := 0
		for _, list := range t.lists {
			for _, po := range list {
				b := x.docs[po.doc].block
				if n[b] == 0 {
					with++
				}
				n[b] += float64(po.n)
			}
		}
		w := idf(len(x.blocks), with)
		for b, f := range n {
			if f > 0 {
				out[b] += w * f * (w0.k1 + 1) / (f + w0.k1*(1-w0.cb+w0.cb*float64(x.blocks[b].words)/avg))
			}
		}
	}
	normalize(out)
	return out
}

// parsed is a query.
type parsed struct {
	terms []term
	grams [][]posting
	dates []date
	party string // the role of the one party that is named, or ""
	self  bool   // says I or my
	when  bool   // asks when
	all   float64
}

func (x *Index) parse(words []word, now time.Time) (p parsed) {
	l := languageOf(words)
	if l == nil {
		l = x.language()
	}
	words = l.numbers(words)
	p.dates = datesIn(words, now)
	named := map[string]bool{}
	seen := map[string]bool{}
	grams := map[gram]bool{}
	for i, w := range words {
		if selfWords[w.text] {
			p.self = true
		}
		if whenWords[w.text] && (w.text != "long" || i > 0 && words[i-1].text == "how") {
			p.when = true
		}
		if l.stop[w.text] {
			continue
		}
		if role := x.partyOf(w); role != "" {
			named[role] = true
			continue
		}
		if !seen[w.text] {
			seen[w.text] = true
			x.addWord(&p, w, grams)
		}
	}
	if len(named) == 1 {
		for role := range named {
			p.party = role
		}
	}
	if len(named) > 0 {
		p.self = false
	}
	slices.SortStableFunc(p.terms, func(a, b term) int { return cmp.Compare(b.idf, a.idf) })
	p.terms = p.terms[:min(len(p.terms), maxTerms)]
	for _, t := range p.terms {
		p.all += t.idf
	}
	return p
}

// addWord adds what is searched for a word. grams are those that were added for earlier ones.
func (x *Index) addWord(p *parsed, w word, grams map[gram]bool) {
	if t, ok := x.term(w); !ok {
		p.all += x.weight(w.text, 0)
	} else if !slices.ContainsFunc(p.terms, func(o term) bool { return o.same(t) }) {
		p.terms = append(p.terms, t)
	}
	if w.pair {
		return
	}
	eachGram(w.text, func(g gram) {
		if list := x.grams[g]; len(list) > 0 && !grams[g] {
			grams[g] = true
			p.grams = append(p.grams, list)
		}
	})
}

// same reports whether two words of a query have the same stem.
func (t term) same(o term) bool {
	return len(o.lists[0]) > 0 && len(t.lists[0]) > 0 && &o.lists[0][0] == &t.lists[0][0]
}

// term returns where a word of a query occurs, in any of the languages of the caller.
func (x *Index) term(w word) (t term, ok bool) {
	seen := map[string]bool{}
	with := 0
	for _, l := range languages {
		if x.langs[l] == 0 && l != x.language() {
			continue
		}
		s := l.stem(w)
		if list := x.words[s]; !seen[s] && len(list) > 0 {
			t.lists = append(t.lists, list)
			with += len(list)
		}
		seen[s] = true
	}
	t.idf = x.weight(w.text, with)
	return t, len(t.lists) > 0
}

var selfWords = wordSet("i my me mine myself ich mein meine meinen meiner mich mir je mon ma mes moi yo mi mis io mio mia eu meu minha ik mijn я мой моя мне jag min mina jeg mitt")

// partyOf returns the role of the party that a word of a query names, or "". A name is spoken by
// the other party, in many calls.
func (x *Index) partyOf(w word) string {
	if w.digits || w.pair || utf8.RuneCountInString(w.text) < 2 {
		return ""
	}
	list := x.words[x.language().stem(w)]
	if len(list) < 3 {
		return ""
	}
	said := 0 // by the caller
	for _, p := range list {
		switch x.docs[p.doc].Role {
		case roleUser:
			said++
		case "": // texts without a speaker
			return ""
		}
	}
	named := roleAssistant
	switch all := float64(len(list)); {
	case float64(said) <= (1-nameShare)*all:
		named = roleUser
	case float64(said) < nameShare*all:
		return ""
	}
	r, size := utf8.DecodeRuneInString(w.text)
	title := string(unicode.ToUpper(r)) + w.text[size:]
	capital, calls := 0, map[*call]bool{}
	for _, p := range list {
		d := &x.docs[p.doc]
		calls[d.call] = true
		if strings.Contains(d.Text, title) {
			capital++
		}
	}
	if float64(capital) < .9*float64(len(list)) || float64(len(calls)) < math.Max(2, nameCalls*float64(len(x.calls))) {
		return ""
	}
	return named
}

var nameCalls, nameShare = .3, .8

// coverage returns the share of the query's idf in a turn and its neighbors.
func (p *parsed) coverage(x *Index, q *Query, d int32, cover []uint32) float64 {
	if p.all == 0 {
		return 0
	}
	doc := &x.docs[d]
	var bits uint32
	for at := max(0, int(doc.at)-2); at <= min(int(doc.at)+2, len(doc.call.docs)-1); at++ {
		if j := doc.call.docs[at]; !q.excepts(&x.docs[j]) {
			bits |= cover[j]
		}
	}
	sum := 0.
	for i, t := range p.terms {
		if bits&(1<<i) != 0 {
			sum += t.idf
		}
	}
	return sum / p.all
}
