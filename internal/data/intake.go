package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"filippo.io/age"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/store/export"
)

// intake is an export that can be read several times: a file, or the data of a pipe in a file
// without a name, encrypted with a key that only this process has.
type intake struct {
	file *os.File
	with []age.Identity // opens the file
	left string         // path to remove at the end
	last io.Closer      // the last result of open
}

// spoolOf returns the default folder for data from stdin.
func spoolOf(c config.Config) string {
	if c.StoreURL == "" {
		return filepath.Dir(c.StorePath)
	}
	return os.TempDir()
}

// newIntake reads an export to its end and checks it. with opens one that is encrypted.
func newIntake(ctx context.Context, e Env, name, spool string, with []age.Identity) (_ *intake, err error) {
	from := e.Stdin
	if name != "" && name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			in := &intake{file: f, with: with}
			lines, err := in.open(ctx)
			if err == nil {
				_, _, err = export.Check(ctx, lines)
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w; nothing was imported", name, err), in.Close())
			}
			return in, nil
		}
		defer f.Close()
		from = f
	} else {
		name = "stdin"
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(spool, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(spool, ".heardlog-import-*")
	if err != nil {
		return nil, fmt.Errorf("--spool: %w", err)
	}
	in := &intake{file: f, with: []age.Identity{key}}
	if os.Remove(f.Name()) != nil { // not every system removes open files
		in.left = f.Name()
	}
	err = backup.Pack(f, []age.Recipient{key.Recipient()}, func(w io.Writer) error {
		lines, err := backup.Unpack(backup.ContextReader{Ctx: ctx, R: from}, with)
		if err != nil {
			return err
		}
		_, _, err = export.Check(ctx, io.TeeReader(lines, w))
		return errors.Join(err, lines.Close())
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w; nothing was imported", name, err), in.Close())
	}
	return in, nil
}

// open returns the lines from the first. Earlier results can no longer be read.
func (in *intake) open(ctx context.Context) (io.Reader, error) {
	if _, err := in.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if in.last != nil {
		_ = in.last.Close()
	}
	lines, err := backup.Unpack(backup.ContextReader{Ctx: ctx, R: in.file}, in.with)
	in.last = lines
	return lines, err
}

// Close closes and removes the file.
func (in *intake) Close() error {
	if in.last != nil {
		_ = in.last.Close()
	}
	err := in.file.Close()
	if in.left != "" {
		err = errors.Join(err, os.Remove(in.left))
	}
	return err
}

// maxConflicts limits the conflicts that are listed.
const maxConflicts = 50

var errClashes = errors.New("take that away, or import into a store that is empty")

// checkConflicts fails if records of the export conflict with the store, and lists the conflicts.
// It returns what the export is to be read into.
func checkConflicts(ctx context.Context, e Env, lines io.Reader, to target) (export.Target, error) {
	found, err := export.FindClashes(ctx, lines, to, maxConflicts)
	if err != nil {
		return nil, err
	}
	if found.Total == 0 {
		if found.Reports {
			fmt.Fprintln(e.Stderr, "the store has reports of the same time: a server counts the calls that come in, and what the export's reports have of erased calls is left out")
			return export.Recount(to), nil
		}
		return to, nil
	}
	for _, one := range found.First {
		fmt.Fprintln(e.Stderr, one)
	}
	if more := found.Total - len(found.First); more > 0 {
		fmt.Fprintf(e.Stderr, "and %d more\n", more)
	}
	return nil, fmt.Errorf("of the export %d records clash with what the store holds, see above: %w", found.Total, errClashes)
}
