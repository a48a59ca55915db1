package recall

import (
	"math"
	"slices"
	"strings"
)

// vector is an embedding whose numbers are kept in a byte each. Only its direction counts.
type vector struct {
	numbers []int8
	length  float32
}

// newVector returns the vector of an embedding, or none if all of its numbers are 0.
func newVector(embedding []float32) vector {
	most := 0.
	for _, n := range embedding {
		most = max(most, math.Abs(float64(n)))
	}
	if most == 0 {
		return vector{}
	}
	numbers := make([]int8, len(embedding))
	for i, n := range embedding {
		numbers[i] = int8(math.Round(float64(n) / most * math.MaxInt8))
	}
	var sum int64
	for _, n := range numbers {
		sum += int64(n) * int64(n)
	}
	return vector{numbers, float32(math.Sqrt(float64(sum)))}
}

// cosine returns the cosine of the angle between two vectors of the same dimension.
func (v vector) cosine(o vector) float64 {
	var sum int32
	for i, n := range v.numbers {
		sum += int32(n) * int32(o.numbers[i])
	}
	return float64(sum) / float64(v.length*o.length)
}

// bytes returns about how much memory a vector takes.
func (v *vector) bytes() int64 { return int64(len(v.numbers)) + 48 }

// use drops the vectors of all turns unless they are of a model.
func (x *Index) use(model string) {
	if x.model == model {
		return
	}
	for i := range x.docs {
		x.dropVector(&x.docs[i])
	}
	x.model = model
}

func (x *Index) dropVector(d *doc) {
	if d.vector != nil {
		x.bytes -= d.vector.bytes()
		x.embedded--
		d.vector = nil
	}
}

// setVector sets the vector of a turn that has that text; one without numbers says that the text
// can have none.
func (x *Index) setVector(callID string, seq int64, text string, v vector) {
	c := x.calls[callID]
	if c == nil {
		return
	}
	at, there := x.find(c, seq)
	if !there {
		return
	}
	if d := &x.docs[c.docs[at]]; d.Text == text {
		x.dropVector(d)
		d.vector = &v
		x.embedded++
		x.bytes += v.bytes()
	}
}

// withoutVectors returns the turns that have no vector yet, at most n.
func (x *Index) withoutVectors(n int) (out []Turn) {
	if x.embedded == x.live {
		return nil
	}
	for i := range x.docs {
		if d := &x.docs[i]; d.call != nil && d.vector == nil {
			if out = append(out, d.Turn); len(out) == n {
				break
			}
		}
	}
	return out
}

// question returns the text of a query without the names of the parties. With a name, the turns
// that address the party by it would be the closest, whatever they are about.
func (x *Index) question(text string) string {
	words := strings.Fields(text)
	kept := slices.DeleteFunc(slices.Clone(words), func(s string) bool {
		parts := wordsOf(s)
		return len(parts) > 0 && x.partyOf(parts[0]) != 0
	})
	if len(kept) == 0 || len(kept) == len(words) {
		return text
	}
	return strings.Join(kept, " ")
}

// asked returns the vector of a query, none if it has no embedding that turns can be compared with.
func (x *Index) asked(q *Query) vector {
	if x.embedded == 0 || q.Model != x.model {
		return vector{}
	}
	return newVector(q.Embedding)
}

// addMeaning adds to the scores of candidates how close the turns are to a query by their vectors,
// sorts them and returns what it added, by slot. The closest gets the whole weight, and one that is
// not closer than the average gets nothing. While some have no vector yet, it weighs less.
func (r *ranking) addMeaning(list []candidate) map[int32]float64 {
	if r.asked.length == 0 {
		return nil
	}
	added, most, sum := map[int32]float64{}, -1., 0.
	for _, c := range list {
		v := r.x.docs[r.x.slots[c.slot].doc].vector
		if v == nil || v.length == 0 || len(v.numbers) != len(r.asked.numbers) {
			continue
		}
		cos := v.cosine(r.asked)
		added[c.slot] = cos
		most, sum = max(most, cos), sum+cos
	}
	average := sum / float64(max(len(added), 1))
	known := float64(len(added)) / float64(max(len(list), 1)) // of few, the closest may be far
	for i := range list {
		c := &list[i]
		if cos, ok := added[c.slot]; ok {
			added[c.slot] = 0
			if cos > average {
				added[c.slot] = known * w0.meaning * (cos - average) / (most - average)
			}
			c.score += float32(added[c.slot])
		}
	}
	slices.SortFunc(list, r.before)
	return added
}
