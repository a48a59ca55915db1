package dbfile

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/url"
	"runtime"
	"slices"

	modernc "modernc.org/sqlite"

	"github.com/heardlog/heardlog/internal/fault"
)

// Conn is one connection. It keeps every statement prepared, so the text of a statement must not be
// built from data. It uses the driver directly, not through database/sql, whose locks and
// conversions cost as much as an insert. One goroutine at a time uses it.
type Conn struct {
	c      driver.Conn
	stmts  map[string]*stmt
	damage *damage // may be nil
}

// Row is one row of a result. Its methods read a column, counted from 0, and return the zero value
// for null.
type Row []driver.Value

// Int reads an integer.
func (r Row) Int(i int) int64 {
	n, _ := r[i].(int64)
	return n
}

// Bool reads an integer that is 0 or 1.
func (r Row) Bool(i int) bool { return r.Int(i) != 0 }

// Text reads a text.
func (r Row) Text(i int) string {
	s, _ := r[i].(string)
	return s
}

// Blob reads a blob, which is valid until the next row.
func (r Row) Blob(i int) []byte {
	b, _ := r[i].([]byte)
	return b
}

// Bytes reads a blob or a text.
func (r Row) Bytes(i int) string {
	if b, ok := r[i].([]byte); ok {
		return string(b)
	}
	return r.Text(i)
}

// Raw reads a blob or a text as bytes, which are valid until the next row.
func (r Row) Raw(i int) []byte {
	if b, ok := r[i].([]byte); ok {
		return b
	}
	return []byte(r.Text(i))
}

// Null reports whether a column is null.
func (r Row) Null(i int) bool { return r[i] == nil }

type stmt struct {
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	close func() error
	args  []driver.NamedValue
	row   Row
}

// privateIndex is a way of SQLite to open files: the index of the write-ahead log is in the memory
// of the process and not in the file PATH-shm, so other processes cannot open the database.
const privateIndex = "unix-excl"

// openConn opens the file and sets pragmas, "name(value)", in the order given. vfs is empty or
// privateIndex, and the same for all connections of a process.
func openConn(path, vfs string, pragmas ...string) (*Conn, error) {
	q := make(url.Values)
	q.Set("_dqs", "0")
	if vfs != "" {
		q.Set("vfs", vfs)
	}
	c, err := new(modernc.Driver).Open("file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode())
	if err != nil {
		return nil, err
	}
	out := &Conn{c: c, stmts: map[string]*stmt{}}
	for _, p := range pragmas {
		if err := out.Script("PRAGMA " + p); err != nil {
			return nil, errors.Join(err, out.Close())
		}
	}
	return out, nil
}

// Close closes the connection and its statements.
func (c *Conn) Close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.close())
	}
	c.stmts = map[string]*stmt{}
	return errors.Join(append(errs, c.c.Close())...)
}

// Script runs statements that are too rare to keep prepared.
func (c *Conn) Script(sql string) error {
	_, err := c.c.(driver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

func (c *Conn) prepare(sql string) (*stmt, error) {
	if s, ok := c.stmts[sql]; ok {
		return s, nil
	}
	p, err := c.c.Prepare(sql)
	if err != nil {
		return nil, err
	}
	s := &stmt{exec: p.(driver.StmtExecContext), query: p.(driver.StmtQueryContext), close: p.Close}
	c.stmts[sql] = s
	return s, nil
}

func (s *stmt) bind(args []any) []driver.NamedValue {
	s.args = s.args[:0]
	for i, a := range args {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s.args
}

// Run executes one statement. Arguments are int64, bool, string, []byte or nil.
//
// Contexts are not passed down: the driver starts a goroutine for each statement that has one.
// Every statement here is short, or is one of many small steps between which the caller checks its
// context.
func (c *Conn) Run(sql string, args ...any) (driver.Result, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return nil, err
	}
	out, err := s.exec.ExecContext(context.Background(), s.bind(args))
	c.damage.note(err)
	return out, err
}

// Each runs a query and calls fn with every row, which is reused for the next. fn must not run the
// same statement.
func (c *Conn) Each(sql string, args []any, fn func(row Row) error) (err error) {
	defer func() { c.damage.note(err) }()
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	rows, err := s.query.QueryContext(context.Background(), s.bind(args))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if n := len(rows.Columns()); len(s.row) != n {
		s.row = make(Row, n)
	}
	for {
		switch err := rows.Next(s.row); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := fn(s.row); err != nil {
			return err
		}
	}
}

// Collect returns what read makes of each row of a query.
func Collect[T any](c *Conn, read func(row Row) (T, error), sql string, args ...any) (list []T, err error) {
	err = c.Each(sql, args, func(row Row) error {
		v, err := read(row)
		list = append(list, v)
		return err
	})
	return list, err
}

// First returns the first row of a query, nil if there is none.
func (c *Conn) First(sql string, args ...any) (row Row, err error) {
	err = c.Each(sql, args, func(r Row) error {
		if row == nil {
			row = slices.Clone(r)
		}
		return nil
	})
	return row, err
}

// Transaction runs fn in one write transaction.
func (c *Conn) Transaction(fn func() error) error {
	if _, err := c.Run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		_, err = c.Run("COMMIT")
	}
	if err != nil {
		_, _ = c.Run("ROLLBACK")
	}
	return err
}

// errNoRow is an error about a row that must be there.
var errNoRow = errors.New("no such row")

// Only is First for a row that must be there.
func (c *Conn) Only(sql string, args ...any) (Row, error) {
	row, err := c.First(sql, args...)
	if err == nil && row == nil {
		err = errNoRow
	}
	return row, err
}

// Number returns the only integer of a query, 0 if it is null or there is no row.
func (c *Conn) Number(sql string, args ...any) (int64, error) {
	row, err := c.First(sql, args...)
	if err != nil || row == nil {
		return 0, err
	}
	return row.Int(0), nil
}

// Numbers returns the integers of a query's first column.
func (c *Conn) Numbers(sql string, args ...any) ([]int64, error) {
	return Collect(c, func(row Row) (int64, error) { return row.Int(0), nil }, sql, args...)
}

// Texts returns the texts of a query's first column.
func (c *Conn) Texts(sql string, args ...any) ([]string, error) {
	return Collect(c, func(row Row) (string, error) { return row.Text(0), nil }, sql, args...)
}

// readers is a fixed number of read connections: as many as there are processors, at least 4.
type readers struct {
	free  chan *Conn
	all   []*Conn
	ended chan struct{}
}

func openReaders(path, vfs string) (*readers, error) {
	n := max(4, runtime.GOMAXPROCS(0))
	r := &readers{free: make(chan *Conn, n), ended: make(chan struct{})}
	for range n {
		c, err := openReader(path, vfs)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.all = append(r.all, c)
		r.free <- c
	}
	return r, nil
}

// Read runs fn with a read connection in one read transaction: all that fn reads is of one moment.
// what names the action in errors.
func (d *DB) Read(ctx context.Context, what string, fn func(*Conn) error) error {
	return d.ReadNow(ctx, what, func(c *Conn) error { return c.Moment(func() error { return fn(c) }) })
}

// Moment runs fn in one read transaction.
func (c *Conn) Moment(fn func() error) (err error) {
	if _, err := c.Run("BEGIN"); err != nil {
		return err
	}
	defer func() { // also if fn panics
		if _, end := c.Run("ROLLBACK"); err == nil {
			err = end
		}
	}()
	return fn()
}

// ReadNow is Read where each statement of fn reads the state of its own moment.
func (d *DB) ReadNow(ctx context.Context, what string, fn func(*Conn) error) error {
	if d.readers == nil {
		return Classify(d.readInTurn(ctx, fn), what)
	}
	return Classify(d.readers.with(ctx, fn), what)
}

// readInTurn runs fn with the connection that writes, between two commits.
func (d *DB) readInTurn(ctx context.Context, fn func(*Conn) error) error {
	if ctx.Err() != nil {
		return fault.Ended(ctx)
	}
	select {
	case d.writer.turn <- struct{}{}:
	case <-ctx.Done():
		return fault.Ended(ctx)
	}
	defer func() { <-d.writer.turn }()
	if d.Closed() {
		return ErrClosed()
	}
	return fn(d.writer.Conn)
}

func (r *readers) with(ctx context.Context, fn func(*Conn) error) error {
	if ctx.Err() != nil {
		return fault.Ended(ctx)
	}
	var c *Conn
	select {
	case c = <-r.free:
	case <-ctx.Done():
		return fault.Ended(ctx)
	case <-r.ended:
		return ErrClosed()
	}
	defer func() { r.free <- c }()
	select {
	case <-r.ended:
		return ErrClosed()
	default:
	}
	return fn(c)
}

// close waits for the readers that are in use and closes all connections.
func (r *readers) close() error {
	close(r.ended)
	var errs []error
	for range r.all {
		c := <-r.free
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
