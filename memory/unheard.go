package memory

import "unicode/utf8"

// charsPerToken is the assumed length of a token if the upstream does not count them: about what
// models need for English.
const charsPerToken = 4

// unheardOf returns how many of the generated tokens of an answer were, as far as is known, not
// heard: the unheard share of the characters.
func unheardOf(m *Message, tokens int64) int64 {
	made := int64(utf8.RuneCountInString(m.Original()))
	heard := int64(0)
	if m.State == Final || m.State == Dropped { // what left the memory was heard all the same
		heard = int64(utf8.RuneCountInString(m.Content))
	}
	if heard >= made || tokens == 0 {
		return 0
	}
	return max(1, (tokens*(made-heard)+made/2)/made)
}

// generatedTokens returns how many tokens the words of an answer that the proxy ran took; 0 for any
// other message, and for words of a platform. They are those that the upstream counted, without
// reasoning tokens, or else one for every four characters.
func generatedTokens(m *Message, t tokenCounts) int64 {
	if m.Role != Assistant || m.Timings == nil || m.Source == SourceCommand {
		return 0
	}
	if len(m.ToolCalls) == 0 && t.completion > t.reasoning {
		return t.completion - t.reasoning
	}
	return estimateTokens(m.Original())
}

// CountUnheard records in the change's answers how many unheard tokens are counted of each, and
// returns how many are new. Counted tokens stay counted, whatever evidence comes later, because
// metrics counters cannot decrease.
func (c *Change) CountUnheard() (tokens int64) {
	for _, list := range [][]Message{c.Append, c.Replace} {
		for i := range list {
			m := &list[i]
			if n := unheardOf(m, generatedTokens(m, tokensOf(m.Usage))); n > m.Heard().UnheardTokens {
				tokens += n - m.Heard().UnheardTokens
				m.Amend(func(r *Details) { r.UnheardTokens = n })
			}
		}
	}
	return tokens
}
