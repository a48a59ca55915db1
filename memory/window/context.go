package window

import "strings"

// SummaryHeading is the first line of a summary.
const SummaryHeading = "[Earlier conversation summary]"

// SummaryText returns the text of the system message with a summary.
func SummaryText(summary string) string { return SummaryHeading + "\n" + summary }

// WithSummary appends a summary to a system prompt: a blank line, the heading, the text. Without a
// prompt it returns SummaryText, without a summary the prompt.
func WithSummary(prompt, summary string) string {
	switch {
	case summary == "":
		return prompt
	case prompt == "":
		return SummaryText(summary)
	}
	return prompt + "\n\n" + SummaryText(summary)
}

// assemble puts the system messages first, the summary after them, and the utterance last.
func assemble(s []slot, c Counter, x Extras) View {
	v := View{Entries: make([]Entry, 0, len(s)+len(x.System)+2)}
	own, other := 0, 0
	add := func(kind Kind, m *Message) {
		v.Entries = append(v.Entries, Entry{kind, -1, m})
		other += c.Size(m)
	}
	for i := range x.System {
		if m := stripped(x.System[i]); m != nil {
			add(SystemMsg, m)
		}
	}
	lead := 0
	for lead < len(s) && s[lead].system {
		lead++
	}
	for i, e := range s {
		if i == lead && x.Summary != "" {
			add(Summary, &Message{Ref: -1, Role: System, Text: SummaryText(x.Summary)})
		}
		v.Entries = append(v.Entries, Entry{e.kind, int(e.at), e.m})
		own += c.Size(e.m)
	}
	if lead == len(s) && x.Summary != "" {
		add(Summary, &Message{Ref: -1, Role: System, Text: SummaryText(x.Summary)})
	}
	if x.Utterance != nil {
		add(Utterance, &Message{Ref: -1, Role: User, Text: strings.TrimSpace(*x.Utterance)})
	}
	v.Tokens, v.AllTokens = own/c.PerToken(), (own+other)/c.PerToken()
	return v
}

// stripped returns a system message without outer white space, or nil if nothing is left.
func stripped(m Message) *Message {
	if len(m.Parts) > 0 {
		return &m
	}
	text := strings.TrimSpace(m.Text)
	if text == "" {
		return nil
	}
	if text != m.Text {
		m.Text, m.Chars, m.Tokens = text, 0, 0
	}
	return &m
}
