package sqlite

import (
	"github.com/heardlog/heardlog/memory/sqlite/dbfile"
	"github.com/heardlog/heardlog/memory/tables"
)

// reading is a connection as a tables.Reader.
type reading struct{ c *dbfile.Conn }

// Each implements tables.Reader.
func (r reading) Each(sql string, args []any, fn func(tables.Row) error) error {
	return r.c.Each(sql, args, func(row dbfile.Row) error { return fn(row) })
}

// Walk implements tables.Reader.
func (r reading) Walk(sql string, args []any, fn func(tables.Row) error) error {
	return r.Each(sql, args, fn)
}

// writing is a transaction as a tables.Writer.
type writing struct {
	reading
	*dbfile.Tx
}

func (t *tx) writing() writing { return writing{reading{t.Conn}, t.Tx} }
