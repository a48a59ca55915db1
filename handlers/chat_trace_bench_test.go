package handlers_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
)

// silent is an answer whose body is dropped.
type silent struct{ h http.Header }

func (s *silent) Header() http.Header         { return s.h }
func (s *silent) Write(b []byte) (int, error) { return len(b), nil }
func (s *silent) WriteHeader(int)             {}

// BenchmarkChatTraced measures what traces add to a turn. Without a tracer they add nothing.
func BenchmarkChatTraced(b *testing.B) {
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"Hi."},"finish_reason":"stop"}]}`)
	}))
	defer back.Close()
	for name, tracing := range map[string]turn.Tracing{
		"off": {}, "on": {Tracer: sdktrace.NewTracerProvider().Tracer("bench")},
	} {
		b.Run(name, func(b *testing.B) {
			mem := agents.NewService(agents.Config{Ledger: storetest.New(b), Now: time.Now, NewID: func() string { return "a1" }})
			run := turn.New(turn.Config{
				Turns: mem.Turns, Client: &llmadapter.Client{Transport: llmadapter.NewTransport(new(net.Dialer).DialContext, nil)},
				Defaults: memory.LLMSettings{URL: back.URL}, Tracing: tracing,
			})
			api := handlers.New(handlers.Config{
				Memory: mem, Answers: run, Access: &handlers.Access{DefaultProject: "p1"}, Log: zerolog.Nop(),
				Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MaxBody: 1 << 20, MetricsPage: http.NotFoundHandler(),
			})
			if _, err := mem.Agents.Join(b.Context(), agents.JoinRequest{Project: "p1", Name: "n", Settings: memory.Settings{LLM: memory.LLMSettings{MaxHistory: 4}}}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost/v1/agents/a1/chat/completions", http.NoBody)
				req.Body = io.NopCloser(strings.NewReader(say("hi "+strconv.Itoa(i), "")))
				api.ServeHTTP(&silent{http.Header{}}, req)
			}
		})
	}
}
