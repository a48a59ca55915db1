package window_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/window"
)

// TestDocs holds the tables of docs/guides/policy.md against the code: every field, every preset,
// and the values in which presets differ.
func TestDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guides/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		if len(cells) == 1+len(window.PresetNames()) {
			rows[cells[0]] = cells[1:]
		}
	}
	for i, n := range window.Presets() {
		if head := rows[""]; len(head) <= i || !strings.HasPrefix(head[i], n.Name) {
			t.Fatalf("column %d of the presets is not %s: %q", i, n.Name, rows[""])
		}
		fields, plain := asMap(t, n.Policy), asMap(t, window.Policy{Preset: "full"}.Full())
		for name, v := range fields {
			if !strings.Contains(string(page), "\n| `"+name+"` |") && name != "normalise" {
				t.Errorf("the field %s is not told", name)
			}
			row, ok := rows[name]
			switch {
			case name == "preset" || name == "normalise":
			case ok && row[i] != strings.Trim(v, `"`):
				t.Errorf("%s of %s is %s, told %s", name, n.Name, v, row[i])
			case !ok && v != plain[name]:
				t.Errorf("%s of %s is %s, and has no row", name, n.Name, v)
			}
		}
		if norm := n.Policy.Normalise; (*norm.DropHangingUser && *norm.MergeAssistant) != strings.HasPrefix(rows["normalise"][i], "both") {
			t.Errorf("normalise of %s is told %q", n.Name, rows["normalise"][i])
		}
	}
}

func asMap(t *testing.T, p window.Policy) map[string]string {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for k, v := range fields {
		out[k] = string(v)
	}
	return out
}
