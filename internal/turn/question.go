package turn

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// Question is a request to an agent's LLM outside the agent's turns. Nothing of it reaches the
// caller or is stored.
type Question struct {
	Agent        memory.Agent
	System, User string // the only two messages
	// Model replaces the agent's model, unless it is empty. A fallback with a model of its own
	// keeps it.
	Model string
	// Span is the name of the question's trace.
	Span string
}

// Reply is the complete answer to a Question.
type Reply struct {
	Text, Finish string
	Upstream     string // the name of the upstream that answered
}

// maxReply limits how many bytes of the response to a question are read.
const maxReply = 4 << 20

var errLongReply = fault.New(fault.Upstream, "the LLM's answer is longer than is read of it")

// Ask asks the agent's LLM as a turn would: its upstreams in their order, with their credentials,
// limits and breakers. It fails as a turn does, and if the answer is not complete. Of llm.params,
// those that choose how the model thinks are sent; those that limit or shape a spoken answer are
// not.
func (r *Runner) Ask(ctx context.Context, q Question) (Reply, error) {
	x := r.newExchange(ctx)
	defer x.cancel(nil)
	x.aside, x.asked = true, x.arrived // it has no overhead to measure
	x.begun = x.arrived
	m := memory.Message{Role: memory.User, Source: memory.SourceCommand, Content: q.User}
	x.turn = &agents.Turn{Agent: q.Agent, Context: []*memory.Message{&m}}
	x.llm = r.settings(q.Agent.Settings.LLM)
	if err := r.checkLLM(q.Agent.Settings.LLM); err != nil {
		return Reply{}, err
	}
	system, err := json.Marshal(map[string]string{"role": "system", "content": q.System})
	if err != nil {
		return Reply{}, fault.Wrap(fault.Internal, err, "the question could not be encoded")
	}
	l := &x.llm
	l.SystemMessages, l.Variables, l.View, l.FailureMessage = []json.RawMessage{system}, nil, nil, ""
	l.Params = questionParams(l.Params, q.Model != "")
	if q.Model != "" {
		l.Model = q.Model
	}
	x.trace = r.startTrace(q.Span, nil, q.Agent.Project, q.Agent.ID, x.arrived)
	err = x.put()
	x.answer.outcome = Outcome(err)
	if err != nil {
		x.answer.failure = failureOf(err)
	}
	x.trace.end(x, nil)
	if err != nil {
		return Reply{}, err
	}
	rec := &x.answer.relay.Record
	return Reply{Text: rec.Generated(), Finish: rec.Finish, Upstream: x.answer.upstream}, nil
}

// questionParams returns those of llm.params that a question shares with the agent's turns. A limit
// for spoken answers would cut other ones.
func questionParams(params json.RawMessage, otherModel bool) json.RawMessage {
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
	if err != nil { // never: it was JSON before
		return nil
	}
	return out
}

// put asks the upstreams and reads the answer.
func (x *exchange) put() error {
	a, err := x.ask(x.newPrompt(nil))
	if err != nil {
		return err
	}
	defer a.close()
	if err = x.read(a); err != nil {
		a.failed(err)
		return err
	}
	a.answered()
	return nil
}

// read reads an answer that is not passed on.
func (x *exchange) read(a *attempt) error {
	relay := &x.answer.relay
	rec := &relay.Record
	if a.events == nil {
		_, err := a.readUnary(rec)
		if err == nil && rec.Error != nil {
			err = a.streamFault(rec.Error)
		}
		return err
	}
	relay.Alive = func(rec *llmadapter.Record) {
		if a.hear(rec); x.bytes.Load() > maxReply {
			x.cancel(errLongReply)
		}
	}
	err := relay.Run(a.events)
	switch {
	case errors.Is(context.Cause(x.ctx), errLongReply):
		return errLongReply
	case rec.Error != nil:
		return a.streamFault(rec.Error)
	case err != nil && !a.finished(rec):
		return a.readFault(rec, err)
	case rec.Cut():
		return errLongReply
	}
	return nil
}
