package tokens

import (
	"container/heap"
	_ "embed"
	"encoding/binary"
	"math"

	"github.com/dlclark/regexp2/v2"
	"github.com/klauspost/compress/zstd"
)

// The tokens of OpenAI's vocabularies in the order of their ranks, each after its length as a
// varint, compressed. TestVocabularies checks and, with -update, writes them.
var (
	//go:embed o200k.zst
	o200kTokens []byte
	//go:embed cl100k.zst
	cl100kTokens []byte
)

// The pieces that texts are split into before byte pair encoding, as OpenAI's tiktoken has them.
const (
	o200kPieces = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	cl100kPieces = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// vocabulary counts the tokens of texts by byte pair encoding.
type vocabulary struct {
	pieces *regexp2.Regexp
	ranks  map[string]uint32
}

// loadVocabulary decompresses an embedded vocabulary. It panics if the file is damaged.
func loadVocabulary(file []byte, pieces string) *vocabulary {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	defer r.Close()
	raw, err := r.DecodeAll(file, nil)
	if err != nil {
		panic(err)
	}
	v := &vocabulary{pieces: regexp2.MustCompile(pieces, regexp2.None), ranks: make(map[string]uint32, len(raw)/8)}
	all := string(raw)
	for at := 0; at < len(all); {
		n, width := binary.Uvarint(raw[at:])
		at += width
		v.ranks[all[at:at+int(n)]] = uint32(len(v.ranks))
		at += int(n)
	}
	return v
}

// count returns the number of tokens of a text.
func (v *vocabulary) count(s string) (int, error) {
	n := 0
	m, err := v.pieces.FindStringMatch(s)
	for ; m != nil && err == nil; m, err = v.pieces.FindNextMatch(m) {
		if piece := m.String(); v.rank(piece) != unknown {
			n++
		} else {
			n += v.merge(piece)
		}
	}
	return n, err
}

// unknown is the rank of what is not a token.
const unknown = math.MaxUint32

func (v *vocabulary) rank(s string) uint32 {
	if rank, ok := v.ranks[s]; ok {
		return rank
	}
	return unknown
}

// merge returns how many tokens the bytes of a piece are merged into. Again and again, the two
// neighbours that make the token of lowest rank become one, the leftmost first.
func (v *vocabulary) merge(piece string) int {
	type part struct {
		before, end int    // where the part before begins, and where this one ends
		rank        uint32 // of this part and the next together
	}
	parts := make([]part, len(piece)) // by the byte at which they begin
	var best pairs
	look := func(i int) { // at the pair that begins at i
		parts[i].rank = unknown
		if next := parts[i].end; next < len(piece) {
			if parts[i].rank = v.rank(piece[i:parts[next].end]); parts[i].rank != unknown {
				heap.Push(&best, pair{parts[i].rank, i})
			}
		}
	}
	for i := range parts {
		parts[i] = part{before: i - 1, end: i + 1}
	}
	for i := range parts {
		look(i)
	}
	count := len(piece)
	for len(best) > 0 {
		p := heap.Pop(&best).(pair)
		i := p.at
		if parts[i].rank != p.rank {
			continue // one of the two has been merged since
		}
		next := parts[i].end
		parts[i].end = parts[next].end
		parts[next].rank = unknown
		if end := parts[i].end; end < len(piece) {
			parts[end].before = i
		}
		count--
		look(i)
		if parts[i].before >= 0 {
			look(parts[i].before)
		}
	}
	return count
}

// pair is two neighbours that make a token. pairs is a heap of them.
type pair struct {
	rank uint32
	at   int
}

type pairs []pair

func (p pairs) Len() int { return len(p) }
func (p pairs) Less(i, j int) bool {
	return p[i].rank < p[j].rank || p[i].rank == p[j].rank && p[i].at < p[j].at
}
func (p pairs) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *pairs) Push(x any)   { *p = append(*p, x.(pair)) }
func (p *pairs) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}
