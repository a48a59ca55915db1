// Package turn runs the turns of a conversation: it connects the memory (Turns) with an upstream
// LLM (package llmadapter). Runner is its main type: Serve answers a client's call, Think runs a
// turn without a client, and Ask puts a question to an agent's LLM that is not a turn.
//
// A turn goes through steps, each of which hands its result to the next:
//
//	plan     what a request adds to the memory: package prompt, and join.go for identical requests
//	begin    the memory stores it and opens the turn
//	prompt   the messages and the request body for the LLM: package prompt
//	ask      upstreams are asked until one answers; the result is an attempt: attempt.go
//	relay    the response's events are recorded and passed on: relay.go
//	settle   the memory stores the answer: settle.go
//
// A stream is divided into events once. They go through stages in this order: the tools of the
// memory (package toolbox), the recorder (llmadapter.Relay), the filler and the client (client.go),
// identical requests that joined (join.go), and, for a client of the Responses API, its writer
// (llmadapter/responses).
//
// A turn that began is settled exactly once, whatever happens: before the client learns that the
// answer is complete, or as soon as the client goes away.
package turn

import (
	"context"
	"net/http"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/redact"
)

// Response headers that name the agent, the turn and the place in the ledger of an answer.
const (
	AgentHeader = "X-Heardlog-Agent"
	TurnHeader  = "X-Heardlog-Turn"
	SeqHeader   = "X-Heardlog-Seq"
)

// MemoryHeader is "off" for a call of prompt.ModeOff. It is also "off" if the store is away and the
// call goes on without it: the turn is not stored yet, and has neither turn nor place.
const MemoryHeader = "X-Heardlog-Memory"

// RecallHeader describes what of earlier calls was put in front of the caller's words: how many
// turns, their tokens, how long it took and how much of the words they cover.
const RecallHeader = "X-Heardlog-Recall"

// Call is a client's chat completions call.
type Call struct {
	Project, AgentID string
	prompt.Call
}

// exchange is one turn in progress.
type exchange struct {
	*Runner
	timing
	ctx    context.Context // of the upstream call; its cause is why the call ended
	cancel context.CancelCauseFunc
	trace  *turnTrace

	turn   *agents.Turn       // set by begin
	llm    memory.LLMSettings // the agent's, completed with the server's defaults
	hide   *redact.Redactor   // for traces, and for the LLM if it is to see nothing else
	client *client            // nil without one
	answer answer

	share, joined *share // see join.go; nil unless the agent joins duplicates
	aside         bool   // it is a question, not a turn: see Ask
}

func (r *Runner) newExchange(ctx context.Context) *exchange {
	x := &exchange{Runner: r}
	x.arrived = r.cfg.Now()
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.answer.settled = make(chan struct{})
	x.answer.relay.Now = r.cfg.Now
	return x
}

// Serve answers a client's call. An error means that nothing was written, except for ErrAborted.
// Upstream responses other than 2xx are passed on unchanged.
//
// Serve clears c.Request and c.Resends once the turn has begun, which frees their memory while the
// answer is made.
func (r *Runner) Serve(w http.ResponseWriter, req *http.Request, c *Call) (err error) {
	if r.cfg.Client.Looped(req.Header) {
		return fault.At(fault.Invalid, "llm.url", "points back at this server, which would call itself without end; set the address of an LLM")
	}
	p, err := prompt.NewPlan(prompt.Rules{Redactor: r.cfg.Redactor, OnQuestion: r.cfg.Defaults.OnQuestion}, req.Header, &c.Call)
	if err != nil {
		return err
	}
	if !r.start() {
		return fault.Wrap(fault.Unavailable, errShutdown, "the server is going down")
	}
	defer r.running.Done()
	r.metrics.active.Inc()
	defer r.metrics.active.Dec()

	x := r.newExchange(context.WithoutCancel(req.Context()))
	defer x.cancel(nil)
	x.trace = r.startTrace("invoke_agent", req.Header, c.Project, c.AgentID, x.arrived)
	if joined, err := x.beginOrJoin(w, req, c, p); joined || err != nil {
		x.trace.end(x, err)
		return err
	}
	if p.Ghost() || x.turn.Replaced > 0 {
		r.metrics.ghosts.Inc()
	}
	x.client = x.newClient(w, req, c.Request)
	if !x.turn.Unsolicited {
		x.answer.toVoice = wordsToVoice(c.Request)
	}
	ask := x.newPrompt(p)
	c.Request, c.Resends = nil, nil
	x.startFiller()

	stopWatching := x.watchClient(req.Context())
	err = ErrAborted // if run panics, no joined request may take the answer for a whole one
	defer func() {
		stopWatching()
		x.share.finish(err)
		x.finishDrain()
		x.trace.end(x, nil)
	}()
	if err = x.run(ask); err != nil && !x.client.begun {
		x.timing.set(w.Header()) // the handler answers
	}
	return err
}

// beginTimeout limits how long a turn may take to begin. The client may be gone by then.
const beginTimeout = 30 * time.Second

// begin stores what a request adds to the memory and opens its turn; see Turns.Durable. The
// client's leaving does not stop it: what was said was said.
func (x *exchange) begin(project, agentID string, r agents.TurnRequest) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(x.ctx), beginTimeout)
	defer stop()
	r.Window = x.cfg.Window
	r.ArrivedMS, r.Generated = x.arrived.UnixMilli(), x.answer.generated
	r.Cut = func(cause error) { x.cancel(cause) }
	t, err := x.cfg.Turns.Begin(ctx, project, agentID, r)
	if err != nil {
		return err
	}
	x.turn, x.begun = t, x.cfg.Now()
	x.trace.memory(x.arrived, x.begun)
	x.llm = x.settings(t.Agent.Settings.LLM)
	x.hide = x.cfg.Redactor(&t.Agent)
	t.Known(x.hide)
	return nil
}

// newPrompt returns the prompt of the turn, with what the memory finds for it. p is nil without a
// client.
func (x *exchange) newPrompt(p *prompt.Plan) *prompt.Prompt {
	out := prompt.New(x.turn, &x.llm, p, x.hide, x.arrived.UnixMilli())
	if x.aside || x.turn.Passed() { // what is remembered is in the store
		return out
	}
	recalled, ids, ok := out.Remember(x.ctx, x.cfg.Remember, func(tool string) { x.metrics.tools.WithLabelValues(tool).Inc() }, x.hideResult)
	x.answer.recalled = ids
	if !ok {
		return out
	}
	x.metrics.recall.Observe(recalled.Took.Seconds())
	x.metrics.recalled.WithLabelValues(recalled.Strength).Inc()
	if x.client != nil {
		x.client.w.Header().Set(RecallHeader, recalled.Header())
	}
	return out
}

// hideResult returns a tool's result as the model may see it.
func (x *exchange) hideResult(ctx context.Context, result string) string {
	if !x.hide.HidesFromUpstream() {
		return result
	}
	out := ""
	err := x.cfg.Redact(ctx, &x.turn.Agent, func(r *redact.Redactor) { out = string(r.JSON([]byte(result))) })
	if err != nil {
		return `{"error":"the memory cannot be read now"}`
	}
	return out
}

// run asks the upstreams and passes on the answer.
func (x *exchange) run(p *prompt.Prompt) error {
	defer x.client.endFiller()
	a, err := x.ask(p)
	if err == nil {
		defer a.close()
	}
	// The caller's words were written to disk in the meantime. Nothing of the answer may go out
	// before they are durable. Without them the turn does not exist.
	if lost := x.cfg.Turns.Durable(x.turn); lost != nil {
		if a != nil {
			a.answered()
		}
		x.cancel(lost)
		_ = x.settle(lost, nil, "") // fails as the turn did, and closes it
		return lost
	}
	x.client.whileSilent(x.markPassed)
	if err != nil {
		return x.fail(err)
	}
	if a.events != nil {
		return x.relayStream(a)
	}
	return x.relayWhole(a)
}

// markPassed takes back the headers that name a turn of which nothing is stored. Durable has
// returned.
func (x *exchange) markPassed() {
	if x.client == nil || x.client.begun || !x.turn.Passed() {
		return
	}
	h := x.client.w.Header()
	h.Del(TurnHeader)
	h.Del(SeqHeader)
	h.Set(MemoryHeader, "off")
}

// Think runs a turn without a client. When it returns, the message is durable and the turn has
// begun; the answer is made in the background and stored. Think fails with fault.Unavailable if the
// server is going down, and otherwise as Turns.Begin does.
func (r *Runner) Think(ctx context.Context, project, agentID string, m memory.Message) error {
	if !r.start() {
		return fault.New(fault.Unavailable, "the server is going down")
	}
	x := r.newExchange(context.WithoutCancel(ctx))
	x.trace = r.startTrace("invoke_agent", nil, project, agentID, x.arrived)
	err := x.begin(project, agentID, agents.TurnRequest{Plan: func(head memory.Head, _ []memory.Message) (agents.Plan, error) {
		return agents.Plan{Append: []memory.Message{m}}, r.checkLLM(head.Agent.Settings.LLM)
	}})
	if err == nil {
		if err = r.cfg.Turns.Durable(x.turn); err != nil {
			_ = x.settle(err, nil, "")
		}
	}
	if err != nil {
		x.trace.end(x, err)
		x.cancel(nil)
		r.running.Done()
		return err
	}
	stop := context.AfterFunc(r.life, func() { x.cancel(errShutdown) })
	go func() { // Close waits for it
		defer r.running.Done()
		defer x.cancel(nil)
		defer x.trace.end(x, nil)
		defer stop()
		if err := x.run(x.newPrompt(nil)); err != nil && !wasCut(err) {
			r.cfg.Log.Warn().Err(err).Str("agent", agentID).Int64("turn_id", x.turn.TurnID).Msg("a turn without a client failed")
		}
	}()
	return nil
}
