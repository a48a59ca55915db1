package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// The time limits of an attempt.
const (
	DialTimeout = 5 * time.Second // name lookup and connection
	TLSTimeout  = 5 * time.Second // handshake
	// From the end of the request to the end of the answer's headers.
	HeaderTimeout = 15 * time.Second
	TotalTimeout  = 20 * time.Second // everything, the answer's body included
)

// leaseSlack is what a claim lasts beyond the attempt: time to store the result.
const leaseSlack = 10 * time.Second

// maxHeaderBytes bounds the answer's headers.
const maxHeaderBytes = 64 << 10

// SenderConfig is what a Sender needs.
type SenderConfig struct {
	// Dial opens connections. It must refuse addresses that may not be called, with an error that
	// wraps fault.Forbidden; no other code checks addresses. Required.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// CheckURL, if set, checks an endpoint's URL before each attempt, in addition to the sender's
	// own check. Its text is shown to the operator.
	CheckURL func(raw string) error
	// TLS holds root certificates and the like; nil trusts the system's.
	TLS *tls.Config
	// Now returns the time for signatures; nil means time.Now.
	Now func() time.Time
	// Thin makes thin events for endpoints that want them, and for bodies that are over an
	// endpoint's limit. If it is nil, every body is sent whole.
	Thin *Thin
	// Total bounds an attempt, and thus every step of it; 0 means TotalTimeout. An endpoint's own
	// timeout may be shorter.
	Total time.Duration
	// Proxy is a forward proxy for all attempts: http, https or socks5. Dial then gets only the
	// proxy's address, and the proxy has to keep receivers' addresses in bounds. nil means no
	// proxy; the environment is ignored.
	Proxy *url.URL
	// Body returns the body of a delivery's event that came without one, because it is in an
	// archive. If it is nil, such a delivery is broken.
	Body func(ctx context.Context, d Delivery) ([]byte, error)
}

// Sender makes attempts. It never follows a redirect, uses no proxy but the configured one, keeps
// no cookies, and reads a bounded part of an answer. It is safe for concurrent use.
type Sender struct {
	c         SenderConfig
	transport *http.Transport

	mu        sync.Mutex
	certified map[[32]byte]*http.Transport // by client certificate and key
}

// NewSender makes a sender. It fails with fault.Missing without Dial.
func NewSender(c SenderConfig) (*Sender, error) {
	if c.Dial == nil {
		return nil, fault.New(fault.Missing, "webhook sender: Dial is missing")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Total <= 0 {
		c.Total = TotalTimeout
	}
	s := &Sender{c: c, certified: map[[32]byte]*http.Transport{}}
	s.transport = s.newTransport(c.TLS.Clone())
	return s, nil
}

func (s *Sender) newTransport(config *tls.Config) *http.Transport {
	c := s.c
	proxy := http.ProxyURL(c.Proxy)
	if c.Proxy == nil {
		proxy = nil // a proxy would hide the receiver's address from the guard
	}
	return &http.Transport{
		Proxy: proxy,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
			if res.StatusCode != http.StatusOK {
				return &proxyRefusal{res.StatusCode}
			}
			return nil
		},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, min(DialTimeout, c.Total))
			defer cancel()
			return c.Dial(ctx, network, addr)
		},
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    min(TLSTimeout, c.Total),
		ResponseHeaderTimeout:  min(HeaderTimeout, c.Total),
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true, // answers are kept as they came, so nothing is decompressed
		MaxIdleConns:           128,
		// As many as there are attempts, for receivers behind one address.
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     30 * time.Second,
	}
}

// maxCertified bounds how many transports are kept for client certificates; past it all are
// dropped.
const maxCertified = 64

// transportOf returns the transport of the endpoint. Connections that presented one client
// certificate must not carry another endpoint's events.
func (s *Sender) transportOf(c ClientCert) (*http.Transport, error) {
	if c.Zero() {
		return s.transport, nil
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s%s", len(c.Cert), c.Cert, c.Key.Reveal())
	key := [32]byte(h.Sum(nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.certified[key]; t != nil {
		return t, nil
	}
	pair, err := tls.X509KeyPair([]byte(c.Cert), []byte(c.Key.Reveal()))
	if err != nil {
		return nil, fault.New(fault.Invalid, "the endpoint's client certificate and key cannot be used")
	}
	if len(s.certified) >= maxCertified {
		for _, t := range s.certified {
			t.CloseIdleConnections()
		}
		clear(s.certified)
	}
	config := s.c.TLS.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	config.Certificates = []tls.Certificate{pair}
	t := s.newTransport(config)
	s.certified[key] = t
	return t, nil
}

// Lease returns how long a claim must last for one attempt. It is derived from the limits, so that
// no setting can make it shorter than an attempt, which would send an event twice at once.
func (s *Sender) Lease() time.Duration { return s.c.Total + leaseSlack }

// Close closes idle connections.
func (s *Sender) Close() {
	s.transport.CloseIdleConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.certified {
		t.CloseIdleConnections()
	}
}

// Outcome is how one attempt went.
type Outcome struct {
	Attempt
	// RetryAfter is the receiver's wish, 0 if it has none.
	RetryAfter time.Duration
	// Stop is the receiver's webhook-delivery header where it is StopMessage or StopEndpoint.
	Stop string
}

// The values of a receiver's webhook-delivery header that Heardlog heeds.
const (
	StopMessage  = "abort-message" // do not send this event again
	StopEndpoint = "disable"       // do not send anything again
)

// OK reports whether the receiver accepted the event: any 2xx status. The body does not count: a
// receiver that answered 200 has the event, and sending it again because its body was slow would
// not help.
func (o Outcome) OK() bool { return o.ErrorClass == "" }

// Send makes one attempt at the delivery and returns its outcome; every failure is an outcome too.
// It takes at most the total time limit, or the endpoint's own.
func (s *Sender) Send(ctx context.Context, d Delivery) Outcome {
	started := time.Now() // monotonic, unlike the injected clock
	out := Outcome{Attempt: Attempt{N: d.Attempt, StartedMS: s.c.Now().UnixMilli()}}
	total := s.c.Total
	if own := d.Endpoint.Timeout; own > 0 {
		total = min(total, own) // never more: the claim's lease is made of it
	}
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	s.send(ctx, d, &out)
	out.hideSecrets(&d.Endpoint)
	out.DurationMS = time.Since(started).Milliseconds()
	return out
}

func (s *Sender) send(ctx context.Context, d Delivery, out *Outcome) {
	if len(d.Body) == 0 && s.c.Body != nil {
		body, err := s.c.Body(ctx, d)
		if err != nil {
			out.ErrorClass, out.Error = ClassArchive, shown(err)
			return
		}
		d.Body = body
	}
	if s.c.Thin != nil && s.c.Thin.Wanted(d) {
		body, err := s.c.Thin.Body(d, s.c.Now())
		if err != nil {
			out.ErrorClass, out.Error = ClassBroken, shown(err)
			return
		}
		d.Body, out.Detail.Thin = body, true
	}
	req, class, err := s.request(ctx, d)
	if err != nil {
		out.ErrorClass, out.Error = class, shown(err)
		return
	}
	out.Detail.Signed = signatures(req.Header)
	transport, err := s.transportOf(d.Endpoint.ClientCert)
	if err != nil {
		out.ErrorClass, out.Error = ClassEndpoint, shown(err)
		return
	}
	p := progress{began: time.Now()}
	resp, err := transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, p.trace())))
	p.steps(&out.Detail)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			out.ErrorClass, out.Error = ClassCanceled, "the server went down during the attempt"
			return
		}
		out.ErrorClass, out.Error = classify(err, p.phase(), ctx.Err() != nil)
		// Or the reader would look for the fault at the receiver.
		if s.c.Proxy != nil && p.phase() == dialing {
			out.Error = "at the forward proxy: " + out.Error
		}
		return
	}
	defer resp.Body.Close()
	out.Status = resp.StatusCode
	out.RetryAfter = retryAfter(resp, s.c.Now())
	out.Detail.Headers = headersOf(resp.Header)
	if v := strings.ToLower(strings.TrimSpace(resp.Header.Get("webhook-delivery"))); v == StopMessage || v == StopEndpoint {
		out.Stop = v
	}
	// After a protocol switch the body is the connection and has no end.
	if resp.StatusCode != http.StatusSwitchingProtocols {
		out.Response, out.Truncated = readSome(resp.Body)
	}
	if resp.StatusCode/100 != 2 {
		out.ErrorClass = statusClass(resp.StatusCode)
		out.Error = statusText(resp)
	}
}

// request returns the signed request of one attempt, or the class of what is wrong with the
// endpoint or the delivery.
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
	if err := CheckURL("url", d.Endpoint.URL); err != nil {
		return nil, ClassEndpoint, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Endpoint.URL, bytes.NewReader(d.Body))
	if err != nil {
		return nil, ClassEndpoint, fault.New(fault.Invalid, "no request can be made from the endpoint's URL")
	}
	if err := d.Endpoint.setHeaders(req); err != nil {
		return nil, ClassEndpoint, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Heardlog-Webhook/1")
	// An empty list is not sent, but it lets the transport retry on a new connection if the
	// receiver has just closed the idle one. Otherwise that common race would cost an attempt.
	// Receivers drop repeats anyway.
	req.Header["X-Idempotency-Key"] = []string{}
	if err := sign(req.Header, d, s.c.Now()); err != nil {
		return nil, ClassEndpoint, err
	}
	return req, "", nil
}

// setHeaders sets the endpoint's own headers on a request. They are checked again here: a header
// stored by other means must not forge one of Heardlog's.
func (e *Endpoint) setHeaders(req *http.Request) error {
	if err := e.checkHeaders(); err != nil {
		return err
	}
	if err := e.checkAuth(); err != nil {
		return err
	}
	for _, h := range e.Headers {
		req.Header.Set(h.Name, h.Value.Reveal())
	}
	switch {
	case e.Auth.Bearer != "":
		req.Header.Set("Authorization", "Bearer "+e.Auth.Bearer.Reveal())
	case e.Auth.User != "":
		req.SetBasicAuth(e.Auth.User, e.Auth.Password.Reveal())
	}
	return nil
}

// readSome reads at most MaxResponse bytes, and reports whether there was, or may have been, more.
func readSome(body io.Reader) ([]byte, bool) {
	b, err := io.ReadAll(io.LimitReader(body, MaxResponse+1))
	if len(b) > MaxResponse {
		return b[:MaxResponse:MaxResponse], true
	}
	return b, err != nil
}

// statusText returns advice about a status, or "" if the number is enough.
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

// shown returns the part of an error that may be shown.
func shown(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Msg
	}
	return "the endpoint cannot be used"
}

// maxShownURL bounds a URL in texts, in bytes.
const maxShownURL = 300

// ShowURL returns a URL for logs and messages: scheme, host and path, without user name, password,
// query and fragment, which may hold secrets. It returns "" for anything but an absolute URL.
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
