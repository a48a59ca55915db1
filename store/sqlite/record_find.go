package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

// wordList returns hashes as table record_word has them.
func wordList(hashes []int64) string {
	var b strings.Builder
	for i, h := range hashes {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%016x", uint64(h))
	}
	return b.String()
}

// insertWords stores the words of a record that has none, since triggers have deleted its old ones.
func (t *tx) insertWords(no int64, words string) error {
	if words == "" {
		return nil
	}
	_, err := t.Exec("INSERT INTO record_word (rowid, words) VALUES (?, ?)", no, words)
	return err
}

// FindRecords implements record.Store.
func (s *Store) FindRecords(ctx context.Context, at record.Space, q record.Find) (found record.Found, err error) {
	err = s.db.Read(ctx, "find records", func(c *dbfile.Conn) error {
		space, err := readSpace(c, at)
		if err != nil {
			return err
		}
		var ids []string
		found = record.Found{Count: space.state.Count}
		ids, found.With, err = record.Rank(q, found.Count, func(words [][]string) ([]record.Match, error) {
			return dbfile.Collect(c, func(row dbfile.Row) (record.Match, error) {
				return record.Match{ID: row.Text(0), Size: row.Int(1)}, nil
			},
				"SELECT r.id, r.size FROM record_word w CROSS JOIN record r ON r.no = w.rowid WHERE w.record_word MATCH ? AND r.space_no = ? LIMIT ?+0", match(at, words), space.no, int64(record.MaxMatches))
		})
		for i := 0; i < len(ids) && err == nil; i++ {
			var list []record.Record
			list, err = dbfile.Collect(c, func(row dbfile.Row) (record.Record, error) { return s.openRecord(row, at) },
				"SELECT id, rev, updated_ms, body FROM record INDEXED BY record_id WHERE space_no = ? AND id = ? AND body IS NOT NULL", space.no, ids[i])
			found.Records = append(found.Records, list...)
		}
		return err
	})
	if err != nil {
		return record.Found{}, err
	}
	return found, nil
}

// match returns the full-text query for records that have all words, each in one of its forms.
func match(at record.Space, words [][]string) string {
	var parts []string
	for _, forms := range words {
		parts = append(parts, "("+strings.ReplaceAll(wordList(statements.HashWords(at, forms)), " ", " OR ")+")")
	}
	return strings.Join(parts, " AND ")
}
