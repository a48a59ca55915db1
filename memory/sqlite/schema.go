package sqlite

import (
	"embed"

	"github.com/heardlog/heardlog/memory/tables"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// migrations returns the steps of the schema in their order.
func migrations() ([]string, error) { return tables.Migrations(schemaFiles) }
