package memory

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
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
	// Bytes is about what the agent's messages take in memory. Sums of tallies do not have it, and
	// messages that an earlier version has stored are not in it.
	Bytes int64
	TallyWords
	// FirstToken counts answers by the time to their first token, in rising order; see Percentile.
	FirstToken []Count[byte]
	// FailedAt counts failures by the name of the upstream that was asked last, in rising order; ""
	// is unknown.
	FailedAt []Count[string]
}

// TallyWords is the part of a Tally that earlier versions have not counted. Counted tells whether
// it is known; see Tally.Whole.
type TallyWords struct {
	Counted             int64 // answers, ghosts included, that are counted here
	Words, UnheardWords int64 // of these answers, as Words counts them
	GhostWords          int64 // the part of both that ghosts have
	Evident             int64 // answers without ghosts of which there is evidence, not only an assumption
	ToolCalls           int64 // in answers without ghosts
	ToolResults         int64 // messages with the result of a tool
}

// Whole reports whether TallyWords counts everything that t does. It does not in the tally of an
// agent that was stored by an earlier version.
func (t *Tally) Whole() bool { return t == nil || t.Counted == t.Answers+t.Ghosts }

// UnheardShare returns the share of the words that were not heard; known is false if nothing is
// known of what was heard, or if not all words were counted.
func (t *Tally) UnheardShare() (share float64, known bool) {
	if t == nil || !t.Whole() {
		return 0, false
	}
	return t.TallyWords.UnheardShare()
}

// UnheardShare is that of Tally of the words that were counted.
func (w *TallyWords) UnheardShare() (share float64, known bool) {
	if w.Words <= 0 || w.Evident == 0 && w.UnheardWords == 0 {
		return 0, false
	}
	return float64(w.UnheardWords) / float64(w.Words), true
}

// ToolsOpen returns how many calls of tools have no result.
func (t *Tally) ToolsOpen() int64 { return max(0, t.ToolCalls-t.ToolResults) }

// Count is how many there are of one kind; never 0 in a Tally.
type Count[K cmp.Ordered] struct {
	Of K
	N  int64
}

// Add counts a message, or with by = -1 takes it out again. Copies and messages that were merged
// into others do not count.
func (t *Tally) Add(m *Message, by int64) {
	t.Bytes += by * m.Bytes()
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
	if m.Role == Tool {
		t.ToolResults += by
	}
	if m.Role != Assistant {
		return
	}
	if m.State != Superseded {
		t.ToolCalls += by * toolCalls(m)
	}
	switch m.State {
	case Superseded:
		if m.Source != SourceCommand { // the echo of a greeting is not a ghost
			t.Ghosts += by
			t.GhostWords += by * t.addWords(m, by)
		}
	case Empty:
	default:
		t.Answers += by
		if m.Interrupted {
			t.Interruptions += by
		}
		if m.Method.Rank() > AssumedFull.Rank() {
			t.Evident += by
		}
		t.addWords(m, by)
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

// addWords counts the words of an answer and returns how many it has.
func (t *Tally) addWords(m *Message, by int64) (made int64) {
	made, unheard := m.Words()
	t.Counted += by
	t.Words += by * made
	t.UnheardWords += by * unheard
	return made
}

// toolCalls returns how many tools an answer calls.
func toolCalls(m *Message) int64 {
	var list []json.RawMessage
	if len(m.ToolCalls) == 0 || json.Unmarshal(m.ToolCalls, &list) != nil {
		return 0
	}
	return int64(len(list))
}

// Merge adds what another tally has counted.
func (t *Tally) Merge(o *Tally) { t.merge(o, 1) }

// Unmerge takes away what another tally has counted.
func (t *Tally) Unmerge(o *Tally) { t.merge(o, -1) }

func (t *Tally) merge(o *Tally, by int64) {
	to := t.numbers()
	for i, n := range o.numbers() {
		*to[i] += by * *n
	}
	toWords := t.TallyWords.numbers()
	for i, n := range o.TallyWords.numbers() {
		*toWords[i] += by * *n
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

// Slowest returns the longest time to the first token, in ms, within 5 %; 0 if none was measured.
func (t *Tally) Slowest() int64 { return t.Percentile(1) }

// Same reports whether a stored tally is what was counted from the messages. What an earlier
// version has not counted is not compared.
func (t *Tally) Same(counted *Tally) bool {
	var a, b Tally
	if t != nil {
		a = *t
	}
	if counted != nil {
		b = *counted
	}
	a.Bytes, b.Bytes = 0, 0
	if !t.Whole() {
		a.TallyWords, b.TallyWords = TallyWords{}, TallyWords{}
	}
	return bytes.Equal(a.Encode(), b.Encode())
}

// numbers returns the counts in the order in which they are stored.
func (w *TallyWords) numbers() [7]*int64 {
	return [...]*int64{&w.Counted, &w.Words, &w.UnheardWords, &w.GhostWords, &w.Evident, &w.ToolCalls, &w.ToolResults}
}

// numbers returns the plain counts in the order in which they are stored.
func (t *Tally) numbers() [14]*int64 {
	return [...]*int64{
		&t.Turns, &t.Answers, &t.Interruptions, &t.Failures, &t.Ghosts, &t.Generated, &t.Unheard, &t.Prompt, &t.Completion,
		&t.Cost, &t.UnheardCost, &t.EstimatedCost, &t.Cached, &t.Saved,
	}
}

// wordsMark begins the names under which Encode stores TallyWords, as if they were upstreams, whose
// names have no control characters. So an earlier version reads the form, too.
const wordsMark = 0

// bytesMark follows wordsMark in the name under which Encode stores Bytes.
const bytesMark = 64

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
	for i, n := range t.TallyWords.numbers() {
		if *n != 0 {
			b = binary.AppendVarint(append(b, 2, wordsMark, byte(i)), *n)
		}
	}
	if t.Bytes > 0 {
		b = binary.AppendVarint(append(b, 2, wordsMark, bytesMark), t.Bytes)
	}
	for _, c := range t.FailedAt {
		b = binary.AppendUvarint(b, uint64(len(c.Of)))
		b = binary.AppendVarint(append(b, c.Of...), c.N)
	}
	return b
}

var errTally = errors.New("not a tally")

// MergeEncoded is Merge with a tally that Encode has returned. It leaves out the TallyWords of one
// that is not whole.
func (t *Tally) MergeEncoded(b []byte) error {
	_, err := t.mergeEncoded(b)
	return err
}

// mergeEncoded is MergeEncoded. It also returns Bytes of what was encoded.
func (t *Tally) mergeEncoded(b []byte) (size int64, err error) {
	if len(b) == 0 {
		return 0, nil
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
	answers := -t.Answers - t.Ghosts
	for _, n := range t.numbers() {
		*n += next()
	}
	answers += t.Answers + t.Ghosts
	for range take() {
		if len(b) == 0 {
			return 0, errTally
		}
		bucket := b[0]
		b = b[1:]
		count(&t.FirstToken, bucket, next())
	}
	var counted TallyWords
	words := counted.numbers()
	for ok && len(b) > 0 {
		n := take()
		name := b[:n]
		b = b[n:]
		if n == 2 && name[0] == wordsMark && int(name[1]) < len(words) {
			*words[name[1]] = next()
			continue
		}
		if n == 2 && name[0] == wordsMark && name[1] == bytesMark {
			size = next()
			continue
		}
		count(&t.FailedAt, string(name), next())
	}
	if !ok {
		return 0, errTally
	}
	if counted.Counted == answers {
		for i, n := range t.TallyWords.numbers() {
			*n += *words[i]
		}
	}
	return size, nil
}

// DecodeTally reads what Encode has returned.
func DecodeTally(b []byte) (*Tally, error) {
	if len(b) == 0 {
		return nil, nil
	}
	t := &Tally{}
	var err error
	t.Bytes, err = t.mergeEncoded(b)
	return t, err
}
