package erasure

import (
	"context"
	"strings"

	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
)

// An import may bring in what a database has noted as erased. Therefore the database notes an
// import before it begins, until Apply has run after it.

const importSpace = "erasure.import"

// BeginImport notes in a database that an import begins.
func BeginImport(ctx context.Context, to export.Target, id string, nowMS int64) error {
	mark, err := to.Mark(ctx)
	if err != nil {
		return err
	}
	v := export.Value{Project: memories.OwnProject(""), Name: importSpace, ID: export.Text(id), Rev: 1, SpaceRev: 1, UpdatedMS: nowMS, Body: export.Text("{}")}
	return to.Import(ctx, []export.Record{{Value: &v}}, mark, mark)
}

// ImportBegun is Service.Imported for a store that is open for reading.
func ImportBegun(ctx context.Context, in Reader) (bool, error) {
	ids, err := in.RecordIDs(ctx, memories.OwnProject(""), importSpace, "", 1)
	return len(ids) > 0, err
}

// Imported reports whether an import has begun after which Apply has not run.
func (s *Service) Imported(ctx context.Context) (bool, error) {
	list, err := s.Records.RecordSpaces(ctx, memories.OwnProject(""), importSpace, record.Space{}, 1)
	return len(list) > 0, err
}

// SettleImports notes that Apply has run after all imports.
func (s *Service) SettleImports(ctx context.Context) error {
	_, err := s.Records.EraseRecords(ctx, memories.OwnProject(""), "", importSpace)
	return err
}

// IsNote reports whether a record is what a database has noted of an erasure.
func IsNote(v *export.Value) bool {
	return v != nil && v.Name == space("").Name && strings.HasPrefix(v.Project, memories.OwnProject(""))
}
