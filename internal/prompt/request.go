package prompt

import (
	"slices"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// Request returns how the last body was chosen, and the Seq of each message of the ledger in it, in
// order.
func (p *Prompt) Request() (*memory.Request, []int64) {
	seqs := p.given
	p.given = nil
	return &memory.Request{Base: p.turn.Agent.Settings.Memory.BaseSeq, Resent: p.reconciles(), Policy: p.limits()}, seqs
}

// noteRequest notes which messages of the ledger are in the list that is sent.
func (p *Prompt) noteRequest(list []llmadapter.Message) {
	p.given = make([]int64, 0, len(list)+len(p.turn.Added()))
	for i := range list {
		if seq := list[i].Seq; seq != 0 {
			p.given = append(p.given, seq)
		}
	}
	for _, m := range p.turn.Added() { // a platform's own list may have them in other words
		if p.reconciles() && !slices.Contains(p.given, m.Seq) {
			p.given = append(p.given, m.Seq)
		}
	}
}

// limits returns the limits of the conversation's context.
func (p *Prompt) limits() memory.Limits {
	if w := p.turn.Window; w != nil {
		return memory.Limits{Strategy: string(w.Policy.Strategy), MaxMessages: *w.Policy.MaxMessages, MaxTokens: *w.Policy.MaxTokens}
	}
	if p.reconciles() {
		return memory.Limits{}
	}
	return memory.Limits{MaxMessages: p.turn.Agent.Settings.LLM.MaxHistory}
}
