package job

import (
	"context"

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
	return sorted(out), nil
}

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
			out = sorted(out)
		}
		if len(list) < pageSize {
			return out, nil
		}
	}
}
