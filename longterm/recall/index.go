package recall

import (
	"math"
	"slices"
	"strings"
)

// Turn is one message of a call as it is searched: what was heard.
type Turn struct {
	Call     string // the agent's ID
	Seq      int64
	TurnID   int64
	ID       string // the client's name for the message, or ""
	Role     string // user or assistant; "" for a text without a speaker
	At       int64  // Unix ms
	Text     string
	Session  string
	Method   string // how it is known what was heard
	Complete bool   // heard to its end
}

// blockTurns is how many turns of a long call are ranked together.
const blockTurns = 20

// gramBytes is about how much memory a gram takes besides its postings.
const gramBytes = 64

// Index holds the turns of one caller and finds those that a query asks for. It is not safe for
// concurrent use.
type Index struct {
	docs  []doc
	free  []int32 // places of docs that are not used
	calls map[string]*call
	words map[string][]posting
	grams map[gram][]posting
	live  int    // docs in use
	total [2]int // words and grams of all docs
	langs map[*language]int
	bytes int64 // about how much memory the index takes
	of    *Corpus
	// The rest follows from docs and is made when a search needs it.
	stale  bool
	blocks []block
}

// doc is an indexed turn.
type doc struct {
	Turn
	call  *call
	lang  *language
	words int32 // how many
	grams int32
	at    int32 // place in its call
	block int32
	when  bool // has a word of time
	asks  bool // has a question
	date  date
}

type call struct {
	id   string
	docs []int32 // places, in order of Seq
}

// block is up to blockTurns neighboring turns of one call.
type block struct{ words int }

// posting is how often a term occurs in a doc.
type posting struct{ doc, n int32 }

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{
		calls: map[string]*call{}, words: map[string][]posting{}, grams: map[gram][]posting{}, langs: map[*language]int{},
	}
}

// NewSample returns an empty index for some texts of a corpus. It weighs the words of queries as an
// index of all of them would.
func NewSample(of Corpus) *Index {
	x := NewIndex()
	x.of = &of
	return x
}

// Put adds a turn, or replaces the one with its call and Seq.
func (x *Index) Put(t Turn) {
	c := x.calls[t.Call]
	if c == nil {
		c = &call{id: t.Call}
		x.calls[t.Call] = c
	}
	at, there := x.find(c, t.Seq)
	if there {
		if old := &x.docs[c.docs[at]]; old.Turn == t {
			return
		}
		x.drop(c, at, at+1)
	}
	place := int32(len(x.docs))
	if n := len(x.free); n > 0 {
		place, x.free = x.free[n-1], x.free[:n-1]
	} else {
		x.docs = append(x.docs, doc{})
	}
	c.docs = slices.Insert(c.docs, at, place)
	x.add(place, c, t)
}

// Remove removes a turn; one that is not there is no error.
func (x *Index) Remove(callID string, seq int64) {
	c := x.calls[callID]
	if c == nil {
		return
	}
	if at, there := x.find(c, seq); there {
		x.drop(c, at, at+1)
	}
	x.tidy(c)
}

// RemoveBefore removes the turns of a call with a lower Seq.
func (x *Index) RemoveBefore(callID string, seq int64) {
	c := x.calls[callID]
	if c == nil {
		return
	}
	if to, _ := x.find(c, seq); to > 0 {
		x.drop(c, 0, to)
	}
	x.tidy(c)
}

// tidy removes a call without turns.
func (x *Index) tidy(c *call) {
	if len(c.docs) == 0 {
		delete(x.calls, c.id)
	}
}

// RemoveCall removes the turns of a call.
func (x *Index) RemoveCall(callID string) { x.RemoveBefore(callID, math.MaxInt64) }

// Bytes returns about how much memory the index takes.
func (x *Index) Bytes() int64 { return x.bytes }

func (x *Index) find(c *call, seq int64) (int, bool) {
	return slices.BinarySearchFunc(c.docs, seq, func(d int32, seq int64) int { return int(min(max(x.docs[d].Seq-seq, -1), 1)) })
}

// terms returns how often each term occurs in a text of a language.
func terms(words []word, l *language) (map[string]int32, map[gram]int32) {
	ws, gs := map[string]int32{}, map[gram]int32{}
	for _, w := range words {
		if l.stop[w.text] {
			continue
		}
		ws[l.stem(w)]++
		if !w.pair {
			eachGram(w.text, func(g gram) { gs[g]++ })
		}
	}
	return ws, gs
}

func wordsOf(s string) (out []word) {
	split(s, func(w word) { out = append(out, w) })
	return out
}

func (x *Index) add(place int32, c *call, t Turn) {
	words := wordsOf(t.Text)
	l := languageOf(words)
	if l == nil {
		l = x.language()
	} else {
		x.langs[l]++
	}
	words = l.numbers(words)
	d := &x.docs[place]
	*d = doc{Turn: t, call: c, lang: l, when: hasTimeWord(words), asks: asks(t.Text), date: dateOf(t.At)}
	ws, gs := terms(words, l)
	for w, n := range ws {
		if _, known := x.words[w]; !known {
			w = strings.Clone(w) // of the whole text
			x.bytes += int64(len(w)) + 64
		}
		x.words[w] = append(x.words[w], posting{place, n})
		d.words += n
	}
	for g, n := range gs {
		if _, known := x.grams[g]; !known {
			x.bytes += gramBytes
		}
		x.grams[g] = append(x.grams[g], posting{place, n})
		d.grams += n
	}
	x.bytes += int64(len(t.Text) + 256 + 12*(len(ws)+len(gs)))
	x.total[0] += int(d.words)
	x.total[1] += int(d.grams)
	x.live++
	x.stale = true
}

// language returns the language of most turns.
func (x *Index) language() *language {
	best := languages[0]
	for _, l := range languages {
		if x.langs[l] > x.langs[best] {
			best = l
		}
	}
	return best
}

// drop removes the docs of a call from one place in it up to another. It reads each posting list
// once, however many of its docs go.
func (x *Index) drop(c *call, from, to int) {
	changedWords, changedGrams := map[string]bool{}, map[gram]bool{}
	for _, place := range c.docs[from:to] {
		d := &x.docs[place]
		words := wordsOf(d.Text)
		if languageOf(words) != nil {
			x.langs[d.lang]--
		}
		ws, gs := terms(d.lang.numbers(words), d.lang)
		for w := range ws {
			changedWords[w] = true
		}
		for g := range gs {
			changedGrams[g] = true
		}
		x.bytes -= int64(len(d.Text) + 256 + 12*(len(ws)+len(gs)))
		x.total[0] -= int(d.words)
		x.total[1] -= int(d.grams)
		x.live--
		*d = doc{}
		x.free = append(x.free, place)
	}
	c.docs = slices.Delete(c.docs, from, to)
	unused := func(p posting) bool { return x.docs[p.doc].call == nil }
	for w := range changedWords {
		if x.words[w] = slices.DeleteFunc(x.words[w], unused); len(x.words[w]) == 0 {
			delete(x.words, w)
			x.bytes -= int64(len(w)) + 64
		}
	}
	for g := range changedGrams {
		if x.grams[g] = slices.DeleteFunc(x.grams[g], unused); len(x.grams[g]) == 0 {
			delete(x.grams, g)
			x.bytes -= gramBytes
		}
	}
	x.stale = true
}

// prepare numbers the blocks.
func (x *Index) prepare() {
	if !x.stale {
		return
	}
	x.stale = false
	x.blocks = x.blocks[:0]
	for _, c := range x.calls {
		for i, d := range c.docs {
			if i%blockTurns == 0 {
				x.blocks = append(x.blocks, block{})
			}
			b := len(x.blocks) - 1
			x.docs[d].at, x.docs[d].block = int32(i), int32(b)
			x.blocks[b].words += int(x.docs[d].words)
		}
	}
}

// asks reports whether a text has a question.
func asks(s string) bool { return strings.ContainsAny(s, "?？؟") }

// weight returns the idf of a word that is in so many turns of the index.
func (x *Index) weight(word string, with int) float64 {
	if x.of != nil {
		return idf(x.of.Texts, min(x.of.With[word], x.of.Texts))
	}
	return idf(x.live, min(with, x.live))
}

// idf returns the weight of a term that is in so many of all texts.
func idf(all, with int) float64 {
	return math.Log(1 + (float64(all)-float64(with)+.5)/(float64(with)+.5))
}
