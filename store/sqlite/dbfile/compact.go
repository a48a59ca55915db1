package dbfile

import "context"

// Compact returns unused pages to the disk if they are at least so many percent of the file's, and
// reports their number. The file stays in use: each transaction moves up to 64 pages from the end
// of the file to unused places. The file gets shorter at the next checkpoint.
func (d *DB) Compact(ctx context.Context, percent int) (pages int64, err error) {
	err = d.Read(ctx, "compact", func(c *Conn) (err error) {
		pages, err = c.Number(`SELECT iif(100 * freelist_count >= ? * page_count, freelist_count, 0)
			FROM pragma_freelist_count, pragma_page_count`, int64(percent))
		return err
	})
	for done := int64(0); done < pages && err == nil; done += 64 {
		err = d.WriteLater(ctx, "compact", (*Tx).compact)
	}
	return pages, err
}

func (t *Tx) compact() error {
	if !t.open {
		if err := t.begin(); err != nil {
			return err
		}
	}
	t.wrote = true
	t.steps += 64
	// SQLite moves a page for each row that is read.
	if err := t.Conn.Each("PRAGMA incremental_vacuum(64)", nil, func(Row) error { return nil }); err != nil {
		return err
	}
	size, err := t.Conn.Number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
	if err == nil && t.d.o.Path != InMemory {
		t.d.watch.mayShrink(size)
	}
	return err
}
