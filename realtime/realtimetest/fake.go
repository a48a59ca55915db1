// Package realtimetest has a server that speaks OpenAI's Realtime protocol as OpenAI's own does,
// for tests: New starts one. It keeps a conversation for each socket, sends transcripts of the
// caller late and by item, deletes the transcript of an item that is truncated, refuses truncations
// beyond the audio, and closes sockets when told to. It has no model: the test says what is
// answered.
package realtimetest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// Word is a word of an answer with the time that its audio takes, pauses included.
type Word struct {
	Text string
	MS   int64
}

// Reply is an answer of the model.
type Reply struct {
	Words []Word // spoken
	Text  string // written, without audio
	// Calls a function in place of words, or after them.
	Call, Arguments string
	Fails           string // the message of a failure
	// Ahead is how many words the transcript runs ahead of the audio.
	Ahead int
	// Hold, if not nil, is received from before each word is sent: the test decides when.
	Hold <-chan struct{}
	// CloseAfter closes the socket after so many words, unless 0.
	CloseAfter int
}

// Config is how a Server behaves. The zero value answers "Yes." to everything.
type Config struct {
	// Answer returns what the model says to a conversation, as its texts.
	Answer func(items []Item, create map[string]any) Reply
	// Hear returns the words of the caller in the nth committed audio, from 0; nil for "word n".
	Hear func(n int) string
	// Late, if not nil, is received from before each transcript of the caller is sent.
	Late  <-chan struct{}
	Model string
}

// Item is an item of a conversation.
type Item struct {
	ID, Type, Role, Text string
	Audio                bool
	AudioMS              int64
	CallID, Name, Args   string
}

// Server is a fake of OpenAI's.
type Server struct {
	URL string // ws
	cfg Config

	mu      sync.Mutex
	conns   []*Conn
	ids     int
	Headers []http.Header // of the sockets that were accepted
	Queries []string
	heard   int
	Refuse  int // the status to refuse sockets with, 0 for none
}

// Conn is a socket of a Server with its conversation.
type Conn struct {
	s    *Server
	ws   *websocket.Conn
	beta bool

	mu       sync.Mutex
	items    []Item
	session  map[string]any
	appended int64 // bytes in the input buffer
	cancel   context.CancelFunc
	Updates  []map[string]any
	write    sync.Mutex
	Received []string // types of the client's events
	running  sync.WaitGroup
}

// New starts a Server, which stops with the test.
func New(t testing.TB, c Config) *Server {
	s := &Server{cfg: c}
	if s.cfg.Answer == nil {
		s.cfg.Answer = func([]Item, map[string]any) Reply { return Reply{Words: []Word{{"Yes.", 400}}} }
	}
	if s.cfg.Hear == nil {
		s.cfg.Hear = func(n int) string { return fmt.Sprintf("word %d", n) }
	}
	if s.cfg.Model == "" {
		s.cfg.Model = "gpt-realtime"
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() { s.CloseAll(); srv.Close() })
	s.URL = "ws" + strings.TrimPrefix(srv.URL, "http") + "/v1/realtime"
	return s
}

// ServeHTTP accepts a socket.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse := s.Refuse
	s.mu.Unlock()
	if refuse != 0 {
		http.Error(w, `{"error":{"message":"no"}}`, refuse)
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"realtime"}})
	if err != nil {
		return
	}
	ws.SetReadLimit(16 << 20)
	c := &Conn{s: s, ws: ws, beta: strings.HasPrefix(r.Header.Get("OpenAI-Beta"), "realtime"), session: map[string]any{
		"type": "realtime", "object": "realtime.session", "id": s.id("sess"), "model": s.cfg.Model,
		"audio": map[string]any{
			"input":  map[string]any{"format": map[string]any{"type": "audio/pcm", "rate": 24000}, "turn_detection": nil},
			"output": map[string]any{"format": map[string]any{"type": "audio/pcm", "rate": 24000}, "voice": "marin"},
		},
	}}
	if c.beta {
		c.session = map[string]any{"object": "realtime.session", "id": s.id("sess"), "model": s.cfg.Model, "input_audio_format": "pcm16", "output_audio_format": "pcm16"}
	}
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.Headers = append(s.Headers, r.Header.Clone())
	s.Queries = append(s.Queries, r.URL.RawQuery)
	s.mu.Unlock()
	c.Send(map[string]any{"type": "session.created", "session": c.session})
	for {
		_, frame, err := ws.Read(context.Background())
		if err != nil {
			break
		}
		var e map[string]any
		if json.Unmarshal(frame, &e) != nil {
			c.fail("", "invalid_json", "the event is not JSON")
			continue
		}
		c.handle(e)
	}
	c.stop()
	c.running.Wait()
	_ = ws.CloseNow()
}

func (s *Server) id(kind string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	return fmt.Sprintf("%s_%06d", kind, s.ids)
}

// Conns returns the sockets so far, oldest first.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Conn(nil), s.conns...)
}

// Last returns the newest socket.
func (s *Server) Last() *Conn {
	list := s.Conns()
	return list[len(list)-1]
}

// SetRefuse has new sockets refused with a status, or accepted for 0.
func (s *Server) SetRefuse(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Refuse = status
}

// CloseAll closes all sockets as a network that breaks.
func (s *Server) CloseAll() {
	for _, c := range s.Conns() {
		c.Break()
	}
}

// Break closes the socket without a word.
func (c *Conn) Break() { _ = c.ws.CloseNow() }

// Expire closes the socket as OpenAI does after an hour.
func (c *Conn) Expire() {
	c.Send(map[string]any{"type": "error", "error": map[string]any{"type": "invalid_request_error", "code": "session_expired", "message": "Your session hit the maximum duration of 60 minutes."}})
	_ = c.ws.Close(websocket.StatusGoingAway, "session expired")
}

// Close closes the socket with a code.
func (c *Conn) Close(code int, reason string) { _ = c.ws.Close(websocket.StatusCode(code), reason) }

// Items returns the conversation.
func (c *Conn) Items() []Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Item(nil), c.items...)
}

// Session returns the session.
func (c *Conn) Session() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Types returns the types of the events that the client has sent.
func (c *Conn) Types() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.Received...)
}

// Send sends an event.
func (c *Conn) Send(e map[string]any) {
	if c.beta {
		e["type"] = betaName(e["type"].(string))
	}
	if _, ok := e["event_id"]; !ok {
		e["event_id"] = c.s.id("event")
	}
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	c.write.Lock()
	defer c.write.Unlock()
	_ = c.ws.Write(context.Background(), websocket.MessageText, raw) // the client may be gone
}

// Raw sends a frame as it is.
func (c *Conn) Raw(frame []byte) error {
	c.write.Lock()
	defer c.write.Unlock()
	return c.ws.Write(context.Background(), websocket.MessageText, frame)
}

func betaName(kind string) string {
	switch {
	case kind == "conversation.item.added":
		return "conversation.item.created"
	case strings.HasPrefix(kind, "response.output_audio"):
		return "response.audio" + strings.TrimPrefix(kind, "response.output_audio")
	case strings.HasPrefix(kind, "response.output_text"):
		return "response.text" + strings.TrimPrefix(kind, "response.output_text")
	}
	return kind
}

func (c *Conn) fail(event, code, message string) {
	e := map[string]any{"type": "invalid_request_error", "code": code, "message": message}
	if event != "" {
		e["event_id"] = event
	}
	c.Send(map[string]any{"type": "error", "error": e})
}

func (c *Conn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *Conn) handle(e map[string]any) {
	kind, _ := e["type"].(string)
	event, _ := e["event_id"].(string)
	c.mu.Lock()
	c.Received = append(c.Received, kind)
	c.mu.Unlock()
	switch kind {
	case "session.update":
		session, _ := e["session"].(map[string]any)
		c.mu.Lock()
		c.Updates = append(c.Updates, session)
		c.session = merged(c.session, session)
		out := c.session
		c.mu.Unlock()
		c.Send(map[string]any{"type": "session.updated", "session": out})
	case "input_audio_buffer.append":
		audio, _ := e["audio"].(string)
		raw, _ := base64.StdEncoding.DecodeString(audio)
		c.mu.Lock()
		c.appended += int64(len(raw))
		c.mu.Unlock()
	case "input_audio_buffer.clear":
		c.mu.Lock()
		c.appended = 0
		c.mu.Unlock()
		c.Send(map[string]any{"type": "input_audio_buffer.cleared"})
	case "input_audio_buffer.commit":
		c.Commit()
	case "conversation.item.create":
		c.create(e, event)
	case "conversation.item.truncate":
		c.truncate(e, event)
	case "conversation.item.delete":
		id, _ := e["item_id"].(string)
		c.mu.Lock()
		at := c.find(id)
		if at >= 0 {
			c.items = append(c.items[:at:at], c.items[at+1:]...)
		}
		c.mu.Unlock()
		if at < 0 {
			c.fail(event, "item_not_found", "the item does not exist")
			return
		}
		c.Send(map[string]any{"type": "conversation.item.deleted", "item_id": id})
	case "response.create":
		create, _ := e["response"].(map[string]any)
		c.Respond(create)
	case "response.cancel":
		c.stop()
	}
}

// merged returns a session with the fields of an update.
func merged(a, b map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		below, ok := v.(map[string]any)
		if old, was := out[k].(map[string]any); ok && was && (k == "audio" || k == "input" || k == "output") {
			out[k] = merged(old, below)
		} else {
			out[k] = v
		}
	}
	return out
}

func (c *Conn) find(id string) int {
	for i := range c.items {
		if c.items[i].ID == id {
			return i
		}
	}
	return -1
}

// insert adds an item after another, at the end for "".
func (c *Conn) insert(it Item, after string) (previous any, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := len(c.items)
	switch i := c.find(after); {
	case after == "root":
		at = 0
	case after != "" && i < 0:
		return nil, false
	case after != "":
		at = i + 1
	}
	if at > 0 {
		previous = c.items[at-1].ID
	}
	c.items = append(c.items[:at:at], append([]Item{it}, c.items[at:]...)...)
	return previous, true
}

func (c *Conn) create(e map[string]any, event string) {
	in, _ := e["item"].(map[string]any)
	str := func(name string) string { s, _ := in[name].(string); return s }
	it := Item{ID: str("id"), Type: str("type"), Role: str("role"), CallID: str("call_id"), Name: str("name"), Args: str("arguments"), Text: str("output")}
	if len(it.ID) > 32 {
		c.fail(event, "string_above_max_length", "Invalid 'item.id': string too long.")
		return
	}
	if it.ID == "" {
		it.ID = c.s.id("item")
	}
	list, _ := in["content"].([]any)
	for _, p := range list {
		part, _ := p.(map[string]any)
		text, _ := part["text"].(string)
		kind, _ := part["type"].(string)
		want := map[string]string{"user": "input_text", "system": "input_text", "assistant": "output_text"}[it.Role]
		if c.beta && it.Role == "assistant" {
			want = "text"
		}
		if kind != want && !strings.Contains(kind, "audio") {
			c.fail(event, "invalid_value", "Invalid value: '"+kind+"'. Value must be '"+want+"'.")
			return
		}
		it.Text += text
	}
	c.mu.Lock()
	exists := c.find(it.ID) >= 0
	c.mu.Unlock()
	if exists {
		c.fail(event, "item_create_invalid_item_id", "the item exists already")
		return
	}
	after, _ := e["previous_item_id"].(string)
	previous, ok := c.insert(it, after)
	if !ok {
		c.fail(event, "item_create_invalid_previous_item_id", "the previous item does not exist")
		return
	}
	c.added(it, previous, in)
}

// added announces an item.
func (c *Conn) added(it Item, previous any, object map[string]any) {
	object = merged(object, map[string]any{"id": it.ID, "object": "realtime.item", "status": "completed"})
	c.Send(map[string]any{"type": "conversation.item.added", "previous_item_id": previous, "item": object})
	if !c.beta {
		c.Send(map[string]any{"type": "conversation.item.done", "previous_item_id": previous, "item": object})
	}
}

func (c *Conn) truncate(e map[string]any, event string) {
	id, _ := e["item_id"].(string)
	end, _ := e["audio_end_ms"].(float64)
	c.mu.Lock()
	at := c.find(id)
	bad := ""
	switch {
	case at < 0:
		bad = "the item does not exist"
	case !c.items[at].Audio || c.items[at].Role != "assistant":
		bad = "only items of the assistant with audio can be truncated"
	case int64(end) > c.items[at].AudioMS:
		bad = fmt.Sprintf("Audio content of %dms is already shorter than %dms", c.items[at].AudioMS, int64(end))
	default:
		c.items[at].Text, c.items[at].AudioMS = "", int64(end) // OpenAI deletes all of the transcript
	}
	c.mu.Unlock()
	if bad != "" {
		c.fail(event, "invalid_value", bad)
		return
	}
	c.Send(map[string]any{"type": "conversation.item.truncated", "item_id": id, "content_index": 0, "audio_end_ms": int64(end)})
}
