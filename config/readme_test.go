package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/config"
)

// The README's table is the settings, word for word.
func TestReadmeTable(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for line := range strings.Lines(string(readme)) {
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
		t.Errorf("README.md and the settings differ (-settings +README.md):\n%s", diff)
	}
}
