package memory

// Told is what an LLM was given for one answer. It has the body of the request in parts: messages
// of the ledger, by their places, and the texts between them. Evidence that comes later does not
// change it.
type Told struct {
	Base   int64  `json:"base,omitempty"`   // Memory.BaseSeq then
	Resent bool   `json:"resent,omitempty"` // the list was the platform's own
	Policy Limits `json:"policy,omitzero"`
	URL    string `json:"url,omitempty"` // of the last attempt, without secrets
	Tries  []Try  `json:"tries,omitempty"`
	// Rev is the newest revision of a message then.
	Rev   int64      `json:"rev,omitempty"`
	Sum   int64      `json:"sum"` // CRC-32 of the body
	Texts []ToldText `json:"texts,omitempty"`
	// Parts are numbers: i is Texts[i]. Four numbers that begin with -seq stand for messages. The
	// second is a field of package told, the fourth a checksum of 16 bits; the third is the last
	// message's Seq for toldRun, else the length of the message's text. A length of 0 stands for a
	// message that was told in other words, which are in Texts.
	Parts []int64 `json:"parts"`
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

// ToldText is a text of a prompt that is not in the ledger: its own, or one that an earlier answer
// has.
type ToldText struct {
	Text string `json:"text,omitempty"`
	Of   int64  `json:"of,omitempty"`  // Seq of the answer with the text
	At   int    `json:"at,omitempty"`  // its index there
	Sum  int64  `json:"sum,omitempty"` // CRC-32 of the text
}
