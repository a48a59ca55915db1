package postgres_test

import (
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestListIsBounded checks that a list stops counting at memory.MaxCounted and reports that there
// are more, and that every page is found, for each filter.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s := open(t, postgres.Options{URL: url})
	if _, _, err := s.Create(t.Context(), memory.Agent{
		Project: "p", ID: "a-0", Name: "often", Status: memory.Stopped, StartMS: 1, StopMS: 2, Rev: 1, Settings: memory.Settings{Channel: "hall"},
	}, 0, memory.Change{}); err != nil {
		t.Fatal(err)
	}
	const many = memory.MaxCounted + 500
	postgrestest.Exec(t, url, `INSERT INTO agent (project, id, name, channel, status, start_ms, stop_ms, message, rev, join_key, join_hash, settings)
		SELECT project, 'b-' || lpad(n::text, 8, '0'), CASE n % 1000 WHEN 1 THEN 'rare' ELSE name END, CASE n % 1000 WHEN 2 THEN 'nook' ELSE channel END,
			CASE n % 1000 WHEN 3 THEN 6 ELSE status END, n, n + 1, message, rev, join_key, join_hash, settings
		FROM agent, generate_series(1, $1) n`, many)
	postgrestest.Exec(t, url, `INSERT INTO agent_head (agent_no, ver, rev, next_seq, last_turn)
		SELECT no, 1, 1, 1, -1 FROM agent a WHERE NOT EXISTS (SELECT 1 FROM agent_head h WHERE h.agent_no = a.no)`)
	postgrestest.Exec(t, url, "ANALYZE agent")
	stopped, failed := memory.Stopped, memory.Failed
	none := memory.AgentPlace{}
	for name, tt := range map[string]struct {
		q         memory.AgentQuery
		total     int
		truncated bool
		first     int // the number in its id
	}{
		"all":               {memory.AgentQuery{}, memory.MaxCounted, true, many},
		"stopped":           {memory.AgentQuery{Statuses: []memory.Status{stopped}}, memory.MaxCounted, true, many},
		"twice":             {memory.AgentQuery{Statuses: []memory.Status{failed, failed}}, 11, false, 10003},
		"stopped or failed": {memory.AgentQuery{Statuses: []memory.Status{stopped, failed}}, memory.MaxCounted, true, many},
		"failed":            {memory.AgentQuery{Statuses: []memory.Status{failed}}, 11, false, 10003},
		"running":           {memory.AgentQuery{Statuses: []memory.Status{memory.Running}}, 0, false, 0},
		"long ago":          {memory.AgentQuery{Statuses: []memory.Status{stopped}, FromMS: 10, ToMS: 19}, 10, false, 19},
		"channel":           {memory.AgentQuery{Channel: "nook"}, 11, false, 10002},
		"channel, stopped":  {memory.AgentQuery{Channel: "nook", Statuses: []memory.Status{stopped}}, 11, false, 10002},
		"name":              {memory.AgentQuery{Name: "rare", Statuses: []memory.Status{stopped}}, 11, false, 10001},
		"from the cursor":   {memory.AgentQuery{Statuses: []memory.Status{stopped}, After: memory.AgentPlace{StartMS: 101}}, memory.MaxCounted, true, 100},
	} {
		q := tt.q
		q.Project, q.Limit = "p", 5
		page, err := s.Agents(t.Context(), q)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if page.Total != tt.total || page.Truncated != tt.truncated {
			t.Errorf("%s: total %d, truncated %v", name, page.Total, page.Truncated)
		}
		if want := fmt.Sprintf("b-%08d", tt.first); tt.first > 0 && (len(page.Heads) != 5 || page.Heads[0].Agent.ID != want || page.Next == none) {
			t.Errorf("%s: %d agents, next %v, not from %s on", name, len(page.Heads), page.Next, want)
		}
	}
}
