package check_test

import (
	"strings"
	"testing"

	"github.com/heardlog/heardlog/longterm/check"
	"github.com/heardlog/heardlog/memory"
)

// TestGlanceOfLongCall: the shape of a long call has few parts, of the length of all, and shows
// what takes most of the time.
func TestGlanceOfLongCall(t *testing.T) {
	t.Parallel()
	var msgs []memory.Message
	now := int64(1_780_000_000_000)
	for i := range int64(500) {
		now += 20_000
		said := strings.Repeat("word ", int(3+i%7))
		heard := said
		if i > 400 {
			heard = "word "
		}
		msgs = append(msgs, memory.Message{Seq: 2*i + 1, Role: memory.User, Content: "and then?", TurnID: i, Timestamp: now},
			memory.Message{Seq: 2*i + 2, Role: memory.Assistant, Content: heard, Generated: said, TurnID: i, Timestamp: now + 900 + i, Method: memory.WordTimes})
	}
	g := check.GlanceAt(msgs)
	total, kinds := int64(0), map[check.PartKind]int64{}
	for i, p := range g.Shape {
		total, kinds[p.Kind] = total+p.MS, kinds[p.Kind]+p.MS
		if i > 0 && p.Kind == g.Shape[i-1].Kind || p.MS <= 0 {
			t.Errorf("part %d: %v after %v", i, p, g.Shape[i-1])
		}
	}
	if len(g.Shape) > 60 || total < 500*1500 || kinds[check.PartHeard] == 0 || kinds[check.PartUnheard] == 0 {
		t.Errorf("%d parts, %d ms, %v", len(g.Shape), total, kinds)
	}
	last := g.Shape[len(g.Shape)-1]
	if last.Kind != check.PartUnheard && g.Shape[len(g.Shape)-2].Kind != check.PartUnheard {
		t.Errorf("the end was not heard, and the shape ends with %v", g.Shape[len(g.Shape)-3:])
	}
	if words, unheard := g.Tally.Words, g.Tally.UnheardWords; words == 0 || unheard == 0 || !g.Tally.Whole() || len(g.Moments) != 1 || g.Moments[0].Words != 8 {
		t.Errorf("%d words, %d not heard, %+v", words, unheard, g.Moments)
	}
	if g := check.GlanceAt(nil); len(g.Shape)+len(g.Moments) != 0 {
		t.Errorf("of nothing: %+v", g)
	}
}
