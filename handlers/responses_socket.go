package handlers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/go-chi/chi/v5"
	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/sockets"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter/responses"
)

// The limits of a socket, which are OpenAI's where that has them.
const (
	socketAge      = time.Hour
	socketPing     = 30 * time.Second // how often the client is asked for a sign of life, and how long it may take
	socketInFlight = 16               // responses that wait or are made
	socketLanes    = 32               // names of lanes
	socketPrepared = 8                // requests with generate: false that are kept
)

// errResponseCanceled ends a response that the client no longer wants.
var errResponseCanceled = errors.New("the client canceled the response")

// socketAPI serves the Responses API over WebSockets. Each response.create is a request to the same
// path in the same process, so that it is authenticated, limited, logged and answered like any
// other.
type socketAPI struct {
	sockets *sockets.Account
	origins []string
	limit   int64        // bytes of a message
	routes  http.Handler // the whole URL map
	now     func() time.Time
}

// serve serves GET …/responses: a WebSocket until it closes.
func (a *socketAPI) serve(w http.ResponseWriter, r *http.Request) error {
	if !wantsSocket(r) {
		return fault.New(fault.Invalid, "GET opens a WebSocket here and needs the headers of one; send a request for a response with POST")
	}
	if !pageMayConnect(r, a.origins) {
		return errForeignPage
	}
	leave, err := a.sockets.Enter(projectOf(r))
	if err != nil {
		return err
	}
	defer leave()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the origin was checked
	if err != nil {
		infoOf(r).err = err // Accept has answered
		return nil
	}
	s := &socket{socketAPI: a, conn: conn, request: r, lanes: map[string]*lane{}, idle: make(chan struct{}, 1)}
	s.ctx, s.end = context.WithCancelCause(r.Context())
	s.run()
	return nil
}

// socket is one connection.
type socket struct {
	*socketAPI
	conn    *websocket.Conn
	request *http.Request // that opened it
	ctx     context.Context
	end     context.CancelCauseFunc
	working sync.WaitGroup // lanes that run, and watch
	idle    chan struct{}  // receives when the last response has ended

	mu       sync.Mutex
	closing  *fault.Error // why no response is begun any more; nil while they are
	lanes    map[string]*lane
	inFlight int
	prepared []*responses.Prepared
}

// lane holds the responses of one stream_id, which are made one after the other.
type lane struct {
	waiting  []*creation
	response string             // the ID of the one that is made, "" before it has begun
	cancel   context.CancelFunc // of the one that is made; nil while there is none
}

// creation is a response.create event.
type creation struct {
	lane *string // its stream_id; nil for none
	body []byte  // of the request that it stands for
}

// run reads events until the connection ends.
func (s *socket) run() {
	defer s.conn.CloseNow()
	s.conn.SetReadLimit(-1) // read has a limit of its own, which answers
	s.working.Add(1)
	go s.watch()
	for {
		event, err := s.read()
		if err != nil {
			break
		}
		s.handle(event)
	}
	// What is being made is stored as an answer whose client went away.
	s.end(nil)
	s.working.Wait()
}

// read returns the next message.
func (s *socket) read() ([]byte, error) {
	kind, r, err := s.conn.Reader(s.ctx)
	if err != nil {
		return nil, err
	}
	event, err := io.ReadAll(io.LimitReader(r, s.limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(event)) > s.limit:
		err = tooLarge(s.limit)
		s.fail(nil, err)
		_ = s.conn.Close(websocket.StatusMessageTooBig, "the message is too large")
		return nil, err
	case kind != websocket.MessageText:
		return []byte("binary"), nil // which is not an event
	}
	return event, nil
}

// watch pings the client, and closes the connection when it is too old or the server stops: as soon
// as no response is being made.
func (s *socket) watch() {
	defer s.working.Done()
	ping, old := time.NewTicker(socketPing), time.NewTimer(socketAge)
	defer ping.Stop()
	defer old.Stop()
	stopping, code := s.sockets.Stopping(), websocket.StatusGoingAway
	reason := ""
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.sockets.Cut().Done():
			s.end(sockets.ErrCut)
			return
		case <-ping.C:
			ctx, stop := context.WithTimeout(s.ctx, socketPing)
			err := s.conn.Ping(ctx)
			stop()
			if err != nil {
				s.end(err)
				return
			}
			continue
		case <-old.C:
			reason = "the connection is an hour old"
			s.close(&fault.Error{Code: fault.SocketAge, Msg: "the connection is an hour old, its limit; open another"})
		case <-stopping:
			stopping, reason = nil, "the server is going down"
			s.close(&fault.Error{Code: fault.Unavailable, Msg: reason})
		case <-s.idle:
		}
		s.mu.Lock()
		leave := s.closing != nil && s.inFlight == 0
		s.mu.Unlock()
		if leave {
			_ = s.conn.Close(code, reason)
			return
		}
	}
}

// close begins no responses any more.
func (s *socket) close(why *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = why
}

// handle handles an event of the client.
func (s *socket) handle(event []byte) {
	var members map[string]jsontext.Value
	if jsonDepth(event) > MaxDepth {
		s.fail(nil, fault.New(fault.BadRequest, "the JSON nests deeper than %d levels", MaxDepth))
		return
	}
	if err := fastjson.Unmarshal(event, &members, jsontext.AllowInvalidUTF8(true)); err != nil || members == nil {
		s.fail(nil, fault.Wrap(fault.BadRequest, err, "the event is not a JSON object, or names a member twice"))
		return
	}
	var kind string
	var lane *string
	_ = fastjson.Unmarshal(members["type"], &kind) // anything but a string names none
	if v := members["stream_id"]; len(v) > 0 && v.Kind() != 'n' {
		if fastjson.Unmarshal(v, &lane) != nil || len(*lane) > 128 {
			s.fail(nil, fault.At(fault.Invalid, "stream_id", "must be a string of at most 128 bytes"))
			return
		}
	}
	switch kind {
	case "response.create":
		if err := s.create(lane, members); err != nil {
			s.fail(lane, err)
		}
	case "response.cancel":
		s.cancel(lane, members["response_id"])
	case "response.steer":
		s.refuseSteering(members)
	default:
		s.fail(lane, fault.At(fault.Invalid, "type", "%q is not supported; response.create and response.cancel are", text.Clip(kind, 80)))
	}
}

// create begins a response, or has it wait for those before it in its lane.
func (s *socket) create(name *string, members map[string]jsontext.Value) error {
	generate := string(members["generate"]) != "false"
	for _, own := range []string{"type", "stream_id", "generate"} {
		delete(members, own)
	}
	if err := s.continues(members); err != nil {
		return err
	}
	if !generate {
		return s.prepare(name, members)
	}
	members["stream"] = jsontext.Value("true")
	body, err := fastjson.Marshal(members, jsontext.AllowInvalidUTF8(true), fastjson.Deterministic(true))
	if err != nil {
		return fault.Wrap(fault.BadRequest, err, "the event cannot be read")
	}
	key := ""
	if name != nil {
		key = "#" + *name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, named := s.lanes[key], len(s.lanes)
	if s.lanes[""] != nil {
		named--
	}
	switch {
	case s.closing != nil:
		return s.closing
	case s.inFlight >= socketInFlight:
		return fault.New(fault.RateLimited, "%d responses are being made on this connection, which is its limit; wait for one of them", socketInFlight)
	case l == nil && name != nil && named >= socketLanes:
		return fault.At(fault.SocketLanes, "stream_id", "the connection has %d values of it already, its limit; use one of them again, or open another connection", socketLanes)
	case l == nil:
		l = &lane{}
		s.lanes[key] = l
	}
	s.inFlight++
	l.waiting = append(l.waiting, &creation{name, body})
	if l.cancel == nil {
		s.begin(l)
	}
	return nil
}

// continues puts the input of a request with generate: false in front of the one that continues it.
func (s *socket) continues(members map[string]jsontext.Value) error {
	var previous string
	_ = fastjson.Unmarshal(members["previous_response_id"], &previous) // anything else is refused later
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.prepared {
		if p.ID == previous {
			return p.Continue(members)
		}
	}
	return nil
}

// prepare answers a request with generate: false, and keeps it for the requests that continue it.
func (s *socket) prepare(name *string, members map[string]jsontext.Value) error {
	p, err := responses.Prepare("resp_"+newRequestID(), members) // which is the ID of no answer
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.prepared = append(s.prepared, p)
	if len(s.prepared) > socketPrepared {
		s.prepared = s.prepared[1:]
	}
	s.mu.Unlock()
	for _, event := range p.Events(s.now().Unix()) {
		s.send(name, event)
	}
	return nil
}

// begin begins the next response of a lane. The caller holds mu.
func (s *socket) begin(l *lane) {
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	ctx, cancel := context.WithCancelCause(s.ctx)
	l.response, l.cancel = "", func() { cancel(errResponseCanceled) }
	s.working.Add(1)
	go func() {
		defer s.working.Done()
		s.respond(ctx, l, c)
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
		l.cancel = nil
		switch {
		case s.ctx.Err() != nil: // the client went away
			l.waiting = nil
		case len(l.waiting) > 0:
			s.begin(l)
		}
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}()
}

// respond makes a response: it is a request to the path of the socket.
func (s *socket) respond(ctx context.Context, l *lane, c *creation) {
	// The routes must not see the route of the request that opened the socket.
	r := s.request.Clone(context.WithValue(ctx, chi.RouteCtxKey, (*chi.Context)(nil)))
	r.Method, r.URL.RawQuery, r.ContentLength, r.TransferEncoding = http.MethodPost, "", int64(len(c.body)), nil
	r.Body = io.NopCloser(bytes.NewReader(c.body))
	for _, name := range []string{"Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol", "X-Request-Id", "Idempotency-Key"} {
		r.Header.Del(name)
	}
	r.Header.Set("Content-Type", "application/json")
	w := &socketAnswer{header: http.Header{}, send: func(event []byte) error { return s.send(c.lane, event) }, began: func(id string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.response = id
	}}
	func() {
		defer func() { _ = recover() }() // the routes have logged it
		s.routes.ServeHTTP(w, r)
	}()
	if event := w.rest(); event != nil {
		_ = s.send(c.lane, event)
	}
}

// cancel cancels the response of a lane, or the one with an ID.
func (s *socket) cancel(name *string, id jsontext.Value) {
	var wanted string
	_ = fastjson.Unmarshal(id, &wanted) // anything else names none
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, l := range s.lanes {
		named := name == nil && key == "" || name != nil && key == "#"+*name
		if wanted != "" {
			named = l.response == wanted
		}
		if named && l.cancel != nil {
			l.cancel()
		}
	}
}

// steerFailed is the answer to response.steer.
type steerFailed struct {
	Type   string `json:"type"`
	Number int    `json:"sequence_number"`
	Error  struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Steer struct {
		Previous jsontext.Value `json:"previous_response_id,omitzero"`
		Input    jsontext.Value `json:"input,omitzero"`
	} `json:"steer"`
}

// refuseSteering answers response.steer, which chat completions have no place for.
func (s *socket) refuseSteering(members map[string]jsontext.Value) {
	out := steerFailed{Type: "response.steer.failed"}
	out.Error.Type, out.Error.Code = "invalid_request_error", "steering_not_supported"
	out.Error.Message = "a response cannot be steered; cancel it with response.cancel, and send what is new in a response.create"
	out.Steer.Previous, out.Steer.Input = members["previous_response_id"], members["input"]
	if event, err := fastjson.Marshal(out, jsontext.AllowInvalidUTF8(true)); err == nil {
		_ = s.send(nil, event)
	}
}

// fail answers an event with an error.
func (s *socket) fail(lane *string, err error) {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		e = &fault.Error{Code: fault.Internal, Msg: "internal error"}
	}
	_ = s.send(lane, socketError(openAIStatus(e.Code), newOpenAIError(e), nil))
}

// send sends an event, with the stream_id of its lane.
func (s *socket) send(lane *string, event []byte) error {
	if lane != nil {
		id, err := fastjson.Marshal(*lane, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			return err
		}
		event = append(append(append(bytes.TrimSuffix(bytes.Clone(event), []byte("}")), `,"stream_id":`...), id...), '}')
	}
	ctx, stop := context.WithTimeout(s.ctx, writeTimeout)
	defer stop()
	return s.conn.Write(ctx, websocket.MessageText, event)
}
