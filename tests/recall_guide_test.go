package tests

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRecallGuide runs the commands of docs/guides/recall.md and compares their answers with the
// page, but for IDs and times.
func TestRecallGuide(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guides/recall.md")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t)
	shown, id := "", "" // the agent's ID on the page, and here
	ran := 0
	for _, m := range regexp.MustCompile(`(?m)^\$ curl -s \$B(/\S+) -d '(.+)'\n(.+)$`).FindAllStringSubmatch(string(page), -1) {
		path, body, answer := m[1], m[2], m[3]
		if shown != "" {
			path = strings.ReplaceAll(path, shown, id)
		}
		var got, want map[string]any
		s.post(v1+path, body).ok(&got)
		ran++
		if answer == "..." {
			continue
		}
		if err := json.Unmarshal([]byte(answer), &want); err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
		if path == "/agents" {
			shown, id = want["agent_id"].(string), got["agent_id"].(string)
		}
		if diff := cmp.Diff(lasting(want), lasting(got)); diff != "" {
			t.Errorf("%s %s, -page +server:\n%s", path, body, diff)
		}
	}
	if ran != 3 {
		t.Errorf("%d commands were run, want 3", ran)
	}
}

// lasting returns an answer without what differs from run to run.
func lasting(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, field := range v {
			switch key {
			case "agent_id", "id", "at", "up_to", "took_ms", "create_ts":
				v[key] = "…"
			default:
				v[key] = lasting(field)
			}
		}
	case []any:
		for i := range v {
			v[i] = lasting(v[i])
		}
	}
	return v
}
