package webhook

import (
	"cmp"
	"crypto/tls"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
)

// The bounds of an endpoint's fields; lengths in bytes.
const (
	MaxEndpoints   = 100 // of a project
	MaxURL         = 2048
	MaxDescription = 512
	MaxSecrets     = 8
	MaxHeaderLines = 20
	MaxHeaderName  = 64
	MaxHeaderValue = 2048
	MaxCertificate = 64 << 10 // certificate and key together
	MinMaxBody     = 1 << 10
	MaxMaxBody     = 64 << 20
	MaxRetries     = 30
	MinRetryWait   = time.Second // also the least that jitter spreads over
	MaxRetryWait   = 7 * 24 * time.Hour
	MinMaxAge      = time.Minute
	MaxMaxAge      = 30 * 24 * time.Hour
	MinTimeout     = time.Second
	MaxTimeout     = TotalTimeout // the lease of a claim is made of it
	MaxMaxInFlight = 100
	MaxRateLimit   = 1000.0
	MinRateLimit   = 0.01
)

// Validate checks every field but ID and Project. It fails with fault.Missing or fault.Invalid,
// names the field and never repeats a secret. It does not check whether the address may be called.
func (e *Endpoint) Validate() error {
	for _, check := range []func() error{
		func() error { return CheckURL("url", e.URL) }, e.checkText, func() error { return CheckFilter("events", e.Events) }, e.checkSecrets, e.checkHeaders,
		e.checkAuth, e.checkCert, e.checkPayload, e.checkRetry, e.checkLimits,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// CheckURL checks an endpoint's URL: absolute, http or https, with a host, without user name.
func CheckURL(field, raw string) error {
	if raw == "" {
		return fault.At(fault.Missing, field, "is required")
	}
	if len(raw) > MaxURL {
		return fault.At(fault.Invalid, field, "is %d bytes long; at most %d are allowed", len(raw), MaxURL)
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		return fault.At(fault.Invalid, field, "must be a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return fault.At(fault.Invalid, field, "must be an http or https URL")
	case u.Hostname() == "":
		return fault.At(fault.Invalid, field, "must have a host")
	case u.User != nil:
		return fault.At(fault.Invalid, field, "must not contain a user name; set it in auth")
	case u.Fragment != "":
		return fault.At(fault.Invalid, field, "must not contain a fragment (#…), which is never sent")
	}
	return nil
}

// SameOrigin reports whether two URLs have the same scheme, host and port. A URL that cannot be
// parsed has no other origin.
func SameOrigin(a, b string) bool {
	x, err := url.Parse(a)
	y, err2 := url.Parse(b)
	if err != nil || err2 != nil {
		return a == b
	}
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" || u.Scheme == "http" {
			return cmp.Or(p, "80")
		}
		return "443"
	}
	host := func(u *url.URL) string { return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") }
	return strings.EqualFold(x.Scheme, y.Scheme) && host(x) == host(y) && port(x) == port(y)
}

func (e *Endpoint) checkText() error {
	switch {
	case len(e.Description) > MaxDescription:
		return fault.At(fault.Invalid, "description", "is %d bytes long; at most %d are allowed", len(e.Description), MaxDescription)
	case !utf8.ValidString(e.Description) || strings.ContainsFunc(e.Description, unicode.IsControl):
		return fault.At(fault.Invalid, "description", "must be UTF-8 without control characters")
	}
	return nil
}

func (e *Endpoint) checkSecrets() error {
	if len(e.Secrets) > MaxSecrets {
		return fault.At(fault.Invalid, "secrets", "has %d entries; at most %d are allowed", len(e.Secrets), MaxSecrets)
	}
	for i, s := range e.Secrets {
		if _, err := ParseKey(s.Value.Reveal()); err != nil {
			return within("secrets["+strconv.Itoa(i)+"]", err)
		}
	}
	return nil
}

// within puts the field's path in front of an error of one of its parts.
func within(field string, err error) error {
	text := shown(err)
	if _, rest, ok := strings.Cut(text, ": "); ok {
		text = rest
	}
	return fault.At(fault.CodeOf(err), field, "%s", text)
}

func (e *Endpoint) checkHeaders() error {
	if len(e.Headers) > MaxHeaderLines {
		return fault.At(fault.Invalid, "headers", "has %d entries; at most %d are allowed", len(e.Headers), MaxHeaderLines)
	}
	seen := map[string]bool{}
	for _, h := range e.Headers {
		// Only a valid name goes into the field's path: the input may be anything.
		field := "headers"
		if !token(h.Name) || len(h.Name) > MaxHeaderName {
			return fault.At(fault.Invalid, field, "must be a header name of at most %d letters, digits and hyphens", MaxHeaderName)
		}
		field += "." + h.Name
		name := textproto.CanonicalMIMEHeaderKey(h.Name)
		switch {
		case reserved(name):
			return fault.At(fault.Invalid, field, "is set by Heardlog and cannot be changed")
		case name == "Authorization" && !e.Auth.Zero():
			return fault.At(fault.Invalid, field, "is set by auth already")
		case seen[name]:
			return fault.At(fault.Invalid, field, "is given twice")
		case len(h.Value) > MaxHeaderValue:
			return fault.At(fault.Invalid, field, "is %d bytes long; at most %d are allowed", len(h.Value), MaxHeaderValue)
		case !headerValue(h.Value.Reveal()):
			return fault.At(fault.Invalid, field, "must be printable ASCII without spaces at its ends")
		}
		seen[name] = true
	}
	return nil
}

// reserved reports whether a header belongs to Heardlog or to the transport. name is in canonical
// form.
func reserved(name string) bool {
	for _, start := range []string{"Webhook-", "Agora-", "Content-", "Proxy-", "Sec-"} {
		if strings.HasPrefix(name, start) {
			return true
		}
	}
	switch name {
	case "Host", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "Te", "Trailer", "Expect", "User-Agent", "Accept-Encoding",
		"Idempotency-Key", "X-Idempotency-Key", "Cookie", "Date":
		return true
	}
	return false
}

func token(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

func headerValue(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c >= 0x7f {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}

func (e *Endpoint) checkAuth() error {
	a := e.Auth
	switch {
	case a.Bearer != "" && (a.User != "" || a.Password != ""):
		return fault.At(fault.Invalid, "auth", "must be either a bearer token, or user name and password")
	case len(a.Bearer) > MaxHeaderValue || !headerValue(a.Bearer.Reveal()) || strings.Contains(a.Bearer.Reveal(), " "):
		return fault.At(fault.Invalid, "auth.bearer", "must have at most %d characters of printable ASCII without spaces", MaxHeaderValue)
	case a.Password != "" && a.User == "":
		return fault.At(fault.Missing, "auth.username", "is required with a password")
	case len(a.User) > 256 || !headerValue(a.User) || strings.Contains(a.User, ":"):
		return fault.At(fault.Invalid, "auth.username", "must have at most 256 characters of printable ASCII without a colon")
	case len(a.Password) > 256 || strings.ContainsFunc(a.Password.Reveal(), unicode.IsControl):
		return fault.At(fault.Invalid, "auth.password", "must have at most 256 bytes without control characters")
	}
	return nil
}

func (e *Endpoint) checkCert() error {
	c := e.ClientCert
	switch {
	case c.Zero():
		return nil
	case c.Cert == "" || c.Key == "":
		return fault.At(fault.Missing, "client_cert", "must have both a certificate and its key")
	case len(c.Cert)+len(c.Key) > MaxCertificate:
		return fault.At(fault.Invalid, "client_cert", "is %d bytes long; at most %d are allowed", len(c.Cert)+len(c.Key), MaxCertificate)
	}
	// Some files hold both, but the certificate is shown in answers.
	if strings.Contains(c.Cert, "PRIVATE KEY") {
		return fault.At(fault.Invalid, "client_cert.cert", "must not contain the private key; set that in client_cert.key, which is never shown")
	}
	// The library's text may quote the key's block type.
	if _, err := tls.X509KeyPair([]byte(c.Cert), []byte(c.Key.Reveal())); err != nil {
		return fault.At(fault.Invalid, "client_cert", "must be a certificate and its own key, both in PEM")
	}
	return nil
}

func (e *Endpoint) checkPayload() error {
	switch {
	case e.Payload != "" && e.Payload != PayloadFull && e.Payload != PayloadThin:
		return fault.At(fault.Invalid, "payload", "must be full or thin, not %q", e.Payload)
	case e.MaxBodyBytes != 0 && (e.MaxBodyBytes < MinMaxBody || e.MaxBodyBytes > MaxMaxBody):
		return fault.At(fault.Invalid, "max_body_bytes", "must be from %d to %d, not %d", MinMaxBody, MaxMaxBody, e.MaxBodyBytes)
	}
	return nil
}

func (e *Endpoint) checkRetry() error {
	if len(e.Retry) > MaxRetries {
		return fault.At(fault.Invalid, "retry_schedule", "has %d waits; at most %d are allowed", len(e.Retry), MaxRetries)
	}
	for i, w := range e.Retry {
		if w < MinRetryWait || w > MaxRetryWait {
			return fault.At(fault.Invalid, "retry_schedule["+strconv.Itoa(i)+"]", "must be from %s to %s, not %s", MinRetryWait, MaxRetryWait, w)
		}
	}
	if e.MaxAge != 0 && (e.MaxAge < MinMaxAge || e.MaxAge > MaxMaxAge) {
		return fault.At(fault.Invalid, "max_age", "must be from %s to %s, not %s", MinMaxAge, MaxMaxAge, e.MaxAge)
	}
	return nil
}

func (e *Endpoint) checkLimits() error {
	switch {
	case e.Timeout != 0 && (e.Timeout < MinTimeout || e.Timeout > MaxTimeout):
		return fault.At(fault.Invalid, "timeout", "must be from %s to %s, not %s", MinTimeout, MaxTimeout, e.Timeout)
	case e.MaxInFlight < 0 || e.MaxInFlight > MaxMaxInFlight:
		return fault.At(fault.Invalid, "max_in_flight", "must be from 1 to %d, not %d", MaxMaxInFlight, e.MaxInFlight)
	// Written so that NaN is refused too.
	case e.RateLimit != 0 && !(e.RateLimit >= MinRateLimit && e.RateLimit <= MaxRateLimit):
		return fault.At(fault.Invalid, "rate_limit", "must be from %g to %g attempts a second, not %g", MinRateLimit, MaxRateLimit, e.RateLimit)
	}
	return nil
}
