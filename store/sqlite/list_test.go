package sqlite_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestListIsBounded: of more agents than are counted a list says that there are more, and finds the
// pages, whatever is asked for.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Options{})
	const many = memory.MaxCounted + 500
	var wg sync.WaitGroup
	for worker := range 64 {
		wg.Go(func() {
			for n := worker + 1; n <= many; n += 64 {
				a := memory.Agent{Project: "p", ID: fmt.Sprintf("b-%08d", n), Name: "often", Status: memory.Stopped, StartMS: int64(n), StopMS: int64(n + 1), Rev: 1}
				switch a.Settings.Channel = "hall"; n % 1000 {
				case 1:
					a.Name = "rare"
				case 2:
					a.Settings.Channel = "nook"
				case 3:
					a.Status = memory.Failed
				}
				if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
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
		"running":           {memory.AgentQuery{Statuses: []memory.Status{memory.Running}}, 0, false, 0},
		"long ago":          {memory.AgentQuery{Statuses: []memory.Status{stopped}, FromMS: 10, ToMS: 19}, 10, false, 19},
		"channel":           {memory.AgentQuery{Channel: "nook"}, 11, false, 10002},
		"name":              {memory.AgentQuery{Name: "rare"}, 11, false, 10001},
		"name, failed":      {memory.AgentQuery{Name: "often", Statuses: []memory.Status{failed}}, 11, false, 10003},
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
