package toolbox

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/heardlog/heardlog/llmadapter"
)

// stream is the stream of a response without the calls of the memory's tools. When a response ends
// with such calls alone, it runs them and goes on with the stream of the next response.
type stream struct {
	*Box
	ctx   context.Context // of the calls
	src   io.Reader
	again func(body []byte) (io.Reader, error)

	sse llmadapter.SSE
	in  []byte // of the upstream, from the start of an unfinished event on
	out []byte // for the client
	fed int    // of in, what sse has seen
	err error  // of reading

	id    string // of the chunks that the client has got
	sent  bool   // the client has got a chunk of an earlier response
	said  strings.Builder
	held  []byte        // the opening chunk of the response, which has only a role
	calls map[int]*call // of this response, by index
	order []int         // of own calls
	ran   bool          // the own calls of a mixed response were run
}

// call is a tool call of a response.
type call struct {
	toolCall
	own   bool
	index int // for the client, of its own
}

// Stream returns the stream of a response without the calls of the tools, which it runs until one
// response calls none of them alone. again sends a request and returns the stream of its response.
func (b *Box) Stream(ctx context.Context, src io.Reader, again func(body []byte) (io.Reader, error)) io.Reader {
	return &stream{Box: b, ctx: ctx, src: src, again: again, calls: map[int]*call{}}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.out) == 0 && s.err == nil {
		s.fill()
	}
	n := copy(p, s.out)
	if s.out = s.out[n:]; n > 0 || len(s.out) > 0 {
		return n, nil
	}
	return 0, s.err
}

// fill reads more of the response.
func (s *stream) fill() {
	s.in = slices.Grow(s.in, 4<<10)
	n, err := s.src.Read(s.in[len(s.in):cap(s.in)])
	s.in = s.in[:len(s.in)+n]
	done, round := 0, s.rounds
	from := s.fed
	s.sse.Feed(s.in[s.fed:], func(data []byte, end int) {
		if s.err == nil && round == s.rounds {
			s.event(s.in[done:from+end], data)
			done = from + end
		}
	})
	if round != s.rounds { // another response
		s.in, s.fed, s.sse = nil, 0, llmadapter.SSE{}
		return
	}
	s.in = append(s.in[:0], s.in[done:]...)
	s.fed = len(s.in)
	if err == nil && s.err == nil && len(s.in) > llmadapter.MaxEvent {
		s.err = errEndlessEvent
	}
	if err == nil || s.err != nil {
		return
	}
	if err == io.EOF && len(s.order) > 0 && !s.mixed() {
		s.goOn() // it ended without finish_reason
		s.in, s.fed, s.sse = nil, 0, llmadapter.SSE{}
		return
	}
	s.err = err
	s.out = append(append(s.out, s.held...), s.in...)
	s.held = nil
}

// mixed reports whether the response calls a tool of the client.
func (s *stream) mixed() bool { return len(s.calls) > len(s.order) }

// event passes on an event of the upstream, or what the client may have of it.
func (s *stream) event(raw, data []byte) {
	choice := gjson.GetBytes(data, "choices.0")
	delta := choice.Get("delta")
	calls := delta.Get("tool_calls").Array()
	content := delta.Get("content").String()
	finish := choice.Get("finish_reason").String()
	ends := finish != "" || string(bytes.TrimSpace(data)) == "[DONE]"
	switch {
	case !choice.Exists() && !(ends && len(s.order) > 0): // usage, [DONE] or an error
		s.pass(raw)
		return
	case len(calls) == 0 && content == "" && finish == "" && delta.Get("role").Exists() && len(s.order) == 0 && s.held == nil && len(delta.Map()) <= 3:
		s.held = slices.Clone(raw)
		return
	}
	s.said.WriteString(content)
	if len(calls) > 0 {
		raw = s.withoutOwn(raw, data, calls, content)
	}
	if ends && len(s.order) > 0 && !s.ran {
		if !s.mixed() {
			s.goOn()
			return
		}
		s.ran = true
		s.next(s.ctx, s.said.String(), s.own()) // the client goes on with its own
		s.rounds--
	}
	s.pass(raw)
}

// pass passes on an event, after the one that was held back.
func (s *stream) pass(raw []byte) {
	if len(raw) == 0 {
		return
	}
	if s.held != nil && !s.sent {
		s.out = append(s.out, s.renamed(s.held)...)
	}
	s.held = nil
	s.out = append(s.out, s.renamed(raw)...)
}

// renamed returns an event with the ID of the chunks before: clients refuse an answer whose chunks
// have several.
func (s *stream) renamed(raw []byte) []byte {
	from := bytes.IndexByte(raw, '{')
	if from < 0 {
		return raw
	}
	id := gjson.GetBytes(raw[from:], "id")
	switch {
	case id.Type != gjson.String || id.Str == "" && s.id == "": // Azure begins with an empty one
		return raw
	case s.id == "":
		s.id = id.Raw
		return raw
	case s.id == id.Raw:
		return raw
	}
	at := from + id.Index
	return slices.Concat(raw[:at], []byte(s.id), raw[at+len(id.Raw):])
}

// withoutOwn notes the tool calls of an event and returns it without those of the memory, or nil if
// nothing is left.
func (s *stream) withoutOwn(raw, data []byte, calls []gjson.Result, content string) []byte {
	var left []map[string]json.RawMessage
	changed := false
	for i, c := range calls {
		at := i
		if n := c.Get("index"); n.Exists() {
			at = int(n.Int())
		}
		known := s.calls[at]
		if known == nil {
			name := c.Get("function.name").String()
			known = &call{toolCall: toolCall{id: c.Get("id").String(), name: name}, own: s.owns(name), index: len(s.calls) - len(s.order)}
			s.calls[at] = known
			if known.own {
				s.order = append(s.order, at)
			}
		}
		if known.own {
			changed = true
			if len(known.arguments) <= maxToolInput {
				known.arguments += c.Get("function.arguments").String()
			}
			continue
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(c.Raw), &fields) != nil {
			continue
		}
		if known.index != at {
			changed = true
			fields["index"] = marshal(known.index)
		}
		left = append(left, fields)
	}
	switch {
	case !changed:
		return raw
	case len(left) == 0 && content == "" && gjson.GetBytes(data, "choices.0.finish_reason").String() == "":
		return nil
	}
	list := gjson.GetBytes(data, "choices.0.delta.tool_calls")
	return slices.Concat([]byte("data: "), data[:list.Index], marshal(left), data[list.Index+len(list.Raw):], []byte("\n\n"))
}

// own returns the calls of the memory's tools.
func (s *stream) own() []toolCall {
	out := make([]toolCall, len(s.order))
	for i, at := range s.order {
		out[i] = s.calls[at].toolCall
	}
	return out
}

// goOn runs the tools and begins the next response.
func (s *stream) goOn() {
	if s.rounds == maxToolRounds {
		s.err = errEndlessTools
		return
	}
	next := s.next(s.ctx, s.said.String(), s.own())
	s.sent = s.sent || s.id != ""
	s.held, s.order, s.calls = nil, nil, map[int]*call{}
	s.said.Reset()
	s.src, s.err = s.again(next)
}
