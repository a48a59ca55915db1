package dbfile

import (
	"fmt"

	"github.com/heardlog/heardlog/internal/fault"
)

// applicationID marks a database file as ours: "hear" in ASCII.
const applicationID = 0x68656172

// SchemaVersion returns the number of the file's last migration, 0 for an empty file. It fails if
// the file is not ours, or is from before the first release.
func SchemaVersion(c *Conn) (int, error) {
	id, err := c.Number("PRAGMA application_id")
	if err != nil {
		return 0, err
	}
	have, err := c.Number("PRAGMA user_version")
	if err != nil {
		return 0, err
	}
	tables, err := c.Number("SELECT count(*) FROM sqlite_schema")
	switch {
	case err != nil:
		return 0, err
	case id == 0 && tables == 0:
		return 0, nil
	case id != applicationID || have == 0:
		return 0, fault.New(fault.Invalid, "the file is a database of another program")
	}
	row, err := c.First("SELECT 1 FROM meta WHERE key = 'released'")
	if err == nil && row == nil {
		err = fault.New(fault.Invalid, "the database has schema %d of a build from before the first release, which this program cannot read: "+
			"export it with that build and import the export here, or start with a new file", have)
	}
	return int(have), err
}

// migrate brings the schema up to the last of the steps in one transaction. The caller holds the
// file's lock.
func migrate(w *Conn, steps []string) error {
	have, err := SchemaVersion(w)
	if err != nil {
		return err
	}
	if have > len(steps) {
		return fmt.Errorf("the database has schema %d and this program knows schemas up to %d: it was written by a newer version; use that one or a newer one", have, len(steps))
	}
	if have == len(steps) {
		return nil
	}
	return w.Transaction(func() error {
		for i := have; i < len(steps); i++ {
			if err := w.Script(steps[i]); err != nil {
				return fmt.Errorf("migration %d: %w", i+1, err)
			}
		}
		return w.Script(fmt.Sprintf("PRAGMA user_version = %d; PRAGMA application_id = %d", len(steps), applicationID))
	})
}
