package responses

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/heardlog/heardlog/llmadapter"
)

// Writer is an http.ResponseWriter that takes a chat completion, in one piece or as a stream, and
// writes the response to its request. What is written and flushed has been translated, written and
// flushed to the client. Answers other than 200 pass unchanged: their errors have the same form.
type Writer struct {
	http.ResponseWriter
	req    *Request
	answer *answer
	ref    func(http.Header) Ref // reads the answer's place from the headers
	now    int64

	in, out bool // a stream comes in, a stream goes out
	whole   []byte
	stream  llmadapter.Events
	events  []byte // not written yet
	number  int
}

// NewWriter returns a Writer of the response to r. ref returns the answer's place from the headers
// of the chat completion, and now is in Unix seconds.
func NewWriter(w http.ResponseWriter, r *Request, ref func(http.Header) Ref, now int64) *Writer {
	return &Writer{ResponseWriter: w, req: r, ref: ref, now: now}
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(status int) {
	if status != http.StatusOK {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	h := w.Header()
	w.answer = w.req.newAnswer(w.ref(h), w.now)
	w.in = strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
	if w.out = w.req.Stream; w.in && w.out {
		w.open()
	}
}

// open begins a stream to the client.
func (w *Writer) open() {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Del("Content-Length")
	w.ResponseWriter.WriteHeader(http.StatusOK)
	w.answer.emit = w.add
	w.answer.begin()
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(b []byte) (int, error) {
	switch {
	case w.answer == nil:
		return w.ResponseWriter.Write(b)
	case !w.in:
		w.whole = append(w.whole, b...)
		return len(b), nil
	}
	w.read(w.stream.Feed(b))
	if !w.out {
		return len(b), nil
	}
	if len(w.events) == 0 {
		w.events = append(w.events, ":\n\n"...) // a comment shows that the connection is alive
	}
	return len(b), w.send()
}

// read reads events of the chat completion.
func (w *Writer) read(events []llmadapter.Event) {
	for _, e := range events {
		if e.Data != nil {
			w.answer.read(e.Data)
		}
	}
}

// add adds an event of the response.
func (w *Writer) add(kind string, e event) {
	e.Type, e.Number = kind, w.number
	w.number++
	b := marshal(e)
	w.events = append(append(append(append(append(w.events, "event: "...), kind...), "\ndata: "...), b...), "\n\n"...)
}

// send writes the events.
func (w *Writer) send() error {
	_, err := w.ResponseWriter.Write(w.events)
	w.events = w.events[:0]
	return err
}

// FlushError sends what was written.
func (w *Writer) FlushError() error {
	if w.answer != nil && !(w.in && w.out) {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Finish ends the response once the chat completion is written. broken is set if that broke off, so
// that the connection will be aborted.
func (w *Writer) Finish(broken bool) error {
	a := w.answer
	if a == nil {
		return nil
	}
	switch {
	case w.in:
		w.read(w.stream.End()) // a last event may have no blank line after it
	case w.out: // the upstream does not stream
		w.open()
		a.readWhole(w.whole)
	default:
		a.readWhole(w.whole)
	}
	if broken {
		a.fail(&Failure{Code: "upstream_truncated", Message: "the answer broke off"})
	}
	a.end()
	if w.out {
		if len(w.events) == 0 {
			return nil
		}
		if err := w.send(); err != nil {
			return err
		}
		return http.NewResponseController(w.ResponseWriter).Flush()
	}
	body := append(marshal(a.res), '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.ResponseWriter.WriteHeader(http.StatusOK)
	_, err := w.ResponseWriter.Write(body)
	return err
}

// Interrupt ends a stream whose client wants no more of it but still reads. Its answer is
// incomplete with the reason interrupted, as it is stored.
func (w *Writer) Interrupt() error {
	if w.answer == nil { // nothing was written
		w.Header().Del("Content-Length")
		w.answer = w.req.newAnswer(w.ref(w.Header()), w.now)
	}
	if w.out = true; !w.in {
		w.open()
	}
	w.answer.res.Incomplete = &Incomplete{"interrupted"}
	w.answer.end()
	return w.send()
}

// marshal encodes a value that cannot fail to be encoded.
func marshal(v any) []byte {
	b, err := json.Marshal(v, lenient, json.Deterministic(true))
	if err != nil {
		return []byte("{}")
	}
	return b
}
