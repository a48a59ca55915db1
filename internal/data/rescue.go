package data

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/heardlog/heardlog/store/sqlite"
)

type rescueCommand struct {
	StoreFlag
	New string `arg:"" name:"newfile" help:"The file to write. It must not exist."`
}

// Help returns the details.
func (*rescueCommand) Help() string {
	return "For a running server whose SQLite file was deleted, moved or replaced. The server keeps the old file open until it ends, so run this before you stop it. It writes everything that the server has acknowledged to a new file and verifies that. It must run on the server's machine or in its container, as the same user or root, and works on Linux only."
}

// Run writes the new file.
func (r *rescueCommand) Run(ctx context.Context, e Env) error {
	c, err := loadStore(ctx, e, r.Store)
	if err != nil {
		return err
	}
	if c.StoreURL != "" {
		return errors.New("only an SQLite file can be rescued: the data of a PostgreSQL store is in the database")
	}
	to, err := filepath.Abs(r.New)
	if err != nil {
		return err
	}
	if err := sqlite.Rescue(c.StorePath, to); err != nil {
		return err
	}
	fmt.Fprintf(e.Stderr, "rescued %s into %s\n", c.StorePath, to)
	v := verifyCommand{StoreFlag: StoreFlag{Store: "sqlite:" + to}}
	return v.Run(ctx, e)
}
