package webhook

import (
	"encoding/json"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// This file holds what all stores of a Log share.

// storedDetail is a Detail as it is stored.
type storedDetail struct {
	ConnectMS   int64       `json:"connect_ms,omitempty"`
	TLSMS       int64       `json:"tls_ms,omitempty"`
	FirstByteMS int64       `json:"first_byte_ms,omitempty"`
	Headers     [][2]string `json:"headers,omitempty"`
	Thin        bool        `json:"thin,omitempty"`
}

// EncodeDetail returns the stored form of a detail, "" for an empty one.
func EncodeDetail(d Detail) (string, error) {
	out := storedDetail{ConnectMS: d.ConnectMS, TLSMS: d.TLSMS, FirstByteMS: d.FirstByteMS, Thin: d.Thin}
	for _, h := range d.Headers {
		out.Headers = append(out.Headers, [2]string{h.Name, h.Value})
	}
	b, err := json.Marshal(out)
	if string(b) == "{}" {
		return "", err
	}
	return string(b), err
}

// DecodeDetail reads what EncodeDetail wrote.
func DecodeDetail(s string) (Detail, error) {
	if s == "" {
		return Detail{}, nil
	}
	var in storedDetail
	err := json.Unmarshal([]byte(s), &in)
	d := Detail{ConnectMS: in.ConnectMS, TLSMS: in.TLSMS, FirstByteMS: in.FirstByteMS, Thin: in.Thin}
	for _, h := range in.Headers {
		d.Headers = append(d.Headers, HeaderLine{Name: h[0], Value: h[1]})
	}
	return d, err
}

// ScanRows is how many rows a list reads at a time.
const ScanRows = 256

// Walk collects a page of a list. read returns the next ScanRows rows after a place; fewer are the
// last ones. Walk keeps those that keep accepts and returns the cursor of the next page. It ends
// early, with a cursor, after MaxScan rows.
func Walk[T any](limit int, at Cursor, read func(at Cursor) ([]T, error), keep func(T) bool, place func(T) Cursor) ([]T, string, error) {
	limit = min(max(limit, 1), MaxPage)
	var out []T
	for scanned := 0; ; {
		rows, err := read(at)
		if err != nil {
			return nil, "", err
		}
		for _, r := range rows {
			at = place(r)
			if !keep(r) {
				continue
			}
			if len(out) == limit { // there is a next page, and this is its first row
				return out, place(out[limit-1]).String(), nil
			}
			out = append(out, r)
		}
		scanned += len(rows)
		switch {
		case len(rows) < ScanRows:
			return out, "", nil
		case scanned >= MaxScan:
			return out, at.String(), nil
		}
	}
}

// storedReplay is a Replay as it is stored, without its time and name.
type storedReplay struct {
	Filter    DeliveryQuery `json:"filter"`
	PerSecond float64       `json:"per_second,omitempty"`
}

// EncodeReplay returns the stored form of a replay's request. Two requests of one name must have
// the same form: see SameReplay.
func EncodeReplay(r Replay) (string, error) {
	r.Filter.Limit, r.Filter.Cursor = 0, ""
	b, err := json.Marshal(storedReplay{r.Filter, r.PerSecond})
	return string(b), err
}

// DecodeReplay reads what EncodeReplay wrote.
func DecodeReplay(s string) (Replay, error) {
	var in storedReplay
	err := json.Unmarshal([]byte(s), &in)
	return Replay{Filter: in.Filter, PerSecond: in.PerSecond}, err
}

// SameReplay fails with fault.Conflict if the name of a stored request is used for another one.
func SameReplay(stored, request string) error {
	if stored != request {
		return fault.At(fault.Conflict, "Idempotency-Key", "was used for another replay")
	}
	return nil
}

// DueMS returns when a replay's delivery is due that comes after made others, at the replay's pace.
func (r Replay) DueMS(nowMS, made int64) int64 {
	if r.PerSecond > 0 {
		nowMS += int64(float64(made) / r.PerSecond * float64(time.Second/time.Millisecond))
	}
	return nowMS
}
