package memory

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// Archive is what is known of an agent that runs elsewhere, at Agora, and whose notices are filed here. It is a set of facts: notices may come in any
// order and more than once, and whatever their order the facts are the same in the end. The agent and its messages are made of them, see record.
type Archive struct {
	// Name is the agent's. Agent.Name has it from the end on: names at Agora and names here must not stand in each other's way.
	Name    string `json:"name,omitempty"`
	StartMS int64  `json:"start_ms,omitempty"`
	StopMS  int64  `json:"stop_ms,omitempty"`
	// Left says how it ended; nil while no notice has.
	Left *ArchiveEnd `json:"left,omitempty"`
	// Messages is how many the best history so far has, Digest a hash of it: of two histories the longer one counts. Told says, for each message,
	// which of its fields the history told; the others were made of other facts.
	Messages int    `json:"messages,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Told     []byte `json:"told,omitempty"`
	// Notices are the ids of notices that have been filed, at most MaxArchiveNotices. Beyond that a repeat is found to tell nothing new.
	Notices []string       `json:"notices,omitempty"`
	Turns   []ArchiveTurn  `json:"turns,omitempty"`  // by turn, at most MaxArchiveTurns
	Errors  []ArchiveError `json:"errors,omitempty"` // in order, at most MaxArchiveErrors
}

// Bounds of what is kept of one agent. The history is bounded by MaxArchiveMessages.
const (
	MaxArchiveNotices  = 256
	MaxArchiveTurns    = 1000
	MaxArchiveErrors   = 200
	MaxArchiveMessages = 10_000
)

// ArchiveEnd is how an agent ended.
type ArchiveEnd struct {
	Status  Status `json:"status"` // Stopped or Failed
	Message string `json:"message,omitempty"`
}

// ArchiveTurn is what is known of one turn (reference/agora-api.md 1.9). Times are Unix ms, latencies ms.
type ArchiveTurn struct {
	TurnID     int64  `json:"turn_id"` // as Agora counts
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

// ArchiveError is one entry of an error notice.
type ArchiveError struct {
	TurnID  int64  `json:"turn_id"`
	Module  string `json:"module,omitempty"`
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// Notice is what one notification tells of an agent, read.
type Notice struct {
	ID              string // noticeId
	AgentID         string
	Name, Channel   string
	Labels          map[string]string
	StartMS, StopMS int64 // 0 = not told
	ToldMS          int64 // when it was told first; 0 = not known
	Left            *ArchiveEnd
	// History is the agent's memory, oldest message first: Role, Content, Parts, Metadata and the tool fields, and those of TurnID (with GivenTurn), Timestamp,
	// Source, Interrupted, InterruptMS and Generated that were told. Of an interrupted message Generated is all that was made, also where that equals Content.
	History []Message
	Turns   []ArchiveTurn
	Errors  []ArchiveError
}

// What the history told of a message beside its words; the bits of Archive.Told.
const (
	toldTime = 1 << iota
	toldSource
	toldCut
	toldCutTime
	toldWhole
	toldTurn
)

// told gives the bits of a message of a notice.
func told(m Message) (b byte) {
	for bit, is := range map[byte]bool{
		toldTime: m.Timestamp != 0, toldSource: m.Source != "", toldCut: m.Interrupted, toldCutTime: m.InterruptMS != 0,
		toldWhole: m.Interrupted && m.Generated != "", toldTurn: m.GivenTurn,
	} {
		if is {
			b |= bit
		}
	}
	return b
}

// merge adds what the notice tells. It is commutative, associative and idempotent: for each fact one of two values wins whichever came first, and
// lists are unions. better tells that the notice's history replaces the one that was known.
func (a Archive) merge(n Notice) (_ Archive, better bool) {
	a.Name = max(a.Name, n.Name)
	a.StartMS, a.StopMS = max(a.StartMS, n.StartMS), max(a.StopMS, n.StopMS) // of one second told with and without its ms this is the one with them
	if n.Left != nil && (a.Left == nil || cmp.Or(cmp.Compare(n.Left.Status, a.Left.Status), cmp.Compare(n.Left.Message, a.Left.Message)) > 0) {
		left := *n.Left
		a.Left = &left
	}
	if len(n.Errors) > 0 {
		a.Errors = union(a.Errors, n.Errors, MaxArchiveErrors, func(x, y ArchiveError) int {
			return cmp.Or(cmp.Compare(x.TurnID, y.TurnID), cmp.Compare(x.Module, y.Module), cmp.Compare(x.Code, y.Code), cmp.Compare(x.Message, y.Message))
		}, nil)
	}
	if len(n.Turns) > 0 {
		a.Turns = union(a.Turns, n.Turns, MaxArchiveTurns, func(x, y ArchiveTurn) int { return cmp.Compare(x.TurnID, y.TurnID) }, ArchiveTurn.merge)
	}
	if !slices.Contains(a.Notices, n.ID) && len(a.Notices) < MaxArchiveNotices {
		a.Notices = slices.Sorted(slices.Values(append(slices.Clone(a.Notices), n.ID)))
	}
	if len(n.History) > 0 {
		digest := digestOf(n.History)
		if better = cmp.Or(cmp.Compare(len(n.History), a.Messages), cmp.Compare(digest, a.Digest)) > 0; better {
			a.Messages, a.Digest, a.Told = len(n.History), digest, make([]byte, len(n.History))
			for i, m := range n.History {
				a.Told[i] = told(m)
			}
		}
	}
	return a, better
}

// union gives both lists in order, without repeats: the first limit of them, so that which came first makes no difference. Two that compare as equal
// are merged.
func union[T any](a, b []T, limit int, compare func(x, y T) int, merge func(x, y T) T) []T {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, compare)
	out := all[:0]
	for _, t := range all {
		if last := len(out) - 1; last >= 0 && compare(out[last], t) == 0 {
			if merge != nil {
				out[last] = merge(out[last], t)
			}
			continue
		}
		out = append(out, t)
	}
	return slices.Clone(out[:min(len(out), limit)])
}

// merge gives what two rows tell of one turn.
func (t ArchiveTurn) merge(o ArchiveTurn) ArchiveTurn {
	return ArchiveTurn{
		TurnID: t.TurnID, StartMS: max(t.StartMS, o.StartMS), StartType: max(t.StartType, o.StartType), EndMS: max(t.EndMS, o.EndMS),
		EndType: max(t.EndType, o.EndType), CausedBy: max(t.CausedBy, o.CausedBy), Reason: max(t.Reason, o.Reason), Details: max(t.Details, o.Details),
		E2EMS: max(t.E2EMS, o.E2EMS), TokenMS: max(t.TokenMS, o.TokenMS), SentenceMS: max(t.SentenceMS, o.SentenceMS), Code: max(t.Code, o.Code),
	}
}

// digestOf gives a hash of a history as it was told.
func digestOf(msgs []Message) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, m := range msgs {
		_ = enc.Encode(m) // a message of texts and raw JSON that was read before always encodes
		h.Write([]byte{told(m)})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// mergeLabels gives both sets; of two values of one label the greater one, so that the order makes no difference.
func mergeLabels(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range b {
		out[k] = max(out[k], v)
	}
	return out
}

// ended tells whether some notice has said that the agent is over.
func (a *Archive) ended() bool { return a.Left != nil || a.StopMS != 0 }

// Archived tells whether the agent runs elsewhere and is only filed here.
func (a Agent) Archived() bool { return a.Settings.Archive != nil }

// ShownName gives the agent's name, also of one that runs elsewhere.
func (a Agent) ShownName() string {
	if a.Name == "" && a.Archived() {
		return a.Settings.Archive.Name
	}
	return a.Name
}
