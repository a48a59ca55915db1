package sqlite

import (
	"embed"

	"github.com/heardlog/heardlog/store/statements"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// migrations returns the steps of the schema in their order.
func migrations() ([]string, error) { return statements.Migrations(schemaFiles) }
