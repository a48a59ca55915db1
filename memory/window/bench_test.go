package window_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/memory/window/tokens"
)

// longTalk makes a memory of n messages as a voice agent has it: a system message, short turns, and
// a tool call in every tenth turn. Sizes are cached, as the ledger does.
func longTalk(n int) []window.Message {
	list := make([]window.Message, 0, n)
	list = append(list, talk("s You are the booking line of a railway. Be brief.")...)
	for i := 0; len(list) < n; i++ {
		list = append(list, talk(fmt.Sprintf("u I would like to go to Lund on day %d, in the morning if that can be done.", i))...)
		if i%10 == 0 {
			id := fmt.Sprint("call_", i)
			list = append(list, call(id), result(id, strings.Repeat("train 9:05 platform 2; ", 12)))
		}
		list = append(list, talk(fmt.Sprintf("a There is a train at nine from platform two on day %d. It arrives at a quarter to eleven. Shall I book it?", i))...)
	}
	list = list[:n]
	for i := range list {
		m := &list[i]
		m.Ref, m.Chars = i, window.Chars(m.Text, m.Parts)
		if len(m.ToolCalls) > 0 || m.Role == window.Tool {
			l := m.ReadLinks()
			m.Links = &l
		}
	}
	return list
}

func BenchmarkRead(b *testing.B) {
	list := longTalk(1000)
	exact, err := tokens.New(0).For("o200k")
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name    string
		policy  window.Policy
		counter window.Counter
	}{
		{"estimate", window.Policy{Preset: "full", MaxTokens: new(4000), ToolCallIntegrity: window.IntegrityAtomic}, nil},
		{"heal", window.Policy{Preset: "lauren", MaxTokens: new(4000)}, nil},
		{"messages", window.Policy{Preset: "agora"}, nil},
		{"rounds", window.Policy{Preset: "orbiter", MaxRounds: new(20)}, nil},
		{"importance", window.Policy{Preset: "ossa", MaxTokens: new(4000), Strategy: window.ImportanceBased}, nil},
		{"exact", window.Policy{Preset: "full", MaxTokens: new(4000), ToolCallIntegrity: window.IntegrityAtomic, Tokens: "o200k"}, exact},
		{"exact-all", window.Policy{Preset: "ossa", MaxTokens: new(4000), Strategy: window.ImportanceBased, Tokens: "o200k"}, exact},
	} {
		b.Run(bb.name, func(b *testing.B) {
			p := bb.policy.Full()
			b.ReportAllocs()
			for b.Loop() {
				if v := p.Read(list, bb.counter, window.Extras{Utterance: new("Yes.")}); len(v.Entries) == 0 {
					b.Fatal("nothing to tell")
				}
			}
		})
	}
}

func BenchmarkMerge(b *testing.B) {
	agent, request := window.Policy{Preset: "lauren", MaxTokens: new(4000)}, window.Policy{MaxRounds: new(3)}
	b.ReportAllocs()
	for b.Loop() {
		window.Merge(window.Policy{}, agent, request)
	}
}
