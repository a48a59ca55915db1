package job

import (
	"cmp"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/store/record"
)

// Record returns the job of a record of a store, or false if the record is another thing.
func Record(at record.Space, r *record.Record) (Info, bool) {
	kind, ok := strings.CutSuffix(at.Name, suffix)
	if !ok || at.Project != Project || !slices.Contains(StoredKinds, kind) {
		return Info{}, false
	}
	return read(r).info(kind), true
}

// Sorted returns jobs in the order of Runner.List, at most MaxList.
func Sorted(list []Info) []Info {
	slices.SortFunc(list, func(a, b Info) int {
		return cmp.Or(-cmp.Compare(a.State.rank(), b.State.rank()), cmp.Compare(a.DueMS, b.DueMS), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Project, b.Project), cmp.Compare(a.ID, b.ID))
	})
	return list[:min(len(list), MaxList)]
}

// rank orders states by how much they deserve to be seen.
func (s State) rank() int { return slices.Index(States, s) }
