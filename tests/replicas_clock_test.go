package tests

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestClockApart: a server whose own clock is years off works by the database's clock. The test
// replaces that clock: its function comes before pg_catalog in the schema's search path.
func TestClockApart(t *testing.T) {
	t.Parallel()
	const years = 50 * 365 * 24 * time.Hour
	now := func() time.Time { return time.Now().Add(-years) }
	db := postgrestest.URL(t)
	postgrestest.Exec(t, db, "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() - interval ''438000 hours'''")
	r := receiveAt(t, hookSecret, now)
	began := now()
	s := start(t, "HEARDLOG_STORE="+db+",pg_catalog", "HEARDLOG_WEBHOOK_URL="+r.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret)
	id := s.join("a", nil)
	if got := r.next(t, 1)[101]; got.SID != id {
		t.Errorf("%s", got.body)
	}
	s.post(agent(id, "/messages"), map[string]any{"role": "user", "content": "Hello"}).ok(nil)
	if diff := cmp.Diff([]string{"a"}, s.list("").names()); diff != "" {
		t.Errorf("it lists what was started in the last two hours of its own:\n%s", diff)
	}
	for _, m := range s.ledger(id) {
		if d := time.UnixMilli(m.Timestamp).Sub(began).Abs(); d > patience {
			t.Errorf("a message's time is %v off", d)
		}
	}
	if d := time.Unix(s.agent(id).StartTS, 0).Sub(began).Abs(); d > patience {
		t.Errorf("the agent's start is %v off", d)
	}
	s.post(agent(id, "/leave"), nil).ok(nil)
	if got := r.next(t, 1); len(got) == 0 {
		t.Error("nothing is sent of its end")
	}
}
