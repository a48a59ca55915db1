package sqlite

import (
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

// reading is a connection as a statements.Reader.
type reading struct{ c *dbfile.Conn }

// Each implements statements.Reader.
func (r reading) Each(sql string, args []any, fn func(statements.Row) error) error {
	return r.c.Each(sql, args, func(row dbfile.Row) error { return fn(row) })
}

// Walk implements statements.Reader.
func (r reading) Walk(sql string, args []any, fn func(statements.Row) error) error {
	return r.Each(sql, args, fn)
}

// writing is a transaction as a statements.Writer.
type writing struct {
	reading
	*dbfile.Tx
}

// holds checks what the transaction is about to erase.
func (t *tx) holds() statements.Holds { return statements.Holds{DB: t.writing(), Sealer: t.s.sealer} }

func (t *tx) writing() writing { return writing{reading{t.Conn}, t.Tx} }
