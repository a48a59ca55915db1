package app

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/turn"
)

// flushTimeout bounds how long the last traces may take to be sent at the end, within the shutdown timeout.
const flushTimeout = 5 * time.Second

// newTracing makes what traces turns, nil where the settings ask for no traces. Spans are sent by the SDK's own goroutine, in batches; a collector that does
// not keep up loses spans and holds up nothing.
func newTracing(ctx context.Context, c config.Tracing, log zerolog.Logger) (*sdktrace.TracerProvider, error) {
	url := c.URL()
	if url == "" {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(url))
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces: %w", err)
	}
	service := "heardlog"
	attrs := make([]attribute.KeyValue, 0, len(c.Attributes)+1)
	for _, a := range c.Attributes {
		attrs = append(attrs, attribute.String(a[0], a[1]))
		if a[0] == "service.name" {
			service = a[1]
		}
	}
	if c.Service != "" {
		service = c.Service
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(append(attrs, attribute.String("service.name", service))...))
	if err != nil {
		return nil, fmt.Errorf("describe the service in traces: %w", err)
	}
	log.Info().Str("to", url).Bool("content", c.Content).Msg("traces")
	return sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(&loggedExporter{SpanExporter: exporter, log: log})), nil
}

// tracing gives the part of it that turns need.
func (a *App) tracing() turn.Tracing {
	if a.traces == nil {
		return turn.Tracing{}
	}
	return turn.Tracing{Tracer: a.traces.Tracer("github.com/heardlog/heardlog"), Content: a.cfg.Tracing.Content}
}

// closeTracing sends what is left.
func (a *App) closeTracing(ctx context.Context) {
	if a.traces == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), min(flushTimeout, max(a.cfg.ShutdownTimeout, 100*time.Millisecond)))
	defer stop()
	if err := a.traces.Shutdown(ctx); err != nil {
		a.log.Warn().Err(err).Msg("the last traces could not be sent")
	}
}

// loggedExporter says in the server's log that traces cannot be sent, once until they can again. The SDK would tell a handler that all of the process shares.
// It is called by one goroutine at a time.
type loggedExporter struct {
	sdktrace.SpanExporter
	log     zerolog.Logger
	failing bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil && !e.failing {
		e.log.Warn().Err(err).Int("spans", len(spans)).Msg("traces could not be sent and are lost")
	}
	e.failing = err != nil
	return nil
}
