package prompt

import (
	"slices"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// Told returns how the last body was chosen, and the Seq of each message of the ledger in it, in
// order.
func (p *Prompt) Told() (*memory.Told, []int64) {
	seqs := p.told
	p.told = nil
	return &memory.Told{Base: p.turn.Agent.Settings.Memory.BaseSeq, Resent: p.reconciles(), Policy: p.limits()}, seqs
}

// noteTold notes which messages of the ledger are in the list that is sent.
func (p *Prompt) noteTold(list []llmadapter.Message) {
	p.told = make([]int64, 0, len(list)+len(p.turn.Added()))
	for i := range list {
		if seq := list[i].Seq; seq != 0 {
			p.told = append(p.told, seq)
		}
	}
	for _, m := range p.turn.Added() { // a platform's own list may have them in other words
		if p.reconciles() && !slices.Contains(p.told, m.Seq) {
			p.told = append(p.told, m.Seq)
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
