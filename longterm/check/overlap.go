package check

import (
	"strings"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
)

const (
	// A caller speaks at most so many syllables per second. Voices on the telephone have 3 to 6,
	// fast ones 8.
	fastest = 9
	// voiceDelayMS is from the first token to the first sound.
	voiceDelayMS = 700
	// minOverlapMS is how long both speak at least. Shorter overlaps are how people take turns.
	minOverlapMS = 1000
)

// talkedOver finds answers that were spoken while the caller spoke, as far as times show it. A
// message of the caller has the time of its end. So one is proved by words that cannot have been
// spoken in the time since the answer began, and by an answer that went on, as the platform
// measured it, after them.
func (c *call) talkedOver() (out []Finding) {
	for i := range c.list {
		u := &c.list[i]
		if u.agent || u.m.Source != memory.SourceASR || i == 0 || !c.list[i-1].agent {
			continue
		}
		a := c.list[i-1].m
		from, to := spokenFrom(a)+voiceDelayMS, u.m.Timestamp
		if a.Timings == nil || a.Timings.FirstTokenMS == 0 || a.Content == "" || from >= to {
			continue
		}
		if a.Interrupted && a.InterruptMS > 0 && a.Heard().InterruptMSFrom.Rank() < memory.RateEstimate.Rank() && a.Method.Rank() <= memory.DisconnectOnly.Rank() {
			continue // that the caller heard any of it is not known
		}
		least := leastMS(u.m.Content)
		both := int64(0)
		switch {
		case to-least < from-voiceDelayMS: // the caller spoke already when the answer began
			both = to - from
			if a.Interrupted && a.InterruptMS > 0 {
				both = min(both, a.InterruptMS-from)
			}
		case measured(a) && a.InterruptMS-to >= minOverlapMS: // and the answer went on after the caller's words
			both = least
		}
		if both >= minOverlapMS {
			out = append(out, Finding{Check: TalkedOver, At: placeOf(a, a.Content), Before: placeOf(u.m, u.m.Content), MS: both})
		}
	}
	return out
}

// measured reports whether a platform measured when an answer stopped.
func measured(m *memory.Message) bool {
	return m.Interrupted && m.InterruptMS > 0 && m.Heard().InterruptMSFrom.Rank() >= memory.AudioMS.Rank()
}

// leastMS returns how long words take at least to speak.
func leastMS(text string) int64 {
	if len(text) > maxText || strings.ContainsAny(text, "\n") {
		return 0
	}
	v := heard.Voice{Rate: fastest}
	low, high := int64(0), int64(60_000)
	if v.Estimate(text, high) != text {
		return high
	}
	for high-low > 50 {
		if mid := (low + high) / 2; v.Estimate(text, mid) == text {
			high = mid
		} else {
			low = mid
		}
	}
	return low
}
