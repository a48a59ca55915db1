package compat_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestReportKill kills the server repeatedly while calls end, are counted and are checked. In the
// end every call that has ended is in the report exactly once, with its findings.
func TestReportKill(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db")}
	const hours = "We are open from nine to five on weekdays and from ten to two on Saturday."
	messages := object{"messages": []object{
		{"role": "assistant", "content": hours}, {"role": "user", "content": "Okay."}, {"role": "assistant", "content": hours},
	}}
	const kills = 10
	agents := map[string]bool{} // whether its messages were acknowledged
	var mu sync.Mutex
	for round := range kills {
		s := start(t, env...)
		ctx, stop := context.WithCancel(t.Context())
		after := 10 + random.IntN(60)
		done := make(chan struct{}, 10_000)
		var clients sync.WaitGroup
		for lane := range 3 {
			clients.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					status, body, err := s.try(ctx, "POST", "/v1/agents", object{"name": fmt.Sprintf("call-%d-%d-%d", round, lane, n)})
					if err != nil || status != 200 {
						return
					}
					id := strings.Split(string(body), `"`)[3]
					mu.Lock()
					agents[id] = false
					mu.Unlock()
					if status, _, err = s.try(ctx, "POST", "/v1/agents/"+id+"/messages", messages); err != nil || status != 200 {
						return
					}
					mu.Lock()
					agents[id] = true
					mu.Unlock()
					_, _, _ = s.try(ctx, "POST", "/v1/agents/"+id+"/leave", nil)
					done <- struct{}{}
				}
			})
		}
		clients.Go(func() { // counts calls
			for ctx.Err() == nil {
				if _, _, err := s.try(ctx, "GET", "/v1/reports", nil); err != nil {
					return
				}
			}
		})
		for range after {
			select {
			case <-done:
			case <-time.After(patience):
				t.Fatalf("round %d: no call ends", round)
			}
		}
		s.kill()
		stop()
		clients.Wait()
	}
	s := start(t, env...)
	type report struct {
		Pending int `json:"pending_calls"`
		Totals  struct {
			Calls, Turns, Answers int
			Checks                map[string]int
		}
	}
	said := 0
	for id, sure := range agents {
		_, _, _ = s.try(t.Context(), "POST", "/v1/agents/"+id+"/leave", nil) // it may have left
		if got := s.statusOf(t, id); got != "STOPPED" {
			t.Errorf("%s is %s", id, got)
		}
		if n := len(s.ledger(t, id)); n == 3 {
			said++
		} else if n != 0 || sure {
			t.Errorf("%s has %d messages", id, n)
		}
	}
	var got report
	for end := time.Now().Add(patience); ; {
		got = report{}
		s.call(t, 200, "GET", "/v1/reports", nil, &got)
		if got.Pending == 0 || time.Now().After(end) {
			break
		}
	}
	t.Logf("%d kills, %d calls, %d with words", kills, len(agents), said)
	if c := got.Totals; got.Pending != 0 || c.Calls != len(agents) || c.Answers != 2*said || c.Checks["repeated"] != said {
		t.Errorf("the report has %+v; want %d calls, %d answers and %d calls that repeat", got, len(agents), 2*said, said)
	}
}
