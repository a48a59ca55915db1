package handlers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// BenchmarkAnswers measures calls whose answers hold messages, without a network.
func BenchmarkAnswers(b *testing.B) {
	srv, mem := newAPI(b, nil)
	a, err := mem.Agents.Join(b.Context(), agents.JoinRequest{Project: "p", Name: uuid.NewString()})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 20 {
		if _, err := mem.Messages.Append(b.Context(), "p", a.ID, []memory.Message{
			{Role: memory.User, Source: memory.SourceASR, Content: fmt.Sprint("I would like to move my appointment from Tuesday morning to some time on Thursday. ", i)},
			{Role: memory.Assistant, Source: memory.SourceLLM, Content: "Of course. On Thursday there is room at ten, at half past eleven and in the afternoon. Which one suits you best?"},
		}); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct{ name, method, path, body string }{
		{"history", "GET", "/history", ""}, {"ledger", "GET", "/messages?limit=40", ""}, {"context", "POST", "/context", "{}"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest(c.method, "http://localhost/v1/agents/"+a.ID+c.path, strings.NewReader(c.body))
				rec := httptest.NewRecorder()
				srv.Config.Handler.ServeHTTP(rec, req)
				if rec.Code != http.StatusOK {
					b.Fatal(rec.Body)
				}
			}
		})
	}
}
