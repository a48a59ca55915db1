package pattern_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/ossa/pattern"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestWeights: a weight is halved in each half-life, feedback moves it within bounds, and lists go
// by weight.
func TestWeights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := pattern.New(pattern.Config{Store: storetest.New(t), Now: time.Now, Redact: func(_ context.Context, _ string, fn func(*redact.Redactor)) error { fn(nil); return nil }})
		put := func(id string, weight float64, halfLife int) {
			t.Helper()
			in := pattern.Settings{Type: "tool_usage", Content: "Look up the order first", Weight: &weight, HalfLifeDays: &halfLife}
			if _, err := s.Put(t.Context(), "p", id, in); err != nil {
				t.Fatal(err)
			}
		}
		put("fades", .8, 30)
		put("stays", .5, 0)
		time.Sleep(30 * 24 * time.Hour)
		list, err := s.List(t.Context(), "p", "tool_usage")
		if err != nil || len(list) != 2 || list[0].ID != "stays" || list[1].WeightAt(time.Now()) != .4 {
			t.Errorf("%v %+v", err, list)
		}
		m, err := s.Feedback(t.Context(), "p", "fades", pattern.Good, "")
		if err != nil || m.Old != .4 || m.New != .5 || !strings.Contains(m.Why, "lowered 0.8 to 0.4") {
			t.Errorf("%v %+v", err, m)
		}
		for range 12 {
			m, err = s.Feedback(t.Context(), "p", "stays", pattern.Good, "")
		}
		if err != nil || m.New != 1 || m.Pattern.Good != 12 {
			t.Errorf("%v %+v", err, m)
		}
		for range 12 {
			m, err = s.Feedback(t.Context(), "p", "stays", pattern.Bad, "")
		}
		if err != nil || m.New != 0 || m.Pattern.Bad != 12 {
			t.Errorf("%v %+v", err, m)
		}
		for _, weight := range []float64{-.1, 1.1, math.NaN()} {
			if _, err := s.Put(t.Context(), "p", "x", pattern.Settings{Type: "tool_usage", Content: "x", Weight: &weight}); err == nil || !strings.Contains(err.Error(), "weight") {
				t.Errorf("%g: %v", weight, err)
			}
		}
	})
}
