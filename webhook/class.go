package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"github.com/heardlog/heardlog/internal/fault"
)

// The classes of failed attempts, in words that an operator can act on. They are label values of a
// metric: new ones may be added, none may be renamed.
const (
	ClassDNS       = "dns"             // the name could not be looked up
	ClassBlocked   = "blocked"         // there is no such host, or its address may not be called
	ClassRefused   = "connect_refused" // nothing listens there
	ClassConnect   = "connect_failed"  // no route, or a firewall said no
	ClassConnectTO = "connect_timeout" // the connection or the name lookup before it timed out
	ClassTLS       = "tls"             // certificate, protocol version or handshake
	ClassTimeout   = "timeout"         // connected, but no answer in time
	ClassReset     = "reset"           // the connection was closed before the answer
	ClassProtocol  = "protocol"        // the answer is not HTTP
	Class1xx       = "status_1xx"
	Class3xx       = "status_3xx"
	Class4xx       = "status_4xx"
	Class5xx       = "status_5xx"
	ClassStatus    = "status_other" // 600 and above
	ClassEndpoint  = "endpoint"     // the endpoint's URL or secrets cannot be used
	ClassBroken    = "broken"       // the delivery itself cannot be sent; no attempt ever could
	ClassArchive   = "archive"      // the event's body is in the archive, which cannot be read now
	ClassPanic     = "panic"        // a mistake in Heardlog
	ClassCanceled  = "canceled"     // given up because the server goes down; not counted as an attempt
)

// classify returns the class of a transport error, and a text for the operator. The text holds
// nothing that the receiver wrote, because a receiver that echoes the request would put the URL's
// query into it. timedOut means that the attempt ran out of time.
func classify(err error, at phase, timedOut bool) (class, text string) {
	var timeout net.Error
	timedOut = timedOut || (errors.As(err, &timeout) && timeout.Timeout())
	if fault.Is(err, fault.Forbidden) {
		e, _ := errors.AsType[*fault.Error](err)
		return ClassBlocked, e.Msg
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case e.IsNotFound:
			return ClassDNS, "the host name does not exist"
		case e.IsTimeout:
			return ClassDNS, "the name server did not answer in time"
		}
		return ClassDNS, "the host name could not be looked up: " + e.Err
	}
	if text, ok := tlsText(err); ok {
		return ClassTLS, text
	}
	switch at {
	case dialing:
		return classifyDial(err, timedOut)
	case handshaking:
		switch {
		case timedOut:
			return ClassTLS, "the TLS handshake did not end in time"
		case isReset(err):
			return ClassReset, "the connection was closed during the TLS handshake"
		}
		return ClassTLS, "the TLS handshake failed"
	}
	switch {
	case timedOut && at == connected:
		return ClassTimeout, "the receiver did not take the whole request in time"
	case timedOut:
		return ClassTimeout, "the receiver did not answer in time"
	case isReset(err):
		return ClassReset, "the receiver closed the connection before it answered"
	}
	return ClassProtocol, "the answer is not HTTP, or its headers are too large"
}

// proxyRefusal is a forward proxy that makes no connection to a receiver.
type proxyRefusal struct{ status int }

// Error returns the text of the status.
func (e *proxyRefusal) Error() string {
	return "it made no connection, but answered " + strings.TrimSpace(strconv.Itoa(e.status)+" "+http.StatusText(e.status))
}

func classifyDial(err error, timedOut bool) (class, text string) {
	if e, ok := errors.AsType[*proxyRefusal](err); ok {
		return ClassConnect, e.Error()
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ClassRefused, "the connection was refused: nothing listens there"
	case timedOut:
		return ClassConnectTO, "no connection in time"
	case isReset(err):
		return ClassReset, "the connection was reset while it was made"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return ClassConnect, "no connection: " + errno.Error()
	}
	return ClassConnect, "no connection"
}

// tlsText describes what is wrong with the receiver's TLS, as far as the error's type shows it.
func tlsText(err error) (string, bool) {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return "the receiver speaks plain HTTP at an https URL", true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the receiver does not speak TLS at that port", true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is for another host name", true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is signed by an unknown authority, or by itself", true
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired {
			return "the certificate has expired or is not valid yet", true
		}
		return "the certificate is not valid", true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate could not be verified", true
	}
	// The type of a TLS alert is not exported; Op is "remote error" if the peer sent it.
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		return "the receiver refused the TLS connection: " + e.Err.Error(), true
	}
	return "", false
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// statusClass returns the class of an answer that is not 2xx.
func statusClass(status int) string {
	switch status / 100 {
	case 1:
		return Class1xx
	case 3:
		return Class3xx
	case 4:
		return Class4xx
	case 5:
		return Class5xx
	}
	return ClassStatus
}
