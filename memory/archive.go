package memory

// Archive holds the facts about an agent that runs elsewhere and is known here only from what its
// platform says: Agora in notifications, others in reports of calls that are over (Hosted). Package
// ingest merges these into it and derives the agent and its messages from it. They may arrive in
// any order and more than once; the facts end up the same.
type Archive struct {
	// Name is the agent's name. Agent.Name is set only once the agent has ended, so that names at
	// Agora and names of live agents here cannot collide.
	Name    string `json:"name,omitempty"`
	StartMS int64  `json:"start_ms,omitempty"`
	StopMS  int64  `json:"stop_ms,omitempty"`
	// Left is how the agent ended; nil while no notification has reported it.
	Left *ArchiveEnd `json:"left,omitempty"`
	// Messages is the length of the best history received so far, and Digest a hash of it. The
	// longer history wins. Told has, for each message, a bit for each field that the history itself
	// contained; the other fields are derived from other facts.
	Messages int    `json:"messages,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Told     []byte `json:"told,omitempty"`
	// Notices are the IDs of the first notifications. A repeat of a later one is recognized because
	// it changes nothing.
	Notices []string       `json:"notices,omitempty"`
	Turns   []ArchiveTurn  `json:"turns,omitempty"`  // by turn
	Errors  []ArchiveError `json:"errors,omitempty"` // sorted
	// Hosted is what a platform says of a call as a whole; nil for an agent that runs at Agora.
	Hosted *HostedCall `json:"hosted,omitempty"`
}

// HostedCall is what a hosted platform says of a call that is over, beside what every agent has.
type HostedCall struct {
	Platform     string   `json:"platform"`
	CallID       string   `json:"call_id"`
	EndReason    string   `json:"end_reason,omitempty"` // in the platform's words
	RecordingURL string   `json:"recording_url,omitempty"`
	CostUSD      *float64 `json:"cost_usd,omitempty"` // what the platform charged
}

// ArchiveEnd is how an archived agent ended.
type ArchiveEnd struct {
	Status  Status `json:"status"` // Stopped or Failed
	Message string `json:"message,omitempty"`
}

// ArchiveTurn holds the facts about one turn, with the fields of Agora's turn table. Times are Unix
// ms, latencies ms.
type ArchiveTurn struct {
	TurnID     int64  `json:"turn_id"` // Agora's number
	StartMS    int64  `json:"start_ms,omitempty"`
	StartType  string `json:"start_type,omitempty"`
	EndMS      int64  `json:"end_ms,omitempty"`
	EndType    string `json:"end_type,omitempty"`
	CausedBy   string `json:"caused_by,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Details    string `json:"details,omitempty"`
	E2EMS      int64  `json:"e2e_ms,omitempty"`
	TokenMS    int64  `json:"token_ms,omitempty"`
	SentenceMS int64  `json:"sentence_ms,omitempty"`

	Code int `json:"code,omitempty"` // of its error
}

// ArchiveError is one entry of an error notification.
type ArchiveError struct {
	TurnID  int64  `json:"turn_id"`
	Module  string `json:"module,omitempty"`
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// Archived reports whether the agent runs elsewhere and is only recorded here.
func (a Agent) Archived() bool { return a.Settings.Archive != nil }

// Home returns the platform that an archived agent runs at.
func (a Agent) Home() string {
	if h := a.Settings.Archive.Hosted; h != nil {
		return h.Platform
	}
	return "agora"
}

// ShownName returns the agent's name, also while an archived agent is live.
func (a Agent) ShownName() string {
	if a.Name == "" && a.Archived() {
		return a.Settings.Archive.Name
	}
	return a.Name
}
