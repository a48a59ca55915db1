package redis_test

import (
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memorytest"
	"github.com/heardlog/heardlog/memory/redis"
)

// TestNames: names that hold braces, slashes, percent signs, spaces, line ends and NULs are names like others, and none is taken for another.
func TestNames(t *testing.T) {
	t.Parallel()
	s := open(t, redis.Options{})
	names := []string{"a}b", "{a", "a/b", "a%2Fb", "%", "a b", "a\nb", "a\x00b", "é", "\xff", "a:h", "", "~a", strings.Repeat("x", 300)}
	for _, project := range names {
		for _, id := range names {
			if tag := s.AgentTag(project, id); strings.Count(tag, "{") != 1 || strings.Count(tag, "}") != 1 || !strings.HasSuffix(tag, "}") {
				t.Fatalf("project %q, id %q: tag %q", project, id, tag)
			}
		}
		a := agent(1)
		a.Project, a.ID, a.Name = project, "id "+project, project
		a.Settings.Call = memory.Call{Keys: []string{project + "k"}, Shared: []string{"k"}}
		create(t, s, a)
		if err := s.Update(t.Context(), project, a.ID, says(project+"!")); err != nil {
			t.Fatal(err)
		}
	}
	for _, project := range names {
		id := "id " + project
		got := memorytest.Whole(t, s, memory.Agent{Project: project, ID: id})
		if len(got) != 1 {
			t.Errorf("%q holds %v", project, got)
		}
		for _, k := range []string{project + "k", "k"} {
			if found, err := s.ByKey(t.Context(), project, k); err != nil || found != id {
				t.Errorf("%q of %q finds %q, %v", k, project, found, err)
			}
		}
		if page, err := s.Agents(t.Context(), memory.AgentQuery{Project: project, Limit: 5}); err != nil || page.Total != 1 || page.Agents[0].ID != id {
			t.Errorf("%q lists %+v, %v", project, page, err)
		}
		if err := s.Update(t.Context(), project, id, ends(7)); err != nil {
			t.Fatal(err)
		}
		if project != "" {
			if found, err := s.LastNamed(t.Context(), project, project); err != nil || found != id {
				t.Errorf("the last of %q is %q, %v", project, found, err)
			}
		}
	}
}
