package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/config"
)

// TestSettingsPage checks that docs/reference/settings.md has the settings word for word.
func TestSettingsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `HEARDLOG_") || strings.HasPrefix(line, "| `OTEL_") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	for _, s := range config.Settings() {
		def := ""
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		want = append(want, strings.Join(strings.Fields(fmt.Sprintf("| `%s` | %s | %s |", s.Name, def, s.Help)), " "))
	}
	for i := range got {
		got[i] = strings.Join(strings.Fields(got[i]), " ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/reference/settings.md and the settings differ (-settings +page):\n%s", diff)
	}
}
