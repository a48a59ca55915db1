package report

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/longterm/check"
	"github.com/heardlog/heardlog/memory"
)

// Figures is what some calls did. Figures of parts add up to those of the whole.
type Figures struct {
	Calls int64
	// Tally has the counts of answers, tokens and costs. Its FirstToken is not used. Its TallyWords
	// are not whole if some of the calls were counted by an earlier version.
	memory.Tally
	Words, UnheardWords int64 // of the answers, ghosts included
	SilenceMS           int64 // all silences of at least MinSilenceMS
	LengthMS            int64 // from the starts of the calls to their ends
	ToolCalls           int64
	Recalled            int64 // memories that were added to prompts
	// Times in ms: of answers, from the request to the first token and the end of the first
	// sentence; the longest silence of each call that had one; the length of each call.
	FirstToken, FirstSentence, Longest, Length Sketch
	// Scores are in rising order of their names. Those of checks begin with checkMark; see Checks.
	Scores []ScoreFigures
}

// checkMark begins the names of checks among the scores, which have no control characters.
const checkMark = "\x01"

// Checks returns the scores of calls, and for each check that has found something how many calls
// it is.
func (f *Figures) Checks() (scores []ScoreFigures, checks map[string]int64) {
	scores = f.Scores
	for len(scores) > 0 && strings.HasPrefix(scores[0].Name, checkMark) {
		if checks == nil {
			checks = map[string]int64{}
		}
		checks[scores[0].Name[len(checkMark):]] = scores[0].N
		scores = scores[1:]
	}
	return scores, checks
}

// ScoreFigures is the scores of one name and, if they are texts, of one value.
type ScoreFigures struct {
	Name, Text string
	N          int64
	Milli      int64 // the sum of numbers, in thousandths; of true and false, 1 and 0
}

// MinSilenceMS is how long a silence is at least that counts.
const MinSilenceMS = check.MinGapMS

// Add adds by times other figures: 1, or -1 to take them away.
func (f *Figures) Add(o *Figures, by int64) {
	if by < 0 {
		f.Unmerge(&o.Tally)
	} else {
		f.Merge(&o.Tally)
	}
	for i, n := range o.numbers() {
		*f.numbers()[i] += by * *n
	}
	for i, s := range o.sketches() {
		f.sketches()[i].Merge(*s, by)
	}
	for i := range o.Scores {
		s := &o.Scores[i]
		f.score(s.Name, s.Text, by*s.N, by*s.Milli)
	}
}

// score adds scores of one name and value.
func (f *Figures) score(name, text string, n, milli int64) {
	at, found := slices.BinarySearchFunc(f.Scores, ScoreFigures{Name: name, Text: text}, func(a, b ScoreFigures) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Text, b.Text))
	})
	if !found {
		f.Scores = slices.Insert(f.Scores, at, ScoreFigures{Name: name, Text: text})
	}
	s := &f.Scores[at]
	s.N, s.Milli = s.N+n, s.Milli+milli
	if s.N == 0 {
		f.Scores = slices.Delete(f.Scores, at, at+1)
	}
}

// numbers returns the plain counts in the order in which they are stored.
func (f *Figures) numbers() [7]*int64 {
	return [...]*int64{&f.Calls, &f.Words, &f.UnheardWords, &f.SilenceMS, &f.LengthMS, &f.ToolCalls, &f.Recalled}
}

func (f *Figures) sketches() [4]*Sketch {
	return [...]*Sketch{&f.FirstToken, &f.FirstSentence, &f.Longest, &f.Length}
}

// Encode returns the stored form of figures. Equal figures have the same form.
func (f *Figures) Encode() []byte {
	tally := f.Tally.Encode()
	b := make([]byte, 0, len(tally)+64)
	b = binary.AppendUvarint(b, uint64(len(tally)))
	b = append(b, tally...)
	for _, n := range f.numbers() {
		b = binary.AppendVarint(b, *n)
	}
	for _, s := range f.sketches() {
		b = binary.AppendUvarint(b, uint64(len(*s)))
		last := uint16(0)
		for _, bucket := range *s {
			b = binary.AppendUvarint(b, uint64(bucket.Of-last))
			b = binary.AppendVarint(b, bucket.N)
			last = bucket.Of
		}
	}
	b = binary.AppendUvarint(b, uint64(len(f.Scores)))
	for i := range f.Scores {
		s := &f.Scores[i]
		b = appendText(appendText(b, s.Name), s.Text)
		b = binary.AppendVarint(binary.AppendVarint(b, s.N), s.Milli)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errStored = errors.New("stored figures cannot be read")

// decodeFigures reads what Encode has returned.
func decodeFigures(b []byte) (Figures, error) {
	var f Figures
	return f, f.decode(b)
}

// decode sets f to what Encode has returned. It uses the room of the sketches that f has.
func (f *Figures) decode(b []byte) error {
	r := reader{b: b}
	if r.figures(f); !r.ok() {
		return errStored
	}
	return nil
}

// reader reads stored figures. After an error it returns zeros. It moves a number and not a slice,
// which costs a third less while the garbage collector runs.
type reader struct {
	b   []byte
	at  int
	bad bool
}

// ok reports whether everything was read, and nothing else was there.
func (r *reader) ok() bool { return !r.bad && r.at == len(r.b) }

func (r *reader) fail() {
	r.at, r.bad = len(r.b), true
}

func (r *reader) uvarint() uint64 {
	if r.at < len(r.b) && r.b[r.at] < 0x80 { // most are
		r.at++
		return uint64(r.b[r.at-1])
	}
	n, size := binary.Uvarint(r.b[r.at:])
	if size <= 0 {
		r.fail()
		return 0
	}
	r.at += size
	return n
}

// varint reads what binary.AppendVarint has written.
func (r *reader) varint() int64 {
	n := r.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

// length reads how many things follow, each of at least one byte.
func (r *reader) length() int {
	n := r.uvarint()
	if n > uint64(len(r.b)-r.at) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) bytes() []byte {
	n := r.length()
	r.at += n
	return r.b[r.at-n : r.at]
}

func (r *reader) figures(f *Figures) {
	*f = Figures{FirstToken: f.FirstToken[:0], FirstSentence: f.FirstSentence[:0], Longest: f.Longest[:0], Length: f.Length[:0]}
	if err := f.MergeEncoded(r.bytes()); err != nil {
		r.fail()
	}
	for _, n := range f.numbers() {
		*n = r.varint()
	}
	for _, s := range f.sketches() {
		n := r.length()
		*s = slices.Grow(*s, n)[:n]
		last := uint64(0)
		for i := range *s {
			last += r.uvarint()
			(*s)[i] = Bucket{uint16(min(last, math.MaxUint16)), r.varint()}
		}
	}
	for range r.length() {
		s := ScoreFigures{Name: string(r.bytes()), Text: string(r.bytes())}
		s.N, s.Milli = r.varint(), r.varint()
		f.Scores = append(f.Scores, s)
	}
}
