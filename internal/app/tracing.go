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
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/turn"
)

// flushTimeout limits the sending of the last traces, within the shutdown timeout.
const flushTimeout = 5 * time.Second

// newTracing returns the provider of traces, or nil if the settings want none. The SDK sends spans
// in batches from its own goroutine. If the collector is too slow, spans are lost and nothing
// waits.
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
	log.Info().Str("to", secret.MaskURL(url)).Bool("content", c.Content).Msg("traces")
	return sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(&loggedExporter{SpanExporter: exporter, log: log})), nil
}

// tracing returns the settings of traces for package turn.
func (a *App) tracing() turn.Tracing {
	if a.traces == nil {
		return turn.Tracing{}
	}
	return turn.Tracing{Tracer: a.traces.Tracer("github.com/heardlog/heardlog"), Content: a.cfg.Tracing.Content}
}

// closeTracing sends the remaining spans.
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

// loggedExporter logs the first of several failures to send traces. The SDK would report them to a
// handler of the whole process. One goroutine calls it at a time.
type loggedExporter struct {
	sdktrace.SpanExporter
	log     zerolog.Logger
	failing bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil && !e.failing {
		e.log.Warn().Str("error", string(secret.NewSet().Hide([]byte(err.Error())))).Int("spans", len(spans)).Msg("traces could not be sent and are lost")
	}
	e.failing = err != nil
	return nil
}
