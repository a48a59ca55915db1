package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// The time limits of an attempt (reference/webhooks.md section 1).
const (
	DialTimeout   = 5 * time.Second  // name lookup and connection
	TLSTimeout    = 5 * time.Second  // handshake
	HeaderTimeout = 15 * time.Second // from the end of our request to the end of the answer's headers
	TotalTimeout  = 20 * time.Second // everything, the answer's body included
)

// leaseSlack is what a claim lasts beyond the attempt: time to store the result.
const leaseSlack = 10 * time.Second

// maxHeaderBytes bounds the answer's headers.
const maxHeaderBytes = 64 << 10

// SenderConfig is what a Sender needs.
type SenderConfig struct {
	// Dial makes connections. It must refuse addresses that may not be called, with an error that carries fault.Forbidden:
	// nothing else here looks at addresses. Required.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// CheckURL, if set, judges an endpoint's URL before each attempt, beside the sender's own check. Its text is shown to the operator.
	CheckURL func(raw string) error
	// TLS holds root certificates and the like; nil trusts the system's.
	TLS *tls.Config
	// Now gives the time for signatures; nil is time.Now.
	Now func() time.Time
	// UserAgent is sent with each attempt; empty is "Heardlog-Webhook/1".
	UserAgent string
	// Thin makes the small events for endpoints that want them, and for bodies that are longer than an endpoint takes; nil sends every body whole.
	Thin *Thin
	// Total bounds an attempt, and so every step of it; 0 is TotalTimeout.
	Total time.Duration
}

// Sender makes attempts. It never follows a redirect, uses no proxy, keeps no cookies, and reads a bounded part of an answer.
// It is safe for concurrent use.
type Sender struct {
	c         SenderConfig
	transport *http.Transport
}

// NewSender makes a sender. It fails with fault.Missing without Dial.
func NewSender(c SenderConfig) (*Sender, error) {
	if c.Dial == nil {
		return nil, fault.New(fault.Missing, "webhook sender: Dial is missing")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.UserAgent == "" {
		c.UserAgent = "Heardlog-Webhook/1"
	}
	if c.Total <= 0 {
		c.Total = TotalTimeout
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, min(DialTimeout, c.Total))
		defer cancel()
		return c.Dial(ctx, network, addr)
	}
	return &Sender{c: c, transport: &http.Transport{
		Proxy:                  nil, // a proxy would hide the receiver's address from the guard
		DialContext:            dial,
		TLSClientConfig:        c.TLS.Clone(),
		TLSHandshakeTimeout:    min(TLSTimeout, c.Total),
		ResponseHeaderTimeout:  min(HeaderTimeout, c.Total),
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true, // what is kept of an answer is kept as it came; nothing is unpacked
		MaxIdleConns:           128,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
	}}, nil
}

// Lease is how long a claim must last for one attempt: derived from the limits, so that nobody can set it below them and have
// an event sent twice at once (reference/webhooks.md section 3, operations).
func (s *Sender) Lease() time.Duration { return s.c.Total + leaseSlack }

// Close closes idle connections.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Outcome is how one attempt went.
type Outcome struct {
	Attempt
	// RetryAfter is the receiver's wish, 0 if it has none.
	RetryAfter time.Duration
	// Stop is the receiver's webhook-delivery header where it is StopMessage or StopEndpoint.
	Stop string
	// Cause is the error behind ErrorClass, for tests and errors.Is; it may quote the receiver and belongs in no log. Nil for a status.
	Cause error
}

// The values of a receiver's webhook-delivery header that Heardlog heeds.
const (
	StopMessage  = "abort-message" // do not send this event again
	StopEndpoint = "disable"       // do not send anything again
)

// OK tells whether the receiver took the event: any 2xx. The status decides, and not the body after it: a receiver that
// said 200 has the event, and sending it again because its body came too slowly would help nobody.
func (o Outcome) OK() bool { return o.ErrorClass == "" }

// Send makes one attempt at the delivery and says how it went; it never fails otherwise. It takes at most the total time limit.
func (s *Sender) Send(ctx context.Context, d Delivery) Outcome {
	started := time.Now() // monotonic, unlike the injected clock
	out := Outcome{Attempt: Attempt{N: d.Attempt, StartedMS: s.c.Now().UnixMilli()}}
	ctx, cancel := context.WithTimeout(ctx, s.c.Total)
	defer cancel()
	s.send(ctx, d, &out)
	out.hideSecrets(&d.Endpoint)
	out.DurationMS = time.Since(started).Milliseconds()
	return out
}

func (s *Sender) send(ctx context.Context, d Delivery, out *Outcome) {
	if s.c.Thin != nil && s.c.Thin.Wanted(d) {
		body, err := s.c.Thin.Body(d)
		if err != nil {
			out.ErrorClass, out.Error, out.Cause = ClassBroken, shown(err), err
			return
		}
		d.Body, out.Detail.Thin = body, true
	}
	req, class, err := s.request(ctx, d)
	if err != nil {
		out.ErrorClass, out.Error, out.Cause = class, shown(err), err
		return
	}
	var p progress
	resp, err := s.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, p.trace())))
	if err != nil {
		out.Cause = err
		if errors.Is(ctx.Err(), context.Canceled) {
			out.ErrorClass, out.Error = ClassCanceled, "the server went down during the attempt"
			return
		}
		out.ErrorClass, out.Error = classify(err, p.phase(), ctx.Err() != nil)
		return
	}
	defer resp.Body.Close()
	out.Status = resp.StatusCode
	out.RetryAfter = retryAfter(resp, s.c.Now())
	if v := strings.ToLower(strings.TrimSpace(resp.Header.Get("webhook-delivery"))); v == StopMessage || v == StopEndpoint {
		out.Stop = v
	}
	if resp.StatusCode != http.StatusSwitchingProtocols { // there the body is the connection and has no end
		out.Response, out.Truncated = readSome(resp.Body)
	}
	if resp.StatusCode/100 != 2 {
		out.ErrorClass = statusClass(resp.StatusCode)
		out.Error = statusText(resp)
	}
}

// request makes the signed request of one attempt, or gives the class of what is wrong with the endpoint or the delivery.
func (s *Sender) request(ctx context.Context, d Delivery) (*http.Request, string, error) {
	if err := checkID(d.EventID); err != nil {
		return nil, ClassBroken, err
	}
	if len(d.Body) == 0 {
		return nil, ClassBroken, fault.New(fault.Invalid, "the event's body is empty")
	}
	if s.c.CheckURL != nil {
		if err := s.c.CheckURL(d.Endpoint.URL); err != nil {
			if fault.Is(err, fault.Forbidden) { // an address, refused before it is dialled
				return nil, ClassBlocked, err
			}
			return nil, ClassEndpoint, err
		}
	}
	u, err := url.Parse(d.Endpoint.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil {
		return nil, ClassEndpoint, fault.New(fault.Invalid, "the endpoint's URL is not an http or https URL with a host and without user name")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Endpoint.URL, bytes.NewReader(d.Body))
	if err != nil {
		return nil, ClassEndpoint, fault.New(fault.Invalid, "no request can be made from the endpoint's URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", s.c.UserAgent)
	// An empty list is not sent, but tells the transport that it may send again on a new connection when the receiver had
	// closed the kept one just then; otherwise that common race would cost an attempt. Receivers de-duplicate anyway.
	req.Header["X-Idempotency-Key"] = []string{}
	if err := sign(req.Header, d, s.c.Now()); err != nil {
		return nil, ClassEndpoint, err
	}
	return req, "", nil
}

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		TLSHandshakeStart:    func() { p.reach(handshaking) },
		GotConn:              func(httptrace.GotConnInfo) { p.reach(connected) },
		WroteRequest:         func(i httptrace.WroteRequestInfo) { p.wrote(i.Err) },
		GotFirstResponseByte: func() { p.reach(answered) },
	}
}

func (p *progress) wrote(err error) {
	if err == nil {
		p.reach(written)
	}
}

// readSome reads at most MaxResponse bytes and tells whether there was, or may have been, more.
func readSome(body io.Reader) ([]byte, bool) {
	b, err := io.ReadAll(io.LimitReader(body, MaxResponse+1))
	if len(b) > MaxResponse {
		return b[:MaxResponse:MaxResponse], true
	}
	return b, err != nil
}

// statusText says what to do about a status; "" where the number says it all.
func statusText(resp *http.Response) string {
	text := fmt.Sprintf("the receiver answered %d", resp.StatusCode)
	if name := http.StatusText(resp.StatusCode); name != "" {
		text += " " + name
	}
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		text += "; redirects are not followed"
		if resp.StatusCode == http.StatusMovedPermanently || resp.StatusCode == http.StatusPermanentRedirect {
			text += ": update the endpoint's URL"
			if to := ShowURL(resp.Header.Get("Location")); to != "" {
				text += " to " + to
			}
		}
	case http.StatusGone:
		text += ": the endpoint is switched off"
	case http.StatusRequestEntityTooLarge:
		text += ": raise the receiver's limit for bodies"
	case http.StatusUnauthorized, http.StatusForbidden:
		text += ": does the receiver have the right secret?"
	}
	return text
}

// shown gives the part of an error that may be shown.
func shown(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Msg
	}
	return "the endpoint cannot be used"
}

// maxShownURL bounds a URL in texts, in bytes.
const maxShownURL = 300

// ShowURL gives a URL for logs and texts: scheme, host and path, without user name, password, query and fragment, where
// secrets stand. What is no absolute URL is "".
func ShowURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	s := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if len(s) > maxShownURL {
		s = s[:maxShownURL] + "…"
	}
	return s
}
