package postgres_test

import (
	"testing"
	"time"

	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestChangesAreTold checks that a server that follows an agent is notified of changes through
// another server, and of no other agent's changes.
func TestChangesAreTold(t *testing.T) {
	t.Parallel()
	to := postgrestest.URL(t)
	a, b := open(t, postgres.Options{URL: to}), open(t, postgres.Options{URL: to})
	followed, other := agent(0), agent(1)
	create(t, a, followed)
	create(t, a, other)
	beat(t, "receive notifications", func() bool { return a.Notified() && b.Notified() }, a, b)
	// The announcement takes a moment. Changes before it arrives are not notified.
	told := func(id string) bool {
		t.Helper()
		if err := a.Update(t.Context(), "acme", id, says("word")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-b.Changed():
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	}
	follow := func(ids ...string) {
		t.Helper()
		projects := make([]string, len(ids))
		for i := range projects {
			projects[i] = "acme"
		}
		if err := b.Follow(t.Context(), projects, ids); err != nil {
			t.Fatal(err)
		}
	}
	beat(t, "tell of a change", func() bool { follow(followed.ID); return told(followed.ID) }, a, b)
	// An earlier change of the other agent may be notified late.
	beat(t, "be told of one agent alone", func() bool { return !told(other.ID) }, a, b)
	follow()
	beat(t, "be told of nothing more", func() bool { return !told(followed.ID) }, a, b)
}
