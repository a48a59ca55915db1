package memory

import (
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// maxSystem limits the system messages of an agent together, with their variables filled in, in
// bytes.
const maxSystem = 1 << 20

// Fill puts the template variables into a text.
func (l LLMSettings) Fill(text string) string { return FillTemplate(text, l.Variables) }

// FillTemplate replaces each {{name}} with its value, in one pass: values are not expanded again. A
// name without a value stays as it is.
func FillTemplate(text string, vars map[string]string) string {
	if len(vars) == 0 || !strings.Contains(text, "{{") {
		return text
	}
	var b strings.Builder
	eachPiece(text, vars, func(piece string) { b.WriteString(piece) })
	return b.String()
}

// filledLen returns the length of FillTemplate's result without making it.
func filledLen(text string, vars map[string]string) int {
	n := 0
	eachPiece(text, vars, func(piece string) { n += len(piece) })
	return n
}

// eachPiece calls put with the pieces of a filled template in order.
func eachPiece(text string, vars map[string]string, put func(string)) {
	for {
		open := strings.Index(text, "{{")
		if open < 0 {
			break
		}
		end := strings.Index(text[open:], "}}")
		if end < 0 {
			break
		}
		end += open
		v, ok := vars[strings.TrimSpace(text[open+2:end])]
		if !ok { // search again after these braces: "{{{{name}}"
			put(text[:open+2])
			text = text[open+2:]
			continue
		}
		put(text[:open])
		put(v)
		text = text[end+2:]
	}
	put(text)
}

// checkTemplates refuses settings whose texts are too long with their variables filled in: a short
// text can name a long value many times.
func (s Settings) checkTemplates() error {
	l := s.LLM
	for _, t := range []struct{ field, text string }{
		{"properties.llm.greeting_message", l.Greeting},
		{"properties.llm.failure_message", l.FailureMessage},
		{"properties.parameters.silence_config.content", s.Silence.Content},
	} {
		if n := filledLen(t.text, l.Variables); n > MaxText {
			return fault.At(fault.Invalid, t.field, "is %d bytes long with its variables filled in; at most %d are allowed", n, MaxText)
		}
	}
	total := 0
	for _, m := range l.SystemMessages {
		total += filledLen(string(m), l.Variables)
	}
	if total > maxSystem {
		return fault.At(fault.Invalid, "properties.llm.system_messages", "are %d bytes long with their variables filled in; at most %d are allowed", total, maxSystem)
	}
	return nil
}
