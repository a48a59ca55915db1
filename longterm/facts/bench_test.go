package facts_test

import (
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/longterm/recall"
)

// BenchmarkRecall measures what the facts of a turn cost for a caller with 500 facts: facts without
// a proof; half of them proved by a call that has ended; or by one that runs, and grows before each
// search.
func BenchmarkRecall(b *testing.B) {
	for _, way := range []string{"stated", "ended", "running"} {
		b.Run(way, func(b *testing.B) { benchRecall(b, way) })
	}
}

func benchRecall(b *testing.B, way string) {
	k := newKit(b, nil)
	things := []string{"canoe", "dog", "piano", "garden", "bicycle", "daughter", "allergy", "camera", "boat", "balcony"}
	towns := []string{"Bonn", "Ulm", "Porto", "Lyon", "Ghent", "Turin", "Oslo", "Graz", "Leeds", "Cork"}
	id := k.call(anna)
	for i := range 500 {
		content := fmt.Sprintf("Has %s%d near %s, bought with %s in the old market of %s", things[i%10], i, towns[i/10%10], things[i/50%10], towns[i/7%10])
		k.add(content, func(n *facts.New) {
			if i%2 == 0 && way != "stated" {
				k.say(id, "user", content)
				n.Source = &facts.Source{AgentID: id, FromSeq: int64(i/2 + 1), ToSeq: int64(i/2 + 1), Quote: content, Speaker: "user"}
			}
		})
	}
	q := recall.Query{Text: "Where did I say that I have the canoe, was it near Lyon or in the market of Turin?", K: 5, Now: k.config.Now()}
	for b.Loop() {
		if way == "running" {
			b.StopTimer()
			k.say(id, "user", "I see.")
			b.StartTimer()
		}
		if hits, _, err := k.Recall(k.ctx, project, anna, q, 0); err != nil || len(hits) != 5 {
			b.Fatal(len(hits), err)
		}
	}
}
