package webhook

import (
	"encoding/json"
	"math"
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
	Signed      [][2]string `json:"signed,omitempty"`
	Thin        bool        `json:"thin,omitempty"`
}

// EncodeDetail returns the stored form of a detail, "" for an empty one.
func EncodeDetail(d Detail) (string, error) {
	out := storedDetail{ConnectMS: d.ConnectMS, TLSMS: d.TLSMS, FirstByteMS: d.FirstByteMS, Thin: d.Thin}
	for _, h := range d.Headers {
		out.Headers = append(out.Headers, [2]string{h.Name, h.Value})
	}
	for _, h := range d.Signed {
		out.Signed = append(out.Signed, [2]string{h.Name, h.Value})
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
	for _, h := range in.Signed {
		d.Signed = append(d.Signed, HeaderLine{Name: h[0], Value: h[1]})
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

// EncodeReplay returns the stored form of a replay's request. Two requests of one name must have
// the same form: see SameReplay.
func EncodeReplay(r Replay) (string, error) {
	r.Filter.Limit, r.Filter.Cursor = 0, ""
	b, err := json.Marshal(r)
	return string(b), err
}

// DecodeReplay reads what EncodeReplay wrote.
func DecodeReplay(s string) (r Replay, err error) {
	err = json.Unmarshal([]byte(s), &r)
	return r, err
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

// ReplayJob is how far a replay has come. It goes through the selected deliveries in slices, newest
// first. A store keeps the job with what a slice made, in one transaction, so that a replay can be
// continued and makes no delivery twice.
type ReplayJob struct {
	NowMS int64
	Upto  int64  // newest delivery that there was at the beginning
	At    Cursor // place of the last delivery it has passed
	Made  int64
	More  bool // it stopped at MaxReplay, in front of ToMS
	ToMS  int64
	Done  bool
}

// NewReplayJob returns a job at its beginning.
func NewReplayJob(nowMS, upto int64) ReplayJob {
	return ReplayJob{NowMS: nowMS, Upto: upto, At: Cursor{MS: 1<<63 - 1, ID: 1<<63 - 1}}
}

// Result returns what a job has done.
func (j *ReplayJob) Result() Replayed {
	return Replayed{Count: int(j.Made), More: j.More, ToMS: j.ToMS}
}

// ReplaySlice advances a job over the deliveries that follow j.At; last says that no more come
// after them. For each one that usable accepts it calls add with the time at which the new delivery
// is due. usable refuses deliveries whose event or endpoint is gone, and those of an event and
// endpoint that the job has repeated already.
func ReplaySlice[T any](j *ReplayJob, r Replay, rows []T, last bool, place func(T) Cursor, usable func(T) (bool, error), add func(T, int64) error) error {
	for _, row := range rows {
		ok, err := usable(row)
		if err != nil {
			return err
		}
		if ok && j.Made == MaxReplay {
			j.More, j.ToMS, j.Done = true, place(row).MS+1, true
			return nil
		}
		j.At = place(row)
		if !ok {
			continue
		}
		if err := add(row, r.DueMS(j.NowMS, j.Made)); err != nil {
			return err
		}
		j.Made++
	}
	j.Done = last
	return nil
}

// CountReplay returns what a replay would make. page reads the next deliveries of a job and reports
// whether they are the last. usable refuses deliveries whose event or endpoint is gone. Deliveries
// of one pair, the event and the endpoint, count once.
func CountReplay[T any, Pair comparable](r Replay, page func(*ReplayJob) (rows []T, last bool, err error), place func(T) Cursor, usable func(T) bool, pair func(T) Pair) (Replayed, error) {
	j, seen := NewReplayJob(r.NowMS, math.MaxInt64), map[Pair]bool{}
	for !j.Done {
		rows, last, err := page(&j)
		if err != nil {
			return Replayed{}, err
		}
		err = ReplaySlice(&j, r, rows, last, place,
			func(row T) (bool, error) { return usable(row) && !seen[pair(row)], nil },
			func(row T, _ int64) error { seen[pair(row)] = true; return nil })
		if err != nil {
			return Replayed{}, err
		}
	}
	return j.Result(), nil
}
