package handlers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/heardlog/heardlog/llmadapter"
)

// socketAnswer is the http.ResponseWriter of a response that goes over a WebSocket. It sends each
// event of the stream as a message. An answer that is not a stream is an error, which becomes an
// event once it is whole: see rest.
type socketAnswer struct {
	header http.Header
	send   func(event []byte) error
	began  func(id string) // is called with the ID of the response

	status int // 0: not written
	stream llmadapter.Events
	whole  []byte
	events int   // how many were sent
	ended  bool  // the last event was sent
	err    error // of sending
}

// maxSocketError limits an error that is not an event, in bytes.
const maxSocketError = 64 << 10

// Header implements http.ResponseWriter.
func (w *socketAnswer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. The first status counts.
func (w *socketAnswer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *socketAnswer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.status != http.StatusOK || !strings.HasPrefix(w.header.Get("Content-Type"), "text/event-stream") {
		w.whole = append(w.whole, b[:min(len(b), maxSocketError-len(w.whole))]...)
		return len(b), nil
	}
	for _, e := range w.stream.Feed(b) {
		if len(e.Data) > 0 && w.err == nil {
			w.err = w.event(e.Data)
		}
	}
	return len(b), w.err
}

// FlushError returns why an event could not be sent. Events are sent at once.
func (w *socketAnswer) FlushError() error { return w.err }

// event sends one event of the stream. Over HTTP an error comes before response.failed, which says
// the same. Here a client takes either for the end, and may use the connection for its next
// response.
func (w *socketAnswer) event(data []byte) error {
	kind := eventType(data)
	if kind == "error" || w.ended {
		return nil
	}
	if w.events == 0 {
		var first struct {
			Response struct {
				ID string `json:"id"`
			} `json:"response"`
		}
		_ = json.Unmarshal(data, &first) // every stream begins with response.created
		w.began(first.Response.ID)
	}
	w.events++
	switch kind {
	case "response.completed", "response.failed", "response.incomplete":
		w.ended = true
	}
	return w.send(data)
}

// eventType returns the type of an event that package responses has encoded, which comes first.
func eventType(data []byte) string {
	rest, _ := bytes.CutPrefix(data, []byte(`{"type":"`))
	kind, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(kind)
}

// rest returns the event that ends the response, if none has yet.
func (w *socketAnswer) rest() []byte {
	if w.ended {
		return nil
	}
	var body openAIErrorBody
	var in struct {
		Error struct {
			Message, Type string
			Param         *string
			Code          any
		}
	}
	if err := json.Unmarshal(w.whole, &in); err == nil && in.Error.Message != "" {
		body.Error.Message, body.Error.Type, body.Error.Param = in.Error.Message, in.Error.Type, in.Error.Param
		body.Error.Code, _ = in.Error.Code.(string) // some LLMs send a number: the status has it
	}
	if body.Error.Message == "" {
		body.Error.Message = "the response broke off"
	}
	if body.Error.Type == "" {
		body.Error.Type = "server_error"
	}
	status := w.status
	if status < http.StatusBadRequest {
		status = http.StatusBadGateway
	}
	return socketError(status, body, w.header)
}

// socketError returns an error as an event of a socket. h may have a Retry-After.
func socketError(status int, body openAIErrorBody, h http.Header) []byte {
	type wire struct {
		Message string            `json:"message"`
		Type    string            `json:"type"`
		Param   *string           `json:"param"`
		Code    string            `json:"code,omitempty"`
		Headers map[string]string `json:"headers,omitempty"`
	}
	e := wire{Message: body.Error.Message, Type: body.Error.Type, Param: body.Error.Param, Code: body.Error.Code}
	if after := h.Get("Retry-After"); after != "" {
		e.Headers = map[string]string{"retry-after": after}
	}
	b, err := json.Marshal(struct {
		Type   string `json:"type"`
		Status int    `json:"status"`
		Error  wire   `json:"error"`
	}{"error", status, e})
	if err != nil {
		return []byte(`{"type":"error","status":500,"error":{"message":"internal error","type":"server_error","param":null}}`)
	}
	return b
}
