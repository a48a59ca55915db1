package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/url"

	modernc "modernc.org/sqlite"
)

// conn is one connection with its prepared statements. It uses the driver directly, not through
// database/sql, whose locks and conversions cost as much as an insert. One goroutine at a time uses
// it.
type conn struct {
	c     driver.Conn
	stmts map[string]*stmt
}

type stmt struct {
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	close func() error
	args  []driver.NamedValue
	row   []driver.Value
}

// maxStatements bounds the prepared statements of a connection. It is reached only if the text of a
// statement is built from data, which would be a mistake.
const maxStatements = 256

// openConn opens the file and sets pragmas, "name(value)", in the order given.
func openConn(path string, pragmas ...string) (*conn, error) {
	q := make(url.Values)
	q.Set("_dqs", "0")
	c, err := new(modernc.Driver).Open("file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode())
	if err != nil {
		return nil, err
	}
	out := &conn{c: c, stmts: map[string]*stmt{}}
	for _, p := range pragmas {
		if err := out.script("PRAGMA " + p); err != nil {
			return nil, errors.Join(err, out.close())
		}
	}
	return out, nil
}

// close closes the connection and its statements.
func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.close())
	}
	c.stmts = map[string]*stmt{}
	return errors.Join(append(errs, c.c.Close())...)
}

// script runs statements that are too rare to keep prepared.
func (c *conn) script(sql string) error {
	_, err := c.c.(driver.ExecerContext).ExecContext(context.Background(), sql, nil)
	return err
}

func (c *conn) prepare(sql string) (*stmt, error) {
	if s, ok := c.stmts[sql]; ok {
		return s, nil
	}
	if len(c.stmts) >= maxStatements {
		for text, s := range c.stmts {
			delete(c.stmts, text)
			if err := s.close(); err != nil {
				return nil, err
			}
		}
	}
	p, err := c.c.Prepare(sql)
	if err != nil {
		return nil, err
	}
	s := &stmt{exec: p.(driver.StmtExecContext), query: p.(driver.StmtQueryContext), close: p.Close}
	c.stmts[sql] = s
	return s, nil
}

func (s *stmt) bind(args []driver.Value) []driver.NamedValue {
	s.args = s.args[:0]
	for i, a := range args {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s.args
}

// run executes one statement. Arguments are int64, string, []byte or nil.
//
// Contexts are not passed down: the driver starts a goroutine for each statement that has one.
// Every statement here is short, or is one of many small steps between which the caller checks its
// context.
func (c *conn) run(sql string, args ...driver.Value) (driver.Result, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return nil, err
	}
	return s.exec.ExecContext(context.Background(), s.bind(args))
}

// each runs a query and calls fn with every row, which is reused for the next. fn must not run the
// same statement.
func (c *conn) each(sql string, args []driver.Value, fn func(row []driver.Value) error) (err error) {
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
		s.row = make([]driver.Value, n)
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

// first returns the first row of a query, nil if there is none.
func (c *conn) first(sql string, args ...driver.Value) (row []driver.Value, err error) {
	err = c.each(sql, args, func(r []driver.Value) error {
		if row == nil {
			row = append([]driver.Value(nil), r...)
		}
		return nil
	})
	return row, err
}

// number returns the only integer of a query, 0 if it is null or there is no row.
func (c *conn) number(sql string, args ...driver.Value) (int64, error) {
	row, err := c.first(sql, args...)
	if err != nil || row == nil {
		return 0, err
	}
	return integer(row[0]), nil
}

// integer reads a column that holds an integer or null.
func integer(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}

// text reads a column that holds text or null.
func text(v driver.Value) string {
	s, _ := v.(string)
	return s
}

// blob reads a column that holds a blob or null.
func blob(v driver.Value) []byte {
	b, _ := v.([]byte)
	return b
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// readers is a fixed number of read connections.
type readers struct {
	free  chan *conn
	all   []*conn
	ended chan struct{}
}

func openReaders(path string, n int, pragmas ...string) (*readers, error) {
	r := &readers{free: make(chan *conn, n), ended: make(chan struct{})}
	for range n {
		c, err := openConn(path, pragmas...)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.all = append(r.all, c)
		r.free <- c
	}
	return r, nil
}

// do runs fn with a read connection in one read transaction: all that fn reads is of one moment.
func (r *readers) do(ctx context.Context, fn func(*conn) error) error {
	return r.with(ctx, func(c *conn) error {
		if _, err := c.run("BEGIN"); err != nil {
			return err
		}
		err := fn(c)
		if _, end := c.run("COMMIT"); end != nil && err == nil {
			err = end
		}
		return err
	})
}

// with runs fn with a read connection. Each statement of fn reads the state of its own moment.
func (r *readers) with(ctx context.Context, fn func(*conn) error) error {
	var c *conn
	select {
	case c = <-r.free:
	default:
		select {
		case c = <-r.free:
		case <-ctx.Done():
			return ended(ctx)
		case <-r.ended:
			return errClosed()
		}
	}
	defer func() { r.free <- c }()
	select {
	case <-r.ended:
		return errClosed()
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
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}
