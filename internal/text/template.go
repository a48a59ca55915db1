package text

import (
	"strings"
)

// Fill replaces each {{name}} with its value, in one pass: values are not expanded again. A
// name without a value stays as it is.
func Fill(text string, vars map[string]string) string {
	if len(vars) == 0 || !strings.Contains(text, "{{") {
		return text
	}
	var b strings.Builder
	eachPiece(text, vars, func(piece string) { b.WriteString(piece) })
	return b.String()
}

// FilledLen returns the length of Fill's result without making it.
func FilledLen(text string, vars map[string]string) int {
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
