package webhook_test

import (
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/webhook"
)

const day = 24 * time.Hour

func TestDefaultSchedule(t *testing.T) {
	t.Parallel()
	s := webhook.DefaultSchedule()
	sum := time.Duration(0)
	for i, wait := range s {
		sum += wait
		if i > 0 && wait < s[i-1] {
			t.Errorf("wait %d is shorter than the one before", i)
		}
	}
	if s.Tries() != 10 || sum != 75*time.Hour+35*time.Minute+5*time.Second {
		t.Errorf("%d tries over %s", s.Tries(), sum)
	}
}

// TestWaitBounds checks for any numbers that a wait is never shorter than the list's or the
// receiver's (up to a day), at most a fifth (or a second) longer than the later of both, and
// finite.
func TestWaitBounds(t *testing.T) {
	t.Parallel()
	check := func(waits []uint32, n uint16, age int64, hint int64, random uint32) bool {
		var s webhook.Schedule
		for _, w := range waits {
			s = append(s, time.Duration(w)*time.Millisecond)
		}
		r := float64(random) / (1 << 32)
		wait, ok := s.Wait(int(n), time.Duration(age), time.Duration(hint), r)
		if !ok {
			return int(n) >= s.Tries()
		}
		if int(n) >= s.Tries()+50 {
			return false // immortal
		}
		found := false
		for _, base := range s {
			low := max(base, min(time.Duration(hint), day), time.Second)
			high := max(base+max(base/5, time.Second), min(time.Duration(hint), day), time.Second)
			found = found || (wait >= low && wait <= high)
		}
		return found
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
}

// TestWaitWalk steps through the whole list as a worker does.
func TestWaitWalk(t *testing.T) {
	t.Parallel()
	s := webhook.DefaultSchedule()
	for _, random := range []float64{0, 0.5, 0.999999} {
		age := time.Duration(0)
		for n := 1; ; n++ {
			wait, ok := s.Wait(n, age, 0, random)
			if !ok {
				if n != s.Tries() {
					t.Errorf("random %v: ended after %d tries", random, n)
				}
				break
			}
			if base := s[n-1]; wait < base || wait > base+max(base/5, time.Second) {
				t.Errorf("random %v: wait %d is %s for a base of %s", random, n, wait, base)
			}
			age += wait
		}
		if age < 75*time.Hour || age > 91*time.Hour {
			t.Errorf("random %v: %s in all", random, age)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	s := webhook.Schedule{5 * time.Second, time.Minute, time.Hour}
	for _, tt := range []struct {
		name   string
		n      int
		age    time.Duration
		hint   time.Duration
		random float64
		want   time.Duration // 0 = used up
	}{
		{"first", 1, 0, 0, 0, 5 * time.Second},
		{"jitter of at least a second", 1, 0, 0, 0.5, 5500 * time.Millisecond},
		{"jitter of a fifth", 2, time.Hour, 0, 0.5, 66 * time.Second},
		{"hint longer than the list", 1, 0, time.Minute, 0, time.Minute},
		{"hint shorter than the list", 2, time.Hour, time.Second, 0, time.Minute},
		{"hint of years", 1, 0, 10 * 365 * day, 0, day},
		{"used up", 4, 2 * time.Hour, 0, 0, 0},
		{"no hint makes more of it", 4, 2 * time.Hour, time.Hour, 0, 0},
		{"number beyond the list", 9, 2 * time.Hour, 0, 0, 0},
		{"numbers lost to crashes", 30, 3 * time.Second, 0, 0, 5 * time.Second},
		{"numbers lost to crashes, later", 30, 10 * time.Second, 0, 0, time.Minute},
		{"clock set back", 54, -time.Hour, 0, 0, 0},
		{"late server", 1, 100 * day, 0, 0, 5 * time.Second},
		{"number from nowhere", 0, 0, 0, 0, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := s.Wait(tt.n, tt.age, tt.hint, tt.random)
			if got != tt.want || ok != (tt.want != 0) {
				t.Errorf("%s %t, want %s", got, ok, tt.want)
			}
		})
	}
	if wait, ok := (webhook.Schedule{0}).Wait(1, 0, 0, 0); !ok || wait != time.Second {
		t.Errorf("a wait of nothing is a hot loop: %s", wait)
	}
	if _, ok := (webhook.Schedule{}).Wait(1, 0, 0, 0); ok {
		t.Error("an empty list has a second try")
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1700000000000)
	s := webhook.Schedule{time.Minute, time.Hour}
	failed := func(status int, class string) webhook.Outcome {
		return webhook.Outcome{Attempt: webhook.Attempt{N: 1, Status: status, ErrorClass: class, Error: "because"}}
	}
	with := func(o webhook.Outcome, change func(*webhook.Outcome)) webhook.Outcome { change(&o); return o }
	for _, tt := range []struct {
		name            string
		attempt         int
		o               webhook.Outcome
		state           webhook.DeliveryState
		due             time.Duration
		reason, disable string // substrings
	}{
		{"taken", 1, webhook.Outcome{Attempt: webhook.Attempt{Status: 204}}, webhook.Delivered, 0, "", ""},
		{"taken, and no more please", 1, webhook.Outcome{Attempt: webhook.Attempt{Status: 200}, Stop: webhook.StopEndpoint}, webhook.Delivered, 0, "", "webhook-delivery"},
		{"500", 1, failed(500, webhook.Class5xx), webhook.Pending, time.Minute, "", ""},
		{"404 is tried again", 2, failed(404, webhook.Class4xx), webhook.Pending, time.Hour, "", ""},
		{"301 is tried again", 1, failed(301, webhook.Class3xx), webhook.Pending, time.Minute, "", ""},
		{"blocked is tried again", 1, failed(0, webhook.ClassBlocked), webhook.Pending, time.Minute, "", ""},
		{"bad URL is tried again", 1, failed(0, webhook.ClassEndpoint), webhook.Pending, time.Minute, "", ""},
		{"asks for patience", 1, with(failed(503, webhook.Class5xx), func(o *webhook.Outcome) { o.RetryAfter = time.Hour }), webhook.Pending, time.Hour, "", ""},
		{"list used up", 3, failed(0, webhook.ClassRefused), webhook.Dead, 0, "after 3 attempts; the last: connect_refused: because", ""},
		{"410", 1, failed(410, webhook.Class4xx), webhook.Dead, 0, "410", "410"},
		{"413", 1, failed(413, webhook.Class4xx), webhook.Dead, 0, "413: the event of 2 bytes", ""},
		{"abort-message", 1, with(failed(500, webhook.Class5xx), func(o *webhook.Outcome) { o.Stop = webhook.StopMessage }), webhook.Dead, 0, "abort-message", ""},
		{"disable", 1, with(failed(500, webhook.Class5xx), func(o *webhook.Outcome) { o.Stop = webhook.StopEndpoint }), webhook.Dead, 0, "disable", "webhook-delivery"},
		{"broken row", 1, failed(0, webhook.ClassBroken), webhook.Dead, 0, "because", ""},
		{"panic", 1, failed(0, webhook.ClassPanic), webhook.Dead, 0, "mistake", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := webhook.Delivery{Attempt: tt.attempt, CreatedMS: now.Add(-2 * time.Hour).UnixMilli(), Body: []byte("{}")}
			r := webhook.Policy{Schedule: s}.Settle(d, tt.o, now, 0)
			if r.State != tt.state || !strings.Contains(r.Reason, tt.reason) || !strings.Contains(r.DisableEndpoint, tt.disable) {
				t.Errorf("%+v", r)
			}
			if (r.Reason == "") != (tt.reason == "") || (r.DisableEndpoint == "") != (tt.disable == "") {
				t.Errorf("texts: %+v", r)
			}
			want := int64(0)
			if tt.due > 0 {
				want = now.Add(tt.due).UnixMilli()
			}
			if r.DueMS != want {
				t.Errorf("due %d, want %d", r.DueMS, want)
			}
			if d := cmp.Diff(tt.o.Attempt, r.Try); d != "" {
				t.Errorf("attempt (-want +got):\n%s", d)
			}
		})
	}
}
