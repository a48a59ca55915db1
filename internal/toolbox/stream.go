package toolbox

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/llmadapter"
)

// stream is the stream of the responses to a Box's requests, as a client may see it.
type stream struct {
	*Box
	ctx   context.Context // of the calls
	src   llmadapter.Source
	again func(body []byte) (llmadapter.Source, error)

	response llmadapter.Record  // what was read of this response
	held     []llmadapter.Event // its beginning, or what it has from its first call on
	size     int                // of held, in bytes
	ended    bool               // its calls have been dealt with

	out  []llmadapter.Event
	sent bool   // the client has got a chunk
	id   string // of the chunks that it has got, as JSON
}

// Stream returns the stream of a response without the calls of the tools, which it runs until one
// response calls none of them alone. From its first call on, a response is held back until it ends.
// again sends a request and returns the stream of its response.
func (b *Box) Stream(ctx context.Context, src llmadapter.Source, again func(body []byte) (llmadapter.Source, error)) llmadapter.Source {
	return &stream{Box: b, ctx: ctx, src: src, again: again}
}

// Next implements llmadapter.Source.
func (s *stream) Next() ([]llmadapter.Event, error) {
	s.out = s.out[:0]
	src := s.src
	events, err := src.Next()
	for _, e := range events {
		if failed := s.event(e); failed != nil || s.src != src {
			return s.out, failed
		}
	}
	if err == io.EOF && !s.ended { //nolint:errorlint // the end itself, not an end within something
		if failed := s.end(); failed != nil || s.src != src { // it had no finish_reason
			return s.out, failed
		}
	}
	return s.out, err
}

// event passes on an event of the response, or holds it back.
func (s *stream) event(e llmadapter.Event) error {
	begun := s.response.Begun()
	s.response.Chunk(e.Data)
	switch {
	case e.Data == nil || s.ended:
		s.pass(e)
		return nil
	case !begun && s.response.Begun() && s.sent:
		s.held = nil // the client has had the beginning of an answer
	}
	if s.response.Begun() && !s.response.Calls() {
		s.release()
		s.pass(e)
		return nil
	}
	if s.size += len(e.Raw); s.size > llmadapter.MaxEvent {
		return errEndlessCalls
	}
	s.held = append(s.held, llmadapter.Event{Raw: bytes.Clone(e.Raw), Data: bytes.Clone(e.Data), Torn: e.Torn})
	s.out = append(s.out, llmadapter.Event{Data: []byte{}}) // shows that the upstream works
	if s.response.Ended() {
		return s.end()
	}
	return nil
}

// end deals with the calls of a response that has ended.
func (s *stream) end() error {
	s.ended = true
	own, others := s.split(s.response.ToolCalls())
	switch {
	case len(own) == 0:
	case s.rounds == maxToolRounds:
		return errEndlessTools
	case len(others) > 0: // the client goes on with its own
		s.results(s.ctx, own)
		s.keep(others)
	default:
		next := s.next(s.ctx, &s.response, own)
		s.response, s.held, s.size, s.ended = llmadapter.Record{}, nil, 0, false
		var err error
		s.src, err = s.again(next)
		return err
	}
	s.release()
	return nil
}

// keep leaves only some calls in what is held back.
func (s *stream) keep(calls []call) {
	list := "["
	for i, c := range calls {
		if i > 0 {
			list += ","
		}
		list += `{"index":` + strconv.Itoa(i) + "," + c.json[1:]
	}
	list += "]"
	var left []llmadapter.Event
	for _, e := range s.held {
		there := peek.At(e.Data, "choices", "0", "delta", "tool_calls")
		if there.Exists() {
			choice := peek.At(e.Data, "choices", "0")
			if list == "[]" && choice.At("delta", "content").Text() == "" && choice.At("finish_reason").Text() == "" {
				continue
			}
			e = edited(e, there, list)
			list = "[]"
		}
		left = append(left, e)
	}
	s.held = left
}

// edited returns an event with another value in its data.
func edited(e llmadapter.Event, old peek.Value, value string) llmadapter.Event {
	e.Data = peek.Replace(e.Data, old, value)
	e.Raw = slices.Concat([]byte("data: "), e.Data, []byte("\n\n"))
	return e
}

// release passes on what was held back.
func (s *stream) release() {
	for _, e := range s.held {
		s.pass(e)
	}
	s.held = nil
}

// pass passes on an event, with the ID of the chunks before: clients refuse an answer whose chunks
// have several.
func (s *stream) pass(e llmadapter.Event) {
	s.sent = s.sent || e.Data != nil
	id := peek.At(e.Data, "id")
	switch {
	case !id.IsString() || len(id) == 2 && s.id == "": // Azure begins with an empty one
	case s.id == "":
		s.id = string(id)
	case s.id != string(id):
		e = edited(e, id, s.id)
	}
	s.out = append(s.out, e)
}
