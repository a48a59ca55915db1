package dbfile

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/heardlog/heardlog/internal/fault"
)

// damage keeps the first sign that a database file is damaged.
type damage struct {
	first  atomic.Pointer[error]
	report func(string, error)
}

// note keeps an error if it is a sign of damage.
func (d *damage) note(err error) {
	if d == nil || !IsDamage(err) {
		return
	}
	err = Damaged(err)
	if d.first.CompareAndSwap(nil, &err) {
		d.report("the database file is damaged: stop the server and run 'heardlog restore --overwrite' with a backup", err)
	}
}

// found returns what was noted.
func (d *damage) found() error {
	if err := d.first.Load(); err != nil {
		return *err
	}
	return nil
}

// errDamaged is what the file itself shows to be wrong.
type errDamaged struct{ error }

// Damaged returns an error about damage with its code.
func Damaged(err error) error {
	return fault.Wrap(fault.Unavailable, errDamaged{err}, "the database file is damaged; an operator must restore a backup")
}

// IsDamage reports whether an error is a sign of damage.
func IsDamage(err error) bool {
	if _, ok := errors.AsType[errDamaged](err); ok {
		return true
	}
	e, ok := errors.AsType[*modernc.Error](err)
	return ok && (e.Code()&0xff == sqlite3.SQLITE_CORRUPT || e.Code()&0xff == sqlite3.SQLITE_NOTADB)
}

// Damage returns an error if the file is known to be damaged.
func (d *DB) Damage() error { return d.damage.found() }

// Rest is called by a long check after it has worked for so long, and returns when the check is to
// go on.
type Rest func(ctx context.Context, worked time.Duration)

// breathe is the Rest of the check in the background, which so takes a tenth of one processor: the
// check of a large file must not slow down the calls that begin at the start of a server. Steps of
// less than a millisecond, as in a small file, follow one another.
func breathe(ctx context.Context, worked time.Duration) {
	if worked < time.Millisecond {
		return
	}
	alarm := time.NewTimer(9 * worked)
	defer alarm.Stop()
	select {
	case <-alarm.C:
	case <-ctx.Done():
	}
}

// inspect looks for damage once, in the background, until ctx ends.
func (d *DB) inspect(ctx context.Context) {
	defer close(d.inspected)
	c, err := openReader(d.path, d.vfs)
	if err != nil {
		d.o.Report("the database file could not be checked for damage", err)
		return
	}
	err = d.o.Inspect(ctx, c, breathe, func(what string) { d.damage.note(errDamaged{errors.New(what)}) })
	if IsDamage(err) {
		d.damage.note(err)
		err = nil
	}
	if err = errors.Join(err, c.Close()); err != nil && ctx.Err() == nil {
		d.o.Report("the database file could not be checked for damage", err)
	}
}

// CheckStructure calls each with what is wrong with the structure of the file, table by table: a
// long read transaction would keep the write-ahead log from starting again. SQLite checks a table
// and its indexes in one transaction, so in a large file the largest table is not checked.
func (c *Conn) CheckStructure(ctx context.Context, largest string, rest Rest, each func(what string)) error {
	tables, err := c.Texts("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
	if err != nil {
		return err
	}
	pages, err := c.Number("PRAGMA page_count")
	if err != nil {
		return err
	}
	for _, table := range tables {
		if table == largest && pages > maxStructure {
			continue
		}
		began := time.Now()
		if err := c.pragma(ctx, fmt.Sprintf("PRAGMA quick_check('%s')", table), each); err != nil {
			return err
		}
		rest(ctx, time.Since(began))
	}
	return nil
}

// maxStructure is the size of a file, in pages of 4 KiB, up to which the structure of the largest
// table is checked: 1 GiB, which takes some 3 seconds.
const maxStructure = 1 << 18

// unread reports whether a check of SQLite lacks a page because the disk failed, which it reports
// like damage. The disk may be well again, and the file is.
func unread(found string) bool {
	for _, m := range unreadPage.FindAllStringSubmatch(found, -1) {
		if code, err := strconv.Atoi(m[1]); err == nil && code&0xff == sqlite3.SQLITE_IOERR {
			return true
		}
	}
	return false
}

var unreadPage = regexp.MustCompile(`unable to get the page\. error code=([0-9]+)`)

// pragma calls each with what a check of SQLite finds. ctx may interrupt it.
func (c *Conn) pragma(ctx context.Context, sql string, each func(string)) error {
	rows, err := c.c.(driver.QueryerContext).QueryContext(ctx, sql, nil)
	if err != nil {
		return err
	}
	row := make(Row, len(rows.Columns()))
	for err = rows.Next(row); err == nil; err = rows.Next(row) {
		if what := row.Text(0); unread(what) {
			err = fault.New(fault.Unavailable, "a page of the database file could not be read: %s", what)
			break
		} else if what != "ok" {
			each(what)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return errors.Join(err, rows.Close())
}
