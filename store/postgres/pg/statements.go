package pg

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/heardlog/heardlog/store/statements"
)

// walkRows is how many rows of a long result are read at a time. Bodies may be long.
const walkRows = 100

// Execer is a connection or a transaction.
type Execer interface {
	Querier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Statements is a connection or a transaction as a statements.Reader and a statements.Writer.
type Statements struct {
	ctx     context.Context
	q       Execer
	cursors int // so far
}

// NewStatements returns the statements of a connection or a transaction.
func NewStatements(ctx context.Context, q Execer) *Statements { return &Statements{ctx: ctx, q: q} }

// Each implements statements.Reader.
func (s *Statements) Each(sql string, args []any, fn func(statements.Row) error) error {
	return s.each(fn, numbered(sql), StoredValues(args)...)
}

func (s *Statements) each(fn func(statements.Row) error, sql string, args ...any) error {
	list, err := Collect(s.ctx, s.q, func(r pgx.CollectableRow) (row, error) { return r.Values() }, sql, args...)
	for i := 0; err == nil && i < len(list); i++ {
		err = fn(list[i])
	}
	return err
}

// Walk implements statements.Reader. It reads through a cursor, so the query is planned and sorted
// once and other queries may run between two pages.
func (s *Statements) Walk(sql string, args []any, fn func(statements.Row) error) error {
	s.cursors++
	name := fmt.Sprint("walk_", s.cursors)
	if _, err := s.q.Exec(s.ctx, "DECLARE "+name+" NO SCROLL CURSOR FOR "+numbered(sql), StoredValues(args)...); err != nil {
		return err
	}
	for n := walkRows; n == walkRows; {
		n = 0
		err := s.each(func(r statements.Row) error { n++; return fn(r) }, fmt.Sprint("FETCH ", walkRows, " FROM ", name), pgx.QueryExecModeExec)
		if err != nil {
			return err
		}
	}
	_, err := s.q.Exec(s.ctx, "CLOSE "+name, pgx.QueryExecModeExec)
	return err
}

// Exec implements statements.Writer.
func (s *Statements) Exec(sql string, args ...any) (int64, error) {
	done, err := s.q.Exec(s.ctx, numbered(sql), StoredValues(args)...)
	return done.RowsAffected(), err
}

// numbered returns a statement with $1, $2 and so on in the place of each ?.
func numbered(sql string) string {
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(sql, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		sql = after
	}
}

// StoredValues returns values with texts in their stored form.
func StoredValues(args []any) []any {
	return Column(args, func(arg *any) any {
		if text, ok := (*arg).(string); ok {
			return Stored(text)
		}
		return *arg
	})
}

// row is a row of any query as a statements.Row.
type row []any

func (r row) Int(i int) int64 {
	switch n := r[i].(type) {
	case int64:
		return n
	case int32:
		return int64(n)
	case int16:
		return int64(n)
	}
	return 0
}

func (r row) Bool(i int) bool {
	b, _ := r[i].(bool)
	return b
}

func (r row) Text(i int) string {
	s, _ := r[i].(string)
	return Shown(s)
}

func (r row) Blob(i int) []byte {
	b, _ := r[i].([]byte)
	return b
}

func (r row) Null(i int) bool { return r[i] == nil }
