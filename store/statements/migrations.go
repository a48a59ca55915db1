package statements

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Migrations returns the steps of a schema in their order, from the folder schema. Their files are
// numbered from 0001 without a gap.
func Migrations(files fs.FS) ([]string, error) {
	names, err := fs.Glob(files, "schema/*.sql")
	if err != nil {
		return nil, err
	}
	var out []string
	for i, name := range names { // Glob sorts
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "schema/"), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, fmt.Errorf("%s is not migration %d", name, i+1)
		}
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		out = append(out, string(b))
	}
	return out, nil
}
