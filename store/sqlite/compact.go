package sqlite

import "context"

const pageSize = 4096 // of SQLite, unless a file was made otherwise

// Compact returns unused space to the disk if it is at least so many percent of the file, while the
// server goes on. It returns the number of bytes.
func (s *Store) Compact(ctx context.Context, percent int) (bytes int64, err error) {
	pages, err := s.db.Compact(ctx, percent)
	return pages * pageSize, err
}
