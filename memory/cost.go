package memory

import (
	"cmp"
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"
)

// MaxModel is how many bytes of a model's name are stored with an answer.
const MaxModel = 256

// Price is what a model's tokens cost, in US dollars per million.
type Price struct {
	In, Out float64
	Cached  float64 // of a prompt that the upstream had in its cache
}

// Prices are the prices of models by their names. AnyModel is the price of all others.
type Prices map[string]Price

// AnyModel is the name in Prices that stands for every model without a price of its own.
const AnyModel = "*"

// Cost is what an answer of an LLM cost, in billionths of a US dollar.
type Cost struct {
	In  int64 `json:"in,omitempty"`  // for the prompt
	Out int64 `json:"out,omitempty"` // for the answer
	// Saved is how much less the prompt cost because the upstream had a part of it in its cache. It
	// is not in In.
	Saved int64 `json:"saved,omitempty"`
	// Estimated is set if the upstream reported no tokens, as for answers that were cut.
	Estimated bool `json:"estimated,omitempty"`
}

// CostOf returns what an answer cost by the tokens that the upstream reported. Without a report a
// token is assumed for each four bytes of the request's body and each four characters of the
// answer. It returns nil if the model has no price, or if nothing was reported or generated.
func (p Prices) CostOf(model string, usage json.RawMessage, body int, generated string) *Cost {
	price, ok := p.of(model)
	if !ok {
		return nil
	}
	u := tokensOf(usage)
	c := &Cost{}
	if u == (tokenCounts{}) {
		if generated == "" {
			return nil
		}
		u.prompt = (int64(body) + charsPerToken - 1) / charsPerToken
		u.completion = estimateTokens(generated)
		c.Estimated = true
	}
	cached := min(u.cached, u.prompt)
	c.In = billionths(float64(u.prompt-cached)*price.In + float64(cached)*price.Cached)
	c.Saved = billionths(float64(cached) * (price.In - price.Cached))
	c.Out = billionths(float64(u.completion) * price.Out)
	return c
}

// billionths converts millionths of a dollar.
func billionths(millionths float64) int64 { return int64(math.Round(millionths * 1000)) }

// of returns the price of a model. A dated version of a model, such as gpt-4o-2024-08-06, has the
// price of that model unless it has one of its own.
func (p Prices) of(model string) (Price, bool) {
	if price, ok := p[model]; ok {
		return price, true
	}
	longest := ""
	for name := range p {
		if date, ok := strings.CutPrefix(model, name); ok && isDate(date) && len(name) > len(longest) {
			longest = name
		}
	}
	if longest == "" {
		longest = AnyModel
	}
	price, ok := p[longest]
	return price, ok
}

// isDate reports whether s ends a model's name with a date, such as -2024-08-06 or @20250514.
func isDate(s string) bool {
	return len(s) > 4 && (s[0] == '-' || s[0] == '@') && strings.Trim(s[1:], "0123456789-") == ""
}

// UnheardCost returns the part of an answer's cost for words that the caller did not hear, in
// billionths of a US dollar.
func (m *Message) UnheardCost() int64 {
	all := generatedTokens(m, tokensOf(m.Usage))
	return costOf(m, unheardOf(m, all), all)
}

// costOf returns what some of all generated tokens cost.
func costOf(m *Message, some, all int64) int64 {
	cost := m.Made().Cost
	if cost == nil || all == 0 {
		return 0
	}
	return int64(math.Round(float64(cost.Out) * float64(some) / float64(all)))
}

// tokenCounts are the tokens of an answer as the upstream reported them.
type tokenCounts struct{ prompt, cached, completion, reasoning int64 }

// tokensOf returns the tokens in an upstream's usage object; the zero value for an object without
// counts, or with some that cannot be true.
func tokensOf(usage json.RawMessage) tokenCounts {
	if len(usage) == 0 {
		return tokenCounts{}
	}
	var u struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Of         struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		OfInput struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_token_details"` // OpenAI Realtime
		Details struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`

		Hit    int64 `json:"prompt_cache_hit_tokens"` // DeepSeek
		Cached int64 `json:"cached_tokens"`           // Moonshot
		Read   int64 `json:"cache_read_input_tokens"` // Anthropic, by its gateways
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	}
	if json.Unmarshal(usage, &u) != nil {
		return tokenCounts{}
	}
	out := tokenCounts{cmp.Or(u.Prompt, u.Input), cmp.Or(u.Of.Cached, u.OfInput.Cached, u.Hit, u.Cached, u.Read), cmp.Or(u.Completion, u.Output), u.Details.Reasoning}
	if max(out.prompt, out.completion) > maxTokens || min(out.prompt, out.completion, out.cached, out.reasoning) < 0 {
		return tokenCounts{}
	}
	return out
}

// maxTokens bounds what is believed of an upstream's count.
const maxTokens = 1 << 24

// estimateTokens returns about how many tokens a text has.
func estimateTokens(s string) int64 {
	return (int64(utf8.RuneCountInString(s)) + charsPerToken - 1) / charsPerToken
}
