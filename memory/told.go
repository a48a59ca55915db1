package memory

import (
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
)

// Told is what an LLM was given for one answer. It has the body of the request in parts: those that
// the body for an earlier answer has too, and the texts of the others. What is learned later of the
// messages in it does not change it. Package told makes and reads it.
type Told struct {
	Base   int64  `json:"base,omitempty"`   // Memory.BaseSeq then
	Resent bool   `json:"resent,omitempty"` // the list was the platform's own
	Policy Limits `json:"policy,omitzero"`
	URL    string `json:"url,omitempty"` // of the last attempt, without secrets
	Tries  []Try  `json:"tries,omitempty"`
	// Rev is the newest revision of a message then.
	Rev   int64      `json:"rev,omitempty"`
	Of    int64      `json:"of,omitempty"` // Seq of the earlier answer; 0 for none
	Parts []ToldPart `json:"parts"`
	// Unplaced are the messages of the ledger that were told in other words.
	Unplaced []int64 `json:"unplaced,omitempty"`
	Cut      bool    `json:"cut,omitempty"` // a text was too long and is not kept
}

// ToldPart is either one part of a body or, if Count is not 0, Count parts of the earlier answer's
// body.
type ToldPart struct {
	From  int     `json:"from,omitempty"`
	Count int     `json:"count,omitempty"`
	Text  string  `json:"text,omitempty"`
	Seqs  []int64 `json:"seqs,omitempty"` // of the messages of the ledger in it
}

// Stands reports whether the ledger still has what the record repeats, and no message in its own
// parts was removed. The record may be made while another change does that.
func (t *Told) Stands(view AgentView) (bool, error) {
	if view.Head().Rev <= t.Rev {
		return true, nil
	}
	seqs := slices.Clone(t.Unplaced)
	for _, p := range t.Parts {
		seqs = append(seqs, p.Seqs...)
	}
	for _, seq := range append(seqs, t.Of) {
		if seq == 0 {
			continue
		}
		m, err := view.Seq(seq)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return false, err
		}
		if err != nil || m.State == Removed || seq == t.Of && m.Told() == nil {
			return false, nil
		}
	}
	return true, nil
}

// Limits is the part of a policy that limits a context; 0 is no limit.
type Limits struct {
	Strategy    string `json:"strategy,omitempty"`
	MaxMessages int    `json:"max_messages,omitempty"`
	MaxTokens   int    `json:"max_tokens,omitempty"`
}

// Try is one attempt to get an answer.
type Try struct {
	Upstream string `json:"upstream,omitempty"`
	SentMS   int64  `json:"sent_ms"`         // ms after the request's arrival
	Error    string `json:"error,omitempty"` // without secrets; "" for the attempt that was answered
}
