package memory_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
)

func TestCostOf(t *testing.T) {
	t.Parallel()
	prices := memory.Prices{"gpt-4o": {In: 2.5, Out: 10, Cached: 1.25}, "gpt-4o-mini": {In: 0.15, Out: 0.6, Cached: 0.15}, "o3": {In: 2, Out: 8, Cached: 2}, "o3-2025-04-16": {}}
	const usage = `{"prompt_tokens":1000,"completion_tokens":100}`
	for _, tt := range []struct {
		name, model, usage, generated string
		want                          *memory.Cost
	}{
		{"reported", "gpt-4o", usage, "Hello.", &memory.Cost{In: 2_500_000, Out: 1_000_000}},
		{"cached", "gpt-4o", `{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":800}}`, "Hello.", &memory.Cost{In: 1_500_000, Out: 1_000_000, Saved: 1_000_000}},
		{"cached, by DeepSeek", "gpt-4o", `{"prompt_tokens":1000,"completion_tokens":100,"prompt_cache_hit_tokens":800}`, "Hello.", &memory.Cost{In: 1_500_000, Out: 1_000_000, Saved: 1_000_000}},
		{"cached, by a gateway of Anthropic", "gpt-4o", `{"input_tokens":1000,"output_tokens":100,"cache_read_input_tokens":800}`, "Hello.", &memory.Cost{In: 1_500_000, Out: 1_000_000, Saved: 1_000_000}},
		{"more cached than sent", "gpt-4o", `{"prompt_tokens":1000,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":8000}}`, "", &memory.Cost{In: 1_250_000, Saved: 1_250_000}},
		{"a dated version", "gpt-4o-2024-08-06", usage, "Hello.", &memory.Cost{In: 2_500_000, Out: 1_000_000}},
		{"a dated version of the longer name", "gpt-4o-mini-2024-07-18", usage, "Hello.", &memory.Cost{In: 150_000, Out: 60_000}},
		{"a dated version with a price of its own", "o3-2025-04-16", usage, "Hello.", &memory.Cost{}},
		{"another model with the same beginning", "gpt-4o-audio", usage, "Hello.", nil},
		{"unknown", "llama3:8b", usage, "Hello.", nil},
		{"none", "", usage, "Hello.", nil},
		{"cut, so that nothing was reported", "gpt-4o", "", strings.Repeat("word ", 8), &memory.Cost{In: 250_000, Out: 100_000, Estimated: true}},
		{"nothing came", "gpt-4o", "", "", nil},
		{"counts that cannot be", "gpt-4o", `{"prompt_tokens":-5,"completion_tokens":3}`, "Hell", &memory.Cost{In: 250_000, Out: 10_000, Estimated: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := prices.CostOf(tt.model, json.RawMessage(tt.usage), 400, tt.generated)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	others := memory.Prices{memory.AnyModel: {In: 1, Out: 1}}
	if got := others.CostOf("llama3:8b", json.RawMessage(usage), 0, "Hello."); got == nil || got.In != 1_000_000 {
		t.Errorf("with a price for every model: %+v", got)
	}
}

// TestUnheardCost checks that the cost of an answer is shared between heard and unheard words.
func TestUnheardCost(t *testing.T) {
	t.Parallel()
	m := memory.Message{Role: memory.Assistant, Generated: "one two three four", Content: "one two t", Timings: &memory.Timings{}}
	if got := m.UnheardCost(); got != 0 {
		t.Errorf("an answer without a price: %d", got)
	}
	m.Amend(func(r *memory.Details) { r.Cost = &memory.Cost{In: 1000, Out: 100} })
	if got := m.UnheardCost(); got != 60 { // 3 of 5 tokens
		t.Errorf("half heard: %d", got)
	}
	if m.State = memory.Superseded; m.UnheardCost() != 100 {
		t.Errorf("a ghost: %d", m.UnheardCost())
	}
	if m.State, m.Content = memory.Final, m.Generated; m.UnheardCost() != 0 {
		t.Errorf("all heard: %d", m.UnheardCost())
	}
}
