package turn

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
)

// client is the client's side of an answer. As an llmadapter.StreamWriter it sends the headers with
// the first byte, so that a failure before it can still have a status of its own. A nil client is a
// turn without one.
type client struct {
	w       http.ResponseWriter
	header  http.Header // of the request
	rc      *http.ResponseController
	flush   func() error
	timeout time.Duration // of one write
	now     func() time.Time
	timing  *timing
	share   *share // where the answer goes too; nil for nowhere

	stream    bool   // the client wants a stream
	model, id string // of chunks and completions of our own

	due    time.Time // the write deadline that is set; zero for none
	opened bool      // the stream's headers are set
	begun  bool      // the headers are sent

	mu     sync.Mutex // held while something is written, since a filler's timer writes too
	filler *filler    // nil for none
}

// newClient returns the client's side of a turn that has begun, and sets the headers that name it.
func (x *exchange) newClient(w http.ResponseWriter, req *http.Request, in *llmadapter.Request) *client {
	turn := strconv.FormatInt(x.turn.TurnID, 10)
	w.Header().Set(AgentHeader, x.turn.Agent.ID)
	w.Header().Set(TurnHeader, turn)
	w.Header().Set(SeqHeader, strconv.FormatInt(max(1, x.turn.AnswerSeq), 10))
	c := x.newWriter(w, &x.timing)
	c.header, c.share = req.Header, x.share
	c.stream, c.id = in.Stream, "chatcmpl-heardlog-"+x.turn.Agent.ID+"-"+turn
	c.model = cmp.Or(in.Model, x.llm.Model, "heardlog")
	return c
}

// newWriter returns a client that can be written to, and no more.
func (r *Runner) newWriter(w http.ResponseWriter, t *timing) *client {
	return &client{
		w: w, rc: http.NewResponseController(w), flush: flusher(w),
		timeout: r.cfg.WriteTimeout, now: r.cfg.Now, timing: t,
	}
}

// flusher returns the Flush that reports errors. Wrappers of a ResponseWriter often offer one that
// does not, and only an error shows that words did not leave the socket.
func flusher(w http.ResponseWriter) func() error {
	for inner := w; ; {
		switch f := inner.(type) {
		case interface{ FlushError() error }:
			return f.FlushError
		case interface{ Unwrap() http.ResponseWriter }:
			inner = f.Unwrap()
			continue
		}
		return http.NewResponseController(w).Flush
	}
}

// open prepares a stream. Until the headers are sent, they may be replaced by those of an
// upstream's response, whose content type may be empty.
func (c *client) open(contentType string, from http.Header) {
	c.opened = true
	if c.begun {
		return
	}
	if contentType == "" {
		contentType = "text/event-stream"
	}
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	llmadapter.CopyRateLimits(h, from)
}

// Write implements io.Writer. It writes to the client and to the requests that joined the answer.
func (c *client) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.put(b)
}

// put is Write for a caller that holds mu.
func (c *client) put(b []byte) (int, error) {
	if c.share != nil {
		return c.share.write(c, b)
	}
	return c.write(b)
}

// write writes to the client alone. One that does not read fails after the write timeout.
func (c *client) write(b []byte) (int, error) {
	// Setting it each time costs more than the write.
	if now := c.now(); c.due.Sub(now) < c.timeout*3/4 {
		c.due = now.Add(c.timeout)
		_ = c.rc.SetWriteDeadline(c.due) // a writer without deadlines has none
	}
	if !c.begun {
		c.begun = true
		c.timing.set(c.w.Header())
		c.w.WriteHeader(http.StatusOK)
	}
	return c.w.Write(b)
}

// Flush implements llmadapter.StreamWriter.
func (c *client) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.push()
}

// push is Flush for a caller that holds mu.
func (c *client) push() error {
	if c.share != nil {
		return c.share.flush(c)
	}
	return c.flush()
}

// done removes the deadline from the connection, which may serve another request.
func (c *client) done() {
	if !c.due.IsZero() {
		_ = c.rc.SetWriteDeadline(time.Time{})
	}
}

// whileSilent runs do while nothing is being written.
func (c *client) whileSilent(do func()) {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	do()
}

// inject writes something of our own between two events of a stream.
func (c *client) inject(b []byte) error {
	c.endFiller()
	if !c.opened {
		c.open("", nil)
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	return c.Flush()
}

// say sends text as a chunk of the answer.
func (c *client) say(text string) error {
	return c.inject(c.chunk(c.id, chunkDelta{"assistant", text}, ""))
}

// endStream ends a stream as a complete answer ends.
func (c *client) endStream() {
	// The client may be gone.
	_ = c.inject(append(c.chunk(c.id, chunkDelta{}, "stop"), "data: [DONE]\n\n"...))
	c.done()
}

// breakStream reports err inside the stream. The caller aborts the connection after it.
func (c *client) breakStream(err error) {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		e = &fault.Error{Code: fault.Upstream, Msg: "the LLM broke off its answer"}
	}
	body := map[string]streamError{"error": {Message: e.Msg, Type: "upstream_error", Code: string(e.Code)}}
	_ = c.inject(event(body)) // the client may be gone
	c.done()
}

// streamError is OpenAI's error object.
type streamError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// event returns a data event of a stream.
func event(v any) []byte {
	return append(append([]byte("data: "), marshal(v)...), "\n\n"...)
}

// chunk is a chat.completion.chunk, and, with message instead of delta, a chat.completion.
type chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []chunkChoice `json:"choices"`
}

type chunkChoice struct {
	Index   int         `json:"index"`
	Delta   *chunkDelta `json:"delta,omitempty"`
	Message *chunkDelta `json:"message,omitempty"`
	Finish  *string     `json:"finish_reason"`
}

type chunkDelta struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content,omitempty"`
}

// chunk returns an event of our own; finish is its finish_reason, or "" for null.
func (c *client) chunk(id string, delta chunkDelta, finish string) []byte {
	choice := chunkChoice{Delta: &delta}
	if finish != "" {
		choice.Finish = &finish
	}
	return event(chunk{id, "chat.completion.chunk", c.timing.arrived.Unix(), c.model, []chunkChoice{choice}})
}

// completion returns a whole answer of our own.
func (c *client) completion(text string) []byte {
	stop := "stop"
	choice := chunkChoice{Message: &chunkDelta{"assistant", text}, Finish: &stop}
	return marshal(chunk{c.id, "chat.completion", c.timing.arrived.Unix(), c.model, []chunkChoice{choice}})
}

// marshal encodes a value that cannot fail to be encoded.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("{}")
	}
	return b
}

// writeBody answers with body in one piece. h may hold headers of an upstream's response.
func (c *client) writeBody(status int, body []byte) {
	h := c.w.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.share.answer(status, h, body)
	c.timing.set(h)
	c.sendWhole(status, body)
}

// sendWhole sends the status and the body of a response whose headers are set.
func (c *client) sendWhole(status int, body []byte) {
	c.w.WriteHeader(status)
	c.begun = true
	_, _ = c.write(body) // the client may be gone
	c.done()
}

// passError passes on an upstream's error.
func (c *client) passError(e *llmadapter.UpstreamError) {
	h := c.w.Header()
	maps.Copy(h, e.Header)
	h.Set("Content-Type", "application/json")
	c.writeBody(e.Status, e.Body)
}
