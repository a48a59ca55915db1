package sqlite

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
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

// applicationID marks a database file as ours: "hear" in ASCII.
const applicationID = 0x68656172

// schemaVersion returns the number of the file's last migration, 0 for an empty file. It fails if
// the file is not ours, or is from before the first release.
func schemaVersion(c *conn) (int, error) {
	id, err := c.number("PRAGMA application_id")
	if err != nil {
		return 0, err
	}
	have, err := c.number("PRAGMA user_version")
	if err != nil {
		return 0, err
	}
	tables, err := c.number("SELECT count(*) FROM sqlite_schema")
	switch {
	case err != nil:
		return 0, err
	case id == 0 && tables == 0:
		return 0, nil
	case id != applicationID || have == 0:
		return 0, fault.New(fault.Invalid, "the file is a database of another program")
	}
	row, err := c.first("SELECT 1 FROM meta WHERE key = 'released'")
	if err == nil && row == nil {
		err = fault.New(fault.Invalid, "the database has schema %d of a build from before the first release, which this program cannot read: "+
			"export it with that build and import the export here, or start with a new file", have)
	}
	return int(have), err
}

// migrate brings the schema up to the last step in one transaction. The caller holds the file's
// lock.
func migrate(w *conn, steps []string) error {
	have, err := schemaVersion(w)
	if err != nil {
		return err
	}
	if have > len(steps) {
		return fmt.Errorf("the database has schema %d and this program knows schemas up to %d: it was written by a newer version; use that one or a newer one", have, len(steps))
	}
	if have == len(steps) {
		return nil
	}
	if _, err := w.run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for i := have; i < len(steps); i++ {
		if err := w.script(steps[i]); err != nil {
			_, _ = w.run("ROLLBACK")
			return fmt.Errorf("migration %d: %w", i+1, err)
		}
	}
	if err := w.script(fmt.Sprintf("PRAGMA user_version = %d; PRAGMA application_id = %d", len(steps), applicationID)); err != nil {
		_, _ = w.run("ROLLBACK")
		return err
	}
	_, err = w.run("COMMIT")
	return err
}
