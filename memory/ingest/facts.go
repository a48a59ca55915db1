package ingest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/heardlog/heardlog/memory"
)

// Limits of what is kept of one archived agent.
const (
	maxNotices  = 256
	maxTurns    = 1000
	maxErrors   = 200
	maxMessages = 10_000 // of its history
)

// facts is what is known of an archived agent.
type facts memory.Archive

// merge adds a notice to the facts. Of two values of one fact the same one always wins, whichever
// came first, and lists are unions. better reports whether the notice's history replaces the one
// before.
func (f facts) merge(n Notice) (_ facts, better bool) {
	f.Name = max(f.Name, n.Name)
	// Of the same second with and without milliseconds, the maximum is the one with them.
	f.StartMS, f.StopMS = max(f.StartMS, n.StartMS), max(f.StopMS, n.StopMS)
	if n.Left != nil && (f.Left == nil || cmp.Or(cmp.Compare(n.Left.Status, f.Left.Status), cmp.Compare(n.Left.Message, f.Left.Message)) > 0) {
		left := *n.Left
		f.Left = &left
	}
	if len(n.Errors) > 0 {
		f.Errors = union(f.Errors, n.Errors, maxErrors, compareErrors, nil)
	}
	if len(n.Turns) > 0 {
		f.Turns = union(f.Turns, n.Turns, maxTurns, func(x, y memory.ArchiveTurn) int { return cmp.Compare(x.TurnID, y.TurnID) }, mergeTurns)
	}
	if !slices.Contains(f.Notices, n.ID) && len(f.Notices) < maxNotices {
		f.Notices = slices.Sorted(slices.Values(append(slices.Clone(f.Notices), n.ID)))
	}
	if n.Hosted != nil {
		f.Hosted = mergeHosted(f.Hosted, n.Hosted)
	}
	if len(n.History) > 0 {
		digest := digestOf(n.History)
		if better = cmp.Or(cmp.Compare(len(n.History), f.Messages), cmp.Compare(digest, f.Digest)) > 0; better {
			f.Messages, f.Digest, f.Told = len(n.History), digest, make([]byte, len(n.History))
			for i := range n.History {
				f.Told[i] = fieldsOf(&n.History[i])
			}
		}
	}
	return f, better
}

func compareErrors(x, y memory.ArchiveError) int {
	return cmp.Or(cmp.Compare(x.TurnID, y.TurnID), cmp.Compare(x.Module, y.Module), cmp.Compare(x.Code, y.Code), cmp.Compare(x.Message, y.Message))
}

// union returns the elements of both lists, sorted and without duplicates, at most limit. Elements
// that compare as equal are merged. The limit applies after sorting, so the order of calls makes no
// difference.
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

// mergeTurns returns the facts of two rows about the same turn.
func mergeTurns(t, o memory.ArchiveTurn) memory.ArchiveTurn {
	return memory.ArchiveTurn{
		TurnID: t.TurnID, StartMS: max(t.StartMS, o.StartMS), StartType: max(t.StartType, o.StartType), EndMS: max(t.EndMS, o.EndMS),
		EndType: max(t.EndType, o.EndType), CausedBy: max(t.CausedBy, o.CausedBy), Reason: max(t.Reason, o.Reason), Details: max(t.Details, o.Details),
		E2EMS: max(t.E2EMS, o.E2EMS), TokenMS: max(t.TokenMS, o.TokenMS), SentenceMS: max(t.SentenceMS, o.SentenceMS), Code: max(t.Code, o.Code),
	}
}

// mergeHosted returns what two reports of a call say of it.
func mergeHosted(a, b *memory.HostedCall) *memory.HostedCall {
	out := *b
	if a != nil {
		out.EndReason, out.RecordingURL = max(a.EndReason, b.EndReason), max(a.RecordingURL, b.RecordingURL)
		if a.CostUSD != nil && (b.CostUSD == nil || *a.CostUSD > *b.CostUSD) {
			out.CostUSD = a.CostUSD
		}
	}
	return &out
}

// mergeLabels returns the labels of both sets. Of two values of a label it takes the greater one,
// so that the order makes no difference.
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

// ended reports whether a notification has reported the agent's end.
func (f *facts) ended() bool { return f.Left != nil || f.StopMS != 0 }
