package echo_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory/echo"
)

// TestReconcileHostile compares lists that are made to be expensive. They may take some hundred
// times as long as an ordinary list does at the same moment; without limits they would take ten
// thousand times as long, or more.
func TestReconcileHostile(t *testing.T) {
	t.Parallel()
	said := func(role, text string) echo.Message {
		return echo.Message{Role: role, Text: text}
	}
	calls := func(i, size int) []byte {
		return fmt.Appendf(nil, `[{"id":"c%d","function":{"name":"f","arguments":%q}}]`, i, strings.Repeat("a", size))
	}
	repeat := func(n int, of func(i int) echo.Message) []echo.Message {
		out := []echo.Message{said("user", "hi")}
		for i := range n {
			out = append(out, of(i))
		}
		return append(out, said("user", "and then?"))
	}
	ledger := func(n int, of func(i int) echo.Known) []echo.Known {
		out := []echo.Known{{Role: "user", Text: "hi", Original: "hi"}}
		for i := range n {
			out = append(out, of(i))
		}
		return out
	}
	answers := func(i int) echo.Known {
		text := fmt.Sprintf("%d trains leave for Berlin at nine from platform four.", i)
		return echo.Known{Role: "assistant", Text: text, Original: text, Provisional: true}
	}
	list, usual := repeat(200, func(i int) echo.Message { return said("assistant", answers(i).Text[:20]) }), ledger(200, answers)
	for name, tt := range map[string]struct {
		in    []echo.Message
		known []echo.Known
	}{
		"names in front of names": {repeat(1, func(int) echo.Message { return said("assistant", strings.Repeat("(a) ", 250<<10)+"x") }), ledger(1, answers)},
		"much for many answers":   {repeat(32, func(int) echo.Message { return said("assistant", strings.Repeat("foo bar ", 4<<10)) }), ledger(2000, answers)},
		"many sentences": {
			repeat(200, func(int) echo.Message { return said("assistant", strings.Repeat("Foo, bar or baz? ", 63)+"So be it.") }),
			ledger(200, func(i int) echo.Known {
				text := fmt.Sprint("Go ", i, ". ", strings.Repeat("Bar, baz or foo! ", 63))
				return echo.Known{Role: "assistant", Text: text, Original: text, Provisional: true}
			}),
		},
		"calls by other ids": {
			repeat(2000, func(i int) echo.Message {
				b := calls(1<<20+i, 50)
				return echo.Message{Role: "assistant", ToolCalls: b, CallIDs: llmadapter.CallIDs(b)}
			}),
			ledger(1000, func(i int) echo.Known {
				b := calls(i, 1000)
				return echo.Known{Role: "assistant", ToolCalls: b, CallIDs: llmadapter.CallIDs(b)}
			}),
		},
		"results without ids": {
			repeat(2000, func(i int) echo.Message { return said("function", fmt.Sprint("result ", i)) }),
			ledger(500, func(i int) echo.Known {
				text := strings.Repeat("word ", 2000) + fmt.Sprint(i)
				return echo.Known{Role: "tool", Text: text, Original: text, CallIDs: []string{fmt.Sprint(i)}}
			}),
		},
		"nothing but spaces": {
			repeat(1000, func(int) echo.Message { return said("user", strings.Repeat(" ", 60<<10)) }),
			ledger(300, func(i int) echo.Known {
				return echo.Known{Role: "user", Text: fmt.Sprint("words ", i), Original: "words"}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			ordinary, hostile := time.Duration(0), time.Duration(1<<62)
			for range 2 { // the machine does other things too
				hostile = min(hostile, timed(func() { echo.Asked.Reconcile(tt.in, tt.known) }))
				ordinary = max(ordinary, timed(func() { echo.Asked.Reconcile(list, usual) }))
			}
			if hostile > 3000*max(ordinary, 100*time.Microsecond) {
				t.Errorf("took %v, an ordinary list %v", hostile, ordinary)
			}
		})
	}
}

func timed(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}
