package llmadapter

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/stack"
)

// The bounds of a Pool.
const (
	maxIdlePerHost  = 1024
	idleTimeout     = 90 * time.Second
	maxResponseHead = 256 << 10
	tlsTimeout      = 10 * time.Second
	maxPooledBuffer = 64 << 10
	connBuffer      = 4 << 10
	// maxOwnBody is what fits the sockets' buffers: a larger body has to be written while the answer is read, in case that it is refused early.
	maxOwnBody = 64 << 10
)

// Pool is an http.RoundTripper for HTTP/1.1 that does what calls to an LLM need and no more: one goroutine (the caller's) and
// one connection a call, the request in one write, the connection closed the moment the context ends. http.Transport keeps
// two goroutines and their buffers for each connection, which shows in the CPU of short calls and the memory of a thousand
// streams. Hosts that it does not understand (international names, zones) and large bodies go to the fallback.
//
// A connection is used again only if it is silent (see quiet). A request is sent once: it is repeated only where not a byte of it could
// be written, since an LLM that was asked twice is paid twice.
type Pool struct {
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	tls      *tls.Config
	fallback http.RoundTripper
	stacks   stack.Pool // to connect on, since a handshake goes deeper than the whole answer

	mu    sync.Mutex
	idle  map[string][]*pooled // by scheme and address, the longest idle first
	timer *time.Timer          // runs while there are idle connections
}

// NewPool makes a Pool. Addresses are dialled by dial, which may refuse them; roots, if not nil, replaces the TLS settings.
func NewPool(dial func(ctx context.Context, network, addr string) (net.Conn, error), roots *tls.Config) *Pool {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if roots != nil {
		cfg = roots.Clone()
	}
	cfg.NextProtos = []string{"http/1.1"}
	if cfg.ClientSessionCache == nil {
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(256)
	}
	fallback := NewTransport(dial)
	fallback.TLSClientConfig = cfg.Clone()
	return &Pool{dial: limitedDial(dial), tls: cfg, fallback: fallback, idle: map[string][]*pooled{}}
}

// pooled is one connection.
type pooled struct {
	net.Conn
	key   string
	in    inflow
	since time.Time // idle since
	used  bool      // answered a call before
	head  int       // bytes of header that may still be read; below 0 = no bound
}

var errHeadTooLarge = errors.New("the header of the answer is too large")

// Read reads from the connection, within the bound for a header.
func (c *pooled) Read(p []byte) (int, error) {
	if c.head == 0 {
		return 0, errHeadTooLarge
	}
	if c.head > 0 && len(p) > c.head {
		p = p[:c.head]
	}
	n, err := c.in.Read(p)
	if c.head > 0 {
		c.head -= n
	}
	return n, err
}

// CloseIdleConnections closes what is not in use.
func (p *Pool) CloseIdleConnections() {
	p.mu.Lock()
	idle := p.idle
	p.idle = map[string][]*pooled{}
	p.mu.Unlock()
	for _, conns := range idle {
		for _, c := range conns {
			_ = c.Close() // nothing is lost with it
		}
	}
	if t, ok := p.fallback.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
	p.stacks.Free()
}

// RoundTrip implements http.RoundTripper. The request's body is not used any more once it has returned.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	host, port := req.URL.Hostname(), req.URL.Port()
	if !plainHost(host) || req.ContentLength > maxOwnBody {
		return p.fallBack(req)
	}
	if port == "" {
		port = "80"
		if req.URL.Scheme == "https" {
			port = "443"
		}
	}
	ref := writeBuffers.Get().(*[]byte)
	defer func() {
		if cap(*ref) <= maxPooledBuffer {
			writeBuffers.Put(ref)
		}
	}()
	var err error
	if *ref, err = appendRequest((*ref)[:0], req); err != nil {
		return nil, err
	}
	key := req.URL.Scheme + "://" + net.JoinHostPort(host, port)
	c := p.take(key)
	if c == nil {
		if c, err = p.connect(req, key, host, port); err != nil {
			return nil, err
		}
	}
	res, err := c.exchange(req, *ref, p)
	if err != nil && c.used && errors.Is(err, errStale) && req.Context().Err() == nil {
		if c, err = p.connect(req, key, host, port); err != nil {
			return nil, err
		}
		res, err = c.exchange(req, *ref, p)
	}
	return res, err
}

// fallBack hands the request to the other transport, which may still be sending the body when it has returned: it gets a copy.
func (p *Pool) fallBack(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if err := req.Body.Close(); err != nil {
			return nil, err
		}
		req = req.WithContext(req.Context())
		setBody(req, body)
	}
	return p.fallback.RoundTrip(req)
}

// plainHost tells whether a host name can be dialled and written as it is.
func plainHost(host string) bool {
	for i := 0; i < len(host); i++ {
		if host[i] <= ' ' || host[i] >= 0x7f || host[i] == '%' {
			return false
		}
	}
	return host != ""
}

// writeBuffers has no state but reusable memory.
var writeBuffers = sync.Pool{New: func() any { return new([]byte) }}

// errStale is a connection that took not a byte of the request.
var errStale = errors.New("the connection was closed before the request")

// appendRequest writes a request down, its body included.
func appendRequest(b []byte, req *http.Request) ([]byte, error) {
	uri := req.URL.RequestURI()
	if !fieldOK(uri, false) || !fieldOK(req.Host, false) {
		return b, errors.New("the URL holds a character that no request can carry")
	}
	b = append(append(append(append(b, req.Method...), ' '), uri...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, req.Host...), "\r\n"...)
	for name, values := range req.Header {
		for _, v := range values {
			if !tokenOK(name) || !fieldOK(v, true) {
				return b, errors.New("header " + strconv.Quote(name) + " holds a character that no header can carry")
			}
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	if req.Body == nil {
		return append(b, "\r\n"...), nil
	}
	defer req.Body.Close()
	b = strconv.AppendInt(append(b, "Content-Length: "...), req.ContentLength, 10)
	b = append(b, "\r\n\r\n"...)
	if free := cap(b) - len(b); int64(free) < req.ContentLength {
		b = append(make([]byte, 0, len(b)+int(req.ContentLength)), b...)
	}
	head := len(b)
	b = b[:head+int(req.ContentLength)]
	_, err := io.ReadFull(req.Body, b[head:])
	return b, err
}

// fieldOK tells whether a value can stand in a request without ending its line.
func fieldOK(s string, spaces bool) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == 0x7f || c < ' ' && c != '\t' || !spaces && (c == ' ' || c == '\t') {
			return false
		}
	}
	return true
}

func tokenOK(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
		case c == '-' || c == '_' || c == '.' || c == '!' || c == '#' || c == '$' || c == '%' || c == '&' || c == '\'' ||
			c == '*' || c == '+' || c == '^' || c == '`' || c == '|' || c == '~':
		default:
			return false
		}
	}
	return s != ""
}

func (p *Pool) connect(req *http.Request, key, host, port string) (c *pooled, err error) {
	p.stacks.Run(func() { c, err = p.connectDeep(req, key, host, port) })
	return c, err
}

func (p *Pool) connectDeep(req *http.Request, key, host, port string) (*pooled, error) {
	ctx := req.Context()
	conn, err := p.dial(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	if req.URL.Scheme == "https" {
		cfg := p.tls.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName = host
		}
		limit := tlsTimeout
		if d, ok := ctx.Value(connectLimit{}).(time.Duration); ok {
			limit = min(limit, d)
		}
		shake, stop := context.WithTimeoutCause(ctx, limit, ErrConnectTimeout)
		defer stop()
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(shake); err != nil {
			_ = conn.Close() // the handshake's error is what matters
			if errors.Is(context.Cause(shake), ErrConnectTimeout) {
				return nil, errors.Join(ErrConnectTimeout, err)
			}
			return nil, err
		}
		conn = secure
	}
	return &pooled{Conn: conn, key: key, in: newInflow(conn)}, nil
}

// exchange sends the request and reads the head of its answer.
func (c *pooled) exchange(req *http.Request, out []byte, p *Pool) (*http.Response, error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // the upstream sees it at once
	c.head = maxResponseHead
	werr, err := c.send(out, p)
	var res *http.Response
	var br *bufio.Reader
	if err == nil {
		res, br, err = c.answer(req, werr)
	}
	if err != nil {
		stop()
		_ = c.Close() // the error of the exchange is what matters
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	c.head = -1
	body := &answerBody{src: res.Body, c: c, p: p, stop: stop, keep: !res.Close, br: br}
	switch {
	case res.Body == http.NoBody:
		body.finish(true)
		return res, nil
	case len(res.TransferEncoding) == 1 && res.TransferEncoding[0] == "chunked":
		body.chunked = chunked{head: br, in: &c.in}
		body.src, body.br = &body.chunked, nil
	}
	res.Body = body
	return res, nil
}

// send sends the request and waits until an answer begins. A request that could not be written whole may have one all the same: a server
// that refuses a body early has perhaps answered before it closed; what the writing failed with is werr then.
func (c *pooled) send(out []byte, p *Pool) (werr, err error) {
	written, werr := c.write(out, p)
	if werr != nil && written == 0 && c.used {
		return werr, errors.Join(errStale, werr)
	}
	if err := c.in.fill(); err != nil {
		return werr, errors.Join(werr, noEOF(err))
	}
	return werr, nil
}

// write writes the request. To encrypt goes deeper than to wait, see Pool.stacks.
func (c *pooled) write(out []byte, p *Pool) (n int, err error) {
	if _, ok := c.Conn.(*tls.Conn); !ok {
		return c.Write(out)
	}
	p.stacks.Run(func() { n, err = c.Write(out) })
	return n, err
}

// answer gives the answer and what the rest of it is read through.
func (c *pooled) answer(req *http.Request, werr error) (*http.Response, *bufio.Reader, error) {
	br := heads.Get().(*bufio.Reader)
	br.Reset(c)
	for range 8 {
		res, err := http.ReadResponse(br, req)
		if err != nil {
			return nil, nil, noEOF(err)
		}
		if res.StatusCode >= 200 {
			res.Close = res.Close || werr != nil
			return res, br, nil
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	return nil, nil, errors.New("the server sent no final answer")
}

// noEOF keeps an EOF from being taken for the end of an answer.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// answerBody is the body of an answer. Read to its end, its connection serves the next call; closed before, it is closed.
type answerBody struct {
	src  io.Reader
	c    *pooled
	p    *Pool
	stop func() bool
	keep bool
	over bool

	br      *bufio.Reader // of a body that is not chunked
	chunked chunked       // of one that is
}

// Read implements io.Reader.
func (b *answerBody) Read(p []byte) (int, error) {
	if b.over {
		return 0, io.EOF
	}
	n, err := b.src.Read(p)
	if err != nil {
		b.finish(err == io.EOF) //nolint:errorlint // the end itself, not an end within something
	}
	return n, err
}

// Close implements io.Closer.
func (b *answerBody) Close() error {
	b.finish(false)
	return nil
}

func (b *answerBody) finish(whole bool) {
	if b.over {
		return
	}
	b.over = true
	// stop is false when the context has ended, and the connection with it.
	if b.stop() && whole && b.silent() && b.keep && b.p.give(b.c) {
		return
	}
	_ = b.c.Close() // nothing is lost with it
}

// silent tells that nothing has come behind the whole body, and gives back what it was read through.
func (b *answerBody) silent() bool {
	silent := len(b.c.in.rest) == 0
	for _, br := range []*bufio.Reader{b.br, b.chunked.head} {
		if br != nil {
			silent = silent && br.Buffered() == 0
			free(br)
		}
	}
	b.br, b.chunked.head = nil, nil
	return silent
}

// take gives the silent connection that was used last, which is the least likely to be closed; nil if there is none.
func (p *Pool) take(key string) *pooled {
	for {
		c := p.pop(key)
		if c == nil || quiet(c.Conn) {
			return c
		}
		_ = c.Close() // nothing is lost with it
	}
}

func (p *Pool) pop(key string) *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := p.idle[key]
	n := len(conns)
	if n == 0 {
		return nil
	}
	c := conns[n-1]
	conns[n-1] = nil
	p.idle[key] = conns[:n-1]
	return c
}

func (p *Pool) give(c *pooled) bool {
	c.used, c.since = true, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle[c.key]) >= maxIdlePerHost {
		return false
	}
	p.idle[c.key] = append(p.idle[c.key], c)
	if p.timer == nil {
		p.timer = time.AfterFunc(idleTimeout, p.sweep)
	}
	return true
}

// sweep closes what has been idle too long.
func (p *Pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	left := 0
	for key, conns := range p.idle {
		n := 0
		for n < len(conns) && time.Since(conns[n].since) >= idleTimeout {
			_ = conns[n].Close() // nothing is lost with it
			n++
		}
		if n == len(conns) {
			delete(p.idle, key)
			continue
		}
		p.idle[key] = append(conns[:0:0], conns[n:]...)
		left += len(conns) - n
	}
	if left > 0 {
		p.timer = time.AfterFunc(idleTimeout/2, p.sweep)
	}
}
