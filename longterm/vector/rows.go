package vector

import (
	"math"
	"math/bits"
)

// rowsPerBlock is how many rows are allocated at a time.
const rowsPerBlock = 512

// rows holds vectors of one dimension with a byte for each number: number/scale, rounded, plus 128.
// Eight bytes stand in one uint64, so that dot multiplies two of them at a time.
type rows struct {
	dims, stride int        // numbers and words of a row
	blocks       [][]uint64 // of rowsPerBlock rows
	about        []rowAbout // by row
	free         []int32    // rows that may be used again
}

// rowAbout is what scores need of a row beside its numbers.
type rowAbout struct {
	scale  float32
	square float32 // sum of the squares of the exact numbers
	sum    int32   // of the bytes
}

func newRows(dims int) *rows { return &rows{dims: dims, stride: (dims + 7) / 8} }

// bytes returns about how much memory the rows take.
func (r *rows) bytes() int64 {
	return int64(len(r.blocks))*rowsPerBlock*int64(r.stride)*8 + int64(cap(r.about))*12 + int64(cap(r.free))*4
}

// put stores a vector and returns its row.
func (r *rows) put(v []float32) int32 {
	var n int32
	if last := len(r.free) - 1; last >= 0 {
		n, r.free = r.free[last], r.free[:last]
	} else {
		n = int32(len(r.about))
		r.about = append(r.about, rowAbout{})
		if int(n)%rowsPerBlock == 0 {
			r.blocks = append(r.blocks, make([]uint64, rowsPerBlock*r.stride))
		}
	}
	r.about[n] = pack(v, r.row(n))
	return n
}

// remove frees a row.
func (r *rows) remove(n int32) { r.free = append(r.free, n) }

func (r *rows) row(n int32) []uint64 {
	at := int(n) % rowsPerBlock * r.stride
	return r.blocks[int(n)/rowsPerBlock][at : at+r.stride]
}

// pack writes the bytes of v into row.
func pack(v []float32, row []uint64) rowAbout {
	most, square := 0.0, 0.0
	for _, x := range v {
		most = max(most, math.Abs(float64(x)))
		square += float64(x) * float64(x)
	}
	scale := most / 127
	about := rowAbout{scale: float32(scale), square: float32(min(square, math.MaxFloat32))}
	for i := range row {
		var word uint64
		for k := range 8 {
			b := 128.0
			if at := i*8 + k; at < len(v) && scale > 0 {
				b += math.Round(float64(v[at]) / scale)
			}
			about.sum += int32(b)
			word |= uint64(b) << (8 * k)
		}
		row[i] = word
	}
	return about
}

// probe is a query's vector in the form that dot multiplies with.
type probe struct {
	rowAbout
	vector []float32
	pairs  [][4]uint64 // by word of a row
}

// newProbe returns the probe of a vector of the rows' dimension.
func newProbe(v []float32) *probe {
	row := make([]uint64, (len(v)+7)/8)
	p := &probe{vector: v, pairs: make([][4]uint64, len(row))}
	p.rowAbout = pack(v, row)
	for i, w := range row {
		for k := range 4 {
			low, high := w>>(8*k)&0xff, w>>(8*k+32)&0xff
			p.pairs[i][k] = low<<32 | high
		}
	}
	return p
}

// dot returns the approximate dot product of a row and the probe.
//
// Of a word it takes bytes k and k+4, a and b, as a + b·2³², and multiplies them with those of the
// probe as d + c·2³². The upper half of the product is a·c + b·d, and neither half overflows within
// MaxDimensions. So one multiplication does two.
func (r *rows) dot(p *probe, n int32) float64 {
	const mask = 0x000000ff_000000ff
	row := r.row(n)
	pairs := p.pairs[:len(row)]
	var sum uint64
	for i, w := range row {
		q := &pairs[i]
		sum += w&mask*q[0] + w>>8&mask*q[1] + w>>16&mask*q[2] + w>>24&mask*q[3]
	}
	about := &r.about[n]
	whole := int64(bits.RotateLeft64(sum, 32)&0xffffffff) - 128*int64(about.sum+p.sum) + 128*128*8*int64(r.stride)
	return float64(whole) * float64(about.scale) * float64(p.scale)
}

// similarity returns the score of two vectors by their dot product and their squared lengths.
func (m Metric) similarity(dot, a, b float64) float64 {
	switch m {
	case Dot:
		return dot
	case Euclidean:
		return 1 / (1 + math.Sqrt(max(0, a+b-2*dot)))
	}
	if a == 0 || b == 0 {
		return 0
	}
	return max(-1, min(1, dot/math.Sqrt(a*b)))
}

// exact returns the score of two vectors of the same length.
func (m Metric) exact(a, b []float32) float64 {
	var dot, aa, bb, far float64
	for i, x := range a {
		x, y := float64(x), float64(b[i])
		dot += x * y
		aa += x * x
		bb += y * y
		far += (x - y) * (x - y)
	}
	if m == Euclidean {
		return 1 / (1 + math.Sqrt(far))
	}
	return m.similarity(dot, aa, bb)
}
