package memory_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// TestStretchRedacted: a replaced number is one word, and a long report takes no time that grows
// with the square of its length.
func TestStretchRedacted(t *testing.T) {
	t.Parallel()
	r := redact.New(redact.Rules{Types: []string{redact.Card}, Own: map[string]string{"own": `x{9}y`}})
	got := memory.Stretch{Text: "It is 4111 1111 1111 1111, right?", Ends: []int64{1, 2, 3, 4, 5, 6, 7}}.Redacted(r)
	if got.Text != "It is [card], right?" || !slices.Equal(got.Ends, []int64{1, 2, 6, 7}) {
		t.Errorf("%+v", got)
	}
	start := time.Now()
	text := strings.Repeat("x ", 60_000) + "4111 1111 1111 1111"
	memory.Stretch{Text: text, Ends: make([]int64, 60_004)}.Redacted(r)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it takes %v", took)
	}
}
