package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
	"github.com/heardlog/heardlog/webhook"
)

// FuzzIngest checks that any signed body is filed or refused, and that the agent can be read
// afterwards.
func FuzzIngest(f *testing.F) {
	for _, payload := range []string{
		`{"agent_id":"A","start_ts":1780000000,"contents":[{"role":"user","content":"x","turn_id":0,"timestamp":1780000000,"metadata":{"source":"asr","k":[1]}},
			{"role":"assistant","content":"y","turn_id":"1","metadata":{"interrupted":true,"original":"y z","interrupt_timestamp":1780000001000}}]}`,
		`{"agent_id":"A","turns":[{"turn_id":1,"start":{"start_at":1780000000000,"type":"greeting"},"end":{"end_at":1780000001000,"type":"error","metadata":{"reason":"r"}},"metrics":{"segmented_latency_ms":[{"name":"llm_ttft","latency":7}]}}]}`,
		`{"agent_id":"A","errors":[{"module":"llm","turn_id":"1","code":1e9,"message":"\u0000"}],"labels":{"a":"\ud800"}}`,
		`{"agent_id":"A","stop_ts":-1}`, `{"channelName":"test_webhook"}`, `null`,
	} {
		for _, kind := range []int{102, 103, 110, 111, 112} {
			f.Add(kind, payload)
		}
	}
	api := func(t *testing.T) http.Handler {
		return handlers.New(handlers.Config{
			Memory: agents.NewService(agents.Config{Ledger: storetest.New(t), Now: time.Now}), Access: &handlers.Access{DefaultProject: "p"},
			Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MetricsPage: http.NotFoundHandler(), MaxBody: 1 << 20, Ingest: map[string][]secret.String{"p": {"s"}},
		})
	}
	f.Fuzz(func(t *testing.T, kind int, payload string) {
		router := api(t)
		call := func(method, path, body string) *httptest.ResponseRecorder {
			req := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
			_, sig := webhook.SignAgora("s", []byte(body))
			req.Header.Set("Agora-Signature-V2", sig)
			rec := httptest.NewRecorder()
			router.ServeHTTP(rec, req)
			if rec.Code >= 500 || !json.Valid(rec.Body.Bytes()) {
				t.Fatalf("%s %s: %d %s", path, body, rec.Code, rec.Body)
			}
			return rec
		}
		notice := func(id string) string {
			head, err := json.Marshal(map[string]any{"noticeId": id, "productId": 17, "eventType": kind})
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSuffix(string(head), "}") + `,"payload":` + payload + "}"
		}
		if call("POST", "/v1/ingest/agora", notice("1")).Code != http.StatusOK {
			return
		}
		call("POST", "/v1/ingest/agora", notice("2")) // known facts under another name
		for _, path := range []string{"/v1/agents/A", "/v1/agents/A/history", "/v1/agents/A/messages", "/v1/agents/A/turns"} {
			call("GET", path, "")
		}
	})
}
