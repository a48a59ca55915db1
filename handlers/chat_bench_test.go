package handlers_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
)

// BenchmarkChatCancel measures how long it takes until the upstream sees that the client went away,
// in each phase of a call.
func BenchmarkChatCancel(b *testing.B) {
	for name, tt := range map[string]struct {
		script fake.Script
		more   string
	}{
		"mid-stream":  {fake.Script{Chunks: []string{"One ", "two"}, HangAfter: 1}, `,"stream":true`},
		"first token": {fake.Script{Hang: true}, `,"stream":true`},
		"unary":       {fake.Script{Hang: true}, ""},
	} {
		b.Run(name, func(b *testing.B) {
			seen := make(chan time.Time, 1)
			llm := fake.New(fake.Options{Script: tt.script, Cancelled: func(fake.Seen) { seen <- time.Now() }})
			back := httptest.NewServer(llm)
			defer back.Close()
			mem := agents.NewService(agents.Config{Ledger: storetest.New(b), Now: time.Now, NewID: func() string { return "a1" }})
			run := turn.New(turn.Config{
				Turns: mem.Turns, Client: &llmadapter.Client{Transport: llmadapter.NewTransport(new(net.Dialer).DialContext, nil)},
				Defaults: memory.LLMSettings{URL: back.URL},
			})
			api := handlers.New(handlers.Config{
				Memory: mem, Answers: run, Access: &handlers.Access{DefaultProject: "p1"}, Log: zerolog.Nop(),
				Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MaxBody: 1 << 20, MetricsPage: http.NotFoundHandler(),
			})
			srv := httptest.NewServer(api)
			defer srv.Close()
			if _, err := mem.Agents.Join(b.Context(), agents.JoinRequest{Project: "p1", Name: "n"}); err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				ctx, cancel := context.WithCancel(b.Context())
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/agents/a1/chat/completions", strings.NewReader(say("hi "+itoa(i), tt.more)))
				if err != nil {
					b.Fatal(err)
				}
				var left time.Time
				if name == "mid-stream" {
					res, err := http.DefaultClient.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
						b.Fatal(err)
					}
					left = time.Now()
					cancel()
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				} else {
					go func() {
						_, _ = llm.WaitRequests(ctx, min(i+1, 1000))
						left = time.Now()
						cancel()
					}()
					if res, err := http.DefaultClient.Do(req); err == nil {
						res.Body.Close()
						b.Fatal("an answer came")
					}
				}
				took = append(took, (<-seen).Sub(left))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
		})
	}
}
