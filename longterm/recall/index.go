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

// Index holds the turns of one caller and finds those that a query asks for. It is not safe for
// concurrent use.
type Index struct {
	docs      []doc
	free      []int32 // places of docs that are not used
	calls     map[string]*call
	places    map[string]int32 // of stems in vocab
	vocab     []entry
	freeWords []int32 // places of vocab that are not used
	grams     map[gram][]int32
	live      int // docs in use
	total     int // words of all docs
	langs     map[*language]int
	bytes     int64 // about how much memory the index takes
	of        *Corpus
	// The rest follows from docs and is made when a search needs it. A turn at the end of a call or
	// in place of another is added to it at once.
	stale  bool
	holes  int // slots that calls have left
	slots  []slot
	where  []where // of docs
	blocks []int32 // how many words each has
	rank   ranking // of the last search, for its memory
	// The embeddings of turns.
	model    string // that made them
	embedded int    // docs with a vector
}

// doc is an indexed turn.
type doc struct {
	Turn
	call     *call
	lang     *language
	words    []int32 // places in vocab, in the order of the text
	distinct int32
	day      int32 // since 1970
	flags    uint8
	vector   *vector // nil until it is made
}

// What is known of a turn.
const (
	timed  = 1 << iota // has a word of time
	asking             // has a question
	byUser
	byAssistant
	numbered // has a number
	standing // says what the caller prefers, or wants from now on
)

// entry is a stem that occurs in turns.
type entry struct {
	stem   string
	turns  []posting
	grams  int32
	called int32 // of turns
}

// slot is what ranking reads of every turn. The slots of a call are neighbors, in order of Seq, and
// at least gap empty ones stand before and behind each call.
type slot struct {
	doc   int32 // -1 = empty
	block int32
	day   int32
	words int32
	flags uint8
}

// where is what ranking reads of a doc for each of its words.
type where struct{ slot, block, words int32 }

// gap is how many turns before and behind a turn count as its neighbors.
const gap = 2

type call struct {
	id   string
	docs []int32 // places, in order of Seq
	room int     // empty slots behind it for more turns
}

// posting is how often a word occurs in a doc.
type posting struct {
	doc int32
	n   uint16
	// called is set if the word stands where a speaker is addressed by name.
	called bool
}

// What the parts of an index take besides their texts.
const (
	turnBytes    = 280 // doc, slot and its places in lists
	wordBytes    = 4
	postingBytes = 10 // with room to grow
	entryBytes   = 160
	gramBytes    = 64 // of a gram that stems have
)

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{
		calls: map[string]*call{}, places: map[string]int32{}, grams: map[gram][]int32{}, langs: map[*language]int{}, stale: true,
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
	laid, old := !x.stale, where{slot: -1}
	if there {
		place := c.docs[at]
		if x.docs[place].Turn == t {
			return
		}
		if laid {
			old = x.where[place]
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
	if laid {
		x.stale = !x.lay(place, c, at, old)
	}
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

func wordsOf(s string) (out []word) {
	split(s, func(w word) { out = append(out, w) })
	return out
}

func (x *Index) add(at int32, c *call, t Turn) {
	words := wordsOf(t.Text)
	l := languageOf(words)
	if l == nil {
		l = x.language()
	} else {
		x.langs[l]++
	}
	d := &x.docs[at]
	*d = doc{Turn: t, call: c, lang: l, day: dayOf(t.At)}
	words = l.numbers(words)
	d.flags = flagsOf(&t, words)
	d.words = make([]int32, 0, count(words, l))
	for i, w := range words {
		if l.stop[w.text] {
			continue
		}
		place := x.place(l.stem(w), w.pair)
		d.words = append(d.words, place)
		turns := &x.vocab[place].turns
		if n := len(*turns); n == 0 || (*turns)[n-1].doc != at {
			*turns = append(*turns, posting{doc: at})
			d.distinct++
		}
		p := &(*turns)[len(*turns)-1]
		p.n += uint16(b2i(p.n < math.MaxUint16))
		if !p.called && called(words, i) {
			p.called = true
			x.vocab[place].called++
		}
	}
	x.bytes += d.bytes()
	x.total += len(d.words)
	x.live++
	x.stale = true
}

// count returns how many words carry meaning.
func count(words []word, l *language) (n int) {
	for _, w := range words {
		n += b2i(!l.stop[w.text])
	}
	return n
}

// bytes returns about how much memory a doc takes.
func (d *doc) bytes() int64 {
	return int64(len(d.Text) + turnBytes + wordBytes*len(d.words) + postingBytes*int(d.distinct))
}

// place returns the place of a stem in the vocabulary, where it is put if it is new.
func (x *Index) place(stem string, pair bool) int32 {
	if place, ok := x.places[stem]; ok {
		return place
	}
	place := int32(len(x.vocab))
	if n := len(x.freeWords); n > 0 {
		place, x.freeWords = x.freeWords[n-1], x.freeWords[:n-1]
	} else {
		x.vocab = append(x.vocab, entry{})
	}
	e := &x.vocab[place]
	*e = entry{stem: strings.Clone(stem)} // of the whole text
	x.places[e.stem] = place
	if !pair {
		eachGram(e.stem, func(g gram) {
			if len(x.grams[g]) == 0 {
				x.bytes += gramBytes
			}
			x.grams[g] = append(x.grams[g], place)
			e.grams++
		})
	}
	x.bytes += e.bytes()
	return place
}

// bytes returns about how much memory an entry takes.
func (e *entry) bytes() int64 {
	return int64(len(e.stem) + entryBytes + int(e.grams)*4)
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
	changed := map[int32]bool{}
	for _, at := range c.docs[from:to] {
		d := &x.docs[at]
		if languageOf(wordsOf(d.Text)) != nil {
			x.langs[d.lang]--
		}
		for _, w := range d.words {
			changed[w] = true
		}
		x.bytes -= d.bytes()
		x.dropVector(d)
		x.total -= len(d.words)
		x.live--
		*d = doc{}
		x.free = append(x.free, at)
	}
	c.docs = slices.Delete(c.docs, from, to)
	for w := range changed {
		e := &x.vocab[w]
		e.turns = slices.DeleteFunc(e.turns, func(p posting) bool {
			gone := x.docs[p.doc].call == nil
			e.called -= int32(b2i(gone && p.called))
			return gone
		})
		if len(e.turns) > 0 {
			continue
		}
		if e.grams > 0 {
			eachGram(e.stem, func(g gram) {
				if i := slices.Index(x.grams[g], w); i >= 0 {
					x.grams[g] = slices.Delete(x.grams[g], i, i+1)
				}
				if len(x.grams[g]) == 0 {
					delete(x.grams, g)
					x.bytes -= gramBytes
				}
			})
		}
		x.bytes -= e.bytes()
		delete(x.places, e.stem)
		*e = entry{}
		x.freeWords = append(x.freeWords, w)
	}
	x.stale = true
}

// prepare lays out the slots and numbers the blocks.
func (x *Index) prepare() {
	if !x.stale {
		return
	}
	x.stale, x.holes = false, 0
	x.blocks, x.slots = x.blocks[:0], x.slots[:0]
	x.where = slices.Grow(x.where[:0], len(x.docs))[:len(x.docs)]
	x.leave(gap)
	for _, c := range x.calls {
		for i, at := range c.docs {
			if i%blockTurns == 0 {
				x.blocks = append(x.blocks, 0)
			}
			x.fill(at, len(x.slots), len(x.blocks)-1)
		}
		c.room = 0
		x.leave(gap)
	}
}

// lay adds a turn to the slots and blocks, at a place of its call: instead of another one, if that
// has a slot, else at the end. It returns false if all must be laid out again.
func (x *Index) lay(place int32, c *call, at int, old where) bool {
	if n := int(place) + 1; n > len(x.where) {
		x.where = slices.Grow(x.where, n-len(x.where))[:n]
	}
	if old.slot >= 0 {
		x.blocks[old.block] -= old.words
		x.fill(place, int(old.slot), int(old.block))
		return true
	}
	if at < len(c.docs)-1 || x.holes+at > x.live/4 {
		return false
	}
	if at == 0 || c.room == 0 { // it moves behind the others
		x.holes += at
		for _, d := range c.docs[:at] {
			was := x.where[d].slot
			x.where[d].slot = int32(len(x.slots))
			x.slots = append(x.slots, x.slots[was])
			x.slots[was].doc = -1
		}
		c.room = at/2 + blockTurns
		x.leave(c.room + gap)
	}
	c.room--
	before := where{slot: int32(len(x.slots) - c.room - gap - 2)}
	if at > 0 {
		before = x.where[c.docs[at-1]]
	}
	if at%blockTurns == 0 {
		x.blocks = append(x.blocks, 0)
		before.block = int32(len(x.blocks) - 1)
	}
	x.fill(place, int(before.slot)+1, int(before.block))
	return true
}

// leave adds empty slots.
func (x *Index) leave(n int) {
	for range n {
		x.slots = append(x.slots, slot{doc: -1})
	}
}

// fill puts a turn into a slot, or a new one behind them, and into a block.
func (x *Index) fill(place int32, at, block int) {
	if at == len(x.slots) {
		x.leave(1)
	}
	d := &x.docs[place]
	words := int32(len(d.words))
	x.where[place] = where{int32(at), int32(block), words}
	x.slots[at] = slot{place, int32(block), d.day, words, d.flags}
	x.blocks[block] += words
}

// logs holds the logarithms of n + .5.
var logs = func() (out [1024]float64) {
	for n := range out {
		out[n] = math.Log(float64(n) + .5)
	}
	return out
}()

// logOf returns the logarithm of n + .5.
func logOf(n int) float64 {
	if n < len(logs) {
		return logs[n]
	}
	return math.Log(float64(n) + .5)
}

// idf returns the weight of a term that is in so many of all texts: the logarithm of
// 1 + (all - with + .5) / (with + .5).
func idf(all, with int) float64 { return math.Log(float64(all)+1) - logOf(with) }
