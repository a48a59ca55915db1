package turn

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// Call is one chat-completions call of a client.
type Call struct {
	Project, AgentID string
	Request          *llmadapter.Request
	// Key is the client's Idempotency-Key, at most memory.MaxMessageID characters: the id of its user message.
	Key string
	// Resends tells whether the client is known to send its whole list each time; nil knows of none. It is asked where neither a setting nor the list
	// itself says so.
	Resends func() bool
}

// Headers that tell a client where its call went.
const (
	AgentHeader = "X-Heardlog-Agent"
	TurnHeader  = "X-Heardlog-Turn"
)

// beginTimeout bounds the writing of the caller's words when the client is already gone.
const beginTimeout = 30 * time.Second

// exchange is one turn on its way.
type exchange struct {
	*Runner
	req    *http.Request       // nil for a turn without a client
	w      http.ResponseWriter // nil for a turn without a client
	out    *client             // nil for a turn without a client
	plan   *plan               // nil for a turn without a client, and once the request is made
	model  string              // as the client named it
	stream bool                // the client wants a stream
	timing
	body  meter      // of the upstream's answer
	trace *turnTrace // nil if it is not traced
	// share is what identical requests follow, nil if the agent does not want that; follows is the one that this request follows itself.
	share, follows *share
	voiced         string // see voicedBy
	aside          bool   // it is a question beside the agent's turns: see Ask

	ctx    context.Context // of the upstream call; its cause says why it ended
	cancel context.CancelCauseFunc
	turn   *memory.Turn
	llm    memory.LLMSettings // what holds for this call

	mu       sync.Mutex // guards relay.Record, which a client that goes away makes another goroutine read, and what follows
	relay    llmadapter.Relay
	settling bool
	drained  bool            // the client is gone and the upstream is still read
	noted    <-chan struct{} // closed when relay.Record has what the client was sent until it was; written before drained
	settled  chan struct{}
	unstored error // what Settle failed with; it and what follows are read after settled
	outcome  string
	failed   *memory.Failure
	upstream string // name of the LLM that answers, or that was asked last

	wantsStream bool      // of the upstream
	attempted   *attempt  // what answers
	asking      *target   // whose secrets must not come out
	filler      *filler   // nil for a call without one
	alone       [1]target // room for the list of a call that has one upstream
	trying      attempt   // room for attempted, and for those that fail before it
}

// Serve answers a client's call. An error means that nothing was written yet, but for ErrAborted. Answers of the upstream
// other than 2xx are written through as they are.
//
// Once the turn has begun c.Request and c.Resends are nil: an answer may take minutes, and the memory of its question is not needed for that.
func (r *Runner) Serve(w http.ResponseWriter, req *http.Request, c *Call) error {
	if r.cfg.Client.Looped(req.Header) {
		return fault.At(fault.Invalid, "llm.url", "points back at this server, which would call itself without end; set the address of an LLM")
	}
	p := &plan{req: c.Request, speaks: r.speaks, header: req.Header.Get(ModeHeader), key: c.Key, resends: c.Resends}
	if p.header != "" && p.header != ModeInject && p.header != ModeReconcile {
		return fault.At(fault.Invalid, ModeHeader, "must be %s or %s", ModeInject, ModeReconcile)
	}
	var err error
	if p.projection, err = projectionOf(req); err != nil {
		return err
	}
	if p.policy, err = policyOf(c.Request); err != nil {
		return err
	}
	if !r.start() {
		return fault.Wrap(fault.Unavailable, errShutdown, "the server is going down")
	}
	defer r.running.Done()
	r.metrics.active.Inc()
	defer r.metrics.active.Dec()
	x := r.exchange(context.WithoutCancel(req.Context()))
	x.req, x.w, x.plan, x.stream, x.model = req, w, p, c.Request.Stream, c.Request.Model
	defer x.cancel(nil)
	x.trace = r.traced(req.Header, c.Project, c.AgentID, x.arrived)
	if followed, err := x.begins(c, p); followed || err != nil {
		x.trace.end(x, err)
		return err
	}
	if p.ghost || x.turn.Took > 0 {
		r.metrics.ghosts.Inc()
	}
	x.voiced = voicedBy(c.Request)
	c.Request, c.Resends = nil, nil
	w.Header().Set(AgentHeader, x.turn.Agent.ID)
	w.Header().Set(TurnHeader, strconv.FormatInt(x.turn.TurnID, 10))
	x.startFiller() // before a client who leaves makes another goroutine look at it

	left, ended := make(chan struct{}), false
	stop := context.AfterFunc(req.Context(), func() {
		defer close(left)
		if !x.share.firstLeft() {
			x.clientLeft()
		}
	})
	defer func() {
		if !stop() {
			<-left // it uses the exchange
		}
		if !ended { // it panicked: nobody who follows this answer may take it for a whole one
			err = ErrAborted
		}
		x.share.finish(err)
		x.finishDrain()
		x.trace.end(x, nil)
	}()
	err = x.run()
	ended = true
	if err != nil && (x.out == nil || !x.out.begun) { // the handler answers
		x.timing.set(w.Header())
	}
	return err
}

func (r *Runner) exchange(ctx context.Context) *exchange {
	x := &exchange{Runner: r, settled: make(chan struct{})}
	x.arrived = r.cfg.Now()
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.relay.Now, x.relay.Lock = r.cfg.Now, &x.mu
	return x
}

// begin writes the call's messages and opens its turn; see memory.Turns.Durable. It goes on when the client leaves: what was said was said.
func (x *exchange) begin(project, agentID string, plan func(memory.Head, []memory.Message) (memory.Plan, error)) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(x.ctx), beginTimeout)
	defer stop()
	r := memory.TurnRequest{Plan: plan, ArrivedMS: x.arrived.UnixMilli(), Cut: func(cause error) { x.cancel(cause) }, Generated: x.generated}
	if p := x.plan; p != nil { // a ledger has more messages than a list: ghosts, results of tools
		r.Projection, r.Depth, r.Policy = p.projection, 2*len(p.req.Messages)+16, p.policy
	}
	t, err := x.cfg.Turns.Begin(ctx, project, agentID, r)
	if err != nil {
		return err
	}
	x.turn, x.begun = t, x.cfg.Now()
	x.trace.memory(x.arrived, x.begun)
	x.llm = x.settings(t.Agent.Settings.LLM)
	return nil
}

// generated gives what has been read of the answer so far.
func (x *exchange) generated() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.relay.Record.Generated()
}

// settings fills in the server's defaults.
func (r *Runner) settings(a memory.LLMSettings) memory.LLMSettings {
	d := r.cfg.Defaults
	if a.URL == "" {
		a.URL, a.Headers = d.URL, merged(d.Headers, a.Headers)
		if a.APIKey == "" {
			a.APIKey = d.APIKey
		}
		if a.Vendor == "" {
			a.Vendor = d.Vendor
		}
	}
	if a.Model == "" {
		a.Model = d.Model
	}
	if a.OnDisconnect == "" {
		a.OnDisconnect = d.OnDisconnect
	}
	if a.FailureMessage == "" {
		a.FailureMessage = d.FailureMessage
	}
	for _, f := range []struct{ own, def *int }{
		{&a.ConnectTimeoutMS, &d.ConnectTimeoutMS}, {&a.FirstTokenTimeoutMS, &d.FirstTokenTimeoutMS},
		{&a.IdleTimeoutMS, &d.IdleTimeoutMS}, {&a.TotalTimeoutMS, &d.TotalTimeoutMS},
	} {
		if *f.own == 0 {
			*f.own = *f.def
		}
	}
	return a
}

func merged(def, own map[string]secret.String) map[string]secret.String {
	if len(def) == 0 {
		return own
	}
	out := make(map[string]secret.String, len(def)+len(own))
	for _, m := range []map[string]secret.String{def, own} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

func (x *exchange) limits() llmadapter.Limits {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	return llmadapter.Limits{
		Connect: ms(x.llm.ConnectTimeoutMS), FirstToken: ms(x.llm.FirstTokenTimeoutMS),
		Idle: ms(x.llm.IdleTimeoutMS), Total: ms(x.llm.TotalTimeoutMS),
	}
}

// assemble makes the body for an upstream. If it is the only one, what the body is made of is let go.
func (x *exchange) assemble(t *target, only bool) []byte {
	var req *llmadapter.Request
	if x.plan != nil {
		req = x.plan.req
	}
	a := llmadapter.Assembly{
		Summary: x.summary(),
		System:  x.llm.SystemMessages, Variables: x.llm.Variables, Request: req,
		Messages: x.told(t.custom), Custom: t.custom, TurnID: x.turn.TurnID, TimestampMS: x.arrived.UnixMilli(),
		Params: x.llm.Params, Model: x.llm.Model, OnlyModel: t.model, Stream: req == nil,
	}
	body := a.Append(make([]byte, 0, x.bodySize(req)))
	x.wantsStream = req == nil || req.Stream
	if only {
		x.release()
	}
	return body
}

// summary gives the summary that the model is told. A platform's own list still has what was summarised, unless that has left the memory: then it is taken out of
// the list too.
func (x *exchange) summary() string {
	if m := &x.turn.Agent.Settings.Memory; x.plan != nil && x.plan.mode == ModeReconcile && m.BaseSeq == 0 && m.SummaryUpTo == 0 {
		return ""
	}
	return x.turn.Summary
}

// bodySize guesses the size of the upstream body, so that it is allocated once.
func (x *exchange) bodySize(req *llmadapter.Request) int {
	n := 512 + len(x.llm.Params) + len(x.turn.Summary)
	for _, s := range x.llm.SystemMessages {
		n += len(s) + 64
	}
	if req != nil {
		n += req.Size()
	}
	for _, m := range x.turn.Context {
		n += len(m.Content) + len(m.Parts) + 96
	}
	return n
}

func reveal(m map[string]secret.String) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v.Reveal()
	}
	return out
}

// run calls the upstream and passes its answer on.
func (x *exchange) run() error {
	defer x.filler.end()
	a, err := x.ask()
	if err == nil {
		x.attempted = a
		defer a.close()
	}
	// The disk was at the caller's words while the upstream was asked. Nothing of the answer goes anywhere before they are kept.
	if lost := x.cfg.Turns.Durable(x.turn); lost != nil {
		return x.lostTurn(lost)
	}
	if err != nil {
		return x.fail(err)
	}
	if isStream(a.res, x.wantsStream) {
		return x.relayStream(a)
	}
	return x.relayWhole(a)
}

// lostTurn ends an exchange whose words the disk did not take: it never was, and the upstream was asked for nothing.
func (x *exchange) lostTurn(lost error) error {
	if x.attempted != nil {
		x.answered(x.attempted)
	}
	x.cancel(lost)
	_ = x.settle(lost, nil, "") // it fails as the turn did, and ends the flight
	return lost
}

// readable refuses a 2xx whose body cannot be a chat completion: one that is compressed, although nothing of the kind was asked for, and a web page.
func readable(res *http.Response) error {
	if enc := res.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return fault.New(fault.Upstream, "the LLM answered in an encoding that was not asked for")
	}
	if strings.HasPrefix(strings.ToLower(res.Header.Get("Content-Type")), "text/html") {
		return fault.New(fault.Upstream, "the LLM answered 200 with a web page")
	}
	return nil
}

// isStream tells whether an answer is server-sent events: it says so, or it says nothing to the contrary.
func isStream(res *http.Response, wanted bool) bool {
	typ, _, _ := strings.Cut(strings.ToLower(res.Header.Get("Content-Type")), ";")
	typ = strings.TrimSpace(typ)
	return typ == "text/event-stream" || wanted && !strings.HasSuffix(typ, "json")
}

// settle stores the answer as it stands; only the first call does anything, later ones wait for it. It fails with *notStored: then nobody
// may be told that the answer is complete. An answer that had failed anyway has no more to lose, so that most callers need not look.
func (x *exchange) settle(err error, f *memory.Failure, failureText string) error {
	filler := x.filler.end()
	x.mu.Lock()
	if x.settling {
		x.mu.Unlock()
		<-x.settled
		return x.lost()
	}
	x.settling = true
	rec := &x.relay.Record
	a := memory.Answer{
		Generated: rec.Generated(), Sent: rec.Sent(), ToolCalls: rec.ToolCalls(), FinishRsn: rec.Finish, Usage: rec.Usage,
		UpstreamID: rec.ID, Repeats: failureText == "" && !rec.Calls() && x.repeats(rec.Generated()), Upstream: x.upstream, Filler: filler, Complete: (err == nil || rec.Complete()) && !rec.Cut(), Err: err, Failure: f, FailureText: failureText,
		Timings: memory.Timings{
			StartMS: x.arrived.UnixMilli(), FirstTokenMS: x.since(rec.FirstTokenAt), FirstSentenceMS: x.since(rec.FirstSentenceAt),
			TotalMS: x.since(x.cfg.Now()), UpstreamFirstByteMS: x.firstMS(), UpstreamBytes: x.bytes.Load(),
		},
	}
	token, sentence := rec.FirstTokenAt, rec.FirstSentenceAt
	x.mu.Unlock()
	defer close(x.settled)
	x.metrics.times(&x.timing, token, sentence)
	label := outcome(err)
	if failureText != "" {
		label = "failure_message"
	}
	x.metrics.answers.WithLabelValues(label).Inc()
	from := x.cfg.Now()
	if _, err := x.cfg.Turns.Settle(x.ctx, x.turn, a); err != nil {
		x.cfg.Log.Error().Err(err).Str("agent", x.turn.Agent.ID).Int64("turn_id", x.turn.TurnID).Msg("an answer could not be stored")
		x.unstored = err
	}
	x.stored(from, label, f)
	return x.lost()
}

// lost tells, once the answer is settled, that it could not be stored.
func (x *exchange) lost() error {
	if x.unstored == nil {
		return nil
	}
	return &notStored{x.unstored}
}

// notStored is an answer that the store did not take.
type notStored struct{ err error }

// Error gives the store's error.
func (e *notStored) Error() string { return "the answer could not be stored: " + e.err.Error() }

// Unwrap gives the store's error.
func (e *notStored) Unwrap() error { return e.err }

func isNotStored(err error) bool {
	_, ok := errors.AsType[*notStored](err)
	return ok
}

// failStored ends an exchange whose answer came whole but could not be stored: a client must not take it for one that is remembered.
func (x *exchange) failStored(err error) error {
	x.filler.end()
	if x.out != nil && x.out.begun {
		x.breakStream(fault.Wrap(fault.Unavailable, err, "the answer could not be stored"))
		return errors.Join(ErrAborted, err)
	}
	return fault.Wrap(fault.Unavailable, err, "the answer could not be stored; try again")
}

// since gives the ms from the call's arrival, at least 1; 0 for a time that never was.
func (x *exchange) since(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, t.Sub(x.arrived).Milliseconds())
}

// wasCut tells whether an answer was ended because somebody asked for that.
func wasCut(err error) bool {
	for _, cut := range []error{memory.ErrInterrupted, memory.ErrBargeIn, memory.ErrSpeak, memory.ErrThink, memory.ErrLeave, memory.ErrSuperseded, memory.ErrOvertaken} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return false
}
