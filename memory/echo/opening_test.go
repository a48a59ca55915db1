package echo_test

import (
	"testing"

	"github.com/heardlog/heardlog/memory/echo"
)

func TestWithoutOpening(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text, opening, rest string
		ok                  bool
	}{
		{"Let me see. At nine.", "Let me see.", "At nine.", true},
		{"let me see… at nine", "Let me see.", "at nine", true},
		{"Let me see", "Let me see.", "", true},
		{"Let me", "Let me see.", "", true},
		{"Let me go", "Let me see.", "", false},
		{"At nine.", "Let me see.", "", false},
		{"", "Let me see.", "", false},
		{"Let me see.", "", "", false},
		{"Einen Moment, bitte! „Um neun“.", "Einen Moment bitte", "„Um neun“.", true},
		{"请稍等。九点。", "请稍等", "九点。", true},
	} {
		if rest, ok := echo.WithoutOpening(tt.text, tt.opening); rest != tt.rest || ok != tt.ok {
			t.Errorf("%q without %q: %q %v, want %q %v", tt.text, tt.opening, rest, ok, tt.rest, tt.ok)
		}
	}
}
