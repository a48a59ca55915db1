package recall

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"
)

// weights are those of the parts of a score. They were fitted, with those of the signs, to the
// questions of one half of the conversations with which recall is measured: long-term conversations
// of short turns, and of long messages, while the figures of the other were in view.
type weights struct {
	before1, after1, before2, after2     float64 // of neighbors
	call, grams, party, self, when, date float64
	k1, b, gk1, gb, cb                   float64
	turnLen, blockLen, related           float64
	asked                                float64 // of the turn before, if it asks and this one does not
	meaning                              float64 // of the closest embedding
}

var w0 = weights{
	before1: .17, after1: .17, before2: .65, after2: .1, call: 1, grams: .13, party: .43, self: 1.6, when: .65, date: 1.7,
	k1: .8, b: .45, gk1: 1.2, gb: .5, cb: .4, turnLen: 30, blockLen: 600, related: .45,
	asked: .85, meaning: 1.5,
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
	// Late, if not nil, reports whether the time is up. What was found until then is ranked.
	Late func() bool
	// Budget is how many tokens the texts of hits and the turns around them may have; hits beyond
	// it are left out. 0 means no limit, and no turns around.
	Budget int
	// Embedding is that of the text by a Model, without which turns are found by their words alone.
	Embedding []float32
	Model     string
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
	Covered   float64 `json:"covered"`   // how much of the query the turn and its neighbors have
	Form      float64 `json:"form"`      // its length, its place and whether it asks
	Standing  float64 `json:"standing"`  // says what the caller prefers, or wants from now on
	Meaning   float64 `json:"meaning"`   // closer to the query than others, by a model of embeddings
}

func (s Parts) sum() float64 {
	return s.Words + s.Neighbors + s.Call + s.Grams + s.Party + s.Self + s.When + s.Date + s.Covered + s.Form + s.Standing + s.Meaning
}

// found reports whether a turn has anything of the query, not only a form that suits it.
func (s Parts) found() bool {
	return s.Words+s.Neighbors+s.Grams+s.Call+s.Date+s.Meaning > 0
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
	slot    int32
}

type term struct {
	places []int32 // of its stems in the vocabulary
	idf    float64
	weight float64 // in what a turn covers of the query
	near   []nearWord
}

// Search returns the best turns, best first, and how much of the query they cover.
func (x *Index) Search(q Query) ([]Hit, string) {
	if x.live == 0 {
		return nil, None
	}
	x.prepare()
	p := x.parse(wordsOf(q.Text), q.Now)
	r := x.search(&p, &q)
	r.asked = x.asked(&q)
	found := r.best(&q, max(candidates, 2*q.K))
	r.reorder(found)
	strength := r.strength(found, &q) // of the words: how close is close depends on the model
	meaning := r.addMeaning(found)
	var hits []Hit
	for _, c := range found {
		parts := r.parts(c.slot)
		parts.Meaning = meaning[c.slot]
		if !parts.found() {
			continue
		}
		if len(hits) == max(q.K, 1)+spare {
			break
		}
		hits = append(hits, Hit{Turn: x.docs[x.slots[c.slot].doc].Turn, Score: parts.sum(), Parts: parts, slot: c.slot})
	}
	hits = x.collapse(hits, max(q.K, 1))
	return x.surround(hits, &q), strength
}

// The roles of turns.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

func (q *Query) fits(d *doc) bool {
	return (q.Call == "" || d.Turn.Call == q.Call) && (q.Session == "" || d.Session == q.Session) && (q.Role == "" || d.Role == q.Role) &&
		(q.FromMS == 0 || d.At >= q.FromMS) && (q.ToMS == 0 || d.At <= q.ToMS) && (q.NotCall == "" || d.Turn.Call != q.NotCall) &&
		(q.Searched == nil || q.Searched(d.Turn.Call))
}

func (q *Query) late() bool { return q.Late != nil && q.Late() }

func (q *Query) excepts(d *doc) bool { return q.Except != nil && q.Except(&d.Turn) }

// parsed is a query.
type parsed struct {
	terms  []term
	dates  []date
	party  uint8   // the flag of the one party that is named, or 0
	self   bool    // says I or my
	when   bool    // asks when
	idf    float64 // of its words
	weight float64 // and in what a turn covers
	number bool    // asks how many
	advice bool    // asks what to do
}

func (x *Index) parse(words []word, now time.Time) (p parsed) {
	l := languageOf(words)
	if l == nil {
		l = x.language()
	}
	words = l.numbers(words)
	p.dates = datesIn(words, now)
	summary := false
	named := uint8(0) // the parties
	var names []word
	seen := map[string]bool{}
	for i, w := range words {
		if selfWords[w.text] {
			p.self = true
		}
		summary = summary || summaryWords[w.text]
		p.advice = p.advice || adviceWords[w.text]
		p.number = p.number || countWords[w.text] || i > 0 && words[i-1].text == "how" && howMany[w.text]
		if whenWords[w.text] && (w.text != "long" || i > 0 && words[i-1].text == "how") {
			p.when = true
		}
		if l.stop[w.text] {
			continue
		}
		if party := x.partyOf(w); party != 0 {
			named |= party
			names = append(names, w)
			continue
		}
		if !seen[w.text] {
			seen[w.text] = true
			x.addWord(&p, w, len(seen) <= maxNear)
		}
	}
	if len(seen) == 0 { // a query of names alone
		for _, w := range names[:min(len(names), maxNear)] {
			x.addWord(&p, w, true)
		}
	}
	if named != byUser|byAssistant {
		p.party = named
	}
	if named != 0 || summary { // which is of what both said
		p.self = false
	}
	slices.SortStableFunc(p.terms, func(a, b term) int { return cmp.Compare(b.idf, a.idf) })
	p.terms = p.terms[:min(len(p.terms), maxTerms)]
	for _, t := range p.terms {
		p.idf += t.idf
		p.weight += t.weight
	}
	return p
}

// maxNear is for how many words of a query near ones are looked for.
const maxNear = 64

// addWord adds what is searched for a word, with near words if they are wanted. One number is never
// near another.
func (x *Index) addWord(p *parsed, w word, near bool) {
	t := x.term(w)
	if near && !w.pair && !w.digits {
		t.near = x.near(w)
	}
	if len(t.places) == 0 && len(t.near) == 0 {
		p.idf += t.idf
		p.weight += t.weight
	} else if !slices.ContainsFunc(p.terms, func(o term) bool { return len(t.places) > 0 && slices.Equal(o.places, t.places) }) {
		p.terms = append(p.terms, t)
	}
}

// term returns where a word of a query occurs, in any of the languages of the caller.
func (x *Index) term(w word) (t term) {
	with := 0
	for _, l := range languages {
		if x.langs[l] == 0 && l != x.language() {
			continue
		}
		if place, ok := x.places[l.stem(w)]; ok && !slices.Contains(t.places, place) {
			t.places = append(t.places, place)
			with += len(x.vocab[place].turns)
		}
	}
	all := x.live
	if x.of != nil {
		all, with = x.of.Texts, x.of.With[w.text]
	}
	with = min(with, all)
	t.idf, t.weight = idf(all, with), idf(max(all, fewTurns), with)
	if light(w) {
		t.weight *= lightShare
		if w.pair {
			t.idf *= lightShare
		}
	}
	return t
}

var selfWords = wordSet("i my me mine myself ich mein meine meinem meinen meiner mich mir je mon ma mes moi yo mi mis io mio mia eu meu minha ik mijn я мой моя мне jag min mina jeg mitt")

// partyOf returns the flag of the party that a word of a query names, or 0. A name is spoken by the
// other party, and often where a speaker is addressed.
func (x *Index) partyOf(w word) uint8 {
	if w.digits || w.pair || utf8.RuneCountInString(w.text) < 2 || hasTimeWord([]word{w}) {
		return 0
	}
	place, ok := x.places[x.language().stem(w)]
	if !ok {
		return 0
	}
	e, said := &x.vocab[place], 0 // by the caller
	all := float64(len(e.turns))
	if e.called < 2 || float64(e.called) < calledShare*all {
		return 0
	}
	for _, p := range e.turns {
		switch x.docs[p.doc].Role {
		case roleUser:
			said++
		case "": // texts without a speaker
			return 0
		}
	}
	switch {
	case float64(said) <= (1-nameShare)*all:
		return byUser
	case float64(said) >= nameShare*all:
		return byAssistant
	}
	return 0
}

// A word is a name if one party alone says it, nearly always, and so often where a name stands.
const nameShare, calledShare = .8, .2
