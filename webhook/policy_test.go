package webhook_test

import (
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/webhook"
)

// TestPolicyParks checks that a failure that shows that the request is wrong ends after three
// attempts, and one that may pass does not.
func TestPolicyParks(t *testing.T) {
	t.Parallel()
	p := webhook.Policy{Schedule: webhook.DefaultSchedule(), ParkAfter: 3}
	for status, parked := range map[int]bool{
		400: true, 401: true, 403: true, 404: true, 405: true, 422: true, 402: false, 408: false, 409: false, 425: false, 429: false, 500: false, 503: false, 302: false,
	} {
		for attempt := 1; attempt <= 4; attempt++ {
			d := webhook.Delivery{Attempt: attempt, CreatedMS: time.Now().Add(-48 * time.Hour).UnixMilli()}
			o := webhook.Outcome{Attempt: webhook.Attempt{Status: status, ErrorClass: webhook.Class4xx, Error: "the receiver answered so"}}
			r := p.Settle(d, o, time.Now(), 0)
			if dead := r.State == webhook.Dead; dead != (parked && attempt >= 3) {
				t.Errorf("status %d, attempt %d: %s (%s)", status, attempt, r.State, r.Reason)
			}
			if never := (webhook.Policy{Schedule: p.Schedule}).Settle(d, o, time.Now(), 0); never.State != webhook.Pending {
				t.Errorf("status %d without parking: %s", status, never.Reason)
			}
		}
	}
}

// TestPolicyOfEndpoint checks that an endpoint's own schedule and age limit replace the server's. A
// replay's age counts from the replay.
func TestPolicyOfEndpoint(t *testing.T) {
	t.Parallel()
	p := webhook.Policy{Schedule: webhook.DefaultSchedule()}
	now := time.UnixMilli(1_780_000_000_000)
	fail := webhook.Outcome{Attempt: webhook.Attempt{ErrorClass: webhook.ClassRefused}}
	d := webhook.Delivery{Attempt: 1, CreatedMS: now.Add(-100 * time.Hour).UnixMilli(), FirstDueMS: now.UnixMilli()}
	d.Endpoint.Retry = []time.Duration{time.Minute, time.Hour}
	if r := p.Settle(d, fail, now, 0); r.State != webhook.Pending || r.DueMS != now.Add(time.Minute).UnixMilli() {
		t.Errorf("first: %+v", r)
	}
	d.Attempt = 2
	if r := p.Settle(d, fail, now.Add(time.Minute), 0); r.DueMS != now.Add(61*time.Minute).UnixMilli() {
		t.Errorf("second: %+v", r)
	}
	d.Endpoint.MaxAge = time.Hour
	if r := p.Settle(d, fail, now.Add(time.Minute), 0); r.State != webhook.Dead || !strings.Contains(r.Reason, "max_age of 1h0m0s") {
		t.Errorf("beyond its age: %+v", r)
	}
	d.Attempt, d.Endpoint.MaxAge = 3, 0
	if r := p.Settle(d, fail, now.Add(61*time.Minute), 0); r.State != webhook.Dead {
		t.Errorf("third: %+v", r)
	}
}

func TestRotateAndRevoke(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	e := webhook.Endpoint{Secrets: []webhook.SigningSecret{
		{ID: "1", Value: "one"}, {ID: "0", Value: "zero", NotAfter: now.Add(time.Hour)}, {ID: "x", Value: "gone", NotAfter: now},
		{ID: "k", Value: "whsk_" + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
	}}
	got, err := e.Rotate(webhook.SigningSecret{ID: "2", Value: "two"}, webhook.DefaultOverlap, now)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Time{"2": {}, "1": now.Add(24 * time.Hour), "0": now.Add(time.Hour), "k": {}}
	if len(got.Secrets) != len(want) || got.Secrets[0].ID != "2" {
		t.Errorf("%+v", got.Secrets)
	}
	for _, s := range got.Secrets {
		if !s.NotAfter.Equal(want[s.ID]) {
			t.Errorf("secret %s ends at %s, want %s", s.ID, s.NotAfter, want[s.ID])
		}
	}
	if len(e.Secrets) != 4 || !e.Secrets[0].NotAfter.IsZero() {
		t.Error("the old value was changed")
	}
	if got, err = got.Revoke("1", now); err != nil || len(got.Secrets) != 3 {
		t.Errorf("%+v, %v", got.Secrets, err)
	}
	if _, err := got.Revoke("1", now); err == nil {
		t.Error("revoked twice")
	}
	last := webhook.Endpoint{Secrets: []webhook.SigningSecret{{ID: "1", Value: "one"}}}
	if _, err := last.Revoke("1", now); err == nil {
		t.Error("the last secret was revoked")
	}
	full := last
	for range webhook.MaxSecrets {
		full.Secrets = append(full.Secrets, webhook.SigningSecret{Value: "more"})
	}
	if _, err := full.Rotate(webhook.SigningSecret{ID: "n", Value: "new"}, time.Hour, now); err == nil {
		t.Error("more secrets than allowed")
	}
	if now, err := full.Rotate(webhook.SigningSecret{ID: "n", Value: "new"}, 0, now); err != nil || len(now.Secrets) != 1 {
		t.Errorf("without overlap: %+v, %v", now.Secrets, err)
	}
}

// TestConcludeOfOldURL checks that an answer from the old address, after the URL was changed, says
// nothing about the new one.
func TestConcludeOfOldURL(t *testing.T) {
	t.Parallel()
	then := webhook.Endpoint{ID: "e", Project: "p", URL: "https://old.example", Rev: 1, FirstFailureMS: 1}
	gone := webhook.Result{State: webhook.Dead, AtMS: 1 << 40, Reason: "410", DisableEndpoint: "410", DisableAfter: time.Hour, Try: webhook.Attempt{Status: 410, ErrorClass: webhook.Class4xx}}
	d := webhook.Delivery{ID: 1, EventID: "n", Type: event.Left, Endpoint: then}
	if c, err := webhook.Conclude(then, d, gone); err != nil || !c.Disabled || len(c.Events) != 2 {
		t.Errorf("its own address: %+v %v", c, err)
	}
	now := then
	now.URL, now.Rev = "https://new.example", 2
	if c, err := webhook.Conclude(now, d, gone); err != nil || c.Disabled || c.Changed || len(c.Events) != 1 || c.Events[0].Type != event.DeliveryDead {
		t.Errorf("another address: %+v %v", c, err)
	}
	ok := webhook.Result{State: webhook.Delivered, AtMS: 1 << 40}
	if c, err := webhook.Conclude(now, d, ok); err != nil || c.Changed {
		t.Errorf("a success of another address: %+v %v", c, err)
	}
}
