package data

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/sqlite"
)

var errNoDataKey = errors.New("HEARDLOG_DATA_KEY is not set: the store of these settings encrypts no texts")

type keysRotate struct {
	StoreFlag
	To string `required:"" placeholder:"KEY" help:"The new key: file:PATH or command:PROGRAM ARGUMENTS, as in HEARDLOG_DATA_KEY."`
}

// Help returns the details.
func (*keysRotate) Help() string {
	return "Wraps the data keys by the new key, in one transaction; no text is written again. HEARDLOG_DATA_KEY is the old key. If the command is interrupted, the store has the old key or the new one: it opens with that one only.\n\nAn SQLite file must not be in use by a server. Servers on a PostgreSQL database go on with the data keys that they have in memory, and answer 503 to what needs another one, until they are restarted with the new key.\n\nExports and backups stay encrypted with the key that they were made with."
}

// Run wraps the data keys.
func (r *keysRotate) Run(ctx context.Context, e Env) error {
	if !strings.HasPrefix(r.To, "file:") && !strings.HasPrefix(r.To, "command:") {
		return errors.New("--to: must be file:PATH or command:PROGRAM ARGUMENTS, since others can read the command line")
	}
	to, err := config.ReadDataKey(ctx, r.To)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	c, err := loadStore(ctx, e, r.Store)
	if err != nil {
		return err
	}
	if c.TextKey == "" {
		return errNoDataKey
	}
	if c.TextKey == to {
		return errors.New("--to: is the key that HEARDLOG_DATA_KEY gives already")
	}
	var n int
	if c.StoreURL != "" {
		n, err = postgres.RotateDataKey(ctx, tableOptions(c), []byte(to.Reveal()))
	} else {
		n, err = sqlite.RotateDataKey(fileOptions(c), []byte(to.Reveal()))
	}
	if err != nil {
		return fmt.Errorf("the store %s keeps the key of HEARDLOG_DATA_KEY: %w", storeName(c), err)
	}
	fmt.Fprintf(e.Stderr, "wrapped %d data keys of %s by the new key: it opens with that one from now on\n", n, storeName(c))
	return nil
}

type keysSeal struct {
	StoreFlag
}

// Help returns the details.
func (*keysSeal) Help() string {
	return "Encrypts what was stored before HEARDLOG_DATA_KEY was set. What is encrypted already stays as it is, so an interrupted command goes on when it runs again.\n\nAn SQLite file must not be in use by a server. Servers on a PostgreSQL database go on; all of them must have the key."
}

// Run seals old values.
func (r *keysSeal) Run(ctx context.Context, e Env) (err error) {
	c, err := loadStore(ctx, e, r.Store)
	if err != nil {
		return err
	}
	if c.TextKey == "" {
		return errNoDataKey
	}
	var n int
	if c.StoreURL != "" {
		n, err = postgres.SealOld(ctx, tableOptions(c))
	} else {
		n, err = sqlite.SealOld(ctx, fileOptions(c))
	}
	if err != nil {
		return fmt.Errorf("%w; %d values were encrypted, and the same command goes on behind them", err, n)
	}
	fmt.Fprintf(e.Stderr, "encrypted %d values of %s\n", n, storeName(c))
	return nil
}
