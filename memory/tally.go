package memory

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// Tally counts what happened in the answers of one agent, or of several together. It holds no text.
// An agent's tally is the sum over its messages (Tally.Add), and is stored in the same commit as
// they are, so that lists and overviews need not read them. Messages that were taken over from an
// earlier agent are not counted.
type Tally struct {
	Turns         int64 // turns that have begun
	Answers       int64 // answers that were sent, in full or in part; ghosts are not among them
	Interruptions int64 // of these, those that the caller interrupted
	Failures      int64 // answers that the LLM failed to make
	Ghosts        int64 // answers that a later one to the same words has replaced
	// Tokens of the answers that the proxy ran, ghosts included. generatedTokens and
	// unheardOf define them. Unheard goes down when evidence shows that more was heard.
	Generated, Unheard int64
	Prompt, Completion int64 // tokens that the upstreams reported
	Cached             int64 // the part of Prompt that the upstreams had in their caches
	// Cost is what these answers cost, UnheardCost the part for words that were not heard, and
	// EstimatedCost the part for answers without reported tokens, in billionths of a US dollar.
	Cost, UnheardCost, EstimatedCost int64
	// Saved is how much more the prompts would have cost without the caches.
	Saved int64
	// FirstToken counts answers by the time to their first token, in rising order; see Percentile.
	FirstToken []Count[byte]
	// FailedAt counts failures by the name of the upstream that was asked last, in rising order; ""
	// is unknown.
	FailedAt []Count[string]
}

// Count is how many there are of one kind; never 0 in a Tally.
type Count[K cmp.Ordered] struct {
	Of K
	N  int64
}

// Add counts a message, or with by = -1 takes it out again. Copies and messages that were merged
// into others do not count.
func (t *Tally) Add(m *Message, by int64) {
	if m.Filed().CopyOf != 0 || m.State == Merged || m.State == Removed {
		return
	}
	if m.Opens {
		t.Turns += by
	}
	if m.Failure != nil {
		t.Failures += by
		count(&t.FailedAt, m.Made().Upstream, by)
	}
	if m.Role != Assistant {
		return
	}
	switch m.State {
	case Superseded:
		if m.Source != SourceCommand { // the echo of a greeting is not a ghost
			t.Ghosts += by
		}
	case Empty:
	default:
		t.Answers += by
		if m.Interrupted {
			t.Interruptions += by
		}
	}
	if m.Timings == nil {
		return
	}
	if ms := m.Timings.FirstTokenMS; ms > 0 && m.State != Superseded {
		count(&t.FirstToken, bucketOf(ms), by)
	}
	tokens := tokensOf(m.Usage)
	generated := generatedTokens(m, tokens)
	unheard := unheardOf(m, generated)
	t.Generated += by * generated
	t.Unheard += by * unheard
	t.Prompt += by * tokens.prompt
	t.Completion += by * tokens.completion
	t.Cached += by * min(tokens.cached, tokens.prompt)
	if c := m.Made().Cost; c != nil {
		t.Cost += by * (c.In + c.Out)
		t.Saved += by * c.Saved
		t.UnheardCost += by * costOf(m, unheard, generated)
		if c.Estimated {
			t.EstimatedCost += by * (c.In + c.Out)
		}
	}
}

// Merge adds what another tally has counted.
func (t *Tally) Merge(o *Tally) { t.merge(o, 1) }

// Unmerge takes away what another tally has counted.
func (t *Tally) Unmerge(o *Tally) { t.merge(o, -1) }

func (t *Tally) merge(o *Tally, by int64) {
	for i, n := range o.numbers() {
		*t.numbers()[i] += by * *n
	}
	for _, c := range o.FirstToken {
		count(&t.FirstToken, c.Of, by*c.N)
	}
	for _, c := range o.FailedAt {
		count(&t.FailedAt, c.Of, by*c.N)
	}
}

// count adds to the count of a kind, in place.
func count[K cmp.Ordered](list *[]Count[K], k K, by int64) {
	at, found := slices.BinarySearchFunc(*list, k, func(c Count[K], k K) int { return cmp.Compare(c.Of, k) })
	if !found {
		*list = slices.Insert(*list, at, Count[K]{Of: k})
	}
	if (*list)[at].N += by; (*list)[at].N == 0 {
		if *list = slices.Delete(*list, at, at+1); len(*list) == 0 {
			*list = nil
		}
	}
}

// Clone returns a copy that shares nothing with t, which may be nil.
func (t *Tally) Clone() *Tally {
	if t == nil {
		return &Tally{}
	}
	c := *t
	c.FirstToken, c.FailedAt = slices.Clone(t.FirstToken), slices.Clone(t.FailedAt)
	return &c
}

// growth is the ratio of two neighbouring buckets of FirstToken.
const growth = 1.1

// bucketOf returns the bucket of a time in ms, from 1 on. Times of more than 30 hours share one.
func bucketOf(ms int64) byte {
	return byte(min(math.Round(math.Log(float64(ms))/math.Log(growth)), 121+121))
}

// Percentile returns the time to the first token, in ms, that the share p (0 to 1) of the answers
// did not exceed, within 5 %; 0 if none was measured.
func (t *Tally) Percentile(p float64) int64 {
	all := int64(0)
	for _, c := range t.FirstToken {
		all += c.N
	}
	rank := int64(math.Ceil(p * float64(all)))
	for _, c := range t.FirstToken {
		if rank -= c.N; rank <= 0 {
			return int64(math.Round(math.Pow(growth, float64(c.Of))))
		}
	}
	return 0
}

// numbers returns the plain counts in the order in which they are stored.
func (t *Tally) numbers() [14]*int64 {
	return [...]*int64{
		&t.Turns, &t.Answers, &t.Interruptions, &t.Failures, &t.Ghosts, &t.Generated, &t.Unheard, &t.Prompt, &t.Completion,
		&t.Cost, &t.UnheardCost, &t.EstimatedCost, &t.Cached, &t.Saved,
	}
}

// Encode returns the stored form of a tally: numbers as varints, nothing for nil. Equal tallies
// have the same form.
func (t *Tally) Encode() []byte {
	if t == nil {
		return []byte{}
	}
	b := make([]byte, 0, 32)
	for _, n := range t.numbers() {
		b = binary.AppendVarint(b, *n)
	}
	b = binary.AppendUvarint(b, uint64(len(t.FirstToken)))
	for _, c := range t.FirstToken {
		b = binary.AppendVarint(append(b, c.Of), c.N)
	}
	for _, c := range t.FailedAt {
		b = binary.AppendUvarint(b, uint64(len(c.Of)))
		b = binary.AppendVarint(append(b, c.Of...), c.N)
	}
	return b
}

var errTally = errors.New("not a tally")

// MergeEncoded is Merge with a tally that Encode has returned.
func (t *Tally) MergeEncoded(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	ok := true
	next := func() int64 {
		n, size := binary.Varint(b)
		if size <= 0 {
			ok = false
			return 0
		}
		b = b[size:]
		return n
	}
	take := func() (n uint64) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			ok = false
			return 0
		}
		b = b[size:]
		return n
	}
	for _, n := range t.numbers() {
		*n += next()
	}
	for range take() {
		if len(b) == 0 {
			return errTally
		}
		bucket := b[0]
		b = b[1:]
		count(&t.FirstToken, bucket, next())
	}
	for ok && len(b) > 0 {
		n := take()
		name := string(b[:n])
		b = b[n:]
		count(&t.FailedAt, name, next())
	}
	if !ok {
		return errTally
	}
	return nil
}

// DecodeTally reads what Encode has returned.
func DecodeTally(b []byte) (*Tally, error) {
	if len(b) == 0 {
		return nil, nil
	}
	t := &Tally{}
	return t, t.MergeEncoded(b)
}
