package access_test

import (
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/access"
)

// TestGuesses: limits are by address and ID, time refills them, and credentials that were right are
// let through.
func TestGuesses(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_780_000_000, 0)
	g := access.NewGuesses(func() time.Time { return now })
	fill := func(remote, id string) {
		t.Helper()
		for i := range access.GuessesPerID {
			a := g.Attempt(remote, "guess", id)
			if w := a.Wait(); w != 0 {
				t.Fatalf("attempt %d waits %v", i, w)
			}
			a.Wrong()
		}
	}
	wait := func(remote, header, id string) time.Duration { return g.Attempt(remote, header, id).Wait() }
	g.Attempt("192.0.2.1:1", "known", "a").Right()
	fill("192.0.2.1:1", "a")
	if w := wait("192.0.2.1:2", "guess", "a"); w <= 0 || w > 5*time.Second {
		t.Errorf("after the last guess: %v", w)
	}
	for name, w := range map[string]time.Duration{
		"known":                    wait("192.0.2.1:1", "known", "a"),
		"another ID":               wait("192.0.2.1:1", "guess", "b"),
		"another address":          wait("192.0.2.2:1", "guess", "a"),
		"as an IPv6 address":       wait("[2001:db8::1]:1", "guess", "a"),
		"no address that is known": wait("@", "guess", "a"),
	} {
		if w != 0 {
			t.Errorf("%s waits %v", name, w)
		}
	}
	if w := wait("[::ffff:192.0.2.1]:1", "guess", "a"); w <= 0 {
		t.Error("the same address in the form of IPv6 is free")
	}
	if w := wait("192.0.2.2:1", "known", "a"); w != 0 {
		t.Errorf("elsewhere: %v", w)
	}
	now = now.Add(5 * time.Second)
	a := g.Attempt("192.0.2.1:1", "guess", "a")
	if w := a.Wait(); w != 0 {
		t.Errorf("after the wait: %v", w)
	}
	a.Wrong()
	if w := wait("192.0.2.1:1", "guess", "a"); w <= 0 {
		t.Error("more than one attempt every 5 seconds")
	}
	fill("[2001:db8::1]:1", "a") // one network has many addresses
	if w := wait("[2001:db8::2]:1", "guess", "a"); w <= 0 {
		t.Error("another address of the network is free")
	}
	if w := wait("[2001:db8:0:1::1]:1", "guess", "a"); w != 0 {
		t.Errorf("another network waits %v", w)
	}
	for range access.GuessesPerID { // many callers behind a proxy have tokens without an ID
		g.Attempt("192.0.2.8:1", "guess", "").Wrong()
	}
	if w := wait("192.0.2.8:1", "another token", ""); w != 0 {
		t.Errorf("another token without an ID waits %v", w)
	}
	many := make([]access.Attempt, 1000) // at the same moment
	for i := range many {
		many[i] = g.Attempt("192.0.2.9:1", "guess", "a")
	}
	for _, a := range many {
		a.Wrong()
	}
	if w := wait("192.0.2.9:1", "guess", "a"); w < 50*time.Second || w > 70*time.Second {
		t.Errorf("after 1,000 guesses at once: %v", w)
	}
}
