package sqlite

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// migrations returns the steps of the schema in their order. Their files are numbered from 0001
// without a gap.
func migrations() ([]string, error) {
	names, err := fs.Glob(schemaFiles, "schema/*.sql")
	if err != nil {
		return nil, err
	}
	var out []string
	for i, name := range names { // Glob sorts
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "schema/"), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, fmt.Errorf("%s is not migration %d", name, i+1)
		}
		b, err := schemaFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, string(b))
	}
	return out, nil
}
