package turn

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// timingHeader reports to a client where the time of its call went.
const timingHeader = "Server-Timing"

// timing holds the times of one call.
type timing struct {
	arrived time.Time
	begun   time.Time // the turn began: its messages are written and its context is loaded
	asked   time.Time // the request went upstream, for the first time
	// first is when the first byte of the response's body arrived, in ns after arrived, or 0; bytes
	// is how many bytes arrived. A client that leaves makes another goroutine read them.
	first, bytes atomic.Int64
}

// set sets Server-Timing in the headers of a response that has not begun, unless the turn has not
// begun either. All durations are in ms: proxy is the time until the request went upstream; memory
// is the part of it that the memory took (waiting for the disk is not in it, since the upstream is
// asked meanwhile); upstream_ttfb is the time from then until the first byte of the response,
// failed attempts included.
func (t *timing) set(h http.Header) {
	if t.begun.IsZero() {
		return
	}
	text := make([]byte, 0, 80)
	if !t.asked.IsZero() {
		text = append(appendMS(append(text, "proxy;dur="...), t.asked.Sub(t.arrived)), ", "...)
	}
	text = appendMS(append(text, "memory;dur="...), t.begun.Sub(t.arrived))
	if !t.asked.IsZero() && t.first.Load() > 0 {
		text = appendMS(append(text, ", upstream_ttfb;dur="...), t.upstream())
	}
	h[timingHeader] = []string{string(text)}
}

// upstream returns the time from the request to the first byte. first must be set.
func (t *timing) upstream() time.Duration {
	return max(0, time.Duration(t.first.Load())-t.asked.Sub(t.arrived))
}

// appendMS appends a duration in ms, to the microsecond.
func appendMS(dst []byte, d time.Duration) []byte {
	return strconv.AppendFloat(dst, float64(d.Microseconds())/1000, 'f', -1, 64)
}

// firstMS returns when the first byte arrived, in ms after the call, at least 1, or 0.
func (t *timing) firstMS() int64 {
	if t.first.Load() == 0 {
		return 0
	}
	return max(1, time.Duration(t.first.Load()).Milliseconds())
}

// meter reads a response's body, counts its bytes, and notes when the first arrived. It cancels the
// call when too much was read of it without a client.
type meter struct {
	io.ReadCloser
	x       *exchange
	drained int64
}

func (x *exchange) newMeter(body io.ReadCloser) io.ReadCloser { return &meter{ReadCloser: body, x: x} }

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if n > 0 && m.x.bytes.Add(int64(n)) == int64(n) {
		m.x.first.Store(max(1, int64(m.x.cfg.Now().Sub(m.x.arrived))))
	}
	if m.x.answer.isDrained() {
		if m.drained += int64(n); m.drained > m.x.cfg.Drain.Bytes {
			m.x.cancel(errDrained)
		}
	}
	return n, err
}
