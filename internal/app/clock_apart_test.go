package app_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory/postgres/postgrestest"
)

// TestClockApart: a server whose machine's clock is years ahead works by the database's time, beside one whose clock is right.
//
// Time in a bubble of synctest begins in the year 2000, stands still while something waits for the network, and is fast otherwise.
func TestClockApart(t *testing.T) {
	t.Parallel()
	r := receive(t, hookSecret) // goes by the right clock, as its check of signatures does
	env := []string{"HEARDLOG_STORE=" + postgrestest.URL(t)}
	began := time.Now()
	var early string
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * 365 * 24 * time.Hour)
		if ahead := time.Until(began); ahead > -24*time.Hour {
			t.Fatalf("the clock is only %v ahead", -ahead)
		}
		s := start(t, append(env, "HEARDLOG_WEBHOOK_URL="+r.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret)...)
		early = s.join("early", nil)
		if got := r.next(t, 1)[101]; got.SID != early {
			t.Errorf("%s", got.body)
		}
		s.post(agent(early, "/messages"), map[string]any{"role": "user", "content": "Hello"}).ok(nil)
		if diff := cmp.Diff([]string{"early"}, s.list("").names()); diff != "" {
			t.Errorf("it lists what was started in the last two hours of its own:\n%s", diff)
		}
		for _, m := range s.ledger(early) {
			if d := time.UnixMilli(m.Timestamp).Sub(began).Abs(); d > patience {
				t.Errorf("a message's time is %v off", d)
			}
		}
		if d := time.Unix(s.agent(early).StartTS, 0).Sub(began).Abs(); d > patience {
			t.Errorf("the agent's start is %v off", d)
		}
	})
	s := start(t, env...)
	s.join("late", nil)
	if diff := cmp.Diff([]string{"late", "early"}, s.list("").names()); diff != "" {
		t.Error(diff)
	}
}
