package evidence

import (
	"strings"
	"unicode"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
	"github.com/heardlog/heardlog/memory/redact"
)

// MaxReports limits the reports of one call of Record.
const MaxReports = 1000

// Report is a statement about one answer from a party that knows the audio. A zero field states
// nothing.
type Report struct {
	// The answer is identified, best first, by its Message.ID or UpstreamID, by its text (as far as
	// it is known if it is Playing), or by its turn. A report with none of them is about the newest
	// answer that Heard is part of.
	ItemID    string
	Generated string
	Turn      *int64
	// Named is set if ItemID is the answer's own UpstreamID, which no other answer has.
	Named bool
	// Item is the platform's own ID of the answer. A later report with it is about the same answer.
	Item string
	// Said is set if the platform had it said by itself: it is not an answer of the model's.
	Said bool
	// MadeMS is when the platform had the answer ready to be spoken, Unix ms; 0 is unknown. It had
	// asked for it before, and asked for later ones after it.
	MadeMS int64
	// Ordinal is set if Turn may count from another number than the ledger does.
	Ordinal bool

	Heard   *string
	HeardMS *int64 // the playing time, used if Heard is nil, or by Rough
	WholeMS int64  // the playing time of the whole answer, ms; 0 is unknown
	// Estimated is set if the times of Words are not the voice's: the words were spread over its
	// audio.
	Estimated bool
	// Rough is set if Heard and Generated only identify the answer: HeardMS and Words say what was
	// heard of it.
	Rough bool
	Words []WordTime
	// Confidence is how good the platform's own text is known to be, in percent; 0 is not known.
	Confidence int64
	Full       bool // the answer was heard to its end
	Cut        bool // the caller interrupted it
	// Playing is set while the answer is being played: Heard is the least that was heard so far,
	// Words a segment of it that started at StartMS (Unix ms). Such reports are stored with the
	// answer and evaluated together; see memory.Playback.
	Playing bool
	// With Playing: Heard is from the platform's record of the conversation, as good as its text.
	Account bool
	// Over is set with Playing if the call is over: no more of the answer will be played.
	Over bool
	// Echo is set if Heard is from the list of messages that the platform keeps for its LLM, as a
	// request would have sent it.
	Echo    bool
	StartMS int64
	AtMS    int64   // the time that the report is about, Unix ms
	By      string  // Message.InterruptBy; "" is start_of_speech
	rate    float64 // of the agent's voice, for HeardMS; 0 is unknown
}

// WordTime is a word's place in the audio, in ms from its start.
type WordTime struct {
	Text           string
	StartMS, EndMS int64
}

// sureEcho is the confidence of an echo in a report: it was found word by word.
const sureEcho = 95

// minWords is the number of words that identify an answer. Fewer words could be part of any answer.
const minWords = 3

// redacted changes the texts of reports to those that the ledger has. A text may end within a
// number of one of the answers.
func redacted(reports []Report, by *redact.Redactor, answers []memory.Message) []Report {
	if by == nil {
		return reports
	}
	for i := range reports {
		r := &reports[i]
		r.Generated = by.Text(r.Generated)
		if r.Heard != nil {
			text := by.Part(*r.Heard, memory.Answers(answers))
			r.Heard = &text
		}
		r.redactWords(by)
	}
	return reports
}

// redactWords replaces personal data in the words. A replaced number is one word.
func (r *Report) redactWords(by *redact.Redactor) {
	was := r.segment()
	s := was.Redacted(by)
	if s.Text == was.Text {
		return
	}
	start := r.Words[0].StartMS
	r.Words = nil
	for i, w := range strings.Fields(s.Text)[:len(s.Ends)] {
		r.Words = append(r.Words, WordTime{Text: w, StartMS: start, EndMS: s.Ends[i]})
		start = s.Ends[i]
	}
}

// aboutLive reports whether the report is about the answer that is being sent, if there is one,
// rather than about a stored one.
func (r *Report) aboutLive() bool {
	switch {
	case r.Playing:
		return !r.Cut
	case !r.Cut || r.ItemID != "" || r.Generated != "" || r.Turn != nil:
		return false
	}
	return r.Heard == nil || countWords(*r.Heard) < minWords
}

// countWords counts the words of a text. In scripts without spaces each letter counts as a word.
func countWords(s string) (n int) {
	inWord := false
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
			n, inWord = n+1, false
		case unicode.IsSpace(r):
			inWord = false
		case !inWord:
			n, inWord = n+1, true
		}
	}
	return n
}

// ambiguous reports whether the report identifies its answer by a few words only. Then it is about
// the newest answer, or about the one before if that begins with these words.
func (r *Report) ambiguous() bool {
	return r.ItemID == "" && r.Generated == "" && r.Turn == nil && r.Heard != nil && countWords(*r.Heard) < minWords
}

// startsAnswer reports whether an answer begins with the heard text.
func (r *Report) startsAnswer(m *memory.Message) bool {
	prefix, ok := heard.Align(m.Original(), *r.Heard)
	return ok && countWords(prefix) <= countWords(*r.Heard)
}

// size returns the length of the report's texts.
func (r *Report) size() int {
	n := len(r.Generated)
	if r.Heard != nil {
		n += len(*r.Heard)
	}
	return n
}

// fits reports whether the report may be about the answer. offset is added to the report's turn.
func (r *Report) fits(m *memory.Message, offset int64) bool {
	whole := m.Original()
	switch {
	case r.Said && m.Timings != nil:
		return false
	case r.ItemID != "" && (r.ItemID == m.ID || r.ItemID == m.UpstreamID):
		return true
	case r.Named && m.UpstreamID != "":
		return false
	case m.Hidden() && r.Turn != nil:
		return m.TurnID == *r.Turn+offset
	case r.Generated != "":
		prefix, ok := heard.Align(whole, r.Generated)
		if !ok || !r.Playing && !m.CutGenerated && prefix != whole {
			return false
		}
	case r.Heard != nil && *r.Heard != "": // compared below
	case r.ItemID != "":
		return false
	case r.Turn != nil:
		return m.TurnID == *r.Turn+offset
	}
	if r.Heard != nil {
		prefix, ok := heard.Align(whole, *r.Heard)
		if ok && r.MadeMS > 0 { // the text of a chat item begins as the answer does
			return countWords(prefix) <= countWords(*r.Heard)+2
		}
		return ok
	}
	return true
}

// apply returns the answer with what the report states about it, and whether that changes it.
func (r *Report) apply(m memory.Message, now int64) (memory.Message, bool, error) {
	whole := m.Original()
	e, audio := memory.Evidence{Seq: m.Seq, AtMS: r.AtMS, By: r.By}, r.segment()
	// All of a text that the platform told may be less than all that was to be said.
	e.Cut = r.Cut && r.MadeMS > 0 && m.Timings == nil
	// A ghost that is in the platform's history, or whose sound was heard, was played.
	e.Later = r.Item != "" || r.ItemID != "" && r.HeardMS != nil
	switch {
	case r.Playing, r.Cut && r.Heard == nil && r.HeardMS == nil:
		return applyPlayback(m, r, now)
	case r.Full:
		e.Method, e.Full = memory.VendorText, true
		if r.Generated == "" {
			e.Method = memory.AudioMS // it states that all was played, not what it was
		}
	case r.Heard != nil && !r.timed(&m):
		e.Method, e.Heard, e.Confidence = memory.VendorText, *r.Heard, r.Confidence
		e.Cut = r.Cut && r.MadeMS > 0
		if r.Echo {
			e.Method, e.Confidence, e.Later = memory.EchoDiff, sureEcho, true
		}
	case r.HeardMS != nil:
		var spoken bool
		if e.Heard, spoken = r.spoken(whole); spoken {
			if e.Method = memory.WordTimes; r.Estimated {
				e.Method, e.Measured = memory.AudioMS, true
			}
			break
		}
		e.Method, audio = memory.AudioMS, memory.Stretch{}
		rate := r.rate
		if r.WholeMS > 0 && m.Timings != nil { // of the platform's own words there may have been more
			rate = heard.Voice{}.Measure(whole, r.WholeMS)
		}
		e.Heard, e.Measured = heard.Voice{Rate: rate}.Estimate(whole, *r.HeardMS), rate > 0
	default:
		return m, false, nil
	}
	if r.HeardMS != nil {
		e.Audio = audio.Played(*r.HeardMS, r.AtMS)
	}
	named := r.Item != "" && r.Item != m.Heard().PlatformID
	if named {
		// A cut by a report that turns out to have been about another answer.
		if r.Full && m.Heard().PlatformID != "" {
			m.Method, m.EvidenceMS, m.Confidence = "", 0, 0
		}
		m.Amend(func(d *memory.Details) { d.PlatformID = r.Item })
	}
	m, changed, err := m.WithEvidence(e, now)
	return m, changed || named, err
}

// timed reports whether the playing time says more about what was heard than the text does: the
// text only identifies the answer, or an answer that was cut has all its text.
func (r *Report) timed(m *memory.Message) bool {
	switch {
	case r.HeardMS == nil:
		return false
	case r.Rough:
		return true
	case !r.Cut || r.MadeMS == 0 || m.Timings == nil:
		return false
	}
	whole := m.Original()
	prefix, ok := heard.Align(whole, *r.Heard)
	return ok && prefix == whole
}

// spoken returns the words that had ended by the playing time. It reports false without words of
// the answer.
func (r *Report) spoken(whole string) (string, bool) {
	if len(r.Words) == 0 {
		return "", false
	}
	said := wordsUntil(r.Words, *r.HeardMS)
	_, ok := heard.Align(whole, said)
	return said, ok
}

// wordsUntil returns the words that had ended by ms.
func wordsUntil(words []WordTime, ms int64) string {
	var b strings.Builder
	for _, w := range words {
		if w.EndMS > ms {
			break
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strings.TrimSpace(w.Text))
	}
	return b.String()
}
