// Package data holds the subcommands that check, move and keep the data of a store. Commands is
// their grammar for package cli. They open the store themselves, beside a server where the store
// allows it.
package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/longterm/knowledge"
	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/sqlite"
)

// ErrFound is returned by a check that found something wrong and has written what it is.
var ErrFound = errors.New("something is wrong; see above")

// ExitCode returns the exit code of the program for the error of a subcommand.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrChanged):
		return 2
	}
	return 1
}

// Env is the environment of a subcommand.
type Env struct {
	Getenv         func(string) string
	Environ        []string // as of os.Environ
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool // Stderr is a terminal, and shows progress
}

// Commands are the subcommands. Their Run methods take a context and an Env.
type Commands struct {
	Verify  verifyCommand  `cmd:"" help:"Check what a store holds."`
	Doctor  doctorCommand  `cmd:"" help:"Check the settings and everything that a server with them needs."`
	Export  exportCommand  `cmd:"" help:"Write what a store holds as lines of JSON."`
	Import  importCommand  `cmd:"" help:"Put an export into a store."`
	Migrate migrateCommand `cmd:"" help:"Move all data from one store to another."`
	Backup  backupCommand  `cmd:"" help:"Write a backup to a folder or an S3 bucket."`
	Restore restoreCommand `cmd:"" help:"Put a backup into a store."`
	Rescue  rescueCommand  `cmd:"" help:"Save the data of a running server whose SQLite file is gone."`
	Compact compactCommand `cmd:"" help:"Return unused space of a store to the disk."`
	Erase   eraseCommand   `cmd:"" help:"Erase an agent, a user or a project."`
	Jobs    jobsCommand    `cmd:"" help:"List what a store holds of background jobs."`
	Keys    keysCommand    `cmd:"" help:"Create, list and revoke the API keys of a project; replace the key that encrypts texts."`
}

// StoreFlag names a store.
type StoreFlag struct {
	Store string `placeholder:"URL" help:"URL of the store, in the form of HEARDLOG_STORE, which is the default."`
}

// ScopeFlags choose a part of a store.
type ScopeFlags struct {
	Project string `help:"Only this project."`
	Agent   string `placeholder:"ID" help:"Only the agent with this ID; needs --project."`
}

// scope returns the part that the flags name.
func (f ScopeFlags) scope() (export.Scope, error) {
	s := export.Scope{Project: f.Project, Agent: f.Agent}
	if s.Agent != "" && s.Project == "" {
		return s, errors.New("--agent: needs --project, since agents of two projects may have one ID")
	}
	if s.Project != "" && !config.ValidProject(s.Project) {
		return s, fmt.Errorf("--project: %q is not a project", s.Project)
	}
	return s, nil
}

// loadStore returns the settings of a store. Other settings are ignored, with their mistakes.
func loadStore(ctx context.Context, e Env, url string) (config.Config, error) {
	c, err := config.Load(func(name string) string {
		switch {
		case name == "HEARDLOG_STORE" && url != "":
			return url
		case name == "HEARDLOG_STORE", name == "HEARDLOG_SECRET_KEY", name == "HEARDLOG_DATA_KEY", name == "HEARDLOG_ARCHIVE", name == "HEARDLOG_ERASURES":
			return e.Getenv(name)
		}
		return ""
	})
	if err == nil {
		err = c.FetchDataKey(ctx)
	}
	if err == nil && c.InMemory() {
		err = errors.New("HEARDLOG_STORE is memory: a server that keeps nothing on disk has nothing for this command to open")
	}
	return c, err
}

// fileOptions returns how the file of the settings is opened.
func fileOptions(c config.Config) sqlite.Options {
	return sqlite.Options{Path: c.StorePath, SealKey: []byte(c.SecretKey.Reveal()), DataKey: []byte(c.TextKey.Reveal()), Terms: knowledge.Terms}
}

// tableOptions returns how the database of the settings is opened.
func tableOptions(c config.Config) postgres.Options {
	return postgres.Options{URL: c.StoreURL.Reveal(), SealKey: []byte(c.SecretKey.Reveal()), DataKey: []byte(c.TextKey.Reveal()), Terms: knowledge.Terms}
}

// openSource opens a store for reading with the calls in its archive, also while a server uses it.
func openSource(ctx context.Context, c config.Config) (archive.Reader, error) {
	s, err := openRows(ctx, c)
	if err != nil {
		return nil, err
	}
	archived, err := app.OpenArchive(c)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return archive.Source{Reader: s, Archive: archived}, nil
}

// openRows is openSource without the archive.
func openRows(ctx context.Context, c config.Config) (s archive.Reader, err error) {
	if c.StoreURL != "" {
		s, err = postgres.OpenReader(ctx, tableOptions(c))
	} else {
		s, err = sqlite.OpenReader(fileOptions(c))
	}
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", storeName(c), err)
	}
	return s, nil
}

// storeName returns the location of a store, without a password.
func storeName(c config.Config) string {
	if c.StoreURL != "" {
		return postgres.Redact(c.StoreURL.Reveal())
	}
	return c.StorePath
}

// Intervals of progress lines.
const (
	onTerminal = 200 * time.Millisecond
	inLog      = 30 * time.Second
)

// progress returns a function that shows counts while a subcommand runs, and one that ends the
// display. A terminal shows one line that changes; elsewhere a line is written every half minute.
func progress(e Env, verb string) (show func(export.Counts), end func()) {
	began := time.Now()
	every, form := inLog, "%s: %s after %s\n"
	if e.Terminal {
		every, form = onTerminal, "\r\x1b[K%s: %s, %s"
	}
	next := began
	if !e.Terminal {
		next = began.Add(every)
	}
	return func(c export.Counts) {
			if now := time.Now(); now.After(next) {
				next = now.Add(every)
				fmt.Fprintf(e.Stderr, form, verb, c, now.Sub(began).Round(time.Second))
			}
		}, func() {
			if e.Terminal {
				fmt.Fprint(e.Stderr, "\r\x1b[K")
			}
		}
}

// IsTerminal reports whether a file is a terminal or another character device.
func IsTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
