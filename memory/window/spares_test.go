package window_test

import (
	"math/rand/v2"
	"testing"

	"github.com/heardlog/heardlog/memory/window"
)

// TestSpares: what is spared is what nothing is cut of.
func TestSpares(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	spared := 0
	for range 20_000 {
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		d := &dice{b}
		p := d.policy()
		p.Apply = window.OnWrite
		list := make([]window.Message, rnd.IntN(40))
		n := 0
		for i := range list {
			if list[i] = d.message(i); list[i].Status == "" || list[i].Status == window.Accepted {
				n++
			}
		}
		if !p.Spares(n) {
			continue
		}
		if out := p.Cut(list, nil); len(out) > 0 {
			t.Fatalf("%v are cut\n%s", out, dump(p, list))
		}
		spared++
	}
	if spared < 50 {
		t.Errorf("only %d were spared", spared)
	}
}
