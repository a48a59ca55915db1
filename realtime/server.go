// Package realtime relays OpenAI's Realtime protocol between clients and any server that speaks it,
// and keeps what is said in the ledger of an agent. A Server serves one client's socket at a time
// with Serve: every frame is passed on as it came, both ways, and an account of the conversation is
// kept beside it.
//
// Four parts work together. A session holds the two sockets. A record follows the events: which
// items there are, in which order, what was generated, and how much of it was played. A writer
// stores what the record passes on. The memory of the call goes into the conversation when a client
// begins, and again when the connection to the model's server has to be made again.
//
// Audio is neither stored nor decoded. Only its length is read.
package realtime

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/sockets"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	memctx "github.com/heardlog/heardlog/memory/context"
)

// MaxFrame is how many bytes a frame of the client or of the model's server may have. OpenAI takes
// 15 MiB of audio in one event.
const MaxFrame = 16 << 20

// Time limits of a socket.
const (
	dialTimeout  = 15 * time.Second
	writeTimeout = 10 * time.Second // a client that takes longer to receive a frame is cut off
	watchEvery   = 20 * time.Second // how often a socket is checked
	pingTimeout  = 10 * time.Second
	endTimeout   = 35 * time.Second // for storing what is left
)

// Config is what a Server needs. All fields but Remember are required.
type Config struct {
	Memory   *agents.Service
	Context  *memctx.Service
	Remember *remember.Service // nil: the prompts have nothing of the caller
	Prices   memory.Prices
	// Client calls the model's servers. It checks the addresses that it dials.
	Client  *http.Client
	Now     func() time.Time
	Log     zerolog.Logger
	Sockets *sockets.Account
	Metrics *Metrics
}

// Metrics counts sockets and what happens to them.
type Metrics struct {
	sockets    prometheus.Gauge
	reconnects *prometheus.CounterVec
	errors     prometheus.Counter
	lost       prometheus.Counter
}

// NewMetrics returns Metrics that are registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		sockets: prometheus.NewGauge(prometheus.GaugeOpts{Name: "heardlog_realtime_sockets", Help: "Sockets of clients that are relayed to a realtime model."}),
		reconnects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_realtime_reconnects_total", Help: "New connections to realtime models for sockets that are open, by result: ok or failed.",
		}, []string{"result"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_realtime_errors_total", Help: "Error events of realtime models."}),
		lost:   prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_realtime_lost_total", Help: "Items of realtime calls that could not be stored."}),
	}
	reg.MustRegister(m.sockets, m.reconnects, m.errors, m.lost)
	return m
}

// Server relays realtime calls. It is safe for concurrent use.
type Server struct{ cfg Config }

// New returns a Server.
func New(c Config) *Server { return &Server{c} }

// Upstream is a server that speaks the protocol.
type Upstream struct {
	URL     string // ws, wss, http or https; its query is kept
	Query   url.Values
	Headers http.Header
	Beta    bool // it was asked for the beta's protocol
}

// Call is one client's socket.
type Call struct {
	Project, Agent string
	Upstream       Upstream
	// Session is sent to the model's server before anything of the client: the session object of
	// the client secret. nil for none.
	Session []byte
	// Sideband is set if the client watches a call whose audio goes another way.
	Sideband bool
	// Ends is set if the agent ends with the socket.
	Ends bool
}

// Serve connects to the model's server, accepts the client's socket and relays until one of them
// ends it. The caller checks which web pages may connect. An error is returned only before the
// socket is accepted.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, c Call) error {
	leave, err := s.cfg.Sockets.Enter(c.Project)
	if err != nil {
		return err
	}
	defer leave()
	s.cfg.Metrics.sockets.Inc()
	defer s.cfg.Metrics.sockets.Dec()
	// The client may be gone, and what it brought must be stored all the same.
	base := context.WithoutCancel(r.Context())
	up, err := s.dial(r.Context(), &c.Upstream)
	if err != nil {
		return err
	}
	// The caller has checked the origin.
	opts := &websocket.AcceptOptions{Subprotocols: []string{"realtime"}, InsecureSkipVerify: true}
	client, err := websocket.Accept(w, r, opts)
	if err != nil { // it has answered
		_ = up.CloseNow()
		return nil //nolint:nilerr // the answer is out
	}
	client.SetReadLimit(MaxFrame)
	x := s.newSession(c, client, up)
	x.allowed = r.Context().Done()
	x.run(base)
	return nil
}

// dial connects to the model's server.
func (s *Server) dial(ctx context.Context, u *Upstream) (*websocket.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	target, err := url.Parse(u.URL)
	if err != nil {
		return nil, fault.Wrap(fault.Upstream, err, "the URL of the realtime model cannot be read")
	}
	q := target.Query()
	for name, values := range u.Query {
		q[name] = values
	}
	target.RawQuery = q.Encode()
	opts := &websocket.DialOptions{HTTPClient: s.cfg.Client, HTTPHeader: u.Headers}
	conn, resp, err := websocket.Dial(ctx, target.String(), opts)
	if err != nil {
		return nil, refusal(resp, err)
	}
	conn.SetReadLimit(MaxFrame)
	return conn, nil
}

// refusal returns the error for a server that did not accept the connection.
func refusal(resp *http.Response, err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(fault.UpstreamTimeout, err, "the realtime model did not answer in time")
	}
	if resp == nil {
		return fault.Wrap(fault.Upstream, err, "the realtime model could not be reached")
	}
	var body []byte
	if resp.Body != nil {
		body, _ = io.ReadAll(io.LimitReader(resp.Body, 1024))
	}
	code := fault.Upstream
	if resp.StatusCode == http.StatusTooManyRequests {
		code = fault.RateLimited
	}
	return fault.Wrap(code, errors.Join(err, errors.New(string(body))), "the realtime model refused the connection with status "+resp.Status)
}

// WebURL returns a URL of ws or wss as one of http or https, and others as they are.
func WebURL(u string) string {
	if rest, ok := strings.CutPrefix(u, "ws"); ok {
		return "http" + rest
	}
	return u
}

// newID returns an ID for an item or an event of ours, which no one else has.
func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return ours + hex.EncodeToString(b[:])
}

// ours begins the IDs of our own items and events.
const ours = "hl_"
