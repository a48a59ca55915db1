package realtime

import (
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/memory/evidence"
	"github.com/heardlog/heardlog/memory/heard"
)

// track is the audio of one answer beside its words. Both arrive faster than they are played.
type track struct {
	bytes int64 // of decoded audio
	ms    int64 // how long it plays
	text  strings.Builder
	marks []mark    // where the words stood in the audio when they arrived
	from  time.Time // when the first of it can have been played
	// audioFirst is set if audio came before the first words.
	audioFirst bool
}

// mark is a place in both: the text had n bytes when its next piece arrived after ms of audio.
type mark struct {
	n  int
	ms int64
}

// maxMarks limits the marks of one answer: about ten minutes of speech.
const maxMarks = 8192

// addText adds a piece of the transcript.
func (t *track) addText(s string) {
	if s == "" {
		return
	}
	if t.text.Len() == 0 {
		t.audioFirst = t.ms > 0
	}
	if len(t.marks) < maxMarks {
		if !t.audioFirst { // the text so far belongs to the audio so far
			t.marks = append(t.marks, mark{t.text.Len(), t.ms})
		} else {
			t.marks = append(t.marks, mark{t.text.Len() + len(s), t.ms})
		}
	}
	t.text.WriteString(s)
}

// end returns when the audio so far has been played.
func (t *track) end() time.Time { return t.from.Add(time.Duration(t.ms) * time.Millisecond) }

// played returns how much of the audio can have been played at a time, in ms.
func (t *track) played(at time.Time) int64 {
	if t.from.IsZero() {
		return 0
	}
	return max(0, min(t.ms, at.Sub(t.from).Milliseconds()))
}

// The share of the audio that must have arrived with the last words, if words and audio are sent in
// step. Otherwise the words run ahead of the voice.
const (
	stepShare      = 0.7
	stepShareAfter = 0.9 // if the audio of a piece comes before its words
)

// fastest is how many syllables a second a voice speaks at most. Text that would have to be faster
// has run ahead of its audio.
const fastest = 6.5

// maxPace is the same for texts that are too short to count syllables, in bytes a second.
const maxPace = 30

// words returns when each word of the transcript is spoken, if words and audio came in step; else
// nil. complete is set if no more of either follows.
func (t *track) words(complete bool) []evidence.WordTime {
	text := t.text.String()
	if !t.inStep(complete, text) {
		return nil
	}
	at := func(n int) int64 { // when the byte n of the text is reached
		i, _ := slices.BinarySearchFunc(t.marks, n, func(m mark, n int) int { return m.n - n })
		before, after := mark{}, mark{len(text), t.ms}
		if i > 0 {
			before = t.marks[i-1]
		}
		if i < len(t.marks) {
			after = t.marks[i]
		}
		if after.n <= before.n {
			return after.ms
		}
		return before.ms + (after.ms-before.ms)*int64(n-before.n)/int64(after.n-before.n)
	}
	var out []evidence.WordTime
	for i := 0; i < len(text); {
		start := i + len(text[i:]) - len(strings.TrimLeft(text[i:], " \n\t\r"))
		if start == len(text) {
			break
		}
		end := len(text)
		if n := strings.IndexAny(text[start:], " \n\t\r"); n >= 0 {
			end = start + n
		}
		out = append(out, evidence.WordTime{Text: text[start:end], StartMS: at(start), EndMS: at(end)})
		i = end
	}
	return out
}

// inStep reports whether the words came together with their audio.
func (t *track) inStep(complete bool, text string) bool {
	if t.ms == 0 || len(t.marks) < 2 {
		return false
	}
	last, steps := t.marks[len(t.marks)-1].ms, 0
	for i := 1; i < len(t.marks); i++ {
		if t.marks[i].ms > t.marks[i-1].ms {
			steps++
		}
	}
	if steps < min(3, len(t.marks)-1) {
		return false
	}
	if !complete {
		return int64(len(text))*1000 <= maxPace*t.ms && (heard.Voice{}).Measure(text, t.ms) <= fastest
	}
	share := stepShare
	if t.audioFirst {
		share = stepShareAfter
	}
	return len(t.marks) <= 4 || float64(last) >= share*float64(t.ms)
}

// voice is how fast the model speaks, by its complete answers.
type voice struct{ rates []float64 }

// maxRates is how many answers are taken into account, the newest.
const maxRates = 9

func (v *voice) note(text string, ms int64) {
	if rate := (heard.Voice{}).Measure(text, ms); rate > 0 {
		v.rates = append(v.rates[max(0, len(v.rates)-maxRates+1):], rate)
	}
}

// whole returns how long a text is when spoken, in ms; 0 if that is not known.
func (v *voice) whole(text string, ms int64) int64 {
	if len(v.rates) == 0 || ms == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(v.rates))
	rate := (heard.Voice{}).Measure(text, ms)
	return int64(float64(ms) * rate / sorted[len(sorted)/2])
}
