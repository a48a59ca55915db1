package memory

import (
	"cmp"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/heard"
)

// Evidence states what was heard of one answer: what a platform reported, or what follows from its
// next request. Each piece has a Method, which says how it came about, and a confidence. Better
// evidence replaces weaker, in whatever order they arrive; among equals the later moment counts.
type Evidence struct {
	Seq    int64
	Method Method
	// Heard is the heard text. It is ignored if Full is set: then the whole answer was heard.
	Heard string
	Full  bool
	// State, if not Final, is Unplayed or Replaced: nothing was heard. Heard and Full are ignored
	// then.
	State State
	// Cut is set if the caller interrupted the answer although Heard may be all of it: where is not
	// known.
	Cut bool
	// Confidence is how sure the comparison of an echo with the answer is, or the platform of its
	// own text, in percent; 0 is unknown. Message.Confidence follows from it.
	Confidence int64
	// Measured is set if a playing time was turned into words by the measured rate of the voice.
	Measured bool
	// AtMS is when the caller cut the answer, Unix ms; 0 is unknown.
	AtMS int64
	By   string // Message.InterruptBy; "" is unknown, and start_of_speech is assumed
	// Later is set for an echo that came after all that is known of the answer. Its words replace
	// those of an earlier echo, and restore a superseded answer, since it was played after all.
	Later bool
	// Audio is how long the answer was played and when its words ended, if a report states that;
	// else nil.
	Audio *Stretch
}

// Past is evidence about an answer that was replaced.
type Past struct {
	Method     Method `json:"method"`
	Heard      string `json:"heard,omitempty"`
	State      State  `json:"state,omitempty"`
	AtMS       int64  `json:"at,omitempty"` // as Message.EvidenceMS
	Confidence int64  `json:"confidence,omitempty"`
	UntilMS    int64  `json:"until"` // when it was replaced, Unix ms
}

// maxPast is how many Past a message keeps.
const maxPast = 8

// Playback is what is known about the playing of an answer. It is stored with the answer because no
// single report contains what was heard: a platform reports the words with their times first, and
// later only that the caller interrupted. Package evidence maintains it.
type Playback struct {
	// Spoken is how many bytes of Message.Original are known to have been played.
	Spoken int `json:"spoken,omitempty"`
	// Account is set if Spoken is from the platform's own record of the conversation.
	Account bool `json:"account,omitempty"`
	// Over is set once the call is over: nothing more is played.
	Over bool `json:"over,omitempty"`
	// Stretches are segments of audio by their start, the latest ones.
	Stretches []Stretch `json:"stretches,omitempty"`
	// Audio is the whole audio of the answer, from a report that states how much of it was played;
	// nil without one. It is for showing when the words were spoken: nothing is decided by it.
	Audio *Stretch `json:"audio,omitempty"`
	Cut   bool     `json:"cut,omitempty"`
	CutMS int64    `json:"cut_ms,omitempty"` // Unix ms of the latest cut; 0 is unknown
	By    string   `json:"by,omitempty"`
}

// Stretch is a segment of audio that started to play.
type Stretch struct {
	StartMS int64  `json:"start"`          // Unix ms; in Playback.Audio 0 is unknown
	Text    string `json:"text,omitempty"` // its words, separated by single spaces
	// When each word ended, ms after StartMS; empty if unknown.
	Ends []int64 `json:"ends,omitempty"`
	// PlayedMS is how much of the audio was played, in Playback.Audio.
	PlayedMS int64 `json:"played,omitempty"`
}

// Played returns a stretch of which ms were played until a time, Unix ms; 0 is unknown.
func (s Stretch) Played(ms, until int64) *Stretch {
	if s.PlayedMS = ms; until > 0 {
		s.StartMS = until - ms
	}
	return &s
}

// compareAudio orders reports of the same audio: those that know more words come last, then those
// about a later time, then those by which less was played.
func compareAudio(a, b *Stretch) int {
	return cmp.Or(cmp.Compare(len(a.Ends), len(b.Ends)), cmp.Compare(a.StartMS+a.PlayedMS, b.StartMS+b.PlayedMS), cmp.Compare(b.PlayedMS, a.PlayedMS),
		cmp.Compare(a.Text, b.Text), slices.Compare(a.Ends, b.Ends))
}

// keepAudio stores a report of the answer's audio unless there is a better one. It reports whether
// anything changed.
func (m *Message) keepAudio(s *Stretch) bool {
	var p Playback
	if old := m.Heard().Playback; old != nil {
		if p = *old; p.Audio != nil && compareAudio(p.Audio, s) >= 0 {
			return false
		}
	}
	p.Audio = s
	m.Amend(func(r *Details) { r.Playback = &p })
	return true
}

// WithEvidence returns the message with the evidence applied, and whether that changes it.
//
// A higher method replaces a lower one. Of two with the same method, an echo that has words
// replaces one without, and a later list an earlier one; then the later time wins, and then the
// shorter text. So the same reports give the same result in any order. What is replaced is kept in
// Earlier. It returns fault.Invalid if the heard text is not part of the answer.
func (m Message) WithEvidence(e Evidence, now int64) (_ Message, changed bool, err error) {
	whole := m.Original()
	text := whole
	switch {
	case e.State != Final:
		text = ""
	case m.Hidden(): // it may have been cut, but where is not known
		text = whole
	case !e.Full:
		var ok bool
		if text, ok = heard.Align(whole, e.Heard); !ok {
			return m, false, fault.At(fault.Invalid, "heard", "is not a part of the answer of turn %d, which begins %q; send the words of it that were heard", m.TurnID, clip(whole, 60))
		}
	}
	cut := text != whole || e.Cut || e.Method == DisconnectOnly || m.CutGenerated || m.Hidden() && !e.Full
	sent := m.SentText() // before anything changes
	changed = cut && m.NoteCut(e, now)
	if e.Audio != nil && m.keepAudio(e.Audio) {
		changed = true
	}
	e.Confidence = e.confidence(&m, text)
	if !e.replaces(&m, text) {
		if !m.Interrupted && e.Method == DisconnectOnly && m.Method == DisconnectOnly {
			m.Interrupted, changed = true, true
		}
		return m, changed, nil
	}
	m.keepPast(e, text, now)
	m.Method, m.EvidenceMS, m.Confidence = e.Method, e.AtMS, e.Confidence
	m.Interrupted = cut
	m.Content, m.Generated, m.Sent = text, whole, sent
	if m.Generated == m.Content && !m.CutGenerated {
		m.Generated = ""
	}
	if m.Sent == m.defaultSent() {
		m.Sent = ""
	}
	m.State = e.stateOf(&m)
	return m, true, nil
}

// keepPast adds the message's evidence to Earlier, before evidence by which other words were heard
// replaces it.
func (m *Message) keepPast(e Evidence, text string, now int64) {
	if m.Method.Rank() <= AssumedFull.Rank() || m.Content == text && (m.State == Final) == (e.State == Final) {
		return
	}
	past := Past{Method: m.Method, Heard: m.Content, State: m.State, AtMS: m.EvidenceMS, Confidence: m.Confidence, UntilMS: now}
	list := m.Heard().Earlier
	list = append(slices.Clone(list[max(0, len(list)-maxPast+1):]), past)
	m.Amend(func(r *Details) { r.Earlier = list })
}

// stateOf returns the state of a message with this evidence. A superseded message stays superseded.
func (e Evidence) stateOf(m *Message) State {
	switch {
	case m.State == Superseded && !(e.Later && m.Content != ""):
		return Superseded
	case e.State != Final:
		return e.State
	case m.State == Empty && m.Content == "":
		return Empty
	}
	return Final
}

// NoteCut updates when and why the answer was cut, if the evidence is better in this. It reports
// whether anything changed. A cut that the server itself saw is kept, and a stated reason replaces
// an assumed one.
func (m *Message) NoteCut(e Evidence, now int64) bool {
	changed := false
	switch {
	case e.AtMS != 0 && (m.InterruptMS == 0 || cmp.Or(cmp.Compare(e.Method.Rank(), m.Heard().InterruptMSFrom.Rank()), cmp.Compare(e.AtMS, m.InterruptMS)) > 0):
		m.InterruptMS, changed = e.AtMS, true
		m.Amend(func(r *Details) { r.InterruptMSFrom = e.Method })
	case m.InterruptMS == 0:
		m.InterruptMS, changed = now, true
	}
	by, from := e.By, e.Method
	if by == "" {
		by, from = ByStartOfSpeech, AssumedFull
	}
	if m.InterruptBy == "" || m.Heard().InterruptByFrom != "" && cmp.Or(cmp.Compare(from.Rank(), m.Heard().InterruptByFrom.Rank()), cmp.Compare(by, m.InterruptBy)) > 0 {
		m.InterruptBy, changed = by, true
		m.Amend(func(r *Details) { r.InterruptByFrom = from })
	}
	return changed
}

// replaces reports whether the evidence, by which text was heard, replaces that of the message. It
// is a total order; see WithEvidence. Confidence and state decide between otherwise equal evidence.
func (e Evidence) replaces(m *Message, text string) bool {
	c := cmp.Compare(e.Method.Rank(), m.Method.Rank())
	if c == 0 && e.Method == EchoDiff {
		c = cmp.Compare(min(len(text), 1), min(len(m.Content), 1))
		if c == 0 && e.Later && text != "" && text != m.Content {
			return true
		}
	}
	return cmp.Or(c,
		cmp.Compare(e.AtMS, m.EvidenceMS), // a known time replaces an unknown one, 0
		cmp.Compare(len(m.Content), len(text)),
		cmp.Compare(e.Confidence, m.Confidence),
		cmp.Compare(weight(m, e.State), weight(m, m.State)),
	) > 0
}

// weight orders the states of an answer that was not heard. Superseded messages keep their state.
func weight(m *Message, s State) int {
	switch {
	case m.State == Superseded:
		return 0
	case s == Replaced:
		return 2
	case s == Unplayed:
		return 1
	}
	return 0
}

// The ways in which an answer is cut, as the turn table names them.
const (
	ByStartOfSpeech = "start_of_speech"
	ByAPISpeak      = "api_speak"
	ByAPIInterrupt  = "api_interrupt"
	ByAPILeave      = "api_leave"
)

// clip shortens text for an error message, at a rune.
func clip(s string, runes int) string {
	n := 0
	for i := range s {
		if n == runes {
			return s[:i] + "…"
		}
		n++
	}
	return s
}
