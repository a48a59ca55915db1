package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/memory/window"
)

// TestPresetsInTheProxy: under each preset the upstream gets what POST …/context shows for the same
// words, except that the proxy joins user messages in a row.
func TestPresetsInTheProxy(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "ok"})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for _, preset := range window.PresetNames() {
		for _, mode := range []string{"inject", "reconcile"} {
			id := s.join(preset+" "+mode, map[string]any{
				"llm":      map[string]any{"system_messages": []any{map[string]any{"role": "system", "content": "Be brief."}}},
				"heardlog": map[string]any{"policy": map[string]any{"preset": preset}, "mode": mode},
			})
			var list []string // what a client has that sends all again
			for n := range 9 {
				words := fmt.Sprintf("words %d", n)
				if n == 5 {
					s.say(id, user("hanging"))
					list = append(list, `{"role":"user","content":"hanging"}`)
				}
				var shown struct {
					Messages []struct{ Role, Content string }
				}
				s.post(agent(id, "/context"), map[string]any{"utterance": words}).ok(&shown)
				var want []string
				for i, m := range shown.Messages {
					if i > 0 && m.Role == "user" && shown.Messages[i-1].Role == "user" {
						want[len(want)-1] += "\n" + m.Content
						continue
					}
					want = append(want, m.Role+": "+m.Content)
				}
				list = append(list, `{"role":"user","content":"`+words+`"}`)
				if mode == "inject" {
					list = list[len(list)-1:]
				}
				s.post(agent(id, "/chat/completions"), `{"messages":[`+strings.Join(list, ",")+`]}`).ok(nil)
				list = append(list, `{"role":"assistant","content":"ok"}`)
				got, _ := sentTo(t, llm)
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("%s, %s, call %d (-want +got):\n%s", preset, mode, n, d)
				}
			}
		}
	}
}
