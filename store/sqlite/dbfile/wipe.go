package dbfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
)

// SQLite overwrites what is deleted ("secure_delete"), but when it spreads the rows of full or
// empty pages again, it copies them and leaves the old copies in the unused part of the pages
// (rebuildPage in its btree.c). Such a copy outlives the row. So before a page leaves the
// write-ahead log for the database file its unused part is overwritten here.
// https://www.sqlite.org/fileformat2.html describes the log and the pages.

const (
	logHeader   = 32 // bytes at the beginning of the log
	frameHeader = 24 // bytes before each page in the log
	// maxWiped bounds the numbers of pages: in larger files the first byte of a page that continues
	// a long row could look like the kind of a page of a tree.
	maxWiped = 0x0200_0000
)

// remains is which pages are still to be overwritten. Only checkpointLoop uses it, and Release.
type remains struct {
	salt  uint64         // of the log that was read; SQLite changes it when it begins the log again
	next  int64          // offset in it of the first page that was not read
	pages map[int64]bool // numbers of pages with an unused part that is not empty
}

// find reads what was added to the log. Beside commits it reads what is complete; its caller holds
// an old state, so that no commit begins the log again.
func (d *DB) find() error {
	return d.remains.read(d.path+"-wal", func() (pages int64, err error) {
		row, err := d.helper.First("PRAGMA wal_checkpoint(NOOP)")
		if err == nil && row != nil {
			pages = row.Int(1)
		}
		return pages, err
	})
}

// wipe overwrites the unused parts of the pages in the log. Its caller has the turn. After an error
// the next call tries those pages again.
func (d *DB) wipe() error {
	if d.o.Path == InMemory {
		return nil
	}
	err := d.remains.read(d.path+"-wal", func() (int64, error) { return math.MaxInt32, nil })
	if err != nil || len(d.remains.pages) == 0 {
		return err
	}
	c := d.writer.Conn
	err = c.Transaction(func() error {
		for _, no := range slices.Sorted(maps.Keys(d.remains.pages)) {
			row, err := c.First("SELECT data FROM sqlite_dbpage WHERE pgno = ?", no)
			if err != nil {
				return err
			}
			if row == nil {
				continue // the file has become shorter
			}
			page := row.Blob(0)
			from, to := unused(no, page)
			if isZero(page[from:to]) {
				continue
			}
			clear(page[from:to])
			if _, err := c.Run("UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?", page, no); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		clear(d.remains.pages)
	}
	return err
}

// read adds the pages with remains in the part of the log that was not read yet, up to so many
// pages of the log. The log that these are counted in was begun no earlier than the one read.
func (r *remains) read(path string, pages func() (int64, error)) (err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	head := make([]byte, logHeader)
	if _, err := f.ReadAt(head, 0); err != nil {
		return endOfLog(err)
	}
	size, salt := int64(binary.BigEndian.Uint32(head[8:])), binary.BigEndian.Uint64(head[16:])
	if size < 512 || size > 65536 {
		return nil // not a log that SQLite would read
	}
	if salt != r.salt {
		r.salt, r.next = salt, logHeader
	}
	n, err := pages()
	if err != nil {
		return err
	}
	frame := make([]byte, frameHeader+size)
	end := logHeader + n*int64(len(frame))
	in := bufio.NewReaderSize(io.NewSectionReader(f, r.next, max(0, end-r.next)), 1<<20)
	for {
		if _, err := io.ReadFull(in, frame); err != nil {
			return endOfLog(err)
		}
		if binary.BigEndian.Uint64(frame[8:]) != salt {
			return nil // of a log before
		}
		r.next += int64(len(frame))
		no, page := int64(binary.BigEndian.Uint32(frame)), frame[frameHeader:]
		if from, to := unused(no, page); !isZero(page[from:to]) {
			if r.pages == nil {
				r.pages = map[int64]bool{}
			}
			r.pages[no] = true
		}
	}
}

// endOfLog is nil if err says that the file has ended.
func endOfLog(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// unused returns where the unused part of a page begins and ends: between the list of its rows and
// the rows. It is empty for pages that do not hold rows.
func unused(no int64, page []byte) (from, to int) {
	if no == 1 || no >= maxWiped {
		return 0, 0
	}
	switch page[0] {
	case 0x0a, 0x0d: // leaves of an index and of a table
		from = 8
	case 0x02: // an inner page of an index
		// Every so many pages one says what the others are for. It too begins with a small number.
		if (no-2)%int64(len(page)/5+1) == 0 {
			return 0, 0
		}
		from = 12
	default:
		return 0, 0
	}
	from += 2 * int(binary.BigEndian.Uint16(page[3:]))
	if to = int(binary.BigEndian.Uint16(page[5:])); to > len(page) || from > to {
		return 0, 0
	}
	return from, to
}

// isZero reports whether all bytes are 0.
func isZero(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }
