package data

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"filippo.io/age"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

type exportCommand struct {
	StoreFlag
	ScopeFlags
	Plain   bool   `help:"Write texts in clear although the store has them encrypted, to move them elsewhere."`
	Secrets bool   `help:"Write secrets too: LLM keys, properties of joins, secrets of endpoints, the server's own keys."`
	Force   bool   `help:"Overwrite an existing file."`
	File    string `arg:"" optional:"" help:"File to write; without it, or with -, stdout."`
}

// Help returns the details.
func (*exportCommand) Help() string {
	return "Writes what the store holds as lines of JSON. It may run beside a server, and what it writes is as of one moment. The file gets its name when it is complete and on disk. With HEARDLOG_DATA_KEY the lines are compressed with zstd and encrypted with age, whose passphrase is the key in base64."
}

// Run writes an export.
func (x *exportCommand) Run(ctx context.Context, e Env) (err error) {
	s, err := x.scope()
	if err != nil {
		return err
	}
	c, err := loadStore(ctx, e, x.Store)
	if err != nil {
		return err
	}
	from, err := openSource(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	show, end := progress(e, "export")
	var last export.End
	var to []age.Recipient
	if c.TextKey != "" && !x.Plain {
		if to, err = ownRecipients(c); err != nil {
			return err
		}
	}
	lines := func(w io.Writer) (err error) {
		b := bufio.NewWriterSize(w, 1<<20)
		if last, err = export.Write(ctx, b, from, s, x.Secrets, show); err == nil {
			err = b.Flush()
		}
		return err
	}
	write := lines
	if to != nil {
		write = func(w io.Writer) error { return backup.Pack(w, to, lines) }
	}
	if name := x.File; name == "" || name == "-" {
		err = write(e.Stdout)
	} else {
		if _, there := os.Stat(name); there == nil && !x.Force {
			end()
			return fmt.Errorf("%s is there already; --force overwrites it", name)
		}
		err = blob.WriteFile(name, write)
	}
	end()
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stderr, "exported %s: %s\n", storeName(c), last.Counts)
	switch {
	case to != nil:
		fmt.Fprintln(e.Stderr, "it is encrypted with HEARDLOG_DATA_KEY; import reads it with the same key")
	case c.TextKey != "":
		fmt.Fprintln(e.Stderr, "WARNING: the export holds all texts in clear, which the store has encrypted: whoever has the file can read every call")
	}
	if !x.Secrets && last.Counts.Agents+last.Counts.Endpoints > 0 {
		fmt.Fprintln(e.Stderr, "secrets were left out; --secrets writes them too")
	}
	return nil
}

// target is a store for an import.
type target interface {
	export.Target
	io.Closer
}

// openTarget opens a store for an import and creates or migrates its tables.
func openTarget(ctx context.Context, c config.Config) (target, error) {
	if c.StoreURL != "" {
		s, err := openTables(ctx, c, nil)
		return keepsNotes{s}, err
	}
	s, err := sqlite.OpenImporter(fileOptions(c))
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", storeName(c), err)
	}
	return keepsNotes{s}, nil
}

// forgetImport removes the mark of an unfinished import.
func forgetImport(ctx context.Context, e Env, c config.Config) error {
	to, err := openTarget(ctx, c)
	if err != nil {
		return err
	}
	mark, err := to.Mark(ctx)
	if err == nil {
		err = export.Forget(ctx, to)
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	if mark == nil {
		fmt.Fprintf(e.Stderr, "no import into %s was left unfinished\n", storeName(c))
	} else {
		fmt.Fprintf(e.Stderr, "what an unfinished import has stored in %s stays as it is\n", storeName(c))
	}
	return nil
}

type importCommand struct {
	StoreFlag
	PassphraseFile string `placeholder:"FILE" help:"Decrypt with the passphrase in the first line of this file, such as an earlier HEARDLOG_DATA_KEY in base64. Default: the key of the settings."`
	Spool          string `placeholder:"FOLDER" help:"Folder for what comes from stdin, which takes about a tenth of it. Default: the folder of an SQLite file, else that of temporary files."`
	Forget         bool   `help:"Keep what an unfinished import has stored, and forget that it was unfinished. Without FILE that is all; with it, another import starts."`
	File           string `arg:"" optional:"" help:"File to read; without it, or with -, stdin."`
}

// Help returns the details.
func (*importCommand) Help() string {
	return "Puts what export has written into the store. The export is first read to its end and its checksum compared. What comes from stdin is kept meanwhile in a compressed and encrypted file, so that a slow line holds nothing up. Nothing in the store is overwritten: all conflicts are listed before anything is stored. What the ledger of erasures (HEARDLOG_ERASURES) has as erased is erased again at the end. An interrupted import goes on where it was when it runs again with the same export. An SQLite file must not be in use by a server."
}

// Run puts an export into a store.
func (m *importCommand) Run(ctx context.Context, e Env) (err error) {
	c, err := loadStore(ctx, e, m.Store)
	if err != nil {
		return err
	}
	if m.Forget {
		if err := forgetImport(ctx, e, c); err != nil || m.File == "" {
			return err
		}
	}
	with, err := identities(nil, m.PassphraseFile)
	if err == nil && len(with) == 0 {
		with, err = ownIdentities(c)
	}
	if err != nil {
		return err
	}
	in, err := newIntake(ctx, e, m.File, cmp.Or(m.Spool, spoolOf(c)), with)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	end, resumed, err := m.read(ctx, e, c, in)
	if errors.Is(err, errClashes) {
		return errors.Join(err, finishImport(ctx, e, c))
	}
	if err != nil {
		return err
	}
	said, err := applyErasures(ctx, c, c, true)
	if err != nil {
		return fmt.Errorf("all is imported, but what was erased before may be back; the next start of a server erases it again: %w", err)
	}
	how := "imported into"
	if resumed {
		how = "finished the import into"
	}
	fmt.Fprintf(e.Stderr, "%s %s: %s\n%s", how, storeName(c), end.Counts, said)
	return nil
}

// read reads an export into the store.
func (m *importCommand) read(ctx context.Context, e Env, c config.Config, in *intake) (last export.End, resumed bool, err error) {
	to, err := openTarget(ctx, c)
	if err != nil {
		return last, false, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	lines, err := in.open(ctx)
	var into export.Target
	if err == nil {
		into, err = checkConflicts(ctx, e, lines, to)
	}
	if err == nil {
		lines, err = in.open(ctx)
	}
	if err == nil {
		err = erasure.BeginImport(ctx, to, app.NewIDs(time.Now)(), time.Now().UnixMilli())
	}
	if err != nil {
		return last, false, fmt.Errorf("%w; nothing was imported", err)
	}
	show, end := progress(e, "import")
	last, resumed, err = export.Read(ctx, lines, into, show)
	end()
	switch {
	case err == nil:
	case fault.Is(err, fault.Conflict):
		err = fmt.Errorf("%w; what was stored so far stays: remove the conflict and run the same import again, or start with an empty store", err)
	default:
		err = fmt.Errorf("%w; what was stored so far stays, and the same import goes on behind it", err)
	}
	return last, resumed, err
}
