package pg

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Parts is a statement of parts that each change or read something. The zero value has none.
type Parts struct {
	sql  strings.Builder
	args []any
}

// With adds a part. Each ? in it is one of its arguments.
func (st *Parts) With(name, sql string, args ...any) {
	word := "WITH "
	if st.sql.Len() > 0 {
		word = ",\n"
	}
	st.sql.WriteString(word + name + " AS (")
	for _, arg := range args {
		before, after, _ := strings.Cut(sql, "?")
		st.args = append(st.args, arg)
		st.sql.WriteString(before + "$" + strconv.Itoa(len(st.args)))
		sql = after
	}
	st.sql.WriteString(sql + ")")
}

// Queue queues a statement whose parts only change something.
func (st *Parts) Queue(b *pgx.Batch) { b.Queue(st.sql.String()+"\nSELECT 1", st.args...) }

// End adds the query that reads the result.
func (st *Parts) End(sql string) { st.sql.WriteString("\n" + sql) }

// Row runs the statement, which returns one row.
func (st *Parts) Row(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) pgx.Row {
	return q.QueryRow(ctx, st.sql.String(), st.args...)
}
