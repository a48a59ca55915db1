package handlers

import (
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// shownTime returns a time in Unix ms as answers show it, and "" for 0.
func shownTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// timeMS is a time in Unix ms that answers show as shownTime does.
type timeMS int64

// MarshalJSON implements json.Marshaler.
func (t timeMS) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, shownTime(int64(t))), nil
}

// timeOf reads a time of a request in Unix ms, "" as 0.
func timeOf(field, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.UnixMilli() <= 0 {
		return 0, fault.At(fault.Invalid, field, "must be a time since 1970 such as 2026-11-23T09:00:00Z, not %q", text.Clip(s, 40))
	}
	return t.UnixMilli(), nil
}

// milliseconds returns how long something took, with three decimals.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
