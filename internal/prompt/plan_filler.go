package prompt

import (
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/echo"
	"github.com/heardlog/heardlog/memory/heard"
)

// maxFillerWork limits how many bytes of answers and of what follows their fillers are compared for
// one list.
const maxFillerWork = 4 << 20

// removeFillers removes our fillers from a platform's list, which has them in front of the answer,
// or alone if the caller cut in. What is left are the model's words: they are compared with the
// ledger, and the model is shown them. A list without fillers is not changed.
func (p *Plan) removeFillers(recent []memory.Message) {
	last, work := len(p.req.Messages), 0
	for _, m := range slices.Backward(recent) {
		if m.Made().Filler == "" || m.State == memory.Superseded {
			continue
		}
		for i := last - 1; i >= 0; i-- {
			in := &p.req.Messages[i]
			if in.Role != "assistant" {
				continue
			}
			rest, ok := afterFiller(in.Text(), &m, &work)
			if !ok {
				continue
			}
			last = i // earlier fillers come before this one
			p.setText(i, rest)
			break
		}
	}
}

// setText replaces the text of message i of the list. If nothing is left of it, it is removed.
func (p *Plan) setText(i int, rest string) {
	in := &p.req.Messages[i]
	switch {
	case rest != "":
		in.Content = text.AppendJSON(nil, rest)
	case in.ToolCalls != nil:
		in.Content = []byte("null")
	default:
		p.req.Messages = slices.Delete(p.req.Messages, i, i+1)
	}
}

// afterFiller returns what text says after m's filler. ok is false unless text begins with the
// filler and the rest is m's own words. work counts the bytes compared so far.
func afterFiller(text string, m *memory.Message, work *int) (rest string, ok bool) {
	if rest, ok = echo.WithoutOpening(text, m.Made().Filler); !ok {
		return "", false
	}
	own := m.Original()
	if *work += len(rest) + len(own); *work > maxFillerWork {
		return "", false
	}
	if rest == "" {
		// The model may have begun with the same words, and only those were heard.
		_, both := echo.WithoutOpening(text, own)
		return "", own == "" || !both || strings.HasPrefix(own, m.Made().Filler)
	}
	if own == "" {
		return "", false
	}
	a, b := heard.Normalize(rest), heard.Normalize(own)
	if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
		return rest, true
	}
	_, ok = heard.Align(own, rest)
	return rest, ok
}
