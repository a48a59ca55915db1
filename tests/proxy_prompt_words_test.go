package tests

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/peek"
)

// TestPromptWords plays random calls. In each turn the platform may report what was heard of the
// answer, and its next list has the answer whole, cut, or not at all. Each prompt then has all
// words that were heard, no other, and each once, in the order of the call.
func TestPromptWords(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			w := newWire(t, nil)
			mode := []string{"reconcile", "inject"}[seed%2]
			stream := r.IntN(2) == 0
			var list []string // what the platform believes
			var truth []string
			for turn := range 7 {
				question := fmt.Sprintf("question%d", turn)
				list = append(list, `{"role":"user","content":"`+question+`"}`)
				truth = append(truth, question)
				words := make([]string, 6)
				for i := range words {
					words[i] = fmt.Sprintf("answer%dword%d", turn, i)
				}
				answer := strings.Join(words, " ")
				raw := completion("stop", `{"role":"assistant","content":"`+answer+`"}`)
				if stream {
					raw = events("stop", `{"content":"`+strings.Join(words[:3], " ")+` "}`, `{"content":"`+strings.Join(words[3:], " ")+`"}`)
				}
				ask := strings.Join(list, ",")
				if mode == "inject" {
					ask = list[len(list)-1]
				}
				w.ask(mode, ask, raw).ok(nil)
				var sent []string
				for _, m := range peek.Parse([]byte(w.sent())).List() {
					sent = append(sent, strings.Fields(m.Path("content").Text())...)
				}
				if got, want := strings.Join(sent, " "), strings.Join(truth, " "); got != want {
					t.Fatalf("turn %d, %s: the LLM is sent\n%s\nand the caller heard\n%s\nof the list\n%s", turn, mode, got, want, ask)
				}
				heard := words
				reported := r.IntN(2) == 0
				if reported {
					heard = words[:2+r.IntN(5)]
					w.post(agent(w.id, "/interrupt"), `{"heard":"`+strings.Join(heard, " ")+`"}`).ok(nil)
				}
				if mode == "reconcile" {
					switch r.IntN(3) {
					case 0:
						if !reported {
							heard = nil
						}
					case 1:
						list = append(list, `{"role":"assistant","content":"`+answer+`"}`)
					default:
						if !reported {
							heard = words[:2+r.IntN(5)]
						}
						list = append(list, `{"role":"assistant","content":"`+strings.Join(heard, " ")+`"}`)
					}
				}
				truth = append(truth, heard...)
			}
		})
	}
}
