package turn

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// Question is what an agent's LLM is asked beside the agent's turns: nothing of it is said to the caller, nor stored.
type Question struct {
	Agent        memory.Agent
	System, User string // the two messages that go up, and nothing else of the agent
	// Model is asked in place of the agent's; "" for that. A fallback with a model of its own keeps it.
	Model string
	// Span names the question's trace.
	Span string
}

// Reply is what it answered, complete.
type Reply struct {
	Text, Finish string
	Upstream     string // the name of the LLM that answered
}

// maxReply is how many bytes of an upstream's answer to a question are read, its framing included.
const maxReply = 4 << 20

var errLongReply = fault.New(fault.Upstream, "the LLM's answer is longer than is read of it")

// Ask asks the agent's LLM as a turn of its would: its upstreams in their order, with their credentials, limits and breakers. It fails as a turn does, and where the answer is
// not complete. Of llm.params, those go along that choose how the model thinks; those that bound or shape an answer that is spoken do not. Ending ctx ends the call.
func (r *Runner) Ask(ctx context.Context, q Question) (Reply, error) {
	x := r.exchange(ctx)
	defer x.cancel(nil)
	x.aside, x.asked = true, x.arrived // it is no turn, and has no overhead
	x.begun = x.arrived
	m := memory.Message{Role: memory.User, Source: memory.SourceCommand, Content: q.User}
	x.turn = &memory.Turn{Agent: q.Agent, Context: []*memory.Message{&m}}
	x.llm = r.settings(q.Agent.Settings.LLM)
	if err := r.speaks(q.Agent.Settings.LLM); err != nil {
		return Reply{}, err
	}
	system, err := json.Marshal(map[string]string{"role": "system", "content": q.System})
	if err != nil {
		return Reply{}, fault.Wrap(fault.Internal, err, "the question could not be put")
	}
	l := &x.llm
	l.SystemMessages, l.Variables, l.View, l.FailureMessage = []json.RawMessage{system}, nil, nil, ""
	l.Params = thinking(l.Params, q.Model != "")
	if q.Model != "" {
		l.Model = q.Model
	}
	x.trace = r.tracedAs(q.Span, nil, q.Agent.Project, q.Agent.ID, x.arrived)
	err = x.put()
	x.outcome = outcome(err)
	if err != nil {
		x.failed = x.failure(err)
	}
	x.trace.end(x, nil)
	if err != nil {
		return Reply{}, err
	}
	rec := &x.relay.Record
	return Reply{Text: rec.Generated(), Finish: rec.Finish, Upstream: x.upstream}, nil
}

// thinking gives those of llm.params that a question shares with the agent's turns: what bounds an answer that is to be spoken would cut another.
func thinking(params json.RawMessage, otherModel bool) json.RawMessage {
	var all map[string]json.RawMessage
	if len(params) == 0 || json.Unmarshal(params, &all) != nil {
		return nil
	}
	for _, name := range []string{
		"max_tokens", "max_completion_tokens", "max_output_tokens", "min_tokens", "stop", "n", "best_of", "stream", "stream_options", "messages",
		"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format", "modalities", "audio", "prediction",
		"logprobs", "top_logprobs", "store", "turn_id", "timestamp", "interruptable",
	} {
		delete(all, name)
	}
	if otherModel {
		delete(all, "model")
	}
	if len(all) == 0 {
		return nil
	}
	out, err := json.Marshal(all)
	if err != nil { // it was JSON a moment ago
		return nil
	}
	return out
}

// put asks and reads the answer.
func (x *exchange) put() error {
	a, err := x.ask()
	if err != nil {
		return err
	}
	x.attempted = a
	defer a.close()
	if err = x.hear(a); err != nil {
		x.unanswered(err)
		return err
	}
	x.answered(a)
	return nil
}

// hear reads an answer that goes to nobody.
func (x *exchange) hear(a *attempt) error {
	rec := &x.relay.Record
	if !isStream(a.res, x.wantsStream) {
		body, err := readWhole(a.res)
		switch {
		case err != nil && fault.Is(err, fault.Upstream):
			return err
		case err != nil:
			return llmadapter.ReadFault(a.ctx, err)
		case !rec.Unary(body):
			return errNoAnswer
		case rec.Error != nil:
			return x.streamFault(rec.Error)
		}
		return nil
	}
	x.relay.Alive = func(rec *llmadapter.Record) {
		a.watch.Event(rec)
		if !a.booked && rec.Error == nil && rec.Begun() {
			x.answered(a)
		}
	}
	src := &atMost{a.res.Body, maxReply}
	err := x.relay.Run(src)
	switch {
	case src.left <= 0:
		return errLongReply
	case rec.Error != nil:
		return x.streamFault(rec.Error)
	case err != nil && !(errors.Is(context.Cause(a.ctx), llmadapter.ErrGrace) && rec.Complete()):
		return llmadapter.ReadFault(a.ctx, err)
	case !rec.Complete():
		return fault.New(fault.Upstream, "the LLM broke off within its answer")
	}
	return nil
}

// atMost ends a body that is longer than left bytes.
type atMost struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (l *atMost) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	return n, err
}

// RetryAfter gives how long the upstream that failed with err asks to be left alone; 0 if it does not say.
func RetryAfter(err error, now time.Time) time.Duration {
	if up, ok := errors.AsType[*llmadapter.UpstreamError](err); ok {
		return llmadapter.RetryAfter(up.Header, now)
	}
	return 0
}

// Outcome gives the label of how asking ended: ok, or what went wrong, as the metrics of answers name it.
func Outcome(err error) string { return outcome(err) }
