package turn

import (
	"slices"
	"strings"
	"sync"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/told"
)

// noteTold notes which messages of the ledger are in the list that is sent.
func (p *prompt) noteTold(list []llmadapter.Message) {
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

// recordTold makes the record of what the model is given, while the upstream works on it. Lists of
// an agent that was paused repeat what was said in the pause, so these are not recorded.
func (q *asker) recordTold(call *llmadapter.Call) {
	p := q.prompt
	if q.aside || p.turn.Agent.Settings.PausedUntilMS != 0 {
		return
	}
	t := &memory.Told{Base: p.turn.Agent.Settings.Memory.BaseSeq, Resent: p.reconciles(), Policy: p.limits()}
	seqs, ledger, hide := p.told, p.turn.Ledger(), q.hide
	p.told = nil
	done := make(chan *memory.Told, 1)
	q.answer.relay.Mu.Lock()
	q.answer.told = done
	q.answer.relay.Mu.Unlock()
	go func() { // settle waits for it
		body := call.Body
		if hide != nil {
			body = hide.JSON(body)
			for i, m := range ledger {
				redacted := m.Redacted(hide)
				ledger[i] = &redacted
			}
		}
		t.URL, _, _ = strings.Cut(secret.MaskURL(call.URL), "?") // any parameter may be a key
		secrets := sync.OnceValue(call.Secrets)
		told.Record(t, body, ledger, seqs, func(b []byte) []byte { return secrets().Remove(b) })
		done <- t
	}()
}

// limits returns the limits of the conversation's context.
func (p *prompt) limits() memory.Limits {
	if w := p.turn.Window; w != nil {
		return memory.Limits{Strategy: string(w.Policy.Strategy), MaxMessages: *w.Policy.MaxMessages, MaxTokens: *w.Policy.MaxTokens}
	}
	if p.reconciles() {
		return memory.Limits{}
	}
	return memory.Limits{MaxMessages: p.turn.Agent.Settings.LLM.MaxHistory}
}

// tried notes how an attempt ended, nil for one that was answered.
func (q *asker) tried(sentMS int64, upstream string, err error) {
	t := memory.Try{Upstream: upstream, SentMS: sentMS}
	if err != nil {
		t.Error = failureOf(err).Message
	}
	q.answer.relay.Mu.Lock()
	defer q.answer.relay.Mu.Unlock()
	q.answer.tries = append(q.answer.tries, t)
}

// record returns what the model was given, or nil. The caller does not hold relay.Mu.
func (a *answer) record() *memory.Told {
	a.relay.Mu.Lock()
	done, tries := a.told, slices.Clone(a.tries)
	a.told = nil
	a.relay.Mu.Unlock()
	if done == nil {
		return nil
	}
	t := <-done
	t.Tries = tries
	return t
}
