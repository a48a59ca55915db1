package pg

import (
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

// Queue queues a statement whose result is not needed.
func (st *Parts) Queue(b *pgx.Batch) { b.Queue(st.sql.String(), st.args...) }

// QueueRow queues the statement, which returns one row, and scans that.
func (st *Parts) QueueRow(b *pgx.Batch, into ...any) {
	b.Queue(st.sql.String(), st.args...).QueryRow(func(row pgx.Row) error { return row.Scan(into...) })
}

// End adds the query that reads the result.
func (st *Parts) End(sql string) { st.sql.WriteString("\n" + sql) }
