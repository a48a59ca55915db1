package vector

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync/atomic"
)

// index is what a search needs of the documents of a collection. Contents stay in the store.
type index struct {
	seed  maphash.Seed
	slots map[string]int32 // by ID
	docs  []entry          // by slot
	free  []int32          // slots that may be used again
	vocab map[string]int32
	words []string                  // by number; "" for numbers that may be used again
	df    []int32                   // documents that have the word
	spare []int32                   // numbers of words that may be used again
	idf   atomic.Pointer[[]float64] // see weights; nil after a change
	rows  *rows                     // of the embeddings; nil without any
	model string                    // whose embeddings made holds; "" = none
	made  *rows                     // of the embeddings that the model made; nil without any
	size  int64                     // bytes, about, without rows
}

// entry is a document in an index.
type entry struct {
	id    string // "" for a free slot
	at    int64  // place in the order of insertion
	pairs []uint64
	words []count // by number
	row   int32   // of its embedding; -1 for none
	made  int32   // the same of the model's
	// pending is set if the model is to make an embedding.
	pending bool
	refused bool  // the model refused the content
	updated int64 // Unix ms
}

// count is how often a document has a word.
type count struct{ word, n int32 }

// Estimates of what entries and words take, in bytes.
const (
	entryBytes = 192
	wordBytes  = 96
)

func newIndex(model string) *index {
	return &index{model: model, seed: maphash.MakeSeed(), slots: map[string]int32{}, vocab: map[string]int32{}}
}

// bytes returns about how much memory the index takes.
func (x *index) bytes() int64 {
	size := x.size
	for _, r := range []*rows{x.rows, x.made} {
		if r != nil {
			size += r.bytes()
		}
	}
	return size
}

// put adds a document or replaces the one of its ID. An embedding of another dimension than the
// first one is left out.
func (x *index) put(d *Document) error {
	values, err := members("metadata", d.Metadata)
	if err != nil {
		return err
	}
	x.remove(d.ID)
	e := entry{id: d.ID, at: d.CreatedUS, words: x.count(d.Content), pairs: x.pairs(values), row: -1, made: -1, updated: d.UpdatedMS}
	if d.Embedding != nil {
		if x.rows == nil {
			x.rows = newRows(len(d.Embedding))
		}
		if x.rows.dims == len(d.Embedding) {
			e.row = x.rows.put(d.Embedding)
		}
	}
	if x.model != "" && d.Embedding == nil && strings.TrimSpace(d.Content) != "" {
		e.pending = true
		for _, m := range d.made {
			if m.model != x.model {
				continue
			}
			if len(m.vector) == 0 {
				e.pending, e.refused = false, true
				continue
			}
			if x.made == nil {
				x.made = newRows(len(m.vector))
			}
			if x.made.dims == len(m.vector) {
				e.made, e.pending = x.made.put(m.vector), false
			}
		}
	}
	var slot int32
	if last := len(x.free) - 1; last >= 0 {
		slot, x.free = x.free[last], x.free[:last]
		x.docs[slot] = e
	} else {
		slot = int32(len(x.docs))
		x.docs = append(x.docs, e)
	}
	x.slots[d.ID] = slot
	x.size += e.bytes()
	x.idf.Store(nil)
	return nil
}

func (e *entry) bytes() int64 {
	return entryBytes + int64(2*len(e.id)+8*len(e.pairs)+8*len(e.words))
}

// remove removes a document, if it is there.
func (x *index) remove(id string) {
	slot, ok := x.slots[id]
	if !ok {
		return
	}
	e := &x.docs[slot]
	for _, c := range e.words {
		if x.df[c.word]--; x.df[c.word] == 0 {
			x.size -= wordBytes + int64(len(x.words[c.word]))
			delete(x.vocab, x.words[c.word])
			x.words[c.word] = ""
			x.spare = append(x.spare, c.word)
		}
	}
	if e.row >= 0 {
		x.rows.remove(e.row)
	}
	if e.made >= 0 {
		x.made.remove(e.made)
	}
	x.size -= e.bytes()
	delete(x.slots, id)
	*e = entry{row: -1, made: -1}
	x.free = append(x.free, slot)
	x.idf.Store(nil)
}

// count returns the words of a text and adds it to their document frequencies.
func (x *index) count(content string) []count {
	found := map[int32]int32{}
	eachWord(content, func(w string) {
		n, ok := x.vocab[w]
		if !ok {
			w = strings.Clone(w)
			if last := len(x.spare) - 1; last >= 0 {
				n, x.spare = x.spare[last], x.spare[:last]
				x.words[n] = w
			} else {
				n = int32(len(x.words))
				x.words, x.df = append(x.words, w), append(x.df, 0)
			}
			x.vocab[w] = n
			x.size += wordBytes + int64(len(w))
		}
		found[n]++
	})
	out := make([]count, 0, len(found))
	for n, c := range found {
		out = append(out, count{n, c})
		x.df[n]++
	}
	// Documents of the same words get the same score to the last bit.
	slices.SortFunc(out, func(a, b count) int { return cmp.Compare(a.word, b.word) })
	return out
}

// pairs returns the hashes of an object's members: of each its name, and its name and value. A null
// counts as absent.
func (x *index) pairs(values map[string]string) []uint64 {
	out := make([]uint64, 0, 2*len(values))
	for name, value := range values {
		if value != "null" {
			out = append(out, x.hash(name), x.hash(name, value))
		}
	}
	slices.Sort(out)
	return out
}

func (x *index) hash(parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	for _, p := range parts {
		_, _ = h.WriteString(p)
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// filter returns what reports whether a document has all members of an object; nil for any.
func (x *index) filter(values map[string]string) func(*entry) bool {
	if len(values) == 0 {
		return nil
	}
	var absent []uint64
	for name, value := range values {
		if value == "null" {
			absent = append(absent, x.hash(name))
		}
	}
	present := x.pairs(values)
	has := func(e *entry) func(uint64) bool {
		return func(h uint64) bool { _, ok := slices.BinarySearch(e.pairs, h); return ok }
	}
	return func(e *entry) bool {
		return !slices.ContainsFunc(absent, has(e)) && !slices.ContainsFunc(present, func(h uint64) bool { return !has(e)(h) })
	}
}

// weights returns the words' inverse document frequencies: ln(1+N) - ln(1+df). The first search
// after a change makes them.
func (x *index) weights() []float64 {
	if idf := x.idf.Load(); idf != nil {
		return *idf
	}
	out := make([]float64, len(x.df))
	all := math.Log1p(float64(len(x.slots)))
	for i, df := range x.df {
		out[i] = all - math.Log1p(float64(df))
	}
	x.idf.Store(&out)
	return out
}

// textScore returns the function that scores documents by the words of a text: the cosine of their
// TF-IDF vectors, from 0 to 1.
func (x *index) textScore(query string) func(*entry) float64 {
	idf := x.weights()
	known, unknown := map[int32]float64{}, map[string]float64{}
	eachWord(query, func(w string) {
		if n, ok := x.vocab[w]; ok {
			known[n]++
		} else {
			unknown[w]++
		}
	})
	weights, square := make([]float64, len(x.words)), 0.0
	for n, c := range known {
		weights[n] = c * idf[n]
		square += weights[n] * weights[n]
	}
	for _, c := range unknown {
		square += math.Pow(c*math.Log1p(float64(len(x.slots))), 2)
	}
	return func(e *entry) float64 {
		dot, own := 0.0, 0.0
		for _, c := range e.words {
			w := float64(c.n) * idf[c.word]
			own += w * w
			dot += w * weights[c.word]
		}
		if dot == 0 {
			return 0
		}
		return round(dot / math.Sqrt(own*square))
	}
}

// round removes what the order of additions changes, so that equal scores are equal.
func round(score float64) float64 { return math.Round(score*1e12) / 1e12 }
