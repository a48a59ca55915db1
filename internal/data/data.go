// Package data holds the subcommands that look at a store, move what it holds and keep it: verify, doctor, export, import, migrate, backup, restore, compact
// and erase. They open the store themselves, beside a server where the store allows that.
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

// ExitCode is what the program ends with after Command has given this error.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrChanged):
		return 2
	}
	return 1
}

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
		{"migrate", migrateUsage, migrate},
		{"backup", backupUsage, backup},
		{"restore", restoreUsage, restore},
		{"compact", compactUsage, compact},
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
func openSource(ctx context.Context, c config.Config) (s source, err error) {
	key := []byte(c.SecretKey.Reveal())
	switch {
	case c.StoreURL != "":
		s, err = postgres.OpenReader(ctx, postgres.Options{URL: c.StoreURL.Reveal(), SealKey: key})
	default:
		s, err = sqlite.OpenReader(sqlite.Options{Path: c.StorePath, SealKey: key})
	}
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", storeName(c), err)
	}
	return s, nil
}

// storeName says where a store is, without what is nobody's business.
func storeName(c config.Config) string {
	if c.StoreURL != "" {
		return postgres.Redact(c.StoreURL.Reveal())
	}
	return c.StorePath
}

// How often progress is shown.
const (
	onTerminal = 200 * time.Millisecond
	inLog      = 30 * time.Second
)

// progress gives what shows counts while something is under way, a few times a second in one line on a terminal, and in a line each half a minute elsewhere,
// and what ends that.
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

// IsTerminal tells whether a file is a terminal, or another device that takes characters.
func IsTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
