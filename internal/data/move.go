package data

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/depot"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/sqlite"
)

const exportUsage = `usage: export [flags] [FILE]

Writes what the store holds as lines of JSON, to a file or, without one or with -, to stdout. It may run beside a server, and what it writes is of one
moment. A file is there under its name when it is whole and on disk, and not before.

`

const importUsage = `usage: import [flags] [FILE]

Puts what export has written into the store, from a file or, without one or with -, from stdin. It is read to its end first, and its checksum compared; what
comes from stdin is kept meanwhile in a packed and encrypted file, so that a slow line holds nothing up. What is there already is not overwritten: all of that is
told of before anything is stored. One that was interrupted goes on where it was when it is run again with the same export. An SQLite file must not be in use by a
server.

`

// runExport writes an export.
func runExport(ctx context.Context, e Env, flags *flag.FlagSet, args []string) (err error) {
	url, scope := storeFlag(flags), scopeFlags(flags)
	secrets := flags.Bool("secrets", false, "write secrets too: LLM keys, properties of joins, secrets of endpoints, the server's own keys")
	force := flags.Bool("force", false, "overwrite the file if it is there")
	if err := parse(flags, args, 1); err != nil {
		return err
	}
	s, err := scope()
	if err != nil {
		return err
	}
	c, err := place(e, *url)
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
	write := func(w io.Writer) (err error) {
		b := bufio.NewWriterSize(w, 1<<20)
		if last, err = export.Write(ctx, b, from, s, *secrets, show); err == nil {
			err = b.Flush()
		}
		return err
	}
	if name := flags.Arg(0); name == "" || name == "-" {
		err = write(e.Stdout)
	} else {
		if _, there := os.Stat(name); there == nil && !*force {
			end()
			return fmt.Errorf("%s is there already; -force overwrites it", name)
		}
		err = depot.WriteFile(name, write)
	}
	end()
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stderr, "exported %s: %s\n", storeName(c), last.Counts)
	if !*secrets && last.Counts.Agents+last.Counts.Endpoints > 0 {
		fmt.Fprintln(e.Stderr, "secrets were left out; -secrets writes them too")
	}
	return nil
}

// target is a store that is imported into.
type target interface {
	export.Target
	io.Closer
}

// openTarget opens a store for an import; its tables are made or brought up to date.
func openTarget(ctx context.Context, c config.Config) (target, error) {
	if c.StoreURL != "" {
		return openTables(ctx, c)
	}
	s, err := sqlite.OpenImporter(sqlite.Options{Path: c.StorePath, SealKey: []byte(c.SecretKey.Reveal())})
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", storeName(c), err)
	}
	return s, nil
}

// forgetImport takes the mark of an import away that was not finished.
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

// runImport puts an export into a store.
func runImport(ctx context.Context, e Env, flags *flag.FlagSet, args []string) (err error) {
	url := storeFlag(flags)
	spool := flags.String("spool", "", "`folder` for what comes from stdin, which takes about a tenth of it (default that of an SQLite file, else that of temporary files)")
	forget := flags.Bool("forget", false, "leave what an import that was not finished has stored as it is; without FILE that is all, else another import begins")
	if err := parse(flags, args, 1); err != nil {
		return err
	}
	c, err := place(e, *url)
	if err != nil {
		return err
	}
	if *forget {
		if err := forgetImport(ctx, e, c); err != nil || flags.NArg() == 0 {
			return err
		}
	}
	in, err := takeIn(ctx, e, flags.Arg(0), cmp.Or(*spool, spoolOf(c)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	to, err := openTarget(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	lines, err := in.open(ctx)
	if err == nil {
		err = unclashed(ctx, e, lines, to)
	}
	if err == nil {
		lines, err = in.open(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w; nothing was imported", err)
	}
	show, end := progress(e, "import")
	last, resumed, err := export.Read(ctx, lines, to, show)
	end()
	if err != nil {
		if fault.Is(err, fault.Conflict) {
			return fmt.Errorf("%w; what was stored so far stays: take the clash away and run the same import again, or begin with a store that is empty", err)
		}
		return fmt.Errorf("%w; what was stored so far stays, and the same import goes on behind it", err)
	}
	how := "imported into"
	if resumed {
		how = "finished the import into"
	}
	fmt.Fprintf(e.Stderr, "%s %s: %s\n", how, storeName(c), last.Counts)
	return nil
}
