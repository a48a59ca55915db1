package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// TestListOfNothing checks that a list of deliveries whose filter matches nothing does not read the
// others: it would end with a cursor.
func TestListOfNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.db")
	s := open(t, sqlite.Options{Path: path})
	if err := webhook.CreateEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://x.example"}, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rawSQL(t, path, `CREATE TEMP TABLE number AS WITH RECURSIVE u (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM u WHERE n < 21000) SELECT n FROM u;
		INSERT INTO event (id, agent_no, agent_id, project, type, created_ms, body) SELECT 'ev' || n, n % 100 + 1, 'a' || n % 100, 'p', 101 + n % 3, n, 'x' FROM number;
		INSERT INTO delivery (event_no, endpoint_no, state, attempt, due_ms, fence, reason, created_ms, done_ms)
		SELECT no, (SELECT no FROM endpoint), 1, 1, 0, 1, '', created_ms, created_ms FROM event`)
	s = open(t, sqlite.Options{Path: path})
	for name, q := range map[string]webhook.DeliveryQuery{
		"type": {Types: []int{112}}, "state": {States: []webhook.DeliveryState{webhook.Canceled}}, "pending": {States: []webhook.DeliveryState{webhook.Pending}},
		"agent": {AgentID: "none"}, "event": {EventID: "none"}, "endpoint": {Endpoint: "none"}, "time": {FromMS: 1 << 40},
		"endpoint, dead": {Endpoint: "e", States: []webhook.DeliveryState{webhook.Dead}}, "endpoint, type": {Types: []int{112}, Endpoint: "e"},
	} {
		q.Project, q.Limit = "p", 50
		page, err := s.Deliveries(t.Context(), q)
		if err != nil || len(page.Deliveries) != 0 || page.Next != "" {
			t.Errorf("%s: %d deliveries, next %q: %v", name, len(page.Deliveries), page.Next, err)
		}
	}
}
