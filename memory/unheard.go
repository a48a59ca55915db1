package memory

import (
	"encoding/json"
	"unicode/utf8"
)

// charsPerToken is the assumed length of a token if the upstream does not count them: about what
// models need for English.
const charsPerToken = 4

// unheardTokens returns how many tokens of an answer that the proxy ran were generated but, as far
// as is known, not heard; 0 for any other message, and for words of a platform. It is the unheard
// share of the characters, applied to the tokens that the upstream counted (without reasoning
// tokens), or else to one token for every four characters.
func (m *Message) unheardTokens() int64 {
	made := int64(utf8.RuneCountInString(m.Original()))
	heard := int64(0)
	if m.State == Final || m.State == Dropped { // what left the memory was heard all the same
		heard = int64(utf8.RuneCountInString(m.Content))
	}
	tokens := m.generatedTokens()
	if heard >= made || tokens == 0 {
		return 0
	}
	return max(1, (tokens*(made-heard)+made/2)/made)
}

// generatedTokens returns how many tokens the words of an answer that the proxy ran took; 0 for any
// other message, and for words of a platform.
func (m *Message) generatedTokens() int64 {
	if m.Role != Assistant || m.Timings == nil || m.Source == SourceCommand {
		return 0
	}
	if n := m.spokenTokens(); n > 0 {
		return n
	}
	return (int64(utf8.RuneCountInString(m.Original())) + charsPerToken - 1) / charsPerToken
}

// usageTokens returns the tokens that the upstream reported of a prompt and its answer.
func (m *Message) usageTokens() (prompt, completion int64) {
	if len(m.Usage) == 0 {
		return 0, 0
	}
	var u struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
	}
	if json.Unmarshal(m.Usage, &u) != nil || max(u.Prompt, u.Completion) > maxTokens || min(u.Prompt, u.Completion) < 0 {
		return 0, 0
	}
	return u.Prompt, u.Completion
}

// maxTokens bounds what is believed of an upstream's count.
const maxTokens = 1 << 24

// spokenTokens returns how many tokens the words took by the upstream's count; 0 if unknown, or if
// tool calls are among them.
func (m *Message) spokenTokens() int64 {
	if len(m.Usage) == 0 || len(m.ToolCalls) > 0 {
		return 0
	}
	var u struct {
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	if json.Unmarshal(m.Usage, &u) != nil || u.Completion > maxTokens || u.Details.Reasoning < 0 {
		return 0
	}
	return u.Completion - u.Details.Reasoning
}

// CountUnheard records in the change's answers how many unheard tokens are counted of each, and
// returns how many are new. Counted tokens stay counted, whatever evidence comes later, because
// metrics counters cannot decrease.
func (c *Change) CountUnheard() (tokens int64) {
	for _, list := range [][]Message{c.Append, c.Replace} {
		for i := range list {
			m := &list[i]
			if n := m.unheardTokens(); n > m.UnheardTokens() {
				tokens += n - m.UnheardTokens()
				m.Amend(func(r *Rare) { r.UnheardTokens = n })
			}
		}
	}
	return tokens
}
