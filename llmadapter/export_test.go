package llmadapter

import (
	"maps"
	"slices"
)

// KnownMembers returns the members that the table of fates has.
func KnownMembers() []string { return slices.Sorted(maps.Keys(fates)) }

// FateOf returns where a member goes, in the words of docs/reference/members.md.
func FateOf(name string) string {
	return map[fate]string{
		others: "`llm.vendor` `custom`, and others", always: "every LLM", answers: "the LLM that wrote the answer",
		listed: "every LLM, unless", ours: "`llm.vendor` `custom` only",
	}[fates[name]]
}
