package compat_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// TestKillReplay kills the server again and again in the middle of a replay. It goes on each time,
// ends with all answers, and sends no request twice but those that were under way.
func TestKillReplay(t *testing.T) {
	t.Parallel()
	const requests, kills, atOnce = 40, 3, 4
	var asked, killAt atomic.Int64
	killAt.Store(1 << 30)
	reached, held := make(chan struct{}, 1), make(chan struct{})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if asked.Add(1) >= killAt.Load() { // one of a batch is answered, the others are not
			select {
			case reached <- struct{}{}:
			default:
			}
			select {
			case <-held:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"Nine."},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(other.Close)
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db"), "HEARDLOG_LLM_URL=" + fakeLLM(t) + "/v1", "HEARDLOG_AUTO_JOIN=true"}
	s := start(t, env...)
	id := s.join(t, "a", nil)
	for range requests {
		s.call(t, http.StatusOK, http.MethodPost, "/v1/agents/"+id+"/chat/completions", object{"messages": []object{{"role": "user", "content": "When?"}}}, nil)
	}
	var r struct {
		ID, State    string
		Done, Failed int
		Results      []struct{ After *struct{ Content string } }
	}
	killAt.Store(6)
	s.call(t, http.StatusAccepted, http.MethodPost, "/v1/replays", object{"filter": object{}, "turns": 40, "llm": object{"url": other.URL + "/v1", "api_key": "k"}}, &r)
	for n := range int64(kills) {
		<-reached
		s.kill()
		killAt.Store(asked.Load() + 10 + n)
		if n == kills-1 {
			killAt.Store(1 << 30)
			close(held)
		}
		select {
		case <-reached:
		default:
		}
		s = start(t, env...)
	}
	for r.State != "done" {
		r.Results = nil
		s.call(t, http.StatusOK, http.MethodGet, "/v1/replays/"+r.ID, nil, &r)
	}
	if n := asked.Load(); r.Done != requests || r.Failed != 0 || n < requests || n > requests+kills*atOnce {
		t.Errorf("%d done, %d failed, %d requests", r.Done, r.Failed, n)
	}
	for i, one := range r.Results {
		if one.After == nil || one.After.Content != "Nine." {
			t.Errorf("result %d: %+v", i, one)
		}
	}
}
