// Package data holds the subcommands that look at a store, move what it holds and keep it: verify, doctor, export and import. They open the store themselves,
// beside a server where the store allows that.
package data

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/postgres"
	"github.com/heardlog/heardlog/memory/sqlite"
)

// ErrFound tells that something is wrong; what it is has been written.
var ErrFound = errors.New("something is wrong; see above")

// Env is what a subcommand has of the world around it.
type Env struct {
	Getenv         func(string) string
	Environ        []string // as of os.Environ
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal tells that Stderr is one: progress is shown on it.
	Terminal bool
}

// command is one of them.
type command struct {
	name, usage string
	run         func(ctx context.Context, e Env, flags *flag.FlagSet, args []string) error
}

func commands() []command {
	return []command{
		{"verify", verifyUsage, verify},
		{"doctor", doctorUsage, doctor},
		{"export", exportUsage, runExport},
		{"import", importUsage, runImport},
		{"erase", eraseUsage, erase},
	}
}

// Names lists the subcommands.
func Names() []string {
	var out []string
	for _, c := range commands() {
		out = append(out, c.name)
	}
	return out
}

// Command runs the subcommand of that name with the arguments behind it.
func Command(ctx context.Context, e Env, name string, args []string) error {
	list := commands()
	i := slices.IndexFunc(list, func(c command) bool { return c.name == name })
	if i < 0 {
		return fmt.Errorf("%q is no subcommand: %s", name, strings.Join(Names(), ", "))
	}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(e.Stderr)
	flags.Usage = func() {
		fmt.Fprint(e.Stderr, list[i].usage)
		flags.PrintDefaults()
	}
	err := list[i].run(ctx, e, flags, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	return err
}

// parse reads the flags; nothing may stand behind them but what the caller takes.
func parse(flags *flag.FlagSet, args []string, most int) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > most {
		return fmt.Errorf("%q is one argument too many; -h tells what there is", flags.Arg(most))
	}
	return nil
}

// storeFlag adds the flag that names a store.
func storeFlag(flags *flag.FlagSet) *string {
	return flags.String("store", "", "`URL` of the store, as in HEARDLOG_STORE, which holds without it")
}

// scopeFlags adds the flags that choose a part of the store.
func scopeFlags(flags *flag.FlagSet) func() (export.Scope, error) {
	project := flags.String("project", "", "only this `project`")
	agent := flags.String("agent", "", "only the agent of this `id`; wants -project")
	return func() (export.Scope, error) {
		s := export.Scope{Project: *project, Agent: *agent}
		if s.Agent != "" && s.Project == "" {
			return s, errors.New("-agent: wants -project, since agents of two projects may have one id")
		}
		if s.Project != "" && !config.ValidProject(s.Project) {
			return s, fmt.Errorf("-project: %q is no project", s.Project)
		}
		return s, nil
	}
}

// place is where a store is, of the settings that concern it; the others do not matter here and may have mistakes.
func place(e Env, url string) (config.Config, error) {
	return config.Load(func(name string) string {
		switch {
		case name == "HEARDLOG_STORE" && url != "":
			return url
		case name == "HEARDLOG_STORE", name == "HEARDLOG_SECRET_KEY":
			return e.Getenv(name)
		}
		return ""
	})
}

// source is a store that is read.
type source interface {
	export.Source
	export.Prober
	io.Closer
}

// openSource opens a store for reading, beside a server that has it.
func openSource(ctx context.Context, c config.Config) (source, error) {
	key := []byte(c.SecretKey.Reveal())
	if c.StoreURL != "" {
		p, err := postgres.Probe(ctx, c.StoreURL.Reveal()) // opening would make or change the tables
		if err == nil && p.Schema != p.Known {
			err = fmt.Errorf("the database has schema %d and this program reads %d: serve it once with this version, or use the version that wrote it", p.Schema, p.Known)
		}
		if err != nil {
			return nil, err
		}
		return postgres.Open(ctx, postgres.Options{URL: c.StoreURL.Reveal(), SealKey: key})
	}
	return sqlite.OpenReader(sqlite.Options{Path: c.StorePath, SealKey: key})
}

// storeName says where a store is, without what is nobody's business.
func storeName(c config.Config) string {
	if c.StoreURL != "" {
		return postgres.Redact(c.StoreURL.Reveal())
	}
	return c.StorePath
}

// progress gives what shows counts on a terminal, a few times a second, and what ends that. Elsewhere both do nothing.
func progress(e Env, verb string) (show func(export.Counts), end func()) {
	if !e.Terminal {
		return nil, func() {}
	}
	var next time.Time
	return func(c export.Counts) {
			if now := time.Now(); now.After(next) {
				next = now.Add(200 * time.Millisecond)
				fmt.Fprintf(e.Stderr, "\r\x1b[K%s: %s", verb, c)
			}
		}, func() {
			fmt.Fprint(e.Stderr, "\r\x1b[K")
		}
}

// IsTerminal tells whether a file is a terminal, or another device that takes characters.
func IsTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
