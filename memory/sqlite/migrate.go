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

// migrations gives the schema's steps; the one with number n is at n-1. Their files are numbered from 0001 without a gap.
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

// migrate brings the schema up to this binary's, all in one transaction; the caller holds the file's lock.
func migrate(w *conn) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	have, err := w.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	if int(have) > len(steps) {
		return fmt.Errorf("the database has schema %d and this program knows schemas up to %d: it was written by a newer version; use that one or a newer one", have, len(steps))
	}
	if have == 0 {
		id, err := w.number("PRAGMA application_id")
		if err != nil {
			return err
		}
		tables, err := w.number("SELECT count(*) FROM sqlite_schema")
		if err != nil {
			return err
		}
		if id != 0 || tables > 0 {
			return fmt.Errorf("the file is a database of another program")
		}
	}
	if int(have) == len(steps) {
		return nil
	}
	if _, err := w.run("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for i := int(have); i < len(steps); i++ {
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
