package receive

import (
	"fmt"
	"strings"
	"unicode"

	hook "github.com/heardlog/heardlog/webhook/receive"
)

// describe returns the event on one line.
func describe(e hook.Event) string {
	about, what := hook.About{AgentID: e.SID}, "event"
	switch d := e.Data.(type) {
	case hook.Joined:
		about, what = d.About, "joined"
	case hook.Left:
		about, what = d.About, "left: "+d.Status+", "+d.Message
	case hook.History:
		about, what = d.About, fmt.Sprintf("history: %d messages", len(d.Contents))
	case hook.Turns:
		about, what = d.About, fmt.Sprintf("turns: %d", d.TotalTurnCount)
	case hook.Failed:
		about, what = d.About, "error"
		for _, f := range d.Errors {
			what += fmt.Sprintf(": %s %d %s", f.Module, f.Code, f.Message)
		}
	}
	return clean(fmt.Sprintf("%d agent %s %q %s", e.Type, about.AgentID, about.Name, what))
}

// conversation returns the messages of a history event, one a line; nothing for other types.
func conversation(e hook.Event) string {
	h, ok := e.Data.(hook.History)
	if !ok {
		return ""
	}
	var b strings.Builder
	for _, m := range h.Contents {
		line := m.Role + ": " + m.Content
		if m.Metadata.Interrupted {
			line += " [interrupted]"
			if m.Metadata.Original != "" {
				line += " [not heard to its end: " + m.Metadata.Original + "]"
			}
		}
		b.WriteString("  " + clean(line) + "\n")
	}
	return b.String()
}

// clean removes line breaks and control characters, because others wrote the text and a terminal
// shows it.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, s)
}
