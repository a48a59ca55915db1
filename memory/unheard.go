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
	if m.Role != Assistant || m.Timings == nil || m.Source == SourceCommand {
		return 0
	}
	made := int64(utf8.RuneCountInString(m.Original()))
	heard := int64(0)
	if m.State == Final {
		heard = int64(utf8.RuneCountInString(m.Content))
	}
	if heard >= made {
		return 0
	}
	tokens := (made + charsPerToken - 1) / charsPerToken
	if n := m.spokenTokens(); n > 0 {
		tokens = n
	}
	return max(1, (tokens*(made-heard)+made/2)/made)
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
