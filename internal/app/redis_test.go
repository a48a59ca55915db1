package app_test

import (
	"net/http"
	"testing"

	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// TestRedis is a conversation on a Redis store, across a restart of the server; webhooks are refused in words, and nothing of a password is shown.
func TestRedis(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_STORE="+redistest.URL(t))
	var joined struct {
		AgentID string `json:"agent_id"`
	}
	s.post("/v1/agents", `{"name":"desk","properties":{"channel":"lobby"}}`).ok(&joined)
	path := "/v1/agents/" + joined.AgentID
	for _, text := range []string{"Hello", "Are you there?"} {
		if a := s.post(path+"/messages", map[string]any{"role": "user", "content": text}); a.status != http.StatusOK && a.status != http.StatusCreated {
			t.Fatalf("append: %d %s", a.status, a.body)
		}
	}
	for _, call := range [][2]string{
		{http.MethodGet, "/v1/webhooks/endpoints"}, {http.MethodGet, "/v1/webhooks/deliveries"}, {http.MethodGet, "/v1/webhooks/fetch/x"}, {http.MethodGet, "/v1/webhooks/event-types"},
	} {
		s.asked(call[0], call[1], nil).refused(http.StatusNotImplemented, "NotImplemented", "HEARDLOG_STORE", "Redis")
	}
	s = s.again()
	var history struct {
		Contents []struct {
			Content string `json:"content"`
		} `json:"contents"`
	}
	s.get(path + "/history").ok(&history)
	if len(history.Contents) != 2 || history.Contents[1].Content != "Are you there?" {
		t.Errorf("after a restart: %+v", history)
	}
}
