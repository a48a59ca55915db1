package turn

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/genai"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// Tracing sets how turns are traced; its zero value traces nothing. Names are those of
// OpenTelemetry's semantic conventions for generative AI; those of our own begin with heardlog.
//
// A turn is a span invoke_agent below the client's trace. Its children are two spans upsert_memory,
// for the caller's words and for the answer, and a span chat for each attempt, which the upstream
// gets in traceparent.
type Tracing struct {
	Tracer trace.Tracer // nil traces nothing
	// Content adds what was said to the spans, at most genai.MaxContent bytes of each side.
	Content bool
}

// turnTrace holds the spans of one turn. A nil turnTrace traces nothing.
type turnTrace struct {
	Tracing
	ctx   context.Context // of root
	root  trace.Span
	chat  trace.Span // of the attempt under way; nil while there is none
	asked time.Time  // when that began
}

// startTrace starts the root span of a turn or a question. h are the client's headers, or nil.
func (r *Runner) startTrace(name string, h http.Header, project, agent string, arrived time.Time) *turnTrace {
	if r.cfg.Tracing.Tracer == nil {
		return nil
	}
	ctx, kind := context.Background(), trace.SpanKindInternal
	if h != nil {
		ctx, kind = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(h)), trace.SpanKindServer
	}
	t := &turnTrace{Tracing: r.cfg.Tracing}
	t.ctx, t.root = t.Tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithTimestamp(arrived), trace.WithAttributes(
		attribute.String("gen_ai.operation.name", name), attribute.String("gen_ai.agent.id", agent),
		attribute.String("gen_ai.conversation.id", agent), attribute.String("heardlog.project", project),
	))
	return t
}

// memory adds a span for an operation of the memory.
func (t *turnTrace) memory(from, to time.Time) {
	if t == nil {
		return
	}
	_, s := t.Tracer.Start(t.ctx, "upsert_memory", trace.WithTimestamp(from), trace.WithAttributes(attribute.String("gen_ai.operation.name", "upsert_memory")))
	s.End(trace.WithTimestamp(to))
}

// asks starts the span of an attempt and adds it to the request's headers.
func (t *turnTrace) asks(x *exchange, call *llmadapter.Call, now time.Time) {
	if t == nil {
		return
	}
	ctx, s := t.Tracer.Start(t.ctx, genai.Span(call.Body), trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(now))
	t.chat, t.asked = s, now
	call.Client = genai.Propagate(ctx, call.Client)
	if !s.IsRecording() {
		return
	}
	s.SetAttributes(genai.Request(call)...)
	s.SetAttributes(attribute.String("gen_ai.conversation.id", x.turn.Agent.ID), attribute.String("heardlog.upstream", x.answer.upstream))
	if t.Content && x.turn.Agent.Settings.PausedUntilMS == 0 { // lists repeat what was said in a pause
		s.SetAttributes(attribute.String("gen_ai.input.messages", genai.InputMessages(hidden(x.hide, call.Body, memory.Lines(slices.Values(x.turn.Ledger()))))))
	}
}

// failed ends the span of an attempt without an answer.
func (t *turnTrace) failed(x *exchange, err error) {
	if t == nil {
		return
	}
	// Else it was cancelled.
	if context.Cause(x.ctx) == nil || fault.Is(err, fault.UpstreamTimeout) {
		setFailed(t.chat, failureOf(err))
	}
	t.chat.End(trace.WithTimestamp(x.cfg.Now()))
	t.chat = nil
}

// end ends the spans of a turn that is over. err is why the turn did not begin, or nil.
func (t *turnTrace) end(x *exchange, err error) {
	if t == nil {
		return
	}
	now := trace.WithTimestamp(x.cfg.Now())
	defer t.root.End(now)
	if x.joined != nil && (err == nil || fault.Is(err, fault.Canceled)) {
		t.root.SetAttributes(attribute.String("heardlog.outcome", "joined"))
		return
	}
	if x.turn == nil {
		t.root.SetAttributes(attribute.String("error.type", string(fault.CodeOf(err))))
		t.root.SetStatus(codes.Error, "")
		return
	}
	if t.root.IsRecording() {
		if !x.aside {
			t.root.SetAttributes(attribute.Int64("heardlog.turn_id", x.turn.TurnID))
		}
		rec := &x.answer.relay.Record
		t.root.SetAttributes(
			attribute.String("heardlog.outcome", x.answer.outcome),
			attribute.Int("heardlog.generated_chars", len(rec.Generated())), attribute.Int("heardlog.sent_chars", len(rec.Sent())),
		)
		if x.client != nil {
			t.root.SetAttributes(attribute.String("heardlog.request_id", x.client.w.Header().Get("X-Request-Id")))
		}
	}
	setFailed(t.root, x.answer.failure)
	if t.chat != nil {
		t.answered(x)
		setFailed(t.chat, x.answer.failure)
		t.chat.End(now)
	}
}

// setFailed marks a span as failed. The upstream's message is left out: it may quote what was said.
func setFailed(s trace.Span, f *memory.Failure) {
	if f == nil {
		return
	}
	s.SetAttributes(attribute.String("error.type", strconv.Itoa(f.Code)))
	s.SetStatus(codes.Error, "")
}

// answered adds the attributes of the answer.
func (t *turnTrace) answered(x *exchange) {
	if !t.chat.IsRecording() {
		return
	}
	rec := &x.answer.relay.Record
	t.chat.SetAttributes(genai.Response(rec)...)
	if first := x.first.Load(); first > 0 {
		wait := time.Duration(first) - t.asked.Sub(x.arrived)
		t.chat.SetAttributes(attribute.Float64("gen_ai.response.time_to_first_chunk", wait.Seconds()))
	}
	if t.Content && x.turn.Agent.Settings.PausedUntilMS == 0 { // lists repeat what was said in a pause
		t.chat.SetAttributes(attribute.String("gen_ai.output.messages", string(x.hide.JSON([]byte(genai.OutputMessages(rec))))))
	}
}
