package postgres_test

import (
	"testing"
	"time"

	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/webhook"
)

// TestListOfNothing checks that a list of deliveries whose filter matches nothing does not read the
// others, with and without the planner's statistics. Reading them takes 30 to 600 ms.
func TestListOfNothing(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s := open(t, postgres.Options{URL: url})
	if err := webhook.CreateEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://x.example"}, 0); err != nil {
		t.Fatal(err)
	}
	postgrestest.Exec(t, url, `INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body)
		SELECT 'ev' || n, n % 100 + 1, 'a' || n % 100, 'p', 101 + n % 3, n, 'xxxxxxxxxxxx' FROM generate_series(1, 200000) n`)
	postgrestest.Exec(t, url, `INSERT INTO delivery (event_no, endpoint_no, project, state, attempt, retry, due_ms, fence, claimed, reason, created_ms, done_ms, first_ms, urgent, replay_of, replay_no)
		SELECT no, (SELECT no FROM endpoint), 'p', 1, 1, false, 0, 1, false, '', created_ms, created_ms, created_ms, false, 0, 0 FROM event`)
	for _, statistics := range []bool{false, true} {
		if statistics {
			postgrestest.Exec(t, url, "ANALYZE event")
			postgrestest.Exec(t, url, "ANALYZE delivery")
		}
		for name, q := range map[string]webhook.DeliveryQuery{
			"type": {Types: []int{112}}, "state": {States: []webhook.DeliveryState{webhook.Canceled}}, "pending": {States: []webhook.DeliveryState{webhook.Pending}},
			"agent": {AgentID: "none"}, "event": {EventID: "none"}, "endpoint": {Endpoint: "none"}, "time": {FromMS: 1 << 40},
			"endpoint, dead": {Endpoint: "e", States: []webhook.DeliveryState{webhook.Dead}}, "endpoint, type": {Types: []int{112}, Endpoint: "e"},
		} {
			q.Project, q.Limit = "p", 50
			end := time.Now().Add(time.Minute)
			for quick := false; !quick; { // others use the database too
				began := time.Now()
				page, err := s.Deliveries(t.Context(), q)
				if err != nil || len(page.Deliveries) != 0 || page.Next != "" {
					t.Fatalf("%s: %d deliveries, next %q: %v", name, len(page.Deliveries), page.Next, err)
				}
				took := time.Since(began)
				quick = took < 20*time.Millisecond
				if !quick && time.Now().After(end) {
					t.Fatalf("%s, statistics %v: %v", name, statistics, took)
				}
			}
		}
	}
}
