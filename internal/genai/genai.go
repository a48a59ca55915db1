// Package genai writes calls of LLMs in the form of OpenTelemetry's semantic conventions for
// generative AI: Request and Response return the attributes of a span chat, InputMessages and
// OutputMessages what was said, and Propagate puts the span into the request's headers.
package genai

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/llmadapter"
)

// Span returns the name of the span of a call with that request body.
func Span(body []byte) string { return strings.TrimSpace("chat " + model(body)) }

// model returns the model that a request asks for.
func model(body []byte) string { return clipped(peek.At(body, "model").Text()) }

// Request returns the attributes of a call.
func Request(call *llmadapter.Call) []attribute.KeyValue {
	host, port := serverOf(call.URL)
	return []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", provider(host)),
		attribute.String("gen_ai.request.model", model(call.Body)), attribute.Bool("gen_ai.request.stream", call.Stream),
		attribute.String("server.address", host), attribute.Int("server.port", port),
	}
}

// Response returns the attributes of an answer.
func Response(rec *llmadapter.Record) (out []attribute.KeyValue) {
	if rec.ID != "" {
		out = append(out, attribute.String("gen_ai.response.id", clipped(rec.ID)))
	}
	if rec.Finish != "" {
		out = append(out, attribute.StringSlice("gen_ai.response.finish_reasons", []string{clipped(rec.Finish)}))
	}
	for name, path := range map[string]string{
		"gen_ai.usage.input_tokens": "prompt_tokens", "gen_ai.usage.output_tokens": "completion_tokens",
		"gen_ai.usage.cache_read.input_tokens": "prompt_tokens_details.cached_tokens",
	} {
		if n := peek.Parse(rec.Usage).Path(path); n.IsNumber() {
			out = append(out, attribute.Int64(name, n.Int()))
		}
	}
	return out
}

// Propagate returns a client's headers with ctx's span in place of the client's.
func Propagate(ctx context.Context, client http.Header) http.Header {
	h := http.Header{}
	maps.Copy(h, client)
	h.Del("Traceparent")
	h.Del("Tracestate")
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	return h
}

// clipped limits the length of a string that a client or an upstream chose.
func clipped(s string) string {
	const most = 256
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "")
}

// serverOf returns the host and port of an address. Paths and queries may hold keys and are not
// traced.
func serverOf(address string) (string, int) {
	u, err := url.Parse(address)
	if err != nil {
		return "", 0
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		port = 443
		if u.Scheme == "http" {
			port = 80
		}
	}
	return u.Hostname(), port
}

// provider returns the conventions' name for the provider at a host, or the name of the API.
func provider(host string) string {
	for _, p := range []struct{ host, name string }{
		{"azure.com", "azure.ai.openai"}, {"anthropic.com", "anthropic"}, {"groq.com", "groq"}, {"mistral.ai", "mistral_ai"},
		{"deepseek.com", "deepseek"}, {"x.ai", "x_ai"}, {"perplexity.ai", "perplexity"}, {"cohere.com", "cohere"}, {"googleapis.com", "gcp.gemini"},
	} {
		if host == p.host || strings.HasSuffix(host, "."+p.host) {
			return p.name
		}
	}
	return "openai"
}
