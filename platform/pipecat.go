package platform

import (
	"math"
	"strings"

	"github.com/tidwall/gjson"
)

// botSpeech reads the account of heardlog's Python package of one answer: how much of its audio was
// played, and which words that was.
func botSpeech(row gjson.Result, _ []gjson.Result, _ int, e *Evidence) bool {
	if e.HeardMS == nil {
		return false
	}
	ended := wordsUntil(e.Words, *e.HeardMS)
	e.Estimated = row.Get("data.estimated").Bool()
	switch row.Get("data.status").String() {
	case "completed":
		e.Full, e.Generated, e.AtMS = true, wordsUntil(e.Words, math.MaxInt64), 0
	case "interrupted":
		e.Cut, e.By = true, causedBy(row.Get("data.caused_by").String())
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
