package memory

import "unicode/utf8"

// confidence returns the probability, in percent, that the text is what was heard of the answer,
// give or take one word, if this evidence replaces that of the message; 0 if nothing is known. The
// constants are fitted to what TestReliability in package evidence measures. How good the
// platform's own account is they do not say.
func (e *Evidence) confidence(m *Message, text string) int64 {
	var p int64
	switch e.Method {
	case VendorText:
		p = 98
		if e.Confidence > 0 && text != m.Original() {
			p = e.Confidence
		} else if e.Cut && text == m.Original() {
			p = 50 // it was cut, and where is not known
		}
	case WordTimes:
		p = 95
	case AudioMS, RateEstimate:
		p = e.estimated(m, text)
	case EchoDiff:
		p = e.Confidence
	case DisconnectOnly, AssumedFull:
		return 0
	}
	if p == 0 {
		return 0
	}
	if e.State == Replaced { // other words may be a bad transcript of ours
		p = min(p, 45)
	}
	// Lists that contradict each other: one of them was wrong. The order of other reports makes no
	// difference.
	if n := contradictions(m, text); e.Later && n > 0 {
		p = min(p, max(50, 90-10*n))
	}
	return p
}

// estimated returns the confidence of an estimate by speaking rate. Voices differ by a third, so
// the error grows with the number of words. An estimate that the whole answer was spoken is safer:
// the time was more than enough for most voices.
func (e *Evidence) estimated(m *Message, text string) int64 {
	n := utf8.RuneCountInString(text) / charsPerWord
	p := int64(30)
	switch {
	case e.Measured && text != m.Original():
		p = max(50, 86-2*int64(n))
	case text == m.Original():
		p = 85
	case n <= 4:
		p = 78
	case n <= 8:
		p = 56
	case n <= 16:
		p = 45
	}
	if e.Method == RateEstimate { // when the voice began is an estimate too
		p -= 5
	}
	return p
}

// charsPerWord is about how many characters a word has with the space after it.
const charsPerWord = 6

// contradictions returns how often a list said something else than the text.
func contradictions(m *Message, text string) int64 {
	var n int64
	for _, p := range m.Heard().Earlier {
		if p.Method == EchoDiff && p.Heard != text {
			n++
		}
	}
	if m.Method == EchoDiff && m.Content != text {
		n++
	}
	return n
}
