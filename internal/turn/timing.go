package turn

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// timingHeader tells a client where the time of its call went (reference/platforms.md section 4).
const timingHeader = "Server-Timing"

// timing is what is measured of one call beside its words.
type timing struct {
	arrived time.Time
	begun   time.Time // the call's words were written and its context at hand
	asked   time.Time // the request went upstream, for the first time
	// first is when the first byte of an answer's body came, in ns after arrived, 0 while none has; bytes is how many came. A client that leaves
	// makes another goroutine read them.
	first, bytes atomic.Int64
}

// header gives the value of Server-Timing; "" before the turn has begun. In ms: proxy is all that passed here before the request went upstream, memory
// the part of it that writing and looking up took (the disk's is in the wait for the upstream), upstream_ttfb the wait from then on for the first byte of the answer, tries that failed included.
func (t *timing) header() string {
	if t.begun.IsZero() {
		return ""
	}
	var buf [96]byte
	b := buf[:0]
	if !t.asked.IsZero() {
		b = append(appendDur(append(b, "proxy;dur="...), t.asked.Sub(t.arrived)), ", "...)
	}
	b = appendDur(append(b, "memory;dur="...), t.begun.Sub(t.arrived))
	if first := t.first.Load(); first > 0 && !t.asked.IsZero() {
		b = appendDur(append(b, ", upstream_ttfb;dur="...), t.upstream())
	}
	return string(b)
}

// upstream gives how long the upstream took to its first byte; first is set.
func (t *timing) upstream() time.Duration {
	return max(0, time.Duration(t.first.Load())-t.asked.Sub(t.arrived))
}

// appendDur appends a duration in ms, to the microsecond.
func appendDur(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds())/1000, 'f', -1, 64)
}

// set puts the header on an answer that has not begun.
func (t *timing) set(h http.Header) {
	if v := t.header(); v != "" {
		h[timingHeader] = []string{v}
	}
}

// firstMS gives when the first byte came, in ms after the arrival, at least 1; 0 if none has.
func (t *timing) firstMS() int64 {
	first := t.first.Load()
	if first == 0 {
		return 0
	}
	return max(1, time.Duration(first).Milliseconds())
}

// meter reads an upstream's answer and notes how much of it came, and when the first of it.
type meter struct {
	io.ReadCloser
	t   *timing
	now func() time.Time
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 && m.t.bytes.Add(int64(n)) == int64(n) {
		m.t.first.Store(max(1, int64(m.now().Sub(m.t.arrived))))
	}
	return n, err
}
