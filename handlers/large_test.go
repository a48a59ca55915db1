package handlers_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
)

// held is a ledger whose updates wait, with a count of those that do.
type held struct {
	memory.Ledger
	mu      sync.Mutex
	waiting map[string]int
	free    chan struct{}
}

func (h *held) Update(ctx context.Context, project, id string, decide memory.Decision) error {
	h.mu.Lock()
	h.waiting[project]++
	h.mu.Unlock()
	<-h.free
	h.mu.Lock()
	h.waiting[project]--
	h.mu.Unlock()
	return h.Ledger.Update(ctx, project, id, decide)
}

func (h *held) now(project string) int {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting[project]
}

// TestLargeRequestsTakeTurns: a project has one large request in hand for every two CPUs. Small
// requests and other projects do not wait for them, and those that wait for too long are refused.
func TestLargeRequestsTakeTurns(t *testing.T) {
	// Outside the bubble, since their caches have goroutines that never end.
	store := &held{waiting: map[string]int{}}
	mem := agents.NewService(agents.Config{Ledger: store, Now: time.Now, NewID: uuid.NewString})
	h := handlers.New(handlers.Config{
		Memory: mem, Access: &handlers.Access{DefaultProject: "p", ValidProject: func(string) bool { return true }}, Log: zerolog.Nop(),
		Metrics: handlers.NewMetrics(prometheus.NewRegistry()), MaxBody: 1 << 20, MetricsPage: http.NotFoundHandler(),
	})
	synctest.Test(t, func(t *testing.T) {
		store.Ledger, store.free = storetest.New(t), make(chan struct{})
		status := map[int]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		say := func(ctx context.Context, project string, size int) {
			a, err := mem.Agents.Join(t.Context(), agents.JoinRequest{Project: project, Name: uuid.NewString()})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				body := strings.NewReader(`{"role":"user","content":"` + strings.Repeat("x", size) + `"}`)
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "POST", "http://localhost/api/conversational-ai-agent/v2/projects/"+project+"/agents/"+a.ID+"/messages", body))
				mu.Lock()
				defer mu.Unlock()
				status[rec.Code]++
			})
		}
		const large = 70 << 10
		places := max(runtime.GOMAXPROCS(0)/2, 1)
		for range places + 3 {
			say(t.Context(), "a", large)
		}
		gone, leave := context.WithCancel(t.Context())
		say(gone, "a", large)
		say(t.Context(), "b", large)
		if a, b := store.now("a"), store.now("b"); a != places || b != 1 {
			t.Errorf("%d and %d large requests are in hand, want %d and 1", a, b, places)
		}
		say(t.Context(), "a", 10)
		if a := store.now("a"); a != places+1 {
			t.Errorf("a small request waited for large ones: %d requests are in hand", a)
		}
		leave()
		store.free <- struct{}{}
		store.free <- struct{}{}
		synctest.Wait()
		time.Sleep(11 * time.Second) // fake time
		if a := store.now("a") + store.now("b"); a == 0 {
			t.Error("a turn that ended was given to nobody")
		}
		close(store.free)
		wg.Wait()
		if status[200]+status[499]+status[503] != places+6 || status[503] < 1 || status[499] != 1 {
			t.Errorf("answers by status: %v", status)
		}
	})
}
