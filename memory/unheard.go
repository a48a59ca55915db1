package memory

import (
	"encoding/json"
	"unicode/utf8"
)

// charsPerToken is how many characters a token is taken to have where the upstream does not say how many tokens it made: about what models make of
// English.
const charsPerToken = 4

// unheardTokens gives how many tokens of an answer that the proxy ran were made and, as far as is known, not heard; 0 for any other message, and for
// words that a platform gave. It is the unheard share of the characters: of the tokens that the upstream counted (without those of its reasoning, which are for nobody's ear), else of
// a token for every four characters.
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

// spokenTokens gives how many tokens the upstream says the words took; 0 if it does not say, or if tool calls are among them.
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

// countUnheard notes in the change's answers how many unheard tokens of each are counted, and gives how many are new. What was counted once stays
// counted, whatever evidence comes later: a counter cannot go back, and each message remembers what it has added to it.
func (c *Change) countUnheard() (tokens int64) {
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
