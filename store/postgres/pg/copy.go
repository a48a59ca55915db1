package pg

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Copy collects rows of several tables, to store them with COPY. The zero value has none.
type Copy struct{ tables []*copied }

// copied is the rows of a table.
type copied struct {
	name    string
	columns []string
	rows    [][]any
}

// Add adds a row. Texts are stored as Stored encodes them. The columns of a table are those of its
// first row.
func (c *Copy) Add(table string, columns []string, values ...any) {
	i := slices.IndexFunc(c.tables, func(t *copied) bool { return t.name == table })
	if i < 0 {
		i = len(c.tables)
		c.tables = append(c.tables, &copied{name: table, columns: columns})
	}
	c.tables[i].rows = append(c.tables[i].rows, StoredValues(values))
}

// Flush stores the rows, table by table in the order in which they came. If it fails it returns the
// table.
func (c *Copy) Flush(ctx context.Context, tx pgx.Tx) (table string, err error) {
	for _, t := range c.tables {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{t.name}, t.columns, pgx.CopyFromRows(t.rows)); err != nil {
			return t.name, err
		}
	}
	c.tables = nil
	return "", nil
}
