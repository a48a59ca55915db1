package window_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory/window"
)

// TestReadPart: of a long memory its end, and the system messages in front, are read as the whole
// is, or it is said that they are not enough. That is said of no preset with a limit, where the end
// is long enough.
func TestReadPart(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	sure, cut := map[string]int{}, map[string]int{}
	for range 12_000 {
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		d := &dice{b}
		p, name := d.policy(), "any"
		if names := window.PresetNames(); rnd.IntN(2) == 0 {
			name = names[rnd.IntN(len(names))]
			p = window.Policy{Preset: name}
			if n := 1 + rnd.IntN(12); name != "full" && rnd.IntN(2) == 0 {
				p.MaxMessages = &n
			}
			if n := 20 + rnd.IntN(200); name != "full" && rnd.IntN(3) == 0 {
				p.MaxTokens = &n
			}
			if n := 1 + rnd.IntN(4); name != "full" && rnd.IntN(3) == 0 {
				p.MaxRounds = &n
			}
		}
		list := make([]window.Message, 5+rnd.IntN(45))
		for i := range list {
			list[i] = d.message(i)
			if len(d.b) == 0 {
				d.b = b[rnd.IntN(300):]
			}
		}
		from := rnd.IntN(len(list))
		bare := rnd.IntN(4) == 0
		var part []window.Message
		lead, missing := 0, 0
		for i := range list[:from] {
			m := &list[i]
			switch {
			case m.Status != "" && m.Status != window.Accepted:
			case m.IsSystem() && !bare:
				part, lead = append(part, *m), lead+1
			default:
				missing++
			}
		}
		part = append(part, list[from:]...)
		var x window.Extras
		if say := "now"; rnd.IntN(2) == 0 {
			x.Utterance = &say
		}
		got, ok := p.ReadPart(part, lead, missing, bare, nil, x)
		if missing == 0 && !ok {
			t.Fatalf("nothing is missing, and that is not enough\n%s", dump(p, list))
		}
		if !ok {
			continue
		}
		want := p.Read(list, nil, x)
		for i := range want.Entries {
			want.Entries[i].Index = 0
		}
		for i := range got.Entries {
			got.Entries[i].Index = 0
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("of %d messages %d and %d in front (-whole +part):\n%s\n%s", len(list), len(part)-lead, lead, d, dump(p, list))
		}
		if sure[name]++; missing > 0 {
			cut[name]++
		}
	}
	for _, name := range []string{"any", "recent", "pairs", "rounds", "tokens", "limits"} {
		if cut[name] < 30 {
			t.Errorf("of %s only %d of %d parts were enough with something missing", name, cut[name], sure[name])
		}
	}
	if cut["full"] > 0 {
		t.Errorf("%d parts were enough for the whole list", cut["full"])
	}
}

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
