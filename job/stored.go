package job

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory/record"
)

// Stored returns the jobs of these kinds that a store holds, those of all projects, at most
// MaxList, in the order of Runner.List. Jobs that are not Stored are known to the server alone that
// runs them.
func Stored(ctx context.Context, s record.Store, kinds ...string) (out []Info, err error) {
	for _, kind := range kinds {
		if out, err = appendStored(ctx, s, kind, out); err != nil {
			return nil, err
		}
	}
	return Sorted(out), nil
}

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

// pageSize is how many records are read at a time.
const pageSize = 200

func appendStored(ctx context.Context, s record.Store, kind string, out []Info) ([]Info, error) {
	for after := ""; ; {
		list, _, err := s.Records(ctx, space(kind), record.Query{AfterID: after, Limit: pageSize, Broken: true})
		if err != nil {
			return nil, err
		}
		for i := range list {
			after = list[i].ID
			out = append(out, read(&list[i]).info(kind))
		}
		if len(out) > 2*MaxList {
			out = Sorted(out)
		}
		if len(list) < pageSize {
			return out, nil
		}
	}
}
