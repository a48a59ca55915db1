package memory

import "slices"

// Request is what an LLM was given for one answer. It has the body of the request in parts: those
// that the body for an earlier answer has too, and the texts of the others. What is learned later
// of the messages in it does not change it. Package requests makes and reads it.
type Request struct {
	Base   int64  `json:"base,omitempty"`   // Memory.BaseSeq then
	Resent bool   `json:"resent,omitempty"` // the list was the platform's own
	Policy Limits `json:"policy,omitzero"`
	URL    string `json:"url,omitempty"` // of the last attempt, without secrets
	Tries  []Try  `json:"tries,omitempty"`
	Rev    int64  `json:"rev,omitempty"` // the newest revision of a message then
	Of     int64  `json:"of,omitempty"`  // Seq of the earlier answer; 0 for none
	// Parts are the body; none if it was too long.
	Parts []RequestPart `json:"parts,omitempty"`
	// Unplaced are the messages of the ledger that were told in other words.
	Unplaced []int64 `json:"unplaced,omitempty"`
}

// RequestPart is either a text or, if Count is not 0, Count parts of the earlier answer's body.
type RequestPart struct {
	From  int     `json:"from,omitempty"`
	Count int     `json:"count,omitempty"`
	Text  string  `json:"text,omitempty"`
	Seqs  []int64 `json:"seqs,omitempty"` // of the messages of the ledger in the text
}

// Own returns the messages of the ledger that the record itself may have words of.
func (t *Request) Own() []int64 {
	out := slices.Clone(t.Unplaced)
	for i := range t.Parts {
		out = append(out, t.Parts[i].Seqs...)
	}
	return out
}

// Limits is the part of a policy that limits a context; 0 means no limit.
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
