package tokens_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/memory/window/tokens"
)

func counterOf(t testing.TB, c *tokens.Counters, family string) window.Counter {
	t.Helper()
	k, err := c.For(family)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKnownCounts compares with counts that OpenAI published for its own tokenizer.
func TestKnownCounts(t *testing.T) {
	t.Parallel()
	c := tokens.New(0)
	for _, tt := range []struct {
		text          string
		cl100k, o200k int
	}{
		{"tiktoken is great!", 6, 6},
		{"antidisestablishmentarianism", 6, 6},
		{"2 + 2 = 4", 7, 7},
		{"お誕生日おめでとう", 9, 8},
		{"", 0, 0},
	} {
		for family, want := range map[string]int{"cl100k": tt.cl100k, "gpt-4": tt.cl100k, "o200k": tt.o200k, "gpt-5": tt.o200k} {
			if got := counterOf(t, c, family).Size(&window.Message{Text: tt.text}) - tokens.PerMessage; got != want {
				t.Errorf("%s: %q has %d tokens, want %d", family, tt.text, got, want)
			}
		}
	}
}

// TestKnownPrompt compares a whole prompt with the usage that OpenAI's API told of it: 129 and 124
// tokens, of which 3 open the answer and 1 each marks the names of four messages.
func TestKnownPrompt(t *testing.T) {
	t.Parallel()
	var list []window.Message
	for _, m := range [][2]string{
		{"", "You are a helpful, pattern-following assistant that translates corporate jargon into plain English."},
		{"example_user", "New synergies will help drive top-line growth."},
		{"example_assistant", "Things working well together will increase revenue."},
		{"example_user", "Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage."},
		{"example_assistant", "Let's talk later when we're less busy about how to do better."},
		{"", "This late pivot means we don't have time to boil the ocean for the client deliverable."},
	} {
		list = append(list, window.Message{Role: window.System, ToolName: m[0], Text: m[1]})
	}
	c := tokens.New(0)
	for family, want := range map[string]int{"gpt-4": 129, "gpt-4o": 124} {
		if got := window.EstimateTokens(list, counterOf(t, c, family)) + 3 + 4; got != want {
			t.Errorf("%s: %d tokens, want %d", family, got, want)
		}
	}
}

// TestAppendCountsOne proves that a memory that grew by one message costs the encoding of one
// message.
func TestAppendCountsOne(t *testing.T) {
	t.Parallel()
	c := tokens.New(0)
	k := counterOf(t, c, "o200k")
	var list []window.Message
	for i := range 1000 {
		list = append(list, window.Message{Role: window.User, Text: fmt.Sprintf("message number %d of a long talk", i)})
	}
	whole := window.EstimateTokens(list, k)
	before := c.Encoded()
	if before != 1000 {
		t.Fatalf("%d texts encoded for 1000 messages", before)
	}
	list = append(list, window.Message{Role: window.Assistant, Text: "one more"})
	if got := window.EstimateTokens(list, k); got != whole+tokens.PerMessage+2 {
		t.Errorf("%d tokens after %d and two words", got, whole)
	}
	if after := c.Encoded(); after != before+1 {
		t.Errorf("%d texts encoded after one append, want 1", after-before)
	}
	p := window.Policy{MaxTokens: new(400), Tokens: "o200k"}
	p.Read(list, k, window.Extras{})
	if after := c.Encoded(); after != before+1 {
		t.Errorf("reading encoded %d texts more", after-before-1)
	}
}

// TestReadCountsWhatItKeeps: a context of a long memory counts only what goes into it.
func TestReadCountsWhatItKeeps(t *testing.T) {
	t.Parallel()
	c := tokens.New(0)
	var list []window.Message
	for i := range 1000 {
		list = append(list, window.Message{Role: window.User, Text: fmt.Sprint("again ", i)})
	}
	v := window.Policy{Preset: "full", MaxTokens: new(100)}.Read(list, counterOf(t, c, "o200k"), window.Extras{})
	if got, most := c.Encoded(), int64(len(v.Entries)+1); got > most {
		t.Errorf("%d texts encoded for a view of %d", got, len(v.Entries))
	}
}

func TestMessageParts(t *testing.T) {
	t.Parallel()
	k := counterOf(t, tokens.New(0), "o200k")
	words := func(s string) int { return k.Size(&window.Message{Text: s}) - tokens.PerMessage }
	for name, tt := range map[string]struct {
		m    window.Message
		want int
	}{
		"null":        {window.Message{Parts: []byte("null")}, 0},
		"texts":       {window.Message{Parts: []byte(`["one two",{"type":"text","text":"three"}]`)}, words("one two") + words("three")},
		"picture":     {window.Message{Parts: []byte(`[{"type":"image_url","image_url":{"url":"data:` + strings.Repeat("A", 9999) + `"}}]`)}, tokens.PerPicture},
		"result":      {window.Message{Parts: []byte(`[{"type":"tool_result","tool_use_id":"x","content":"fine"}]`)}, words("fine")},
		"result list": {window.Message{Parts: []byte(`[{"type":"tool_result","tool_use_id":"x","content":[{"type":"text","text":"fine"}]}]`)}, words("fine")},
		"use":         {window.Message{Parts: []byte(`[{"type":"tool_use","id":"x","name":"f","input":{"a":1}}]`)}, tokens.PerCall + words("f") + words(`{"a":1}`)},
		"calls":       {window.Message{ToolCalls: []byte(`[{"id":"x","function":{"name":"f","arguments":"{\"a\":1}"}}]`)}, tokens.PerCall + words("f") + words(`{"a":1}`)},
		"known":       {window.Message{Text: "whatever", Tokens: 77}, 77 - tokens.PerMessage},
		"broken":      {window.Message{Parts: []byte(`[{"type"`)}, words(`[{"type"`)},
	} {
		if got := k.Size(&tt.m) - tokens.PerMessage; got != tt.want {
			t.Errorf("%s: %d tokens, want %d", name, got, tt.want)
		}
	}
}

// TestHardCap: what may not be cut is shortened inside until its exact count fits.
//
// Rules: 001-14
func TestHardCap(t *testing.T) {
	t.Parallel()
	k := counterOf(t, tokens.New(0), "o200k")
	for name, text := range map[string]string{
		"words": strings.Repeat("The train leaves at nine. ", 2000), "numbers": strings.Repeat("8", 30000), "mixed": strings.Repeat("誕生日 ", 500) + strings.Repeat("a ", 20000),
	} {
		v := window.Policy{Preset: "lauren", MaxTokens: new(600), Tokens: "o200k"}.Read([]window.Message{{Role: window.User, Text: text}}, k, window.Extras{})
		if len(v.Entries) != 1 || v.Tokens > 600 || v.Tokens < 200 || v.Shortened != 1 || k.Size(v.Entries[0].Message) != v.Tokens {
			t.Errorf("%s: %d tokens in %d entries", name, v.Tokens, len(v.Entries))
		}
	}
}

// TestCacheIsBounded: however many texts come, no more than asked are remembered, and the counts
// stay right.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := tokens.New(256)
	k := counterOf(t, c, "cl100k")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				if got, want := k.Size(&window.Message{Text: strings.Repeat("one ", 1+(i+g)%50) + fmt.Sprint(i)}), tokens.PerMessage; got <= want {
					t.Errorf("%d tokens", got)
				}
			}
		})
	}
	wg.Wait()
	if n := c.Cached(); n > 256 {
		t.Errorf("%d texts remembered, want at most 256", n)
	}
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	c := tokens.New(16)
	for _, f := range window.Families() {
		counterOf(t, c, f)
	}
	if _, ok := counterOf(t, c, window.Estimate).(window.Estimated); !ok {
		t.Error("the estimate is something else")
	}
	if _, err := c.For("llama"); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "gpt-4o") {
		t.Errorf("unknown family: %v", err)
	}
}

func BenchmarkEncode(b *testing.B) {
	c := tokens.New(16)
	k := counterOf(b, c, "o200k")
	text := strings.Repeat("The train leaves at nine from platform two, shall I book it? ", 4)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k.Size(&window.Message{Text: fmt.Sprint(i, text)})
	}
}
