// Package toolbox runs the tools of the memory inside an LLM's answer. A Box is what one request
// offers: Offer adds the tools to the request's body, and Whole and Stream run those that the
// response calls, until the LLM has answered. The client never sees these calls: it gets the
// model's other words and calls, as if they were one answer.
package toolbox

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/longterm/remember"
)

// Limits of the tools of the memory in one answer.
const (
	maxToolRounds = 2        // requests after which tools were run
	maxToolCalls  = 8        // in one response
	maxToolInput  = 16 << 10 // bytes of the arguments of a call
)

// Run runs a tool and returns its result.
type Run func(ctx context.Context, name string, arguments []byte) string

// Box is the tools of the memory that a request offers, and what runs them. It serves one answer.
type Box struct {
	run    Run
	to     *llmadapter.Recipient
	names  []string
	body   []byte // of the request that was sent last
	others bool   // the request has tools of the client
	rounds int
}

// Offer adds the tools of the memory to the body of a request to an upstream: see Body. It returns
// nil if the request leaves no room for them: it forbids or demands a certain tool, or asks for
// several answers.
func Offer(body []byte, to *llmadapter.Recipient, run Run) *Box {
	choice := peek.At(body, "tool_choice")
	if !choice.IsNull() && choice.Str() != "auto" || peek.At(body, "n").Int() > 1 || peek.At(body, "functions").Exists() {
		return nil
	}
	there := peek.At(body, "tools")
	b := &Box{run: run, to: to, others: len(there.List()) > 0}
	var add []string
	for _, t := range remember.Tools() {
		if slices.ContainsFunc(there.List(), func(o peek.Value) bool { return o.At("function", "name").Text() == t.Name }) {
			continue // the client's own
		}
		b.names = append(b.names, t.Name)
		add = append(add, t.JSON)
	}
	list := strings.Join(add, ",")
	switch {
	case len(add) == 0:
		return nil
	case b.others:
		b.body = splice(body, there.Offset(body)+len(there)-1, ","+list)
	case there.Exists():
		b.body = peek.Replace(body, there, "["+list+"]")
	default:
		b.body = splice(body, len(body)-1, `,"tools":[`+list+`]`)
	}
	return b
}

// Body returns the body of the request that was sent last.
func (b *Box) Body() []byte { return b.body }

// splice returns b with s inserted at i.
func splice(b []byte, i int, s string) []byte { return slices.Concat(b[:i], []byte(s), b[i:]) }

// call is a tool call of a response.
type call struct{ id, name, arguments, json string }

// split returns the calls of the memory's tools in a tool_calls array, and the others.
func (b *Box) split(list []byte) (own, others []call) {
	for _, c := range peek.Parse(list).List() {
		one := call{c.At("id").Text(), c.At("function", "name").Text(), c.At("function", "arguments").Text(), string(c)}
		if b.owns(one.name) {
			own = append(own, one)
		} else {
			others = append(others, one)
		}
	}
	return own, others
}

// results runs calls and returns a message with the result of each, with a comma before it.
func (b *Box) results(ctx context.Context, calls []call) []byte {
	var out []byte
	for i, c := range calls {
		out = text.AppendJSON(append(out, `,{"role":"tool","tool_call_id":`...), c.id)
		out = append(text.AppendJSON(append(out, `,"content":`...), b.result(ctx, c, i)), '}')
	}
	return out
}

// next runs the calls of a response and returns the body of the request that follows. It has the
// response as the upstream sent it, with what the upstream wants to get back.
func (b *Box) next(ctx context.Context, r *llmadapter.Record, calls []call) []byte {
	list := peek.At(b.body, "messages")
	b.body = splice(b.body, list.Offset(b.body)+len(list)-1, ","+string(r.Message(b.to))+string(b.results(ctx, calls)))
	if b.rounds++; b.rounds == maxToolRounds {
		b.withdraw()
	}
	return b.body
}

func (b *Box) result(ctx context.Context, c call, i int) string {
	switch {
	case i >= maxToolCalls:
		return `{"done":false,"error":"too many calls at once"}`
	case len(c.arguments) > maxToolInput:
		return `{"done":false,"error":"the arguments are too long"}`
	}
	// Some upstreams send no arguments at all.
	return b.run(ctx, c.name, []byte(cmp.Or(strings.TrimSpace(c.arguments), "{}")))
}

// withdraw takes the tools of the memory out of the body: the model must answer now. Without other
// tools the list stays, which some upstreams require after calls, and none may be chosen.
func (b *Box) withdraw() {
	if !b.others {
		if choice := peek.At(b.body, "tool_choice"); choice.Exists() {
			b.body = peek.Replace(b.body, choice, `"none"`)
			return
		}
		b.body = splice(b.body, len(b.body)-1, `,"tool_choice":"none"`)
		return
	}
	there := peek.At(b.body, "tools")
	var left []string
	for _, t := range there.List() {
		if !b.owns(t.At("function", "name").Text()) {
			left = append(left, string(t))
		}
	}
	b.body = peek.Replace(b.body, there, "["+strings.Join(left, ",")+"]")
}

func (b *Box) owns(name string) bool { return slices.Contains(b.names, name) }

// Whole runs the tools that an answer in one piece calls, until there is one that calls none of
// them alone, and returns that without their calls. again sends a request and returns its answer.
func (b *Box) Whole(ctx context.Context, body []byte, again func(body []byte) ([]byte, error)) ([]byte, error) {
	for {
		var r llmadapter.Record
		list := peek.At(body, "choices", "0", "message", "tool_calls")
		if !list.IsArray() || !r.Unary(body) {
			return body, nil
		}
		own, others := b.split(list)
		switch {
		case len(own) == 0:
			return body, nil
		case b.rounds == maxToolRounds:
			return nil, errEndlessTools
		case len(others) > 0: // the client goes on with its own
			b.results(ctx, own)
			left := make([]string, len(others))
			for i, c := range others {
				left[i] = c.json
			}
			return peek.Replace(body, list, "["+strings.Join(left, ",")+"]"), nil
		}
		var err error
		if body, err = again(b.next(ctx, &r, own)); err != nil {
			return nil, err
		}
	}
}

// errEndlessTools is a model that goes on calling tools that it is not offered any more.
var errEndlessTools = fault.New(fault.Upstream, "the LLM called tools of the memory without end")

// errEndlessCalls is a response that is larger than is held back of it.
var errEndlessCalls = fault.New(fault.Upstream, "the LLM's tool calls are larger than %d bytes", llmadapter.MaxEvent)
