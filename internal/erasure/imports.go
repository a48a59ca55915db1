package erasure

import (
	"context"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
)

// An import may bring in what a database has noted as erased. Therefore the database notes an
// import before it begins, until a server has run Apply after it. The command that imports does not
// settle this: it may have run without the ledger of the servers.

const importSpace = record.Local + "erasure.import"

// BeginImport notes in a database that an import begins.
func BeginImport(ctx context.Context, to export.Target, id string, nowMS int64) error {
	mark, err := to.Mark(ctx)
	if err != nil {
		return err
	}
	v := export.Value{Project: memories.OwnProject(""), Name: importSpace, ID: export.Text(id), Rev: 1, SpaceRev: 1, UpdatedMS: nowMS, Body: export.Text("{}")}
	return to.Import(ctx, []export.Record{{Value: &v}}, mark, mark)
}

// ImportBegun reports whether Service.Imports has any in a store that is open for reading.
func ImportBegun(ctx context.Context, in Reader) (bool, error) {
	ids, err := in.RecordIDs(ctx, memories.OwnProject(""), importSpace, "", 1)
	return len(ids) > 0, err
}

// Imports returns the IDs of imports that have begun, and after which Apply has not run.
func (s *Service) Imports(ctx context.Context) (ids []string, err error) {
	at := record.Space{Project: memories.OwnProject(""), Name: importSpace}
	for q := (record.Query{Limit: page, Broken: true}); ; {
		list, _, err := s.Records.Records(ctx, at, q)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			q.AfterID = r.ID
			ids = append(ids, r.ID)
		}
		if len(list) < q.Limit {
			return ids, nil
		}
	}
}

// SettleImports notes that Apply has run after imports. If others have begun since, it leaves that
// to the next run.
func (s *Service) SettleImports(ctx context.Context, ids []string) error {
	now, err := s.Imports(ctx)
	if err != nil || !slices.Equal(now, ids) {
		return err
	}
	_, err = s.Records.EraseRecords(ctx, memories.OwnProject(""), "", importSpace)
	return err
}

// IsNote reports whether a record is what a database has noted of an erasure.
func IsNote(v *export.Value) bool {
	return v != nil && v.Name == space("").Name && strings.HasPrefix(v.Project, memories.OwnProject(""))
}
