package llmadapter

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"
)

// maxResponseHead limits the header of an upstream's response, in bytes.
const maxResponseHead = 256 << 10

// tlsTimeout limits a TLS handshake if the call sets no shorter limit for connecting.
const tlsTimeout = 10 * time.Second

// An HTTP/2 connection carries many calls. If nothing arrives on it for pingAfter it is probed, and
// closed if no reply comes within pingTimeout.
const (
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
)

// writeBuffer is large enough for the request of most calls, so that head and body are sent with
// one system call.
const writeBuffer = 16 << 10

// DialFunc opens a connection. It may refuse an address.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// connectLimit is the context key of a call's Connect limit.
type connectLimit struct{}

// NewTransport returns the transport for calls to LLMs: HTTP/2 where a TLS upstream offers it,
// HTTP/1.1 otherwise, without a proxy and without compression. It opens connections with dial and
// applies Call.Connect to dialing and TLS together. Certificates are verified against roots, or the
// system's roots if nil.
func NewTransport(dial DialFunc, roots *x509.CertPool) *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            roots,
		NextProtos:         []string{"h2", "http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(256),
	}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, stop := limitConnect(ctx)
			defer stop()
			return connect(ctx, dial, network, addr)
		},
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, stop := limitConnect(ctx)
			defer stop()
			conn, err := connect(ctx, dial, network, addr)
			if err != nil {
				return nil, err
			}
			return handshake(ctx, conn, config, addr)
		},
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		MaxIdleConns:           4096,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxResponseHead,
		WriteBufferSize:        writeBuffer,
		DisableCompression:     true,
	}
}

// limitConnect returns ctx with the deadline that the call's Connect limit sets, if there is one.
func limitConnect(ctx context.Context) (context.Context, context.CancelFunc) {
	d, ok := ctx.Value(connectLimit{}).(time.Duration)
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, ErrConnectTimeout)
}

func connect(ctx context.Context, dial DialFunc, network, addr string) (net.Conn, error) {
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return nil, connectError(ctx, err)
	}
	return conn, nil
}

// handshake starts TLS on conn and closes conn if that fails.
func handshake(ctx context.Context, conn net.Conn, config *tls.Config, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	config = config.Clone()
	config.ServerName = host
	ctx, stop := context.WithTimeoutCause(ctx, tlsTimeout, ErrConnectTimeout)
	defer stop()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error is what matters
		return nil, connectError(ctx, err)
	}
	return secure, nil
}

// connectError adds ErrConnectTimeout to err if that is why ctx ended.
func connectError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrConnectTimeout) {
		return errors.Join(ErrConnectTimeout, err)
	}
	return err
}
