package receive

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/heardlog/heardlog/webhook"
)

// payload is what the printed lines need of the payloads of every type.
type payload struct {
	AgentID        string `json:"agent_id"`
	Name           string `json:"name"`
	Status         string `json:"status"`
	Message        string `json:"message"`
	TotalTurnCount int    `json:"total_turn_count"`
	Errors         []struct {
		Module  string `json:"module"`
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"errors"`
	Contents []struct {
		Role     string `json:"role"`
		Content  string `json:"content"`
		Metadata struct {
			Interrupted bool   `json:"interrupted"`
			Original    string `json:"original"`
		} `json:"metadata"`
	} `json:"contents"`
}

// describe gives the event in one line.
func describe(e webhook.Envelope) string {
	p, err := read(e)
	if err != nil {
		return fmt.Sprintf("%d with a payload that cannot be read: %s", e.EventType, clean(err.Error()))
	}
	what := "event"
	switch e.EventType {
	case webhook.TypeJoined:
		what = "joined"
	case webhook.TypeLeft:
		what = "left: " + p.Status + ", " + p.Message
	case webhook.TypeHistory:
		what = fmt.Sprintf("history: %d messages", len(p.Contents))
	case webhook.TypeTurns:
		what = fmt.Sprintf("turns: %d", p.TotalTurnCount)
	case webhook.TypeError:
		what = "error"
		for _, f := range p.Errors {
			what += fmt.Sprintf(": %s %d %s", f.Module, f.Code, f.Message)
		}
	}
	return clean(fmt.Sprintf("%d agent %s %q %s", e.EventType, p.AgentID, p.Name, what))
}

// conversation gives the messages of a history event, one a line; nothing for other types.
func conversation(e webhook.Envelope) string {
	p, err := read(e)
	if err != nil || e.EventType != webhook.TypeHistory {
		return ""
	}
	var b strings.Builder
	for _, m := range p.Contents {
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

func read(e webhook.Envelope) (payload, error) {
	var p payload
	err := json.Unmarshal(e.Payload, &p)
	return p, err
}

// clean takes line breaks and control characters out of what others wrote, before a terminal sees it.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, s)
}
