package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/statements"
)

// arrayOf returns the text of an array of hashes, nil for none. An array of arrays would need one
// length for all.
func arrayOf(hashes []int64) *string {
	if hashes == nil {
		return nil
	}
	text := "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(hashes), " ", ","), "[]") + "}"
	return &text
}

// FindRecords implements record.Store.
func (s *Store) FindRecords(ctx context.Context, at record.Space, q record.Find) (found record.Found, err error) {
	err = s.db.Read(ctx, "find records", func(ctx context.Context) error {
		found = record.Found{With: make([]int, len(q.Words))}
		var no, rev, bytes, whole int64
		var name string
		if err := s.db.Pool.QueryRow(ctx, selectSpace, spaceKey(at)...).Scan(&no, &name, &rev, &found.Count, &bytes, &whole); err != nil || name == "" {
			if pg.NoRows(err) {
				err = nil
			}
			return err
		}
		ids, with, err := record.Rank(q, found.Count, func(words [][]string) (list []record.Match, err error) {
			where, args := []string{}, []any{no, record.MaxMatches}
			for _, forms := range words {
				args = append(args, statements.HashWords(at, forms))
				where = append(where, fmt.Sprintf("words && $%d", len(args)))
			}
			var m record.Match
			err = pg.Each(ctx, s.db.Pool, []any{&m.ID, &m.Size}, func() error { m.ID = pg.Shown(m.ID); list = append(list, m); return nil },
				"SELECT id, size FROM (SELECT space_no, id, size FROM record WHERE "+strings.Join(where, " AND ")+" LIMIT $2) r WHERE space_no = $1", args...)
			return list, err
		})
		if err != nil {
			return err
		}
		r := record.Record{}
		var id string
		var sealed []byte
		err = pg.Each(ctx, s.db.Pool, []any{&id, &r.Rev, &r.UpdatedMS, &sealed}, func() (err error) {
			r.ID = pg.Shown(id)
			r.Body, err = statements.OpenRecord(s.sealer, sealed, at, r.ID)
			found.Records = append(found.Records, r)
			return err
		}, "SELECT id, rev, updated_ms, body FROM record WHERE space_no = $1 AND id = ANY($2) AND body IS NOT NULL", no, pg.Column(ids, func(id *string) string { return pg.Stored(*id) }))
		found.Records, found.With = record.Arrange(found.Records, ids), with
		return err
	})
	if err != nil {
		return record.Found{}, err
	}
	return found, nil
}
