package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

type restoreCommand struct {
	StoreFlag
	Overwrite      bool     `help:"Replace an SQLite file that exists."`
	Label          string   `default:"heardlog" placeholder:"NAME" help:"Start of the file names in a folder or prefix. Default: heardlog."`
	Identity       []string `sep:"none" placeholder:"FILE" help:"Decrypt with the age identities in this file; may be repeated."`
	PassphraseFile string   `placeholder:"FILE" help:"Decrypt with the passphrase in the first line of this file."`
	Backup         string   `arg:"" optional:"" help:"A file, or s3://bucket/prefix/name?…; of a folder or prefix, the newest backup of the label."`
}

// Help returns the details.
func (*restoreCommand) Help() string {
	return "Puts a backup, or an export, into the store. It is read to its end and its checksum compared before anything is written. An SQLite file is made beside the old one, which it replaces when it is complete and was compared; it must not be in use by a server, and an existing one needs --overwrite. A PostgreSQL database or schema must be empty. What the ledger of erasures (HEARDLOG_ERASURES) has as erased is erased again."
}

// Run restores a backup.
func (r *restoreCommand) Run(ctx context.Context, e Env) error {
	if r.Backup == "" || r.Backup == "-" {
		return errors.New("BACKUP is required: a file, a folder or s3://bucket/prefix; see --help")
	}
	with, err := identities(r.Identity, r.PassphraseFile)
	if err != nil {
		return err
	}
	c, err := loadStore(ctx, e, r.Store)
	if err != nil {
		return err
	}
	if len(with) == 0 {
		if with, err = ownIdentities(c); err != nil {
			return err
		}
	}
	b, err := findBackup(ctx, e, r.Backup, r.Label, with)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stderr, "checking %s\n", b)
	if err := b.check(ctx); err != nil {
		return fmt.Errorf("%s: %w; nothing was written", b, err)
	}
	var said string
	if c.StoreURL != "" {
		if r.Overwrite {
			return errors.New("--overwrite: a PostgreSQL database is never overwritten: make an empty one, or an empty schema that search_path in the URL names, and restore into that")
		}
		err = b.intoTables(ctx, c)
		if err == nil {
			said, err = applyErasures(ctx, c, c, false)
		}
	} else {
		said, err = b.intoFile(ctx, c, r.Overwrite)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stderr, "restored %s into %s and compared it: %s\n", b, storeName(c), b.end.Counts)
	fmt.Fprint(e.Stderr, said)
	if !b.head.Secrets {
		fmt.Fprintln(e.Stderr, "the backup holds no secrets: agents have no LLM keys, and endpoints that had secrets are disabled")
	}
	return nil
}

// kept is an existing backup.
type kept struct {
	e    Env
	from blob.Store
	name string
	with []age.Identity
	head export.Header
	end  export.End
}

func (b *kept) String() string { return b.from.String() + "/" + b.name }

// findBackup returns the backup that an argument names.
func findBackup(ctx context.Context, e Env, at, label string, with []age.Identity) (*kept, error) {
	where, name := blob.Split(at)
	folder := false
	if st, err := os.Stat(at); !blob.IsURL(at) {
		if err != nil {
			return nil, err
		}
		folder = st.IsDir()
	} else {
		folder = !backup.IsName(name)
	}
	if !folder {
		from, err := blob.Open(where, e.Getenv)
		return &kept{e: e, from: from, name: name, with: with}, err
	}
	from, err := blob.Open(at, e.Getenv)
	if err != nil {
		return nil, err
	}
	names, err := backup.List(ctx, from, label)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no backup of label %s in %s", label, from)
	}
	return &kept{e: e, from: from, name: names[len(names)-1], with: with}, nil
}

// open returns the lines of the export.
func (b *kept) open(ctx context.Context) (io.Reader, func(), error) {
	file, err := b.from.Open(ctx, b.name)
	if err != nil {
		return nil, nil, err
	}
	lines, err := backup.Unpack(backup.ContextReader{Ctx: ctx, R: file}, b.with)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return lines, func() { _, _ = lines.Close(), file.Close() }, nil
}

// check reads the backup to its end and compares its checksum.
func (b *kept) check(ctx context.Context) error {
	lines, done, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	b.head, b.end, err = export.Check(ctx, lines)
	return err
}

// fill imports the backup into a target, or the rest of it.
func (b *kept) fill(ctx context.Context, verb string, to export.Target) error {
	lines, done, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	show, end := progress(b.e, verb)
	defer end()
	last, _, err := export.Read(ctx, lines, to, show)
	if err == nil && last.SHA256 != b.end.SHA256 {
		err = errors.New("it has changed while it was read")
	}
	return err
}

// errDiffers is returned if a copy differs from its source.
var errDiffers = errors.New("what was written does not give the same bytes again")

// compare compares the backup with a store.
func (b *kept) compare(ctx context.Context, from export.Source) (export.Comparison, error) {
	lines, done, err := b.open(ctx)
	if err != nil {
		return export.Comparison{}, err
	}
	defer done()
	show, end := progress(b.e, "compare")
	defer end()
	return export.Compare(ctx, lines, from, show)
}

// same returns an error unless a store holds exactly the backup.
func (b *kept) same(ctx context.Context, from export.Source) error {
	c, err := b.compare(ctx, from)
	switch {
	case err != nil:
		return err
	case c.Same:
		return nil
	case c.Lacks != "":
		return fmt.Errorf("%w: %s is missing or other; there are %s, and not %s", errDiffers, c.Lacks, c.Have, c.Want)
	}
	return fmt.Errorf("%w: there are %s, and not %s; has a server begun to use it?", errDiffers, c.Have, c.Want)
}

// intoTables restores into a database that is empty or holds a part from an earlier run.
func (b *kept) intoTables(ctx context.Context, c config.Config) (err error) {
	to, err := openTables(ctx, c, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	mark, err := to.Mark(ctx)
	if err != nil {
		return err
	}
	if mark == nil {
		empty, err := export.Empty(ctx, to)
		if err != nil {
			return err
		}
		if !empty {
			// An earlier run was interrupted after its last record.
			if c, err := b.compare(ctx, to); err == nil && c.Same {
				return nil
			}
			return fmt.Errorf("%s is not empty: make an empty database, or an empty schema that search_path in the URL names, and restore into that", storeName(c))
		}
	}
	if err := b.fill(ctx, "restore", to); err != nil {
		return fmt.Errorf("%w; what was stored so far stays, and the same restore goes on behind it", err)
	}
	return b.same(ctx, to)
}

// intoFile restores into a new file, which then replaces the old one. It returns what to say of
// erasures.
func (b *kept) intoFile(ctx context.Context, c config.Config, overwrite bool) (said string, err error) {
	r, err := sqlite.OpenReplacement(fileOptions(c), overwrite)
	if fault.Is(err, fault.Conflict) && !overwrite {
		return "", fmt.Errorf("%w; --overwrite lets the backup take its place", err)
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	goesOn, err := b.interruptedRestore(ctx, r)
	if err == nil && !goesOn {
		err = r.Discard()
	}
	if err == nil {
		err = b.fillFile(ctx, r)
	}
	if goesOn && fault.Is(err, fault.Conflict) { // the earlier run was of another backup
		if err = r.Discard(); err == nil {
			err = b.fillFile(ctx, r)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w; %s is as it was, and the same restore goes on where it was", err, c.StorePath)
	}
	if err := b.sameFile(ctx, r); err != nil {
		return "", errors.Join(err, r.Discard())
	}
	made := c
	made.StorePath = r.Options().Path
	said, err = applyErasures(ctx, c, made, false)
	if err != nil {
		return "", fmt.Errorf("%w; %s is as it was", errors.Join(err, r.Discard()), c.StorePath)
	}
	return said, r.Commit()
}

// interruptedRestore reports whether an earlier run was interrupted.
func (b *kept) interruptedRestore(ctx context.Context, r *sqlite.Replacement) (bool, error) {
	if _, err := os.Stat(r.Options().Path); err != nil {
		return false, nil
	}
	to, err := sqlite.OpenImporter(r.Options())
	if err != nil {
		return false, nil // of another version, or damaged: start again
	}
	mark, err := to.Mark(ctx)
	return mark != nil, errors.Join(err, to.Close())
}

func (b *kept) fillFile(ctx context.Context, r *sqlite.Replacement) error {
	to, err := sqlite.OpenImporter(r.Options())
	if err != nil {
		return err
	}
	return errors.Join(b.fill(ctx, "restore", to), to.Close())
}

func (b *kept) sameFile(ctx context.Context, r *sqlite.Replacement) error {
	from, err := sqlite.OpenReader(r.Options())
	if err != nil {
		return err
	}
	return errors.Join(b.same(ctx, from), from.Close())
}
