package dbfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/heardlog/heardlog/internal/fault"
)

// pageSize is the size of a page in bytes, unless a file was made otherwise.
const pageSize = 4096

// headerSize is the length of the header of a database, at the beginning of its first page.
const headerSize = 100

// readFirstPage returns the first page of a database file, or what there is of it.
func readFirstPage(f io.ReaderAt) ([]byte, error) {
	b := make([]byte, pageSize)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) && n >= headerSize {
		err = nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the database file cannot be read")
	}
	return b[:n], nil
}

// errFirstPage is about a first page that is none.
var errFirstPage = errDamaged{errors.New("the first page of the file is not one of a database: it was overwritten. " +
	"If no server has the file, the next start mends the page from the write-ahead log, if that has it")}

// CheckFirstPage returns an error about damage if the first page in the file at path is not one of
// a database. SQLite itself does not notice while the write-ahead log has a newer first page.
func CheckFirstPage(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the database file cannot be opened")
	}
	b, err := readFirstPage(f)
	if err = errors.Join(err, f.Close()); err == nil && !isFirstPage(b) {
		err = errFirstPage
	}
	return err
}

// isFirstPage reports whether a page has the header of a database in this program's form, and then
// the header and the cells of a page of a table. Of larger pages than usual it checks the former.
func isFirstPage(b []byte) bool {
	if len(b) < headerSize || !bytes.Equal(b[:len(databaseMagic)], databaseMagic) || !bytes.Equal(b[18:24], []byte{2, 2, 0, 64, 32, 32}) {
		return false
	}
	size := int(binary.BigEndian.Uint16(b[16:]))
	// Until the first checkpoint only the log has the number.
	if id := binary.BigEndian.Uint32(b[68:]); id != 0 && id != applicationID {
		return false
	}
	if size == 1 || size > pageSize {
		return size&(size-1) == 0
	}
	if size < 512 || size&(size-1) != 0 || len(b) < size {
		return false
	}
	cells, ok := map[byte]int{13: headerSize + 8, 5: headerSize + 12}[b[headerSize]] // a leaf, an inner page
	n, from := int(binary.BigEndian.Uint16(b[headerSize+3:])), int(binary.BigEndian.Uint16(b[headerSize+5:]))
	if !ok || from > size || cells+2*n > from {
		return false
	}
	for i := range n {
		if at := int(binary.BigEndian.Uint16(b[cells+2*i:])); at < from || at >= size {
			return false
		}
	}
	return true
}
