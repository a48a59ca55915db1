package webhook

import (
	"crypto/tls"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// phase is how far an attempt has come, so that an error can be classified by what was being done
// rather than by its text.
type phase int32

const (
	dialing phase = iota
	handshaking
	connected
	written
	answered
)

// progress keeps the farthest phase, and when each step began, in ns since the start of the
// attempt. The transport calls its hooks from its own goroutines, possibly after the attempt has
// ended.
type progress struct {
	at    atomic.Int32
	began time.Time

	handshake, secured, ready, wroteAt, firstByte atomic.Int64
}

func (p *progress) reach(to phase) {
	for {
		old := p.at.Load()
		if old >= int32(to) || p.at.CompareAndSwap(old, int32(to)) {
			return
		}
	}
}

func (p *progress) phase() phase { return phase(p.at.Load()) }

// mark notes the time of a step, the first one where it happens again.
func (p *progress) mark(step *atomic.Int64) {
	step.CompareAndSwap(0, max(int64(time.Since(p.began)), 1))
}

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		TLSHandshakeStart: func() { p.mark(&p.handshake); p.reach(handshaking) },
		TLSHandshakeDone:  func(tls.ConnectionState, error) { p.mark(&p.secured) },
		GotConn: func(c httptrace.GotConnInfo) {
			if !c.Reused {
				p.mark(&p.ready)
			}
			p.reach(connected)
		},
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				p.mark(&p.wroteAt)
				p.reach(written)
			}
		},
		GotFirstResponseByte: func() { p.mark(&p.firstByte); p.reach(answered) },
	}
}

// steps sets the durations of the steps that were reached.
func (p *progress) steps(d *Detail) {
	ms := func(from, to int64) int64 {
		if to == 0 || to < from {
			return 0
		}
		return (to - from) / int64(time.Millisecond)
	}
	made := p.handshake.Load()
	if made == 0 {
		made = p.ready.Load()
	}
	d.ConnectMS = ms(0, made)
	if p.handshake.Load() > 0 {
		d.TLSMS = ms(p.handshake.Load(), p.secured.Load())
	}
	if p.wroteAt.Load() > 0 {
		d.FirstByteMS = ms(p.wroteAt.Load(), p.firstByte.Load())
	}
}

// maxHeaderLines bounds what is kept of an answer's headers, beside MaxHeaders.
const maxHeaderLines = 64

// headersOf returns the headers of an answer for the log, ordered by name. Values that may hold a
// secret, even the receiver's own, are left out; headers that are too long are left out entirely.
func headersOf(h http.Header) []HeaderLine {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []HeaderLine
	size := 0
	for _, name := range names {
		for _, v := range h[name] {
			if hidden(name) {
				v = "[hidden]"
			}
			line := HeaderLine{Name: name, Value: strings.ToValidUTF8(v, "\uFFFD")}
			n := len(line.Name) + len(line.Value)
			if size+n > MaxHeaders || len(out) == maxHeaderLines {
				continue
			}
			size += n
			out = append(out, line)
		}
	}
	return out
}

// hidden reports whether the value of a response header may be a secret, judged by its name.
func hidden(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"cookie", "auth", "token", "secret", "key", "session", "signature", "password", "location"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
