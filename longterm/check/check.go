// Package check finds what went wrong in a call that only its ledger can show: the agent repeated
// what the caller had heard, referred to words that the caller never heard, talked over the caller,
// left the caller in silence, or one of them asked a question again that had been answered. Of
// returns the findings of a call.
//
// Precision comes before recall: a rule that cannot tell finds nothing. The package is pure.
package check

import (
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// The names of the checks.
const (
	Repeated   = "repeated"    // the agent said again what the caller had heard
	Unheard    = "unheard"     // the agent referred to words that the caller had not heard
	TalkedOver = "talked_over" // the agent spoke while the caller did
	Silence    = "silence"     // the answer came MinSilenceMS or later after the caller's words
	AskedAgain = "asked_again" // a question was asked again after it had been answered
)

// Names has the names of all checks.
var Names = []string{Repeated, Unheard, TalkedOver, Silence, AskedAgain}

// Limits.
const (
	// MinSilenceMS is how long a silence is at least.
	MinSilenceMS = 5000
	// MaxFindings limits the findings of a call.
	MaxFindings = 100

	// MaxMessages is how many messages of a call are read, the newest.
	MaxMessages = 2000

	maxBytes   = 512 << 10 // and of their texts
	maxText    = 8 << 10
	maxSteps   = 3_000_000 // comparisons of words; what is not reached by then is not found
	maxExcerpt = 160       // characters
)

// Place is words of a call.
type Place struct {
	Seq, TurnID int64
	Text        string // an excerpt
}

// Finding is one thing that a check has found.
type Finding struct {
	Check string
	// By is who asked again: memory.Assistant or memory.User; "" for other checks.
	By memory.Role
	// At is where it happened, Before the earlier words that show it: what was repeated or asked
	// before, the part that was not heard, the caller's words.
	At, Before Place
	// Unheard is set if the answer to the caller's question was not heard, or not whole.
	Unheard bool
	MS      int64 // how long a silence lasted, or both spoke at least
}

// Of returns the findings of a call: by check in the order of Names, and in order of the call. own
// are its messages without those of earlier calls, in order of Seq. Of a long call the newest 2,000
// messages are read, or 512 KiB.
func Of(own []memory.Message) []Finding {
	own = own[start(own):]
	c := newCall(own)
	out := slices.Concat(c.repeated(), c.unheard(), c.talkedOver(), c.silences(), c.askedAgain())
	return out[:min(len(out), MaxFindings)]
}

// Enough reports whether Of would read no more of a call than the newest messages that are given.
func Enough(newest []memory.Message) bool { return start(newest) > 0 }

// start returns the index of the first message that is read.
func start(own []memory.Message) int {
	size, from := 0, len(own)
	for from > 0 && len(own)-from < MaxMessages && size <= maxBytes {
		from--
		size += len(own[from].Original())
	}
	return from
}

// Found returns the names of the checks that have findings, in the order of Names.
func Found(list []Finding) (names []string) {
	for i := range list {
		names = append(names, list[i].Check)
	}
	return slices.Compact(names)
}

// Gap is a time between the caller's words and the first token of the next answer, or the caller's
// next words.
type Gap struct {
	MS       int64
	Asked    *memory.Message // the caller's words
	Next     *memory.Message
	Answered bool // Next is the agent's
}

// Gaps returns the silent times after the caller's words.
func Gaps(msgs []memory.Message) (out []Gap) {
	var asked *memory.Message // the caller's last words that have no answer yet
	for i := range msgs {
		m := &msgs[i]
		at := m.Timestamp
		switch {
		case byCaller(m):
		case m.Role == memory.Assistant && m.State != memory.Superseded && m.State != memory.Empty && m.Original() != "":
			at = spokenFrom(m)
		default:
			continue
		}
		if asked != nil && asked.Timestamp > 0 && at > asked.Timestamp {
			out = append(out, Gap{at - asked.Timestamp, asked, m, m.Role == memory.Assistant})
		}
		if asked = nil; m.Role == memory.User {
			asked = m
		}
	}
	return out
}

// byCaller reports whether a message is the caller's own words.
func byCaller(m *memory.Message) bool {
	return m.Role == memory.User && m.Source != memory.SourceSilence && m.Source != memory.SourceCommand
}

// spokenFrom returns when the first token of an answer came, in Unix ms.
func spokenFrom(m *memory.Message) int64 {
	if t := m.Timings; t != nil && t.FirstTokenMS > 0 {
		return t.StartMS + t.FirstTokenMS
	}
	return m.Timestamp
}

// silences finds answers that came late. Their first token must have been measured: others may have
// the time of their end. If the agent said something itself meanwhile, when is not known.
func (c *call) silences() (out []Finding) {
	for _, g := range Gaps(c.msgs) {
		measured := g.Answered && g.Next.Timings != nil && g.Next.Timings.FirstTokenMS > 0 && g.Next.Made().Filler == ""
		if measured && g.MS >= MinSilenceMS && g.Asked.Source != memory.SourceMessage {
			out = append(out, Finding{Check: Silence, At: placeOf(g.Next, g.Next.Original()), Before: placeOf(g.Asked, g.Asked.Content), MS: g.MS})
		}
	}
	return out
}

func placeOf(m *memory.Message, text string) Place {
	text = strings.TrimSpace(text)
	runes := 0
	for at := range text {
		if runes == maxExcerpt {
			text = text[:at] + "…"
			break
		}
		runes++
	}
	return Place{m.Seq, m.TurnID, text}
}
