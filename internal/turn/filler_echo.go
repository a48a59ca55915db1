package turn

import (
	"slices"
	"strings"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/heard"
)

// maxFillerWork is how many bytes of our own words, and of what follows their fillers in one list, are compared: others wait for it.
const maxFillerWork = 4 << 20

// withoutFillers takes what we said ourselves in front of an answer out of a platform's list, which holds it as part of the answer, or alone where the
// caller cut in. What is left is the model's words: those are compared with the ledger, and those the model is told. It is done once: a list that was
// cleaned holds no filler any more.
func (p *plan) withoutFillers(recent []memory.Message) {
	last, work := len(p.req.Messages), 0
	for _, m := range slices.Backward(recent) {
		if m.Filler() == "" || m.State == memory.Superseded {
			continue
		}
		for i := last - 1; i >= 0; i-- {
			in := &p.req.Messages[i]
			if in.Role != "assistant" {
				continue
			}
			rest, ok := behindFiller(in.Text(), &m, &work)
			if !ok {
				continue
			}
			last = i // an earlier filler stands before this one
			switch {
			case rest != "":
				in.Content = llmadapter.QuoteJSON(rest)
			case in.ToolCalls != nil:
				in.Content = []byte("null")
			default:
				p.req.Messages = slices.Delete(p.req.Messages, i, i+1)
			}
			break
		}
	}
}

// behindFiller gives what a text of a list says behind m's filler; ok is false unless the filler stands in front and the rest is of m's own words.
// work is what was compared so far.
func behindFiller(text string, m *memory.Message, work *int) (rest string, ok bool) {
	if rest, ok = llmadapter.WithoutOpening(text, m.Filler()); !ok {
		return "", false
	}
	own := m.Original()
	if *work += len(rest) + len(own); *work > maxFillerWork {
		return "", false
	}
	if rest == "" {
		// Perhaps the model began with the same words, and those are all that was heard.
		_, both := llmadapter.WithoutOpening(text, own)
		return "", own == "" || !both || strings.HasPrefix(own, m.Filler())
	}
	if own == "" {
		return "", false
	}
	a, b := llmadapter.Normalise(rest), llmadapter.Normalise(own)
	if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
		return rest, true
	}
	_, ok = heard.Align(own, rest)
	return rest, ok
}
