package platform

import (
	"math"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// botSpeech reads the account of heardlog's Python package of one answer: how much of its audio was
// played, and which words that was.
func botSpeech(row peek.Value, _ []peek.Value, _ int, e *Evidence) bool {
	if e.HeardMS == nil {
		return false
	}
	ended := wordsUntil(e.Words, *e.HeardMS)
	e.Estimated = row.Path("data.estimated").Bool()
	switch row.Path("data.status").Text() {
	case "completed":
		e.Full, e.Generated, e.AtMS = true, wordsUntil(e.Words, math.MaxInt64), 0
	case "interrupted":
		e.Cut, e.By = true, causedBy(row.Path("data.caused_by").Text())
		if *e.HeardMS == 0 { // that needs no estimate
			e.Heard, e.Words, e.HeardMS = &ended, nil, nil
		}
	case "speaking":
		e.Playing, e.Heard, e.Words, e.HeardMS, e.AtMS = true, &ended, nil, nil, 0
		return ended != ""
	default:
		return false
	}
	return true
}

// wordsUntil returns the words that had ended by ms.
func wordsUntil(words []Word, ms int64) string {
	var out []string
	for _, w := range words {
		if w.EndMS > ms {
			break
		}
		out = append(out, w.Text)
	}
	return strings.Join(out, " ")
}
